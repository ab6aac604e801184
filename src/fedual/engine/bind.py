"""From what the user wrote to what the program needs: checks, automatic settings, per-client parameters."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedual import participation as participation_module
from fedual import schedules as schedule_module
from fedual.arrays import record, require_record, static
from fedual.blocks import block_size, map_clients
from fedual.devices import on_devices
from fedual.engine.automatic import Smoothness, choose_oracles, first_step_size, is_auto, per_client, settle
from fedual.layout import Layout
from fedual.local import Local
from fedual.problem import Problem
from fedual.protocols import Algorithm, Auto, Oracle, Participation, Schedule

__all__ = ["Bound", "Method", "bind", "rules"]


@record
class Method:
    """What the compiled program needs of a method; every numeric setting is a leaf.

    Attributes:
        algorithm: with numbers for its settings.
        oracles: per bucket, stacked along the clients.
        limits: per bucket, local steps per client where they differ, else None.
        chances: per bucket, every client's probability of taking part in a stretch, NaN where the rule has none.
        schedule, participation: as given.
        blocks: per bucket, clients that work together.
        adapts: whether s follows the run, see `fedual.tuning`.
        compact: the state holds participants alone, for one stretch, see `engine.stored`.
    """

    algorithm: Algorithm
    oracles: tuple[Oracle, ...]
    limits: tuple[Any, ...]
    chances: tuple[Any, ...]
    schedule: Schedule
    participation: Participation
    blocks: tuple[int, ...] = static()
    adapts: bool = static()
    compact: bool = static(default=False)


@dataclass(frozen=True)
class Bound:
    """A problem and a method that fit each other.

    Attributes:
        problem, algorithm: as given; `method` has numbers for every "auto".
        layout: how the clients lie in memory, on `devices` devices.
    """

    problem: Problem
    algorithm: Algorithm
    layout: Layout
    devices: int
    method: Method

    def start_carries(self, theta: Any) -> tuple[Any, ...]:
        """The oracles' first carries, per bucket."""
        return tuple(self.bucket_carries(b, theta) for b in range(len(self.layout.buckets)))

    def bucket_carries(self, b: int, theta: Any, rows: Any = None) -> Any:
        """The first carries of bucket b's clients at `rows`, None for all."""
        bucket, oracle = self.layout.buckets[b], self.method.oracles[b]
        if not oracle.carries:
            return ()
        if rows is not None:
            bucket, oracle = jax.tree.map(lambda leaf: leaf[rows], (bucket, oracle))
        return _start_carries(self.layout.mesh, self.problem.loss, bucket, oracle, theta)

    @cached_property
    def words(self) -> jax.Array:
        """Two words per client in the user's order, shape `(K, 2)`."""
        return jnp.asarray(self.layout.gather([bucket.words for bucket in self.layout.buckets]))


@partial(jax.jit, static_argnums=0)
def _start_carries(mesh: Any, loss: Any, bucket: Any, oracle: Any, theta: Any) -> Any:
    def init(entry: Any, oracle: Any) -> Any:
        return oracle.init(Local(loss, entry.rows, entry.count), theta)

    return on_devices(lambda share, oracles: map_clients(init, share, oracles), mesh)(bucket, oracle)


def bind(
    problem: Problem,
    algorithm: Algorithm,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    clients_at_once: int | str = "auto",
    devices: int = 1,
) -> Bound:
    """Check that everything fits and settle every automatic choice.

    Raises:
        ValueError: something does not fit; the message names it and the remedy.
        TypeError: an argument is of the wrong kind.
    """
    names, composite = problem.clients.names, problem.regularizer is not None
    schedule, participation, chances = rules(algorithm, schedule, participation, names, composite)
    chances = chances.astype(problem.dtype)
    number = isinstance(clients_at_once, int | np.integer) and not isinstance(clients_at_once, bool)
    if clients_at_once != "auto" and not (number and int(clients_at_once) >= 1):
        raise ValueError(f"clients_at_once = {clients_at_once!r} must be an integer >= 1 or 'auto'.")

    given, smoothness = algorithm, Smoothness(problem)
    step_size = getattr(algorithm, "step_size", None)
    adapts = isinstance(step_size, Auto) or is_auto(algorithm, "step_size")
    if adapts:
        first = first_step_size(step_size, lambda: float(problem.weights @ smoothness.values))
        algorithm = dataclasses.replace(algorithm, step_size=first)
    if is_auto(algorithm, "learning_rate"):
        algorithm = dataclasses.replace(algorithm, learning_rate=1 / float(smoothness.values.max()))
    chosen, groups = choose_oracles(problem, algorithm)
    layout = problem.layout(groups=groups, devices=devices)
    settled = [settle(oracle, problem, smoothness, algorithm) for oracle in chosen]
    oracles, limits = [], []
    for bucket, group in zip(layout.buckets, layout.groups, strict=True):
        oracle, steps = settled[group]
        index = np.asarray(bucket.index)
        oracles.append(jax.tree.map(partial(per_client, problem, index), oracle))
        limits.append(None if steps is None else np.asarray(steps, np.int32)[index])
    odds = tuple(chances[np.asarray(bucket.index)] for bucket in layout.buckets)
    blocks = tuple(
        min(_block(b, o, odd, clients_at_once, devices), len(b.count) // devices)
        for b, o, odd in zip(layout.buckets, oracles, odds, strict=True)
    )
    bare = dataclasses.replace(algorithm, oracle=None) if hasattr(algorithm, "oracle") else algorithm
    method = Method(bare, tuple(oracles), tuple(limits), odds, schedule, participation, blocks, adapts)
    return Bound(problem, given, layout, devices, method)


def _block(bucket: Any, oracle: Any, chances: np.ndarray, clients_at_once: int | str, devices: int) -> int:
    """Clients that work together: with minibatches, which take little room, all that are expected to take part."""
    if getattr(oracle, "batch_size", None) and clients_at_once == "auto":
        expected = float(np.sum(chances)) / devices
        return max(1, round(expected)) if np.isfinite(expected) else len(bucket.count)
    return block_size(bucket, clients_at_once, devices)


def rules(
    algorithm: Algorithm,
    schedule: Schedule | None,
    participation: Participation | None,
    names: tuple[str, ...],
    composite: bool,
) -> tuple[Schedule, Participation, np.ndarray]:
    """What can be checked without data: the schedule and the participation in force, and every client's chance.

    Raises:
        ValueError: they do not fit the algorithm.
        TypeError: an argument is of the wrong kind.
    """
    _check_kinds(algorithm, schedule, participation)
    algorithm.check()
    schedule = _schedule(algorithm, schedule)
    participation = participation_module.Full() if participation is None else participation
    participation = participation.bind(names)
    if not participation.everyone and not algorithm.partial:
        raise ValueError(f"{algorithm.name} does not allow partial participation: {algorithm.why_not_partial}")
    if not participation.everyone and schedule.observes:
        raise ValueError(
            f"{type(schedule).__name__} does not allow partial participation: the gradients of those present do not "
            "add up to that of f. Use schedules.Decay, or participation.Full."
        )
    chances = np.broadcast_to(np.asarray(participation.chances(len(names)), float), len(names))
    if algorithm.needs_chances and not (chances > 0).all():
        raise ValueError(
            f"{algorithm.name} with these settings divides by every client's chance of taking part; "
            f"{type(participation).__name__} has none, or one of zero. Use Full, Uniform or Bernoulli."
        )
    if composite and not algorithm.composite:
        raise ValueError(f"{algorithm.name} does not allow a regularizer: {algorithm.why_not_composite}")
    return schedule, participation, chances


def _check_kinds(algorithm: Any, schedule: Any, participation: Any) -> None:
    for what, value, kind, example in (
        ("algorithm", algorithm, Algorithm, "fedual.FedPD()"),
        ("schedule", schedule, Schedule | None, "fedual.schedules.Skip(0.5)"),
        ("participation", participation, Participation | None, "fedual.participation.Full()"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{what} must be an object such as {example}, not {value!r}.")
        require_record(value, what)


def _schedule(algorithm: Algorithm, schedule: Schedule | None) -> Schedule:
    own = algorithm.schedule()
    if own is not None:
        if schedule is not None and not schedule.never_skips:
            raise ValueError(f"{algorithm.name} brings its own coin; leave the schedule out.")
        return own
    schedule = schedule_module.Always() if schedule is None else schedule
    schedule.check()
    if not schedule.never_skips and not algorithm.silent:
        raise ValueError(f"{algorithm.name} cannot skip rounds: {algorithm.why_not_silent}")
    return schedule
