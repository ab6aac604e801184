"""Oracles that solve the subproblem: in closed form, or to a tolerance."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedual.arrays import record, static
from fedual.local import Local, Subproblem
from fedual.protocols import Loss, Oracle

__all__ = ["LBFGS", "Exact", "Newton"]


class Spectrum(NamedTuple):
    """Eigenvectors `(d, d)` in columns and eigenvalues `(d,)` of a client's constant Hessian."""

    vectors: Any
    values: Any


@record
class Exact(Oracle):
    """The exact minimizer for quadratic losses, in closed form.

    The client's Hessian is factorized once, at the start of the run, into a form that serves every rho. Where the
    subproblem has many minimizers (rho = 0 and a singular Hessian) it is the one nearest to `start`.

    Raises:
        ValueError: the loss is not quadratic.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.ADMM(oracle=fd.oracles.Exact(), step_size=1.0)
    """

    carries = True

    def check(self, loss: Loss) -> None:
        if not loss.quadratic:
            raise ValueError(
                f"oracles.Exact needs a quadratic loss; {type(loss).__name__} is not. Use oracles.Newton(tolerance) "
                "or oracles.LBFGS(tolerance)."
            )

    def init(self, local: Local, start: jax.Array) -> Spectrum:
        values, vectors = jnp.linalg.eigh(local.hessian(start))
        return Spectrum(vectors, values)

    def solve(self, local: Local, subproblem: Subproblem, carry: Spectrum) -> tuple[jax.Array, Any, Any]:
        x = subproblem.start
        curvature = carry.values + subproblem.rho
        floor = jnp.finfo(x.dtype).eps * x.size * jnp.max(jnp.abs(curvature))
        inverse = jnp.where(curvature > floor, 1 / jnp.where(curvature > floor, curvature, 1), 0)
        for _ in range(2):  # the second pass removes the rounding errors of the first
            slope = local.gradient(x) + subproblem.penalty_gradient(x)
            x = x - carry.vectors @ (inverse * (carry.vectors.T @ slope))
        return x, carry, 2 * local.count


@record
class Newton(Oracle):
    """Damped Newton steps until the subproblem's gradient norm is at most `tolerance`.

    A step that is no descent direction is replaced by a gradient step, an overlong one is halved until the value falls
    (a value that is not finite counts as no fall), and where nothing falls any more the iteration ends. A start whose
    gradient is not finite gives NaN, which ends the run with the client named.

    Args:
        tolerance: on the norm of the subproblem's gradient, relative to 1 + ||linear||.
        max_steps: at most this many steps a round.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.FedPD(oracle=fd.oracles.Newton(1e-10), step_size=1.0)
    """

    tolerance: Any = 1e-10
    max_steps: int = static(default=200)

    def solve(self, local: Local, subproblem: Subproblem, carry: Any) -> tuple[jax.Array, Any, Any]:
        def slope(x: Any) -> Any:
            return local.gradient(x) + subproblem.penalty_gradient(x)

        def value(x: Any) -> Any:
            return local.value(x) + subproblem.penalty(x)

        def descend(state: Any) -> Any:
            x, gradient, number, evaluated, _ = state
            hessian = local.hessian(x)
            scale = jnp.sum(jnp.abs(jnp.diag(hessian))) + subproblem.rho
            # The least that rounding leaves of any curvature; without it a start far up an exponential is singular.
            shift = subproblem.rho + 4 * jnp.finfo(x.dtype).eps * scale
            newton = -jnp.linalg.solve(hessian + shift * jnp.eye(x.size, dtype=x.dtype), gradient)
            usable = jnp.all(jnp.isfinite(newton)) & (jnp.vdot(newton, gradient) < 0)
            direction = jnp.where(usable, newton, -gradient / jnp.where(scale > 0, scale, 1))
            step, tried = _backtrack(value, slope, x, direction, gradient)
            new = x + step * direction
            return new, slope(new), number + 1, evaluated + 2 + tried, step > 0

        first = slope(subproblem.start)
        start = _nan_unless_finite(first, subproblem.start)
        goal = self.tolerance * (1 + jnp.linalg.norm(subproblem.linear))

        def unsolved(state: Any) -> Any:
            _, gradient, number, _, moved = state
            return (jnp.linalg.norm(gradient) > goal) & (number < self.max_steps) & moved

        x, _, _, evaluated, _ = lax.while_loop(unsolved, descend, (start, first, 0, 1, True))
        return x, carry, evaluated * local.count


def _nan_unless_finite(gradient: Any, start: Any) -> Any:
    """The start itself; NaN where no descent from it is possible, so that it is not taken for an answer."""
    return jnp.where(jnp.all(jnp.isfinite(gradient)), start, jnp.nan)


def _backtrack(value: Any, slope: Any, x: Any, direction: Any, gradient: Any) -> tuple[Any, Any]:
    """The largest of 1, 1/2, 1/4, ... with sufficient decrease, or 0; and the evaluations spent.

    Where rounding hides a decrease in value, a decrease in the gradient's norm counts instead.
    """
    base, rate = value(x), jnp.vdot(direction, gradient)
    noise = 10 * jnp.finfo(x.dtype).eps * (1 + jnp.abs(base))

    def falls(step: Any) -> Any:
        trial = value(x + step * direction)
        clear = jnp.isfinite(trial) & (trial <= base + 1e-4 * step * rate)
        flat = (jnp.abs(trial - base) <= noise) & (
            jnp.linalg.norm(slope(x + step * direction)) < jnp.linalg.norm(gradient)
        )
        return clear | flat

    def shorter(state: Any) -> Any:
        step, tried, _ = state
        return step / 2, tried + 2, falls(step / 2)

    smallest = jnp.asarray(2.0**-60, x.dtype)
    first = jnp.asarray(1, x.dtype)
    step, tried, found = lax.while_loop(lambda s: ~s[2] & (s[0] > smallest), shorter, (first, 2, falls(first)))
    return jnp.where(found, step, 0), tried


@record
class LBFGS(Oracle):
    """Limited-memory quasi-Newton steps (Optax's, with its zoom line search) until the gradient norm is small.

    A start whose gradient is not finite gives NaN, which ends the run with the client named.

    Args:
        tolerance: on the norm of the subproblem's gradient, relative to 1 + ||linear||.
        max_steps: at most this many steps a round.
        memory: pairs of differences kept.

    Reference:
        Nocedal and Wright, "Numerical Optimization", 2006, Algorithms 7.4 and 7.5.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.FedPD(oracle=fd.oracles.LBFGS(1e-8), step_size=1.0)
    """

    tolerance: Any = 1e-8
    max_steps: int = static(default=200)
    memory: int = static(default=10)

    def solve(self, local: Local, subproblem: Subproblem, carry: Any) -> tuple[jax.Array, Any, Any]:
        optimizer = optax.lbfgs(memory_size=self.memory)

        def value(x: Any) -> Any:
            return local.value(x) + subproblem.penalty(x)

        def slope(x: Any) -> Any:
            return local.gradient(x) + subproblem.penalty_gradient(x)

        def descend(state: Any) -> Any:
            x, gradient, memory, number, evaluated, _ = state
            change, memory = optimizer.update(gradient, memory, x, value=value(x), grad=gradient, value_fn=value)
            new = optax.apply_updates(x, change)
            trials = optax.tree.get(memory, "info").num_linesearch_steps
            norm = jnp.linalg.norm(slope(new))
            # Where the line search finds nothing better, the present point is the answer.
            moved = jnp.isfinite(norm) & jnp.any(new != x)
            kept = jnp.where(moved, new, x)
            return kept, slope(kept), memory, number + 1, evaluated + 2 + 2 * trials, jnp.where(moved, norm, 0)

        first = slope(subproblem.start)
        start = _nan_unless_finite(first, subproblem.start)
        goal = self.tolerance * (1 + jnp.linalg.norm(subproblem.linear))
        state = (start, first, optimizer.init(start), 0, 1, jnp.linalg.norm(first))
        done = lax.while_loop(lambda s: (s[5] > goal) & (s[3] < self.max_steps), descend, state)
        return done[0], carry, done[4] * local.count
