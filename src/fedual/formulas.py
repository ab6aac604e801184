"""The scalar mathematics of theory, for Python floats (`xp` is NumPy) and inside compiled programs (`jax.numpy`).

Nothing here checks its input; `fedual.theory` does, and says what everything means.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["FORMS", "MOST_SKIPPED", "STEP", "largest_first_branch", "skip_probability"]

STEP = (math.sqrt(5) - 1) / 8  # the analysis's s in units where L = 1
MOST_SKIPPED = 0.99  # the cap on p: G = 0 would ask for p = 1, which never communicates
FORMS = ("seed", "published", "relation")
_BISECTIONS = 60


def largest_first_branch(sL: Any) -> Any:
    """tau = (1 - 2 sL)/(1 + sL), where the rule for p changes its form."""
    return (1 - 2 * sL) / (1 + sL)


def skip_probability(ratio: Any, s: Any, sL: Any, form: str, xp: Any = np) -> Any:
    """p from ratio = epsilon/G^2 (infinite for G = 0), s and s L; see `fedual.theory.skip_probability`."""
    tau = largest_first_branch(sL)
    scaled = ratio / (s if form == "seed" else s * s)
    first = xp.sqrt(scaled / 36)
    log = xp.log(xp.maximum(scaled / 42, 1.0))
    second = _solve_relation(log, sL, tau, xp) if form == "relation" else 1 - 2 / xp.maximum(log, 1e-30)
    # Between the branches neither applies; tau there keeps p a non-decreasing function of epsilon/G^2.
    p = xp.where(first < tau, first, xp.maximum(second, tau))
    return xp.minimum(p, MOST_SKIPPED)


def _solve_relation(log: Any, sL: Any, tau: Any, xp: Any) -> Any:
    """p in [tau, 1] with 2 ln C3(p)/(1-p) = log, C3(p) = (p(1 + sL) + sL)/(1 - sL), by bisection: the left side
    rises from 0 to infinity."""
    low, high = tau + 0 * log, 1.0 + 0 * log
    for _ in range(_BISECTIONS):
        p = (low + high) / 2
        below = 2 * xp.log((p * (1 + sL) + sL) / (1 - sL)) < log * (1 - p)
        low, high = xp.where(below, p, low), xp.where(below, high, p)
    return low
