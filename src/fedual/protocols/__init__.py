"""What an oracle, an algorithm, a loss, a schedule and a participation rule are. Read this second, after `problem`.

Everything here is a frozen dataclass whose numeric fields are pytree leaves (see `fedual.arrays.record`); the methods
are pure. A driver (the simulator's engine, a deployment, the PyTorch bridge) calls them.
"""

from fedual.protocols.algorithm import Algorithm, Auto, Work
from fedual.protocols.objective import Loss, Regularizer
from fedual.protocols.oracle import FirstOrder, Oracle, resolve_rate
from fedual.protocols.rules import Participation, Schedule

__all__ = [
    "Algorithm",
    "Auto",
    "FirstOrder",
    "Loss",
    "Oracle",
    "Participation",
    "Regularizer",
    "Schedule",
    "Work",
    "resolve_rate",
]
