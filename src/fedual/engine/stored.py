"""States of clients on disk: only those of participants are in memory, one stretch at a time.

Who takes part is known when a stretch begins. Their states are read, the compiled program runs the stretch on them
alone, in the order and in the blocks in which it takes participants out of states in memory, and they are written
back; so the numbers are the same. A client that never took part has nothing on disk: its state is the first one.

The file has no name and vanishes with the process, so a killed run leaves nothing behind; what is meant to last is
a checkpoint, which reads the file through `whole`.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
import weakref
from typing import Any

import jax
import numpy as np

from fedual.engine.bind import Bound
from fedual.engine.chunk import run_chunk
from fedual.engine.keys import draw_active
from fedual.engine.round import RUNNING
from fedual.engine.state import Device, RunState

__all__ = ["Stored", "advance_stored", "choose", "move", "state_bytes", "whole"]


class _File:
    """Fixed-size records of arrays, one per client of a bucket.

    Args:
        like: one client's tree of arrays, or their shapes.
        count: clients.
    """

    def __init__(self, like: Any, count: int) -> None:
        leaves, structure = jax.tree.flatten(like)
        self.structure: Any = structure
        fields = [(f"f{i}", leaf.dtype, leaf.shape) for i, leaf in enumerate(leaves)]
        self.dtype = np.dtype(fields)
        self.written = np.zeros(count, bool)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, closed with this object
        weakref.finalize(self, self._file.close)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Records of shape `(len(rows),)`; rows that were never written hold zeros."""
        records = np.zeros(len(rows), self.dtype)
        for record, row in zip(records.view(np.uint8).reshape(len(rows), -1), rows, strict=True):
            if self.written[row]:
                self._file.seek(int(row) * self.dtype.itemsize)
                _exactly(self._file.readinto(record.data), self.dtype.itemsize)
        return records

    def write(self, rows: np.ndarray, tree: Any) -> None:
        """The first len(rows) entries of a tree stacked along its leading axis."""
        records = np.empty(1, self.dtype)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        for position, row in enumerate(rows):
            for field, leaf in zip(self.dtype.names or (), leaves, strict=True):
                records[field][0] = leaf[position]
            self._file.seek(int(row) * self.dtype.itemsize)
            _exactly(self._file.write(records.view(np.uint8).data), self.dtype.itemsize)
            self.written[row] = True


def _exactly(moved: int | None, expected: int) -> None:
    if moved != expected:
        raise OSError(
            f"{moved} of {expected} bytes of a client's state went through: {tempfile.gettempdir()} is full or broken. "
            "Set TMPDIR to a folder with room."
        )


class Stored:
    """The states of all clients and oracles of a run.

    Args:
        bound: the method.
        theta: theta^(0), which the first states are made of, shape `(d,)`.
        budget: bytes that participants' states may take in memory.

    Raises:
        ValueError: everyone takes part in every round, or the disk has no room.
    """

    def __init__(self, bound: Bound, theta: np.ndarray, budget: int) -> None:
        self.theta, self.budget, self.version = theta, budget, 0
        self.first = bound.method.algorithm.init(jax.numpy.asarray(theta))[1]
        self.files = []
        for b, bucket in enumerate(bound.layout.buckets):
            carry = jax.eval_shape(lambda b=b: bound.bucket_carries(b, theta, slice(0, 1)))
            carry = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), carry)
            self.files.append(_File((self.first, carry), len(bucket.count)))
        total, folder = sum(f.dtype.itemsize * len(f.written) for f in self.files), tempfile.gettempdir()
        if bound.method.participation.everyone:
            raise ValueError(
                f"the clients' states take {total:,} bytes, more than state_memory = {budget:,}, and all of them take "
                "part in every round: allow partial participation, or more memory."
            )
        if total > shutil.disk_usage(folder).free:
            raise ValueError(f"the clients' states may take {total:,} bytes, more than {folder} has free; set TMPDIR.")

    def read(self, bound: Bound, b: int, rows: np.ndarray, slots: int) -> Any:
        """Clients and carries of bucket b at `rows`, stacked along a leading axis of length `slots`."""
        file = self.files[b]
        padded = np.concatenate([rows, np.zeros(slots - len(rows), int)]) if len(rows) < slots else rows
        records = file.read(padded)
        new = ~file.written[padded]
        if new.any():
            client = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (slots, *leaf.shape)), self.first)
            fresh = jax.tree.leaves((client, bound.bucket_carries(b, self.theta, padded)))
            for field, leaf in zip(file.dtype.names or (), fresh, strict=True):
                records[field][new] = np.asarray(leaf)[new]
        leaves = [np.ascontiguousarray(records[field]) for field in file.dtype.names or ()]
        return jax.tree.unflatten(file.structure, leaves)


def state_bytes(bound: Bound) -> int:
    """Bytes that the states of all clients and oracles take."""
    theta = np.zeros(bound.problem.dimension, bound.problem.dtype)
    client = jax.eval_shape(lambda: bound.method.algorithm.init(jax.numpy.asarray(theta))[1])
    carries = jax.eval_shape(lambda: bound.start_carries(theta))
    one = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(client))
    return one * len(bound.problem.clients) + sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(carries))


def choose(bound: Bound, theta: np.ndarray, state_memory: int | None) -> Stored | None:
    """A store where the states of all clients exceed the budget."""
    if state_memory is None:
        return None
    if isinstance(state_memory, bool) or not isinstance(state_memory, int | np.integer) or state_memory < 1:
        raise ValueError(f"state_memory = {state_memory!r} must be a number of bytes, or None for no limit.")
    return Stored(bound, theta, int(state_memory)) if state_bytes(bound) > state_memory else None


def whole(bound: Bound, state: RunState) -> Device:
    """The state with those of all clients in it, from the disk where they are there.

    Raises:
        RuntimeError: later rounds have gone over them.
    """
    stored = state.stored
    if stored is None:
        return state.device
    store, version = stored
    if store.version != version:
        raise RuntimeError(
            "later rounds have changed the clients' states on disk that this solution refers to. Read thetas and duals "
            "before the run goes on, save a checkpoint, or run with state_memory=None."
        )
    parts = []
    for b, bucket in enumerate(bound.layout.buckets):
        count = len(bucket.count)
        parts.append(store.read(bound, b, np.arange(count), count))
    return dataclasses.replace(state.device, clients=tuple(c for c, _ in parts), carries=tuple(y for _, y in parts))


def move(bound: Bound, state: RunState, store: Stored | None) -> RunState:
    """The same state with those of the clients in `store`, or in memory for None."""
    if state.stored is not None and store is not None and state.stored[0].version == state.stored[1]:
        return state
    device = whole(bound, state)
    if store is None:
        return dataclasses.replace(state, device=device, stored=None)
    for file, clients, carries in zip(store.files, device.clients, device.carries, strict=True):
        file.write(np.arange(len(file.written)), (clients, carries))
    return dataclasses.replace(
        state, device=dataclasses.replace(device, clients=(), carries=()), stored=(store, store.version)
    )


_draw = jax.jit(draw_active)


def advance_stored(run: Any, state: RunState, more: int, capacity: int, rounds: int) -> tuple[Any, int]:
    """What `Run.advance` does, stretch by stretch, with the states in a store."""
    begun = time.perf_counter()
    bound, (store, version) = run.bound, state.stored
    if store.version != version:
        whole(bound, state)  # explains
    method = dataclasses.replace(bound.method, compact=True)
    device, rows, done, code, bad = state.device, [], 0, RUNNING, 0
    while done < more and code == RUNNING:
        active = np.asarray(_draw(method, device, bound.words))
        places = [np.flatnonzero(active[np.asarray(bucket.index)]) for bucket in bound.layout.buckets]
        slots = [_slots(len(rows_), len(b.count)) for rows_, b in zip(places, bound.layout.buckets, strict=True)]
        _refuse_too_many(store, slots)
        parts = [store.read(bound, b, *pair) for b, pair in enumerate(zip(places, slots, strict=True))]
        held = dataclasses.replace(device, clients=tuple(c for c, _ in parts), carries=tuple(y for _, y in parts))
        del parts
        result = run_chunk(run.data(), method, held, run.control(more - done), capacity=capacity, mesh=None)
        held, columns, count, code, bad = jax.block_until_ready(result)
        for b, at in enumerate(places):
            store.files[b].write(at, (held.clients[b], held.carries[b]))
        device = dataclasses.replace(held, clients=(), carries=())
        rows.append(jax.tree.map(lambda column, n=int(count): np.asarray(column)[:n], columns))
        done, code = done + int(count), int(code)
    store.version += 1
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *rows)
    state = dataclasses.replace(state, stored=(store, store.version))
    return run.finish(state, (device, joined, done, code, bad), begun, rounds), code


def _slots(count: int, clients: int) -> int:
    """Room for so many participants: three leading bits, so that few programs are compiled."""
    unit = 1 << max(0, count.bit_length() - 3)
    return min(clients, max(1, -(-count // unit) * unit))


def _refuse_too_many(store: Stored, slots: list[int]) -> None:
    needed = sum(file.dtype.itemsize * n for file, n in zip(store.files, slots, strict=True))
    if needed > store.budget:
        raise ValueError(
            f"the states of {sum(slots)} participants take {needed:,} bytes, more than state_memory = "
            f"{store.budget:,}: let fewer clients take part, or allow more."
        )
