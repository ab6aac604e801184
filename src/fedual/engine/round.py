"""One round of all clients, as the compiled program does it."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedual import tuning
from fedual.arrays import record, squared_norm, where, wrap_key
from fedual.blocks import pass_size, sum_clients
from fedual.engine import watch
from fedual.engine.bind import Method
from fedual.engine.keys import COIN, MINIBATCH, draw_active, uniform_number
from fedual.engine.participants import Flags, all_clients
from fedual.engine.state import Device

__all__ = ["GROWS", "NOT_FINITE", "REACHED", "RUNNING", "STALLS", "Control", "Data", "Row", "one_round"]

RUNNING, REACHED, NOT_FINITE, GROWS, STALLS = range(5)


@record
class Data:
    """The problem as the program sees it.

    Attributes:
        loss, regularizer: as given; the regularizer may be None.
        buckets: the clients' data.
        words: two words per client in the user's order, shape `(K, 2)`.
    """

    loss: Any
    regularizer: Any
    buckets: Any
    words: Any


class Control(NamedTuple):
    """When to evaluate and to stop; scalars.

    Attributes:
        rounds: at most this many in this chunk.
        every: evaluate objective and stationarity when the round's number is a multiple.
        tolerance: on the stationarity; negative for none.
        relative: on the unit-free residuals; negative for none.
    """

    rounds: Any
    every: Any
    tolerance: Any
    relative: Any


class Row(NamedTuple):
    """One round's figures; counts are the round's own."""

    communicated: Any
    uplinks: Any
    downlinks: Any
    objective: Any
    stationarity: Any
    primal_residual: Any
    dual_residual: Any
    s: Any
    p: Any
    gradient_evaluations: Any


def _total(tree: Any, axis: str | None) -> Any:
    return tree if axis is None else lax.psum(tree, axis)


def one_round(
    data: Data, method: Method, state: Device, control: Control, axis: str | None
) -> tuple[Device, Row, Any, Any]:
    number = state.round + 1
    key = jax.random.fold_in(wrap_key(state.key), number)
    algorithm = method.algorithm
    if hasattr(algorithm, "step_size"):
        algorithm = dataclasses.replace(algorithm, step_size=state.step_size)

    def prox(v: Any, scale: Any) -> Any:
        return v if data.regularizer is None else data.regularizer.prox(v, scale)

    p = method.schedule.p(state.schedule, number)
    silent = jnp.asarray(False)
    if not method.schedule.never_skips:
        silent = uniform_number(jax.random.fold_in(key, COIN)) < p
    active = draw_active(method, state, data.words)
    flags = Flags(method.adapts, method.schedule.observes, method.compact)
    step = partial(all_clients, flags, algorithm, prox, silent, state, jax.random.fold_in(key, MINIBATCH))
    buckets = [
        step(data.loss, b, o, limit, chance, block, c, y, r, None if method.participation.everyone else active)
        for b, o, limit, chance, block, c, y, r in zip(
            data.buckets, method.oracles, method.limits, method.chances, method.blocks, state.clients, state.carries,
            state.records, strict=True,
        )
    ]  # fmt: skip
    clients, carries, records = (tuple(part[i] for part in buckets) for i in range(3))
    sums = _total(jax.tree.map(lambda *leaves: sum(leaves), *(part[3] for part in buckets)), axis)

    communicated = ~silent & (sums.participants > 0)
    server, broadcast = where(
        communicated,
        algorithm.aggregate(state.server, sums.message, sums.weight, prox),
        (state.server, state.broadcast),
    )
    step_size, tuner = state.step_size, state.tuner
    if method.adapts:
        tuner, step_size = where(communicated, tuning.adapt(tuner, step_size, sums.movement), (tuner, step_size))
    schedule = state.schedule
    if method.schedule.observes:
        means = jax.tree.map(lambda total: total / jnp.where(sums.weight > 0, sums.weight, 1), sums.observed)
        schedule = where(state.fresh, method.schedule.observe(schedule, *means), schedule)
        schedule = where(communicated, method.schedule.communicated(schedule), schedule)
    if algorithm.answered:
        hear = jax.vmap(partial(algorithm.answer, broadcast=broadcast))
        held = (_held(method, active[b.index], c) for b, c in zip(data.buckets, clients, strict=True))
        clients = tuple(where(communicated & h, hear(c), c) for h, c in zip(held, clients, strict=True))
    mean, dual_mean = state.mean + sums.model_change, state.dual + sums.dual_change
    primal, dual, scales = _residuals(data, state, records, mean, dual_mean, axis)
    scales = jax.tree.map(jnp.maximum, scales, state.scales)
    theta = algorithm.theta(server)
    objective, stationarity = lax.cond(
        number % control.every == 0,
        lambda: _evaluate(data, theta, state.step_size, axis),
        lambda: (jnp.full((), jnp.nan, theta.dtype),) * 2,
    )
    row = Row(
        communicated=communicated,
        uplinks=jnp.where(communicated, sums.participants, 0),
        downlinks=jnp.where(state.fresh, sums.participants, 0)
        + jnp.where(communicated & algorithm.answered, sums.participants, 0),
        objective=objective,
        stationarity=stationarity,
        primal_residual=primal,
        dual_residual=dual,
        s=state.step_size,
        p=jnp.asarray(p, theta.dtype),
        gradient_evaluations=sums.evaluations,
    )
    reached = stationarity <= control.tolerance
    within = (primal <= control.relative * scales[0]) & (dual <= control.relative * scales[1])
    reached |= communicated & (control.relative > 0) & within
    bad = _first_bad(data, records, theta, axis)
    nobody = data.words.shape[0] + 1
    seen, grows, stalls = watch.look(state.watch, number, theta, objective, stationarity)
    asked = (control.tolerance >= 0) | (control.relative >= 0)
    code = jnp.select(
        [bad < nobody, reached, grows, stalls & asked], [NOT_FINITE, REACHED, GROWS, STALLS], RUNNING
    ).astype(jnp.int32)
    new = dataclasses.replace(
        state, round=number, stretch=state.stretch + ~silent, fresh=~silent, active=active, server=server,
        broadcast=broadcast, clients=clients, carries=carries, records=records, schedule=schedule,
        step_size=step_size, tuner=tuner, mean=mean, dual=dual_mean, scales=scales, watch=seen,
    )  # fmt: skip
    return new, row, code, bad


def _held(method: Method, active: Any, clients: Any) -> Any:
    """Which of a bucket's states, shape of their leading axis, belong to participants."""
    if not method.compact:
        return active
    return jnp.arange(jax.tree.leaves(clients)[0].shape[0]) < jnp.sum(active)


def _residuals(data: Data, state: Device, records: Any, mean: Any, dual_mean: Any, axis: str | None) -> Any:
    """Primal and dual residual, and the scales that make them unit-free."""
    parts = [
        (bucket.weight @ kept.gap, bucket.weight @ kept.model_square, bucket.weight @ kept.dual_square)
        for bucket, kept in zip(data.buckets, records, strict=True)
    ]
    gap, model_square, dual_square = _total(jax.tree.map(lambda *x: sum(x), *parts), axis)
    if data.regularizer is None:
        dual = jnp.linalg.norm(dual_mean)
    else:
        dual = jnp.linalg.norm(mean - state.mean) / state.step_size
    return jnp.sqrt(gap), dual, (jnp.sqrt(model_square), jnp.sqrt(dual_square))


def _evaluate(data: Data, theta: Any, s: Any, axis: str | None) -> tuple[Any, Any]:
    """The objective and the stationarity at theta."""

    def one(entry: Any) -> Any:
        value, gradient = data.loss.value(theta, entry.rows), data.loss.gradient(theta, entry.rows)
        return entry.weight * value, entry.weight * gradient

    zero = jnp.zeros((), theta.dtype), jnp.zeros_like(theta)
    width = 4 * theta.size * theta.dtype.itemsize  # a client's gradient, and what a network needs on the way to it
    parts = [
        sum_clients(lambda b, _: (((), ()), jax.vmap(one)(b)), bucket, ((), ()), zero, pass_size(bucket, width))[1]
        for bucket in data.buckets
    ]
    value, gradient = _total(jax.tree.map(lambda *x: sum(x), *parts), axis)
    if data.regularizer is None:
        return value, squared_norm(gradient)
    step = (theta - data.regularizer.prox(theta - s * gradient, s)) / s
    return value + data.regularizer.value(theta), squared_norm(step)


def _first_bad(data: Data, records: Any, theta: Any, axis: str | None) -> Any:
    """Position of the first client whose result is not finite; K if only the server's is; K + 1 if all is well."""
    count = data.words.shape[0]
    bad = jnp.where(jnp.isfinite(jnp.sum(theta)), count + 1, count)
    for bucket, kept in zip(data.buckets, records, strict=True):
        bad = jnp.minimum(bad, jnp.min(jnp.where(kept.finite, count + 1, bucket.index)))
    bad = bad.astype(jnp.int32)
    return bad if axis is None else lax.pmin(bad, axis)
