"""The federated fit behind the estimators, in coordinates in which no column needs a setting of its own."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fedual import prox
from fedual.algorithms import ADMM
from fedual.data import from_table
from fedual.engine import solve
from fedual.problem import Problem
from fedual.protocols import Algorithm
from fedual.solution import Solution

__all__ = ["Fitted", "federated_fit"]

_EVERY = 5  # rounds between two looks at the tolerance
_PADDED = 1 << 16  # rows that padding may lead to; compiling takes longer than computing with them


class Fitted(NamedTuple):
    """A model on the scale of the given columns.

    Attributes:
        coef: shape `(outputs, d)`.
        intercept: shape `(outputs,)`.
        solution: of the problem in standardized columns.
    """

    coef: np.ndarray
    intercept: np.ndarray
    solution: Solution


def federated_fit(
    loss: Any, x: np.ndarray, y: np.ndarray, groups: Any, l1: float, l2: float, algorithm: Algorithm | None,
    rounds: int, tol: float,
) -> Fitted:  # fmt: skip
    """Minimize mean loss + l1 ||coef||_1 + (l2/2) ||coef||^2 over the sites that `groups` tells.

    Columns are first standardized by their pooled means and deviations, which every site's counts, sums and sums of
    squares give. The penalty stays one on the coefficients of the original columns: theta_j = scale_j coef_j pays
    l1/scale_j and l2/scale_j^2.

    Args:
        loss: with or without an intercept; l2 is put in here.
        x, y: the pooled rows, shapes `(n, d)` and `(n,)`.
        groups: the site of each row, shape `(n,)`; None for one site.
        l1, l2: strengths, >= 0.
        algorithm, rounds, tol: as the estimators have them.
    """
    center, scale = _moments(x, loss.intercept)
    outputs = getattr(loss, "classes", 1)
    strength = np.repeat(np.append(l2 / scale**2, 0.0) if loss.intercept else l2 / scale**2, outputs)
    clients = from_table((x - center) / scale, y, np.zeros(len(x), int) if groups is None else groups)
    problem = Problem(
        replace(loss, l2=strength),
        clients,
        regularizer=prox.l1(l1 / scale, loss.intercept) if l1 else None,
        pad_rows=_padding(clients.sizes),
    )
    solution = solve(
        problem, ADMM() if algorithm is None else algorithm, rounds, tolerance=tol**2, evaluate_every=_EVERY
    )
    if not solution.converged:
        warnings.warn(f"{solution.reason} {solution.remedy}".rstrip(), ConvergenceWarning, stacklevel=3)
    theta = solution.theta.reshape(-1, outputs)
    coef = (theta[: len(scale)] / scale[:, None]).T
    return Fitted(coef, (theta[-1] if loss.intercept else 0.0) - coef @ center, solution)


def _padding(sizes: np.ndarray) -> int:
    """So many rows per site that the folds and grids of a search over small data share compiled programs."""
    rows = max(256, 1 << int(sizes.max() - 1).bit_length())
    return rows if rows * len(sizes) <= _PADDED else 0


def _moments(x: np.ndarray, shift: bool) -> tuple[np.ndarray, np.ndarray]:
    """Center (0 without `shift`) and scale (1 for a constant column), shapes `(d,)`."""
    center = x.mean(axis=0) if shift else np.zeros(x.shape[1])
    scale = np.sqrt(np.mean((x - center) ** 2, axis=0))
    rounding = 8 * np.finfo(float).eps * np.abs(x).max(axis=0)
    return center, np.where(scale > rounding, scale, 1.0)
