"""The same run on real sites: every site in its own process, its data never leaving it. Needs `fedual[flower]`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedual.flower.client import client_app
    from fedual.flower.deploy import certificates, init, local, resume
    from fedual.flower.leaving import audit
    from fedual.flower.server import server_app

__all__ = ["audit", "certificates", "client_app", "init", "local", "resume", "server_app"]

_HOMES = {
    "audit": "leaving",
    "certificates": "deploy",
    "client_app": "client",
    "init": "deploy",
    "local": "deploy",
    "resume": "deploy",
    "server_app": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedual.flower' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"fedual.flower.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "flwr":
            raise ImportError("deployment needs Flower: pip install 'fedual[flower]'") from None
        raise
