"""Sharing out the clients among several devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

__all__ = ["client_mesh", "on_devices", "share_out"]


def client_mesh(devices: int) -> Mesh | None:
    """The first `devices` devices, among which the clients are shared out; None for one."""
    return Mesh(np.array(jax.local_devices()[:devices]), ("clients",)) if devices > 1 else None


def share_out(tree: Any, mesh: Mesh | None) -> Any:
    """Give every device its share of the leading axis; without a mesh everything goes to the default device."""
    return jax.device_put(tree, None if mesh is None else NamedSharding(mesh, P("clients")))


def on_devices(function: Callable[..., Any], mesh: Mesh | None) -> Callable[..., Any]:
    """`function` applied by every device to its share of the arguments' leading axis."""
    if mesh is None:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=P("clients"), out_specs=P("clients"), check_vma=False)
