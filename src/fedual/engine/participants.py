"""All of a bucket's participants through one round: receive, local work, books, what they contribute."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedual import tuning
from fedual.arrays import squared_norm, where
from fedual.blocks import sum_clients
from fedual.engine.keys import client_key
from fedual.engine.local_work import limits, work
from fedual.engine.state import duals
from fedual.local import Local
from fedual.protocols import Work

__all__ = ["Flags", "Sums", "all_clients"]


class Flags(NamedTuple):
    """What a round is asked for beside the messages; part of the program.

    Attributes:
        adapts: the rule for s wants to know how the clients moved.
        observes: the schedule wants to know their gradients at the model they received.
        compact: the states are those of participants alone, see `engine.stored`.
    """

    adapts: bool
    observes: bool
    compact: bool = False


class Sums(NamedTuple):
    """What a client contributes to sums over clients."""

    message: Any
    weight: Any
    participants: Any
    evaluations: Any
    movement: Any  # for the rule for s, () where it is fixed
    observed: Any  # grad f_k and its square at the received model, () where the schedule does not ask
    model_change: Any = ()  # w_k times the change of theta_k, and of lambda_k
    dual_change: Any = ()


def all_clients(
    flags: Flags, algorithm: Any, prox: Any, silent: Any, state: Any, key: jax.Array, loss: Any,
    bucket: Any, oracle: Any, limit: Any, chance: Any, block: int,
    clients: Any, carries: Any, records: Any, active: Any,
) -> tuple[Any, Any, Any, Sums]:  # fmt: skip
    """All of a bucket's participants through one round.

    Args:
        flags: see `Flags`.
        state: of which only `broadcast`, `fresh` and `step_size` matter.
    """

    def begin(client: Any, record: Any) -> tuple[Any, Any]:
        ratio = algorithm.step_size / record.step_size if hasattr(algorithm, "step_size") else 1.0
        received = algorithm.receive(algorithm.rescale(client, ratio), state.broadcast)
        client = where(state.fresh, received, client)
        return client, algorithm.subproblem(client)

    def end(
        entry: Any, local: Any, o: Any, chance: Any, observed: Any, client: Any, subproblem: Any,
        record: Any, x: Any, steps: Any, spent: Any,
    ) -> Any:  # fmt: skip
        rate = o.rate(subproblem) if hasattr(o, "rate") else jnp.nan
        new, message = algorithm.update(client, x, Work(steps, rate, local.gradient, chance))
        spent += algorithm.gradients * entry.count
        gap = squared_norm(x - client.anchor)
        done = algorithm.sent(new, message)
        if algorithm.silent:
            done = where(silent, algorithm.skip(new, message, prox), done)
        finite = jnp.isfinite(sum(jnp.sum(leaf) for leaf in jax.tree.leaves((x, message))))
        record = record._replace(visits=record.visits + 1, gap=gap, step_size=state.step_size, finite=finite)
        sums = Sums(
            jax.tree.map(lambda leaf: entry.weight * leaf, message),
            entry.weight,
            entry.real.astype(jnp.int32),
            jnp.where(entry.real, spent, 0).astype(x.dtype),
            (),
            jax.tree.map(lambda leaf: entry.weight * leaf, observed),
        )
        return done, record, sums

    def advance(fixed: Any, changing: Any) -> Any:
        (entry, o, given, odds), ((client, carry), record) = fixed, changing
        before = client.model, duals(algorithm, client, record)
        client, subproblem = jax.vmap(begin)(client, record)
        local = jax.vmap(lambda e: Local(loss, e.rows, e.count))(entry)
        keys = jax.vmap(partial(client_key, key))(entry.words)
        limit = limits(o, subproblem, given)
        x, kept, spent = work(o, local, subproblem, carry, record.visits, limit, keys)
        observed: Any = ()
        if flags.observes:
            observed = _observe(local, client.anchor, state.fresh)
            spent += jnp.where(state.fresh, entry.count, 0)
        steps = jnp.broadcast_to(getattr(o, "steps", 0), spent.shape) if limit is None else limit
        visits = record.visits
        client, record, sums = jax.vmap(end)(
            entry, local, o, odds, observed, client, subproblem, record, x, steps, spent
        )
        after = client.model, duals(algorithm, client, record)
        record = record._replace(
            model_square=jnp.sum(after[0] ** 2, axis=1), dual_square=jnp.sum(after[1] ** 2, axis=1)
        )
        model_change, dual_change = (entry.weight[:, None] * (b - a) for a, b in zip(before, after, strict=True))
        sums = sums._replace(model_change=model_change, dual_change=dual_change)
        if flags.adapts:
            sums = sums._replace(movement=jax.vmap(tuning.movement)(entry.weight, visits, before, after))
        return ((client, kept if o.carries else ()), record), sums

    fixed, changing = (bucket, oracle, limit, chance), ((clients, carries), records)
    one = jax.tree.map(lambda leaf: leaf[:1], (fixed, changing))
    shapes = jax.eval_shape(advance, *one)[1]
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), shapes)
    chosen = None if active is None else active[bucket.index]
    ((clients, carries), records), sums = sum_clients(advance, fixed, changing, zero, block, chosen, flags.compact)
    return clients, carries, records, sums


def _observe(local: Any, received: Any, fresh: Any) -> tuple[Any, Any]:
    """grad f_k and ||grad f_k||^2 at the model received, in the first round of a stretch; zeros in the others."""
    gradient = lax.cond(
        fresh, lambda: jax.vmap(lambda f, x: f.gradient(x))(local, received), lambda: jnp.zeros_like(received)
    )
    return gradient, jnp.sum(gradient**2, axis=1)
