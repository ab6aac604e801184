"""What the losses' constructors check."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["class_count", "positive", "strengths"]


def positive(name: str, value: float, zero: bool = True) -> float:
    """A finite number >= 0, or > 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < float("inf")):
        raise ValueError(f"{name} = {value!r} must be a finite number >= 0.")
    if value == 0 and not zero:
        raise ValueError(f"{name} = {value!r} must be > 0.")
    return float(value)


def strengths(l2: Any) -> Any:
    """The ridge penalty: one number, or one per parameter."""
    if np.ndim(l2) == 0:
        return positive("l2", l2)
    array = np.asarray(l2, dtype=float)
    if array.ndim != 1 or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"l2 = {l2!r} must be a finite number >= 0, or one per parameter.")
    return array


def class_count(classes: int) -> int:
    """A number of classes, >= 2."""
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ValueError(f"classes = {classes!r} must be an integer >= 2.")
    return classes
