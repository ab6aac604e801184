"""Loops over the clients of a bucket, in blocks that fit a core's cache or the memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedual.arrays import where
from fedual.layout import Bucket

__all__ = ["block_size", "map_clients", "pass_size", "sum_clients"]

_CACHE_BYTES = 600_000  # what one block's data may take: most of a core's private cache today


_PASS_BYTES = 32_000_000  # the same for a single pass over the data, where only what it needs beside them matters


def block_size(bucket: Bucket, clients_at_once: int | str, devices: int = 1) -> int:
    """How many of a device's share of a bucket's clients go through their local steps together.

    Automatic: as many as keep their data within a core's cache through all those steps, at least one, and somewhat
    fewer where that makes all blocks equal.
    """
    clients = len(bucket.count) // devices
    if clients_at_once != "auto":
        return min(clients, int(clients_at_once))
    most = _within(_CACHE_BYTES, bucket, clients)
    even = next(size for size in range(most, 0, -1) if clients % size == 0)
    return even if 2 * even >= most else most


def pass_size(bucket: Bucket, width: int = 0) -> int:
    """How many of a bucket's clients a single pass over the data takes together, each with `width` bytes of results."""
    return _within(_PASS_BYTES, bucket, len(bucket.count), width)


def _within(limit: int, bucket: Bucket, clients: int, width: int = 0) -> int:
    """How many of `clients` keep their data, and `width` bytes beside them, within so many bytes, at least one."""
    one = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(bucket.rows)) // len(bucket.count) + width
    return int(min(clients, max(1, limit // max(one, 1))))


def map_clients(function: Callable[..., Any], bucket: Bucket, *args: Any) -> Any:
    """`function(bucket entry, args entry...)` for every client, in large blocks; results are stacked."""
    inputs, clients = (bucket, *args), len(bucket.count)
    block = pass_size(bucket)
    if block == clients:
        return jax.vmap(function)(*inputs)

    # Not lax.map, which copies all its inputs where the last block is short; here that block overlaps the one before.
    def advance(number: Any, results: Any) -> Any:
        first = jnp.minimum(number * block, clients - block)
        chosen = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, block), inputs)
        put = partial(lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        return jax.tree.map(put, results, jax.vmap(function)(*chosen))

    shapes = jax.eval_shape(jax.vmap(function), *inputs)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.fori_loop(0, -(-clients // block), advance, empty)


def sum_clients(
    function: Callable[[Any, Any], tuple[Any, Any]],
    fixed: Any,
    state: Any,
    zero: Any,
    block: int,
    active: Any = None,
    compact: bool = False,
) -> tuple[Any, Any]:
    """Advance the states of the active clients and add up what they contribute.

    Args:
        function: `(fixed, state) -> (state, contribution)` over a block of clients stacked along the leading axis;
            contributions keep that axis.
        fixed: what does not change, leading axis K_b.
        state: what does: a pair of trees of leading axis K_b.
        zero: a tree of zeros of the shape of one client's contribution.
        block: clients per block.
        active: flags of shape `(K_b,)`; the others' states stay as they are and they cost nothing. None means all.
        compact: the first part of the state holds the active clients alone, in their order, and room for more.

    Returns:
        The new states, and the sum of the contributions.
    """
    clients = jax.tree.leaves(fixed)[0].shape[0]
    if active is None and block == clients:
        state, parts = function(fixed, state)
        return state, jax.tree.map(lambda part: jnp.sum(part, axis=0), parts)
    if active is None and clients % block == 0:
        return _sum_blocks(function, fixed, state, zero, block, clients // block)
    if active is None:
        order, count, blocks = jnp.arange(clients), clients, -(-clients // block)
    else:
        order = jnp.argsort(~active, stable=True)
        count = jnp.sum(active)
        blocks = (count + block - 1) // block

    def advance(number: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, total = carry
        slots = number * block + jnp.arange(block)
        valid = slots < count
        rows = order[jnp.minimum(slots, clients - 1)]
        places = (slots if compact else rows), rows
        chosen = tuple(_take(tree, at) for tree, at in zip(state, places, strict=True))
        new, parts = function(_take(fixed, rows), chosen)
        state = tuple(
            _put(tree, jnp.where(valid, at, _BEYOND), n) for tree, at, n in zip(state, places, new, strict=True)
        )
        parts = where(valid, parts, jax.tree.map(jnp.zeros_like, parts))
        return state, jax.tree.map(lambda a, b: a + jnp.sum(b, axis=0, dtype=a.dtype), total, parts)

    return lax.fori_loop(0, blocks, advance, (state, zero))


def _sum_blocks(function: Any, fixed: Any, state: Any, zero: Any, block: int, blocks: int) -> tuple[Any, Any]:
    """`sum_clients` where everyone is active and all blocks are equal: contiguous slices, no gathering."""

    def advance(number: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, total = carry
        first = number * block
        chosen = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, block), (fixed, state))
        new, parts = function(*chosen)
        state = jax.tree.map(lambda old, leaf: lax.dynamic_update_slice_in_dim(old, leaf, first, 0), state, new)
        return state, jax.tree.map(lambda a, b: a + jnp.sum(b, axis=0, dtype=a.dtype), total, parts)

    return lax.fori_loop(0, blocks, advance, (state, zero))


_BEYOND = np.int32(2**31 - 1)  # out of every range: what is put there is dropped


def _take(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[jnp.minimum(rows, leaf.shape[0] - 1)], tree)


def _put(tree: Any, rows: Any, new: Any) -> Any:
    return jax.tree.map(lambda old, leaf: old.at[rows].set(leaf, mode="drop"), tree, new)
