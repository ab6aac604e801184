"""The simulator: all clients in one compiled program. It knows neither files nor pictures."""

from fedual.engine.run import iterate, solve
from fedual.engine.sweep import Sweep, sweep

__all__ = ["Sweep", "iterate", "solve", "sweep"]
