"""Federated learning by primal-dual optimization: FedPD and its relatives, in simulation and deployment.

Everything public hangs off this module; parts are imported when first used, so that `import fedual` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedual import data, losses, metrics, oracles, participation, schedules, theory
    from fedual.algorithms import ADMM, FedAvg, FedPD
    from fedual.clients import Clients
    from fedual.engine import iterate, solve
    from fedual.problem import Problem
    from fedual.runs import load
    from fedual.solution import History, Solution

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "Clients",
    "FedAvg",
    "FedPD",
    "History",
    "Problem",
    "Solution",
    "data",
    "iterate",
    "load",
    "losses",
    "metrics",
    "oracles",
    "participation",
    "schedules",
    "solve",
    "theory",
]

_HOMES = {
    "fedual.algorithms": ("ADMM", "FedAvg", "FedPD"),
    "fedual.clients": ("Clients",),
    "fedual.engine": ("iterate", "solve"),
    "fedual.problem": ("Problem",),
    "fedual.runs": ("load",),
    "fedual.solution": ("History", "Solution"),
}
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
