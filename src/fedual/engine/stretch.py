"""A stretch of rounds at one site, as one compiled program."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedual.arrays import wrap_key
from fedual.engine.keys import MINIBATCH
from fedual.engine.participants import Flags, Sums, all_clients
from fedual.local import Local

__all__ = ["Point", "evaluate", "run_stretch"]


class Point(NamedTuple):
    """Everything that a stretch changes: the state of the client, its oracle's carry, the driver's record."""

    client: Any
    carry: Any
    record: Any


class Now(NamedTuple):
    """What `all_clients` needs of a run's state."""

    broadcast: Any
    fresh: Any
    step_size: Any


@partial(jax.jit, static_argnums=0)
def run_stretch(
    flags: Flags, loss: Any, regularizer: Any, algorithm: Any, oracle: Any, limit: Any, chance: Any,
    bucket: Any, base: Point, broadcast: Any, key: Any, step_size: Any, first: Any, last: Any,
) -> tuple[Point, Sums, Any]:  # fmt: skip
    """Rounds first..last, all but the last silent.

    Returns:
        Where the client is then; what it contributes in the last round, with the gradients that all rounds took; and
        what it observed in the first.
    """

    def prox(v: Any, scale: Any) -> Any:
        return v if regularizer is None else regularizer.prox(v, scale)

    def one(number: Any, point: Point) -> tuple[Point, Sums]:
        now = Now(broadcast, number == first, step_size)
        round_key = jax.random.fold_in(jax.random.fold_in(wrap_key(key), number), MINIBATCH)
        *parts, sums = all_clients(
            flags, algorithm, prox, number < last, now, round_key, loss, bucket, oracle, limit, chance, 1, *point, None
        )
        return Point(*parts), sums

    def further(number: Any, carry: Any) -> Any:
        point, before, observed = carry
        point, sums = one(number, point)
        observed = jax.tree.map(jnp.add, observed, sums.observed)  # zero but in the first round
        return point, sums._replace(evaluations=before.evaluations + sums.evaluations), observed

    _, shapes = jax.eval_shape(one, first, base)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.fori_loop(first, last + 1, further, (base, zeros, zeros.observed))


@jax.jit
def evaluate(loss: Any, bucket: Any, theta: Any) -> tuple[Any, Any]:
    entry = jax.tree.map(lambda leaf: leaf[0], bucket)
    local = Local(loss, entry.rows, entry.count)
    return local.value(theta), local.gradient(theta)
