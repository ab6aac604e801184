"""The pooled reference solution that tests and reports compare with; computed centrally, never by a federated run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import optimize

if TYPE_CHECKING:
    from fedual.problem import Problem

__all__ = ["Minimum", "minimize"]

_DENSE = 1500  # up to this many parameters the Hessian is formed


class Minimum(NamedTuple):
    """A minimizer of the pooled problem.

    Attributes:
        theta: shape `(d,)`.
        value: the objective there.
        stationarity: ||grad f||^2 there, or its proximal form.
    """

    theta: np.ndarray
    value: float
    stationarity: float


def minimize(problem: Problem, tolerance: float) -> Minimum:
    """See `Problem.minimum`."""
    start = problem.loss.start(problem.feature_shape)
    theta = _smooth(problem, start, tolerance) if problem.regularizer is None else _composite(problem, start, tolerance)
    stationarity = problem.stationarity(theta)
    scale = max(1.0, float(np.sum(problem.local_gradients(theta) ** 2)))
    if not stationarity <= max(tolerance, 1e-24 * scale):
        raise RuntimeError(
            f"no minimum found: the stationarity is {stationarity:.3g} where {tolerance:.3g} was asked. The problem "
            "may be unbounded below or have its minimum at infinity (separable classes); add a penalty such as l2."
        )
    return Minimum(theta, problem.value(theta), stationarity)


def _smooth(problem: Problem, theta: np.ndarray, tolerance: float) -> np.ndarray:
    if problem.dimension <= _DENSE:
        found = optimize.minimize(
            problem.value, theta, jac=problem.gradient, hess=problem.hessian, method="trust-exact",
            options={"gtol": 1e-8, "maxiter": 1000},
        )  # fmt: skip
        theta = found.x
        for _ in range(10):  # Newton's own steps: the trust region stalls where values no longer resolve progress
            gradient = problem.gradient(theta)
            trial = theta - np.linalg.lstsq(problem.hessian(theta), gradient, rcond=1e-14)[0]
            if np.sum(problem.gradient(trial) ** 2) >= 0.5 * np.sum(gradient**2):
                break
            theta = trial
        return theta
    options = {"maxiter": 100_000, "maxfun": 200_000, "gtol": tolerance**0.5, "ftol": 0.0, "maxcor": 30}
    return optimize.minimize(problem.value, theta, jac=problem.gradient, method="L-BFGS-B", options=options).x


def _composite(problem: Problem, theta: np.ndarray, tolerance: float) -> np.ndarray:
    """Accelerated proximal gradient with backtracking (Beck, Teboulle 2009), restarts (O'Donoghue, Candes 2015)."""
    step, momentum, moved = 1.0, theta, 1.0

    def smooth(x: np.ndarray) -> float:
        return float(problem.weights @ problem.local_values(x))

    for _ in range(200_000):
        base, slope = smooth(momentum), problem.gradient(momentum)
        while True:
            trial = problem._regularize("prox", momentum - step * slope, step)
            change = trial - momentum
            bound = base + slope @ change + change @ change / (2 * step)
            if smooth(trial) <= bound + 1e-15 * abs(base) or step < 1e-30:
                break
            step /= 2
        if change @ change / step**2 <= tolerance:
            return trial
        if change @ (trial - theta) < 0:  # going back: restart the momentum
            moved = 1.0
        following = (1 + (1 + 4 * moved**2) ** 0.5) / 2
        momentum = trial + (moved - 1) / following * (trial - theta)
        theta, moved = trial, following
    return theta
