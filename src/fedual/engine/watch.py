"""What the driver keeps in mind to judge a run: the best model so far, growth without end, a plateau."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

__all__ = ["PATIENCE", "Watch", "look", "start"]

PATIENCE = 100  # rounds without progress that make a plateau
_PROGRESS = 0.99  # a stationarity below this fraction of the last mark is progress
_SETTLING = 10  # evaluations whose largest figures are the reference for growth
_GROWTH = 1e6  # times the reference: a gradient a thousand times as long


class Watch(NamedTuple):
    """Scalars but for `theta`, the evaluated server model of the lowest stationarity, shape `(d,)`.

    Attributes:
        theta, best, round: that model, its stationarity and its round.
        mark, marked: the stationarity at the last progress, and its round.
        evaluations: how many so far.
        objective, stationarity: the largest among the first few evaluations.
    """

    theta: Any
    best: Any
    round: Any
    mark: Any
    marked: Any
    evaluations: Any
    objective: Any
    stationarity: Any


def start(theta: Any) -> Watch:
    """Before the first round."""
    infinity, zero = jnp.asarray(jnp.inf, theta.dtype), jnp.int32(0)
    return Watch(theta, infinity, zero, infinity, zero, zero, -infinity, -infinity)


def look(watch: Watch, number: Any, theta: Any, objective: Any, stationarity: Any) -> tuple[Watch, Any, Any]:
    """After round `number`; NaN where it was not evaluated. Returns the watch, whether it diverges, whether it stalls.

    A run diverges when its stationarity is a million times the reference and its objective above it.
    """
    evaluated = ~jnp.isnan(stationarity)
    better = stationarity < watch.best
    progress = stationarity < _PROGRESS * watch.mark
    settling = evaluated & (watch.evaluations < _SETTLING)
    new = Watch(
        theta=jnp.where(better, theta, watch.theta),
        best=jnp.where(better, stationarity, watch.best),
        round=jnp.where(better, number, watch.round),
        mark=jnp.where(progress, stationarity, watch.mark),
        marked=jnp.where(progress, number, watch.marked),
        evaluations=watch.evaluations + evaluated,
        objective=jnp.where(settling, jnp.maximum(objective, watch.objective), watch.objective),
        stationarity=jnp.where(settling, jnp.maximum(stationarity, watch.stationarity), watch.stationarity),
    )
    diverges = evaluated & (stationarity > _GROWTH * new.stationarity) & (objective > new.objective)
    stalls = evaluated & (number - new.marked >= PATIENCE)
    return new, diverges, stalls
