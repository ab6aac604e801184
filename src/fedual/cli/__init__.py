"""The command `fedual`. Nothing here imports JAX before a command needs it."""

from fedual.cli.app import app, main

__all__ = ["app", "main"]
