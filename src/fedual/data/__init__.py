"""Getting data into `Clients`."""
