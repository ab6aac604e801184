"""Flower's records: JSON in one text and arrays as their bytes; nothing is unpickled."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedual.engine.message import Arrays, Refused

__all__ = ["from_records", "to_records"]

_STYPE = "fedual.bytes"
_DTYPES = ("float64", "float32", "int64", "int32", "uint32", "bool")


def to_records(kind: str, facts: str, arrays: Arrays) -> RecordDict:
    """What Flower carries.

    Args:
        kind: "hello", "order", "reply", "refused", ...
        facts: JSON.
        arrays: by name.
    """
    record = ArrayRecord(
        {
            # Flower does not take empty keys.
            f"array {name}": Array(str(a.dtype), tuple(a.shape), _STYPE, np.ascontiguousarray(a).tobytes())
            for name, a in arrays.items()
        }
    )
    return RecordDict({"facts": ConfigRecord({"kind": kind, "json": facts}), "arrays": record})


def from_records(records: RecordDict) -> tuple[str, str, dict[str, np.ndarray]]:
    """The inverse of `to_records`.

    Raises:
        Refused: it is not a message of this package.
    """
    try:
        head: Any = records["facts"]
        kind, facts = str(head["kind"]), str(head["json"])
        arrays = {name.removeprefix("array "): _decode(name, array) for name, array in records["arrays"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused("format", f"a message of another program: {error!r} is missing.") from None
    return kind, facts, arrays


def _decode(name: str, array: Any) -> np.ndarray:
    if array.stype != _STYPE or array.dtype not in _DTYPES:
        raise Refused("format", f"{name!r} is stored as {array.stype!r} of {array.dtype!r}; expected {_STYPE}.")
    dtype, shape = np.dtype(array.dtype), tuple(int(n) for n in array.shape)
    if min(shape, default=1) < 0 or len(array.data) != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise Refused("shape", f"{name!r} of shape {shape} and type {dtype} has {len(array.data)} bytes.")
    return np.frombuffer(array.data, dtype).reshape(shape)
