"""Many rounds in one compiled program."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedual.arrays import where
from fedual.engine.bind import Method
from fedual.engine.round import NOT_FINITE, RUNNING, Control, Data, Row, one_round
from fedual.engine.state import PER_CLIENT, Device

__all__ = ["many_rounds", "run_chunk"]


@partial(jax.jit, static_argnames=("capacity", "mesh"))
def run_chunk(
    data: Data, method: Method, state: Device, control: Control, *, capacity: int, mesh: Mesh | None
) -> tuple[Device, Row, Any, Any, Any]:
    """Advance by at most `control.rounds` <= `capacity` rounds; a compact state by at most one stretch.

    Returns:
        The state; the rows, each leaf of shape `(capacity,)`; how many of them count; the stop code; the position of
        the first client with a result that is not finite, K for the server itself.
    """
    if mesh is None:
        return many_rounds(data, method, state, control, capacity, None)
    axis = mesh.axis_names[0]
    split, same = P(axis), P()
    states = _like(state, same, **dict.fromkeys(PER_CLIENT, split))
    return jax.shard_map(
        partial(many_rounds, capacity=capacity, axis=axis),
        mesh=mesh,
        in_specs=(
            _like(data, same, buckets=split),
            _like(method, same, oracles=split, limits=split, chances=split),
            states,
            same,
        ),
        out_specs=(states, same, same, same, same),
        check_vma=False,
    )(data, method, state, control)


def _like(tree: Any, default: Any, **fields: Any) -> Any:
    """A tree of partition specs: `default`, except in the named fields."""
    names = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static")]
    specs = {name: fields.get(name, default) for name in names}
    filled = {name: jax.tree.map(lambda _, name=name: specs[name], getattr(tree, name)) for name in names}
    return dataclasses.replace(tree, **filled)


def many_rounds(data: Data, method: Method, state: Device, control: Control, capacity: int, axis: str | None) -> Any:
    """What `run_chunk` does, on one device's share of the clients (axis names the devices) or on all (None)."""
    shapes = jax.eval_shape(partial(one_round, axis=axis), data, method, state, control)[1]
    rows = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)

    def go_on(carry: Any) -> Any:
        state, _, done, code, _ = carry
        more = (done < control.rounds) & (code == RUNNING)
        return more & ~(state.fresh & (done > 0)) if method.compact else more

    def one(carry: Any) -> Any:
        old, rows, done, _, _ = carry
        new, row, code, bad = one_round(data, method, old, control, axis)
        fine = code != NOT_FINITE
        rows = jax.tree.map(lambda column, value: column.at[done].set(value), rows, row)
        return where(fine, new, old), rows, done + fine, code, bad

    first = (state, rows, jnp.int32(0), jnp.int32(RUNNING), jnp.int32(0))
    return lax.while_loop(go_on, one, first)
