"""The pooled reference solution that tests and reports compare with; computed centrally, never by a federated run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import optimize

from fedual.arrays import precision

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
    return (_proximal_newton if problem.dimension <= _DENSE else _proximal_gradient)(problem, theta, tolerance)


def _proximal_newton(problem: Problem, theta: np.ndarray, tolerance: float) -> np.ndarray:
    """Quadratic models, each minimized with r by a compiled loop, and halved steps (Lee, Sun, Saunders 2014)."""
    best, reached, fruitless = theta, np.inf, 0
    for _ in range(200):
        slope, matrix = problem.gradient(theta), problem.hessian(theta)
        values = np.linalg.eigvalsh(matrix)
        # A model that is not convex has no minimum to go to; the shift also bounds it where f is flat.
        shift = max(0.0, -2 * values[0], 1e-12 * values[-1])
        with precision(problem.dtype):
            target = np.asarray(
                _model_minimum(
                    problem.regularizer, matrix + shift * np.eye(theta.size), slope, theta,
                    1 / (values[-1] + shift), tolerance / 100,
                )
            )  # fmt: skip
        base, step, trial = problem.value(theta), 1.0, target
        while not problem.value(trial) <= base + 1e-15 * abs(base) and step > 1e-10:
            step /= 2
            trial = theta + step * (target - theta)
        stationarity = problem.stationarity(trial)
        fruitless = 0 if stationarity < reached / 2 else fruitless + 1
        if stationarity < reached:
            best, reached = trial, stationarity
        theta = trial
        if reached <= tolerance or fruitless == 5:
            break
    return best


@jax.jit
def _model_minimum(regularizer: Any, matrix: Any, slope: Any, center: Any, step: Any, tolerance: Any) -> Any:
    """argmin over u of <slope, u - center> + (u - center)' matrix (u - center)/2 + r(u).

    Accelerated proximal gradient (Beck, Teboulle 2009) with restarts (O'Donoghue, Candes 2015).
    """

    def advance(state: Any) -> Any:
        x, momentum, moved, number, _ = state
        trial = regularizer.prox(momentum - step * (slope + matrix @ (momentum - center)), step)
        change = trial - momentum
        moved = jnp.where(jnp.vdot(change, trial - x) < 0, 1.0, moved)  # going back: restart the momentum
        following = (1 + jnp.sqrt(1 + 4 * moved**2)) / 2
        momentum = trial + (moved - 1) / following * (trial - x)
        return trial, momentum, following, number + 1, jnp.vdot(change, change) / step**2

    first = (center, center, jnp.ones_like(step), 0, jnp.full_like(step, jnp.inf))
    return lax.while_loop(lambda state: (state[4] > tolerance) & (state[3] < 200_000), advance, first)[0]


def _proximal_gradient(problem: Problem, theta: np.ndarray, tolerance: float) -> np.ndarray:
    """The same acceleration on the problem itself; where the loss knows no smoothness the step is found by halving."""
    bound = problem.smoothness()
    step = 1.0 if bound is None else 1 / float(problem.weights @ bound)
    momentum, moved = theta, 1.0

    def smooth(x: np.ndarray) -> float:
        return float(problem.weights @ problem.local_values(x))

    for _ in range(200_000):
        slope = problem.gradient(momentum)
        base = smooth(momentum) if bound is None else np.inf
        while True:
            trial = problem._regularize("prox", momentum - step * slope, step)
            change = trial - momentum
            allowed = base + slope @ change + change @ change / (2 * step) + 1e-15 * abs(base)
            if bound is not None or smooth(trial) <= allowed or step < 1e-30:
                break
            step /= 2
        if change @ change / step**2 <= tolerance:
            return trial
        if change @ (trial - theta) < 0:
            moved = 1.0
        following = (1 + (1 + 4 * moved**2) ** 0.5) / 2
        momentum = trial + (moved - 1) / following * (trial - theta)
        theta, moved = trial, following
    return theta
