"""Who takes part. Drawn once per communication; the choice holds for the whole stretch of silent rounds before it.

A draw uses one uniform number per client, derived from the run's seed, the round and the client's NAME, so that the
order of the clients does not matter. A client that is not picked is absent: it does nothing and its state stays as it
is. (A silent client is another thing: it works, and the schedule skips its message.)

`chances` are the probabilities with which clients are picked; a method that divides by them (`FedAvg` with
`averaging="unbiased"`) makes up for any rule that has some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedual.arrays import record
from fedual.protocols import Participation

__all__ = ["Availability", "Bernoulli", "Explicit", "Full", "Participation", "Uniform"]


@record
class Full(Participation):
    """Every client takes part in every round.

    Example:
        >>> import fedual as fd
        >>> rule = fd.participation.Full()
    """

    everyone = True

    def chances(self, count: int) -> Any:
        return np.ones(count)

    def draw(self, uniform: Any, stretch: Any) -> Any:
        return jnp.ones(uniform.shape, bool)


@record
class Uniform(Participation):
    """A given number of clients, every set of that size being equally likely.

    Args:
        count: how many, 1 <= count <= K.
        fraction: instead of `count`: this share of the K clients, rounded to the nearest number, at least one.

    Raises:
        ValueError: not exactly one of the two is given, or it is out of range, when the run starts.

    Example:
        >>> import fedual as fd
        >>> fd.participation.Uniform(fraction=0.1).bind(("a", "b", "c")).count
        1
    """

    count: Any = None
    fraction: Any = None

    def bind(self, names: tuple[str, ...]) -> Uniform:
        count, fraction = self.count, self.fraction
        if (count is None) == (fraction is None):
            raise ValueError(f"count = {count!r} and fraction = {fraction!r}: give exactly one of the two.")
        if count is None:
            if isinstance(fraction, bool) or not 0 < fraction <= 1:
                raise ValueError(f"fraction = {fraction!r} must lie in (0, 1].")
            return Uniform(count=max(1, int(fraction * len(names) + 0.5)))
        if isinstance(count, bool) or int(count) != count or not 1 <= count <= len(names):
            raise ValueError(f"count = {count!r} must be an integer from 1 to {len(names)}, the number of clients.")
        return Uniform(count=int(count))

    def chances(self, count: int) -> Any:
        return np.full(count, self.count / count)

    def draw(self, uniform: Any, stretch: Any) -> Any:
        # Ranks rather than a threshold, so that equal numbers cannot change how many are picked.
        return jnp.argsort(jnp.argsort(uniform)) < self.count


@record
class Bernoulli(Participation):
    """Every client by a coin of its own. A round in which nobody takes part changes nothing.

    Args:
        probability: of taking part, 0 < probability <= 1; one number, or one per client in the clients' order.

    Raises:
        ValueError: a probability is out of range, or their number is not K, when the run starts.

    Example:
        >>> import fedual as fd
        >>> rule = fd.participation.Bernoulli(0.5)
    """

    probability: Any

    def bind(self, names: tuple[str, ...]) -> Bernoulli:
        values = np.asarray(self.probability)
        if values.dtype.kind not in "iuf" or values.shape not in ((), (len(names),)):
            raise ValueError(f"probability = {self.probability!r} must be one number, or {len(names)}, one per client.")
        values = np.broadcast_to(values.astype(float), len(names))
        fine = (values > 0) & (values <= 1)
        if not fine.all():
            k = int(np.argmin(fine))
            raise ValueError(
                f"client {names[k]!r} would take part with probability {values[k]}; it must lie in (0, 1]."
            )
        return Bernoulli(values)

    def chances(self, count: int) -> Any:
        return self.probability

    def draw(self, uniform: Any, stretch: Any) -> Any:
        return uniform < self.probability


@record
class Explicit(Participation):
    """Exactly the given clients, stretch by stretch; after the list everyone takes part.

    A stretch ends with a communication: where no round is skipped, stretches are rounds.

    Args:
        stretches: one entry per stretch: the names of its participants, or K flags in the clients' order. An empty
            list of names is a stretch in which nobody takes part.

    Raises:
        ValueError: an unknown name, or a wrong number of flags, when the run starts.

    Example:
        >>> import fedual as fd
        >>> rule = fd.participation.Explicit([["a", "b"], [True, False, True]])
        >>> rule.bind(("a", "b", "c")).stretches.astype(int).tolist()
        [[1, 1, 0], [1, 0, 1], [1, 1, 1]]
    """

    stretches: Any

    def bind(self, names: tuple[str, ...]) -> Explicit:
        table = [_flags(entry, names, f"stretch {number}") for number, entry in enumerate(self.stretches)]
        return Explicit(np.array([*table, np.ones(len(names), bool)]))

    def draw(self, uniform: Any, stretch: Any) -> Any:
        return jnp.asarray(self.stretches)[jnp.minimum(stretch, self.stretches.shape[0] - 1)]


@record
class Availability(Participation):
    """Whoever is available according to a trace, which starts again at its end.

    Args:
        trace: flags by stretch for every client: an array of shape `(K, T)` in the clients' order, or a mapping from
            every client's name to its T flags.

    Raises:
        ValueError: a client is missing or unknown, or the traces differ in length, when the run starts.

    Example:
        >>> import fedual as fd
        >>> rule = fd.participation.Availability({"day": [True, False], "night": [False, True]})
        >>> rule.bind(("day", "night")).trace.astype(int).tolist()
        [[1, 0], [0, 1]]
    """

    trace: Any

    def bind(self, names: tuple[str, ...]) -> Availability:
        trace = self.trace
        if isinstance(trace, Mapping):
            odd = sorted(set(trace) ^ set(names))
            if odd:
                raise ValueError(f"the trace and the clients differ in {odd}: give every client's flags, no others.")
            trace = [trace[name] for name in names]
        if len(trace) != len(names):
            raise ValueError(f"the trace has {len(trace)} clients where there are {len(names)}.")
        lengths = {name: len(flags) for name, flags in zip(names, trace, strict=True)}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise ValueError(f"the clients' traces must be of one length, at least 1; they have {lengths}.")
        table = np.asarray(trace)
        if table.dtype != bool and not np.isin(table, (0, 1)).all():
            raise ValueError("a trace holds flags: True where the client is available, False where it is not.")
        return replace(self, trace=table.astype(bool))

    def draw(self, uniform: Any, stretch: Any) -> Any:
        return jnp.asarray(self.trace)[:, stretch % self.trace.shape[1]]


def _flags(entry: Sequence[Any], names: tuple[str, ...], where: str) -> np.ndarray:
    entry = list(entry)
    if all(isinstance(item, str) for item in entry):
        unknown = sorted(set(entry) - set(names))
        if unknown:
            raise ValueError(f"{where} names {unknown}, which are not among the clients {list(names)}.")
        return np.isin(names, entry) if entry else np.zeros(len(names), bool)
    if len(entry) != len(names) or any(not isinstance(item, bool | np.bool_) for item in entry):
        raise ValueError(f"{where} = {entry!r} must hold names, or {len(names)} booleans in the clients' order.")
    return np.asarray(entry, bool)
