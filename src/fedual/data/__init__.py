"""Getting data into `Clients`."""

from fedual.clients import Clients

from_arrays = Clients.build

__all__ = ["from_arrays"]
