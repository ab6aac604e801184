"""One block of clients through their local steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedual.arrays import where
from fedual.local import Local, Subproblem
from fedual.protocols import FirstOrder, Oracle
from fedual.tuning import local_steps

__all__ = ["draw_indices", "limits", "work"]


def limits(oracle: Any, subproblem: Subproblem, limit: Any) -> Any:
    """Steps per client of a block, shape `(B,)`, where they differ or are automatic; None where all make as many."""
    if getattr(oracle, "steps", None) != "auto":
        return limit
    return jax.vmap(lambda o, p: local_steps(o.contraction(p.rho)))(oracle, subproblem)


def draw_indices(key: jax.Array, steps: int, batch_size: int, count: Any) -> jax.Array:
    """The rows of every minibatch of a round, shape `(steps, batch_size)`, uniform with replacement below `count`."""

    def one(number: Any) -> jax.Array:
        return jax.random.randint(jax.random.fold_in(key, number), (batch_size,), 0, count, dtype=jnp.int32)

    return jax.vmap(one)(jnp.arange(steps))


def work(
    oracle: Oracle, local: Local, subproblem: Subproblem, carry: Any, visits: Any, limit: Any, keys: jax.Array
) -> tuple[jax.Array, Any, Any]:
    """Solve the subproblems of a block of clients; every argument is stacked along a leading client axis.

    Args:
        limit: steps per client where they differ, shape `(B,)`; None where all make `oracle.steps`.
        keys: one random key per client for this round.

    Returns:
        The oracles' results `(B, d)`, their carries, and the sample gradients that each evaluated, shape `(B,)`.
    """
    if not oracle.carries:
        carry = jax.vmap(lambda o, f, p: o.init(f, p.start))(oracle, local, subproblem)
    if not isinstance(oracle, FirstOrder):
        return jax.vmap(lambda o, f, p, c: o.solve(f, p, c))(oracle, local, subproblem, carry)

    start = subproblem.start
    wants = jax.vmap(lambda o, v: jnp.asarray(o.wants(v)))(oracle, visits)
    evaluations = jnp.where(wants, local.count, 0)
    if type(oracle).wants is not FirstOrder.wants:
        # Decided for the whole block, outside vmap, where the gradient costs nothing unless someone wants it.
        gradient = lax.cond(
            jnp.any(wants), lambda: jax.vmap(lambda f, x: f.gradient(x))(local, start), lambda: jnp.zeros_like(start)
        )
        begun = jax.vmap(lambda o, x, c, g: o.begin(x, c, g))(oracle, start, carry, gradient)
        carry = where(wants, begun, carry)

    steps, batch = oracle.steps, oracle.batch_size
    indices = None
    if batch is not None:
        indices = jax.vmap(lambda key, count: draw_indices(key, steps, batch, count))(keys, local.count)

    def step(number: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        rows = None if indices is None else indices[:, number]
        new = jax.vmap(lambda o, p, f, i, s: o.step(*s, p, f, i))(oracle, subproblem, local, rows, state)
        return new if limit is None else where(number < limit, new, state)

    # An empty carry leaves the loop's state an array alone.
    x, carry = lax.fori_loop(0, steps if limit is None else jnp.max(limit), step, (start, carry))
    made = jnp.full(visits.shape, steps) if limit is None else limit
    cost = jax.vmap(lambda o, f: jnp.asarray(o.cost(f.count)))(oracle, local)
    return x, carry, evaluations + made * cost
