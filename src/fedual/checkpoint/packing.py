"""A run's state as named arrays whose order does not depend on how the clients lay in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedual.engine.state import PER_CLIENT, Device
from fedual.layout import Layout

__all__ = ["pack", "unpack"]


def pack(layout: Layout, device: Device) -> Iterator[tuple[str, np.ndarray]]:
    """Every array of the state under a name; those of clients in the user's order.

    Clients of different groups may have states of different shapes, so each group has its own arrays.
    """
    for field, value in _fields(device):
        if field not in PER_CLIENT:
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                yield f"{field}{jax.tree_util.keystr(path)}", np.asarray(leaf)
            continue
        for group in sorted(set(layout.groups)):
            buckets = [b for b, g in enumerate(layout.groups) if g == group]
            order = np.argsort(np.concatenate([layout.members[b] for b in buckets]))
            for leaves in zip(*(jax.tree_util.tree_leaves_with_path(value[b]) for b in buckets), strict=True):
                # Copies that fill up a device's share come last in a bucket and are left out.
                real = [np.asarray(x)[: len(layout.members[b])] for b, (_, x) in zip(buckets, leaves, strict=True)]
                yield f"{field}/{group}{jax.tree_util.keystr(leaves[0][0])}", np.concatenate(real)[order]


def unpack(layout: Layout, template: Device, read: Callable[[str], np.ndarray]) -> Device:
    """The inverse of `pack`, into the structure of `template`.

    Raises:
        ValueError: an array has another shape or type than that of the template.
    """

    def fill(prefix: str, tree: Any, rows: np.ndarray | None = None) -> Any:
        def leaf(path: Any, like: Any) -> jax.Array:
            name = f"{prefix}{jax.tree_util.keystr(path)}"
            array = read(name) if rows is None else read(name)[rows]
            expected = np.shape(like), np.asarray(like).dtype
            if (array.shape, array.dtype) != expected:
                raise ValueError(
                    f"the saved {name} is {array.shape} {array.dtype}; expected {expected[0]} {expected[1]}."
                )
            return jnp.asarray(array)

        return jax.tree_util.tree_map_with_path(leaf, tree)

    def fill_buckets(field: str, trees: Any) -> tuple[Any, ...]:
        filled = []
        for bucket, group, tree in zip(layout.buckets, layout.groups, trees, strict=True):
            members = [m for m, g in zip(layout.members, layout.groups, strict=True) if g == group]
            rows = np.searchsorted(np.sort(np.concatenate(members)), np.asarray(bucket.index))
            filled.append(fill(f"{field}/{group}", tree, rows))
        return tuple(filled)

    return Device(
        **{
            field: fill_buckets(field, value) if field in PER_CLIENT else fill(field, value)
            for field, value in _fields(template)
        }
    )


def _fields(device: Device) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(device, field.name)) for field in dataclasses.fields(device))
