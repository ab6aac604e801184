"""Ragged clients as a few rectangular buckets, and loops over their clients in blocks.

Clients of similar size share a bucket, padded to its largest member with rows of weight zero, so that all data
together take little more than twice their size at most. States of clients are kept per bucket; `Layout.gather` and
`Layout.scatter` translate from and to the order in which the user gave the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedual.arrays import name_words, record, where
from fedual.local import Rows

__all__ = [
    "Bucket",
    "Layout",
    "block_size",
    "client_mesh",
    "map_clients",
    "on_devices",
    "pass_size",
    "share_out",
    "sum_clients",
]

_CACHE_BYTES = 600_000  # what one block's data may take: most of a core's private cache today
_PASS_BYTES = 32_000_000  # the same for a single pass over the data, where only what it needs beside them matters
# A further bucket costs compile time, so it has to save this many padded rows, plus this share of all rows.
_BUCKET_ROWS = 4096
_BUCKET_SHARE = 0.005


@record
class Bucket:
    """Clients of similar size, stacked; the leading axis of every leaf is theirs.

    Args:
        rows: features `(K_b, n, ...)`, targets `(K_b, n, ...)`, row weights `(K_b, n)`.
        count: n_k, shape `(K_b,)`.
        weight: w_k, shape `(K_b,)`; 0 for the copies that fill up a device's share.
        words: two words per client for random draws, shape `(K_b, 2)`.
        index: position of each client in the user's order, shape `(K_b,)`; a filling copy has that of its original.
        real: False for filling copies, shape `(K_b,)`.
    """

    rows: Rows
    count: Any
    weight: Any
    words: Any
    index: Any
    real: Any


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


class Layout:
    """How K clients lie in buckets.

    Args:
        data: gives client k's prepared features `(n_k, ...)` and targets `(n_k, ...)`; called once per client, so that
            no second copy of all data exists.
        sizes: n_k, shape `(K,)`.
        names: K names.
        weights: w_k, shape `(K,)`.
        dtype: floating dtype of the numbers; integer targets stay integers.
        groups: an integer per client; clients of different groups never share a bucket.
        devices: every bucket's clients are filled up to a multiple of this with copies of weight zero.
        rows: pad every bucket to at least this many rows; the numbers do not depend on it.

    Attributes:
        buckets: a tuple of `Bucket`.
        members: for every bucket the positions of its real clients in the user's order.
        mesh: the devices that share the clients, None for one.
    """

    def __init__(
        self,
        data: Callable[[int], tuple[np.ndarray, np.ndarray]],
        sizes: np.ndarray,
        names: Sequence[str],
        weights: np.ndarray,
        dtype: Any,
        groups: Sequence[int] | None = None,
        devices: int = 1,
        rows: int = 0,
    ) -> None:
        group_of = np.zeros(len(sizes), int) if groups is None else np.asarray(groups)
        self.groups: list[int] = []
        self.members: list[np.ndarray] = []
        buckets = []
        for group in np.unique(group_of):
            for members in split_by_size(np.flatnonzero(group_of == group), sizes):
                filled = np.concatenate([members, np.repeat(members[-1:], -len(members) % devices)])
                real = np.arange(len(filled)) < len(members)
                length = max(rows, int(sizes[members].max()))
                row_weights = (np.arange(length) < sizes[filled, None]) / sizes[filled, None]
                features, targets = _stack(data, filled, length, dtype)
                buckets.append(
                    Bucket(
                        rows=Rows(features, targets, row_weights.astype(dtype)),
                        count=sizes[filled].astype(np.int32),
                        weight=np.where(real, weights[filled], 0).astype(dtype),
                        words=np.array([name_words(names[k]) for k in filled], dtype=np.uint32),
                        index=filled.astype(np.int32),
                        real=real,
                    )
                )
                self.groups.append(int(group))
                self.members.append(members)
        self.mesh = client_mesh(devices)
        self.buckets: tuple[Bucket, ...] = share_out(tuple(buckets), self.mesh)
        self.padded_rows = sum(bucket.rows.weights.size for bucket in self.buckets)

    def gather(self, parts: Sequence[Any]) -> Any:
        """One tree per bucket to one tree of arrays in the user's order, leading axis K, as NumPy arrays."""
        order = np.argsort(np.concatenate(self.members))

        def join(*leaves: Any) -> np.ndarray:
            real = [np.asarray(leaf)[: len(m)] for leaf, m in zip(leaves, self.members, strict=True)]
            return np.concatenate(real)[order]

        return jax.tree.map(join, *parts)

    def scatter(self, tree: Any) -> tuple[Any, ...]:
        """The inverse of `gather`; filling copies get the state of their originals."""
        indices = [np.asarray(bucket.index) for bucket in self.buckets]
        return tuple(jax.tree.map(lambda leaf, i=index: np.asarray(leaf)[i], tree) for index in indices)


def split_by_size(members: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Partition clients into buckets with few padded rows, where a further bucket has to pay for itself.

    By dynamic programming over the sorted sizes. One bucket per factor of two in size would at most double the rows,
    so what comes out has at most twice the rows plus the price of those buckets.
    """
    order = members[np.argsort(sizes[members], kind="stable")]
    sorted_sizes = sizes[order]
    # Bucket boundaries may lie only where a size class of ratio 2^(1/8) ends, which bounds the work.
    classes = np.floor(8 * np.log2(sorted_sizes)).astype(int)
    ends = np.append(np.flatnonzero(np.diff(classes)) + 1, len(order))
    fixed = _BUCKET_ROWS + _BUCKET_SHARE * sorted_sizes.sum()
    best: list[tuple[float, int]] = [(0.0, 0)]
    starts = np.concatenate([[0], ends[:-1]])
    for j, end in enumerate(ends):
        options = [(best[i][0] + fixed + float(sorted_sizes[end - 1]) * (end - starts[i]), i) for i in range(j + 1)]
        best.append(min(options))
    cuts, j = [], len(ends)
    while j:
        i = best[j][1]
        cuts.append(order[starts[i] : ends[j - 1]])
        j = i
    return [np.sort(cut) for cut in reversed(cuts)]


def _stack(
    data: Callable[[int], tuple[np.ndarray, np.ndarray]], clients: np.ndarray, length: int, dtype: Any
) -> list[np.ndarray]:
    stacked: list[np.ndarray] = []
    for row, client in enumerate(clients):
        pair = data(int(client))
        if not stacked:
            kinds = (dtype if part.dtype.kind == "f" else part.dtype for part in pair)
            stacked = [
                _aligned((len(clients), length, *part.shape[1:]), kind) for part, kind in zip(pair, kinds, strict=True)
            ]
        for whole, part in zip(stacked, pair, strict=True):
            whole[row, : len(part)] = part
    return stacked


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros at an address that lets JAX take the array over without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


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
