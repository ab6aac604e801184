"""Ragged clients as a few rectangular buckets, and loops over their clients in blocks.

Clients of similar size share a bucket, padded to its largest member with rows of weight zero, so that all data
together take little more than twice their size at most. States of clients are kept per bucket; `Layout.gather` and
`Layout.scatter` translate from and to the order in which the user gave the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedual.arrays import name_words, record
from fedual.devices import client_mesh, share_out
from fedual.local import Rows

__all__ = ["Bucket", "Layout", "split_by_size"]

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
