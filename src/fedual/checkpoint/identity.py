"""What a checkpoint belongs to, and the refusal of anything else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedual.clients import Clients
from fedual.engine.bind import Bound

__all__ = ["data_digests", "describe", "describe_method", "refuse_other_data", "refuse_other_method"]


def data_digests(clients: Clients) -> np.ndarray:
    """A 128-bit digest of every client's name, shapes, types and numbers, shape `(K, 16)`."""
    rows = []
    for name, x, y in zip(clients.names, clients.features, clients.targets, strict=True):
        digest = hashlib.blake2b(repr((name, x.shape, x.dtype.str, y.shape, y.dtype.str)).encode(), digest_size=16)
        for array in (x, y):
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        rows.append(np.frombuffer(digest.digest(), np.uint8))
    return np.stack(rows)


def describe(value: Any, name: str = "") -> dict[str, Any]:
    """An object made of settings as dotted names with JSON values, to be compared one by one.

    Example:
        >>> import fedual as fd
        >>> describe(fd.schedules.Skip(0.5), "schedule")
        {'schedule': 'Skip', 'schedule.probability': 0.5}
    """
    return json.loads(json.dumps(dict(_settings(value, name, ()))))


def _settings(value: Any, name: str, outer: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if id(value) in outer:  # a function that refers to itself
        return
    inside = (*outer, id(value))
    if value is None or isinstance(value, bool | int | float | str):
        yield name, value
        return
    parts: dict[str, Any] = {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        yield name, type(value).__name__
    elif isinstance(value, tuple | list) and not all(isinstance(v, bool | int | float | str) for v in value):
        parts = dict(zip(getattr(value, "_fields", map(str, range(len(value)))), value, strict=True))
    elif hasattr(value, "__array__") or isinstance(value, list | tuple):
        array = np.asarray(value)
        short = array.size <= 8 and array.dtype.kind in "biufU"
        digest = hashlib.blake2b(repr(array.tolist()).encode(), digest_size=8).hexdigest()
        yield name, array.tolist() if short else f"{array.dtype} {array.shape} {digest}"
    elif isinstance(value, dict):
        parts = {str(key): part for key, part in value.items()}
    elif callable(value) and hasattr(value, "__code__"):
        # What a closure holds are its settings: Optax makes its optimizers so.
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        parts = {variable: cell.cell_contents for variable, cell in cells}
        yield name, f"{value.__module__}.{value.__qualname__}"
    else:
        parts = getattr(value, "__dict__", {})
        yield name, type(value).__name__
    for key, part in parts.items():
        yield from _settings(part, f"{name}.{key}", inside)


def describe_method(bound: Bound, seed: int) -> dict[str, Any]:
    """Everything but the data that the numbers of a run depend on."""
    problem, method = bound.problem, bound.method
    parts = {
        "loss": problem.loss,
        "regularizer": problem.regularizer,
        "weights": problem.weights,
        "dtype": problem.dtype,
        "algorithm": bound.algorithm,
        "schedule": method.schedule,
        "participation": method.participation,
        "seed": seed,
    }
    return {key: setting for name, part in parts.items() for key, setting in describe(part, name).items()}


def refuse_other_method(path: Any, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raise ValueError, naming every setting that differs."""
    keys = dict.fromkeys([*old, *new])
    changed = [
        f"{key} was {old.get(key, 'absent')!r} and is {new.get(key, 'absent')!r}"
        for key in keys
        if old.get(key, "absent") != new.get(key, "absent")
    ]
    if changed:
        raise ValueError(f"{path} belongs to another run: {'; '.join(changed)}.")


def refuse_other_data(path: Any, names: list[str], digests: np.ndarray, clients: Clients) -> None:
    """Raise ValueError, naming clients that came, went or changed."""
    if list(clients.names) != names:
        gone, came = sorted(set(names) - set(clients.names)), sorted(set(clients.names) - set(names))
        what = f"clients gone: {gone}; clients new: {came}" if gone or came else "the clients come in another order"
        raise ValueError(f"{path} belongs to other data: {what}.")
    changed = np.flatnonzero((digests != data_digests(clients)).any(axis=1))
    if len(changed):
        raise ValueError(
            f"{path} belongs to other data: the rows of {len(changed)} of {len(names)} clients have changed, "
            f"{names[changed[0]]!r} first."
        )
