"""Federated learning by primal-dual optimization: FedPD and its relatives, in simulation and deployment.

Everything public hangs off this module; parts are imported when first used, so that `import fedual` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedual import data, losses, metrics, oracles, participation, prox, schedules, theory
    from fedual.algorithms import (
        ADMM,
        SCAFFOLD,
        AFedPD,
        FedADMM,
        FedAvg,
        FedDR,
        FedDyn,
        FedOpt,
        FedPD,
        FedProx,
        FedSplit,
        ProxSkip,
    )
    from fedual.clients import Clients
    from fedual.comparison import Comparison, compare
    from fedual.engine.run import iterate, solve
    from fedual.engine.sweep import Sweep, sweep
    from fedual.inference import Inference, infer
    from fedual.problem import Problem
    from fedual.protocols import Auto
    from fedual.runs.load import load
    from fedual.solution import History, Solution

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "SCAFFOLD",
    "AFedPD",
    "Auto",
    "Clients",
    "Comparison",
    "FedADMM",
    "FedAvg",
    "FedDR",
    "FedDyn",
    "FedOpt",
    "FedPD",
    "FedProx",
    "FedSplit",
    "History",
    "Inference",
    "Problem",
    "ProxSkip",
    "Solution",
    "Sweep",
    "compare",
    "data",
    "infer",
    "iterate",
    "load",
    "losses",
    "metrics",
    "oracles",
    "participation",
    "prox",
    "schedules",
    "solve",
    "sweep",
    "theory",
]

_HOMES = {
    "fedual.algorithms": (
        "ADMM", "SCAFFOLD", "AFedPD", "FedADMM", "FedAvg", "FedDR", "FedDyn", "FedOpt", "FedPD", "FedProx", "FedSplit",
        "ProxSkip",
    ),
    "fedual.clients": ("Clients",),
    "fedual.comparison": ("Comparison", "compare"),
    "fedual.engine": ("Sweep", "iterate", "solve", "sweep"),
    "fedual.inference": ("Inference", "infer"),
    "fedual.problem": ("Problem",),
    "fedual.protocols": ("Auto",),
    "fedual.runs": ("load",),
    "fedual.solution": ("History", "Solution"),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = frozenset(__all__) - frozenset(_HOME)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(f"fedual.{name}")
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'fedual' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
