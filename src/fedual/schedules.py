"""Whether a round skips the communication. p is always the probability of SKIPPING.

One coin is tossed for the whole federation, from the run's key and the round's number; a skipped round sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedual import formulas
from fedual.arrays import record, squared_norm, static
from fedual.protocols import Schedule

__all__ = ["Adaptive", "Always", "Decay", "Explicit", "Periodic", "Schedule", "Skip"]


@record
class Always(Schedule):
    """Every round communicates: p = 0.

    Example:
        >>> import fedual as fd
        >>> float(fd.schedules.Always().p((), 1))
        0.0
    """

    never_skips = True

    def p(self, state: Any, round: Any) -> Any:
        return jnp.zeros(())


@record
class Skip(Schedule):
    """Every round is skipped with the same probability p.

    With a constant p > 0 FedPD settles in a neighborhood of a solution that grows with p and with the dissimilarity of
    the clients; it converges exactly only where p goes to 0.

    Args:
        probability: p, 0 <= p < 1.

    Raises:
        ValueError: p is outside [0, 1).

    Example:
        >>> import fedual as fd
        >>> fd.schedules.Skip(0.5).p((), 3)
        0.5
    """

    probability: Any

    def check(self) -> None:
        p = self.probability
        if isinstance(p, bool) or not 0 <= p < 1:
            raise ValueError(f"probability = {p!r} must lie in [0, 1): it is the probability of skipping a round.")

    def p(self, state: Any, round: Any) -> Any:
        return self.probability


@record
class Decay(Schedule):
    """p_t = (T - t)/T for t = 1..T, and 0 from then on: rare communication first, every round at the end.

    Args:
        rounds: T >= 1. It belongs to the schedule: running for more or fewer rounds, or resuming, does not change it.

    Raises:
        ValueError: T < 1.

    Example:
        >>> import fedual as fd
        >>> schedule = fd.schedules.Decay(4)
        >>> [float(schedule.p((), t)) for t in (1, 2, 4, 9)]
        [0.75, 0.5, 0.0, 0.0]
    """

    rounds: Any

    def check(self) -> None:
        if isinstance(self.rounds, bool) or int(self.rounds) != self.rounds or self.rounds < 1:
            raise ValueError(f"rounds = {self.rounds!r} must be an integer >= 1.")

    def p(self, state: Any, round: Any) -> Any:
        return jnp.maximum(self.rounds - round, 0) / self.rounds


@record
class Periodic(Schedule):
    """Communicate in every `period`-th round (rounds period, 2 period, ...) and in no other.

    Args:
        period: an integer >= 1; 1 is `Always`.

    Raises:
        ValueError: the period is not an integer >= 1.

    Example:
        >>> import fedual as fd
        >>> schedule = fd.schedules.Periodic(3)
        >>> [int(schedule.p((), t)) for t in range(1, 7)]
        [1, 1, 0, 1, 1, 0]
    """

    period: Any

    def check(self) -> None:
        if isinstance(self.period, bool) or int(self.period) != self.period or self.period < 1:
            raise ValueError(f"period = {self.period!r} must be an integer >= 1.")

    def p(self, state: Any, round: Any) -> Any:
        return jnp.where(round % self.period == 0, 0.0, 1.0)


@record
class Explicit(Schedule):
    """Skip exactly the rounds marked True; rounds after the list communicate.

    Args:
        skips: one boolean per round, from round 1.

    Raises:
        ValueError: an entry is not a boolean.

    Example:
        >>> import fedual as fd
        >>> schedule = fd.schedules.Explicit([True, False])
        >>> [int(schedule.p((), t)) for t in (1, 2, 3)]
        [1, 0, 0]
    """

    skips: tuple[bool, ...] = static()

    def __post_init__(self) -> None:
        skips: Sequence[Any] = self.skips
        if any(not isinstance(entry, bool | np.bool_) for entry in skips):
            raise ValueError(f"skips = {list(skips)!r} must be booleans, True for a skipped round.")
        object.__setattr__(self, "skips", tuple(bool(entry) for entry in skips))

    def p(self, state: Any, round: Any) -> Any:
        flags = jnp.asarray([*self.skips, False], dtype=jnp.result_type(float))
        return flags[jnp.minimum(round - 1, len(self.skips))]


class Estimates(NamedTuple):
    """c_t and G_t^2 in use, and those of the present stretch that wait for the next communication; NaN before."""

    stationarity: Any
    dissimilarity: Any
    next_stationarity: Any
    next_dissimilarity: Any


@record
class Adaptive(Schedule):
    """Skip as often as theory allows for the accuracy reached so far, and not at all once epsilon is reached.

        p_t = skip_probability(c_t, G_t, L)   while c_t > epsilon,    0 from then on

    At the beginning of a stretch every client evaluates its gradient at the model that it received, and adds it and
    its square to its next message: one gradient and d + 1 numbers more per communication, all counted. Their weighted
    means give c_t = ||grad f||^2 and G_t^2 = sum w_k ||grad f_k||^2 - c_t there: the mean square over clients, which
    sums reveal, where theory's G is a maximum. The estimates, and so p, change only at communications; until there are
    any, p = 0. The rule is evaluated in units where L = 1 with the theory's s, so that scaling the loss changes
    nothing. As p goes to 0 with c_t, FedPD converges exactly. It needs everyone's gradients, so it does not go with
    partial participation.

    Args:
        epsilon: the accuracy aimed at, for ||grad f||^2, > 0.
        form: of the rule, see `theory.skip_probability`.

    Raises:
        ValueError: epsilon is not positive and finite, an unknown form, or partial participation.

    Reference:
        Zhang, Hong, Dhople, Yin and Liu, "FedPD: A federated learning framework with adaptivity to non-IID data",
        IEEE Transactions on Signal Processing 69, 2021, Remark 5 and Table III, with estimates for epsilon and G.

    Example:
        >>> import fedual as fd
        >>> schedule = fd.schedules.Adaptive(epsilon=1e-12)
        >>> float(schedule.p(schedule.init(), 1))
        0.0
    """

    epsilon: Any
    form: str = static(default="seed")

    observes = True

    def check(self) -> None:
        if isinstance(self.epsilon, bool | str) or not 0 < self.epsilon < float("inf"):
            raise ValueError(
                f"epsilon = {self.epsilon!r} must be positive and finite: it is an accuracy of ||grad f||^2."
            )
        if self.form not in formulas.FORMS:
            raise ValueError(f"form = {self.form!r} must be one of {', '.join(map(repr, formulas.FORMS))}.")

    def init(self) -> Any:
        unknown = jnp.asarray(jnp.nan)
        return Estimates(unknown, unknown, unknown, unknown)

    def observe(self, state: Any, gradient: Any, square: Any) -> Any:
        c = squared_norm(gradient)
        return state._replace(next_stationarity=c, next_dissimilarity=jnp.maximum(square - c, 0))

    def communicated(self, state: Any) -> Any:
        c, g = state.next_stationarity, state.next_dissimilarity
        return state._replace(stationarity=c, dissimilarity=g)

    def p(self, state: Any, round: Any) -> Any:
        c, g = state.stationarity, state.dissimilarity
        wanted = c > self.epsilon  # False where nothing is known yet
        alike = g <= 16 * jnp.finfo(c.dtype).eps * c  # G = 0 up to rounding
        ratio = jnp.where(alike, jnp.inf, jnp.where(wanted, c, 1) / jnp.where(wanted & ~alike, g, 1))
        return jnp.where(wanted, formulas.skip_probability(ratio, formulas.STEP, formulas.STEP, self.form, jnp), 0.0)
