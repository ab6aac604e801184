"""Step size and constants from theory."""

from __future__ import annotations

import math

__all__ = ["step_size"]


def step_size(L: float) -> float:
    """s = (sqrt(5) - 1)/(8 L), the penalty parameter of FedPD's analysis.

    Args:
        L: a bound on the Lipschitz constants of grad f and every grad f_k, > 0.

    Raises:
        ValueError: L is not positive and finite.

    Reference:
        Zhang et al., "FedPD", 2021, Theorem 1 and Table III.

    Example:
        >>> round(step_size(1.0), 4)
        0.1545
    """
    if not (isinstance(L, int | float) and math.isfinite(L) and L > 0):
        raise ValueError(f"L = {L!r} must be positive and finite.")
    return (math.sqrt(5) - 1) / (8 * L)
