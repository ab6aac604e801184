"""The simulator: all clients in one compiled program. It knows neither files nor pictures."""

from fedual.engine.run import iterate, solve

__all__ = ["iterate", "solve"]
