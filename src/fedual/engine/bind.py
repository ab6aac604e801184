"""From what the user wrote to what the program needs: checks, automatic settings, per-client parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedual import oracles as oracle_module
from fedual import participation as participation_module
from fedual import schedules as schedule_module
from fedual import theory, tuning
from fedual.arrays import record, require_record, static
from fedual.layout import Layout, block_size, map_clients, on_devices
from fedual.local import Local
from fedual.problem import Problem
from fedual.protocols import Algorithm, Auto, FirstOrder, Oracle, Participation, Schedule

__all__ = ["Bound", "InverseSmoothness", "Method", "bind", "first_step_size", "rules"]

_AUTO_STEPS = 10


@record
class InverseSmoothness:
    """The automatic learning rate factor/(L_k + rho)."""

    smoothness: Any
    factor: Any = 1.0

    def __call__(self, rho: Any) -> Any:
        return self.factor / (self.smoothness + rho)


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

    given, smoothness = algorithm, _Smoothness(problem)
    step_size = getattr(algorithm, "step_size", None)
    adapts = isinstance(step_size, Auto) or _is_auto(algorithm, "step_size")
    if adapts:
        first = first_step_size(step_size, lambda: float(problem.weights @ smoothness.values))
        algorithm = dataclasses.replace(algorithm, step_size=first)
    if _is_auto(algorithm, "learning_rate"):
        algorithm = dataclasses.replace(algorithm, learning_rate=1 / float(smoothness.values.max()))
    chosen, groups = _oracles(problem, algorithm)
    layout = problem.layout(groups=groups, devices=devices)
    settled = [_settle(oracle, problem, smoothness, algorithm) for oracle in chosen]
    oracles, limits = [], []
    for bucket, group in zip(layout.buckets, layout.groups, strict=True):
        oracle, steps = settled[group]
        index = np.asarray(bucket.index)
        oracles.append(jax.tree.map(partial(_per_client, problem, index), oracle))
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


class _Smoothness:
    """L_k of every client, computed when first needed; where it is an estimate, at the loss's default start."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def values(self) -> np.ndarray:
        return np.maximum(theory.local_smoothness(self.problem), np.finfo(float).tiny ** 0.5)


def first_step_size(step_size: Any, smoothness: Callable[[], float]) -> float:
    """The user's start, or a multiple of the theory's s for sum w_k L_k, which `smoothness` gives."""
    if isinstance(step_size, Auto):
        return step_size.start
    return tuning.START * theory.step_size(smoothness())


def _oracles(problem: Problem, algorithm: Algorithm) -> tuple[list[Oracle], tuple[int, ...] | None]:
    """The distinct oracles, and which of them each client uses (None where there is one)."""
    oracle = getattr(algorithm, "oracle", None)
    if oracle is None:
        oracle = (
            (oracle_module.Exact() if problem.loss.quadratic else oracle_module.Newton(1e-12))
            if algorithm.default_oracle() == {}
            else oracle_module.GradientDescent(**algorithm.default_oracle())
        )
    if not isinstance(oracle, Oracle):
        raise TypeError(f"oracle must be an object such as fedual.oracles.GradientDescent(8, 0.1), not {oracle!r}.")
    distinct, groups = [oracle], None
    if isinstance(oracle, oracle_module.PerClient):
        distinct, groups = oracle.groups(problem.clients.names)
    for one in distinct:
        require_record(one, "oracle")
        one.check(problem.loss)
        algorithm.check_oracle(one)
        if getattr(one, "batch_size", None) is not None and not problem.loss.separable:
            raise ValueError(
                f"{type(problem.loss).__name__} is no mean over rows, so minibatches do not estimate its gradient: use "
                "GradientDescent, Newton or LBFGS."
            )
    return distinct, groups


def _settle(oracle: Oracle, problem: Problem, smoothness: _Smoothness, algorithm: Algorithm) -> tuple[Oracle, Any]:
    """Numbers for "auto", one static number of steps, and the steps per client where they differ."""
    changes: dict[str, Any] = {}
    if _is_auto(oracle, "learning_rate"):
        factor = 0.25 if isinstance(oracle, oracle_module.SVRG) else 1.0
        changes["learning_rate"] = InverseSmoothness(smoothness.values, factor)
    if _is_auto(oracle, "gamma"):
        changes["gamma"] = 1 / smoothness.values
    refresh = getattr(oracle, "refresh", 1)
    if not algorithm.starts_at_model and isinstance(refresh, int) and refresh > 1:
        raise ValueError(
            f"refresh = {refresh}: {algorithm.name} starts its local work at the global model, where the estimate "
            "carried from the last local iterate is wrong. Use refresh=1, or a primal-dual method."
        )
    limits = None
    follows_s = hasattr(algorithm, "step_size") and _is_auto(oracle, "steps")
    if isinstance(oracle, FirstOrder) and not (follows_s and oracle.contracts):
        steps = _steps(oracle, problem)
        changes["steps"] = int(steps.max())
        limits = None if (steps == steps[0]).all() else steps
    for name in ("learning_rate", "gamma", "tolerance", "batch_size", "refresh", "max_steps", "memory"):
        value = getattr(oracle, name, None)
        if name in changes or value is None or callable(value):
            continue
        _check_positive(name, value, whole=name not in ("learning_rate", "gamma", "tolerance"))
        if isinstance(value, list | tuple):
            changes[name] = np.asarray(value)
    return dataclasses.replace(oracle, **changes) if changes else oracle, limits


def _is_auto(owner: Any, name: str) -> bool:
    value = getattr(owner, name, None)
    return isinstance(value, str) and value == "auto"


def _steps(oracle: Any, problem: Problem) -> np.ndarray:
    sizes = problem.sizes
    epochs = getattr(oracle, "epochs", None)
    if epochs is not None:
        if oracle.steps is not None:
            raise ValueError(f"steps = {oracle.steps!r} and epochs = {epochs!r}: give one of the two.")
        _check_positive("epochs", epochs)
        return np.maximum(1, np.round(epochs * sizes / oracle.batch_size)).astype(int)
    steps = _AUTO_STEPS if _is_auto(oracle, "steps") else oracle.steps
    array = np.asarray(steps)
    if array.dtype.kind not in "iu" or array.shape not in ((), sizes.shape) or (array < 1).any():
        raise ValueError(f"steps = {steps!r} must be an integer >= 1, or one per client.")
    return np.broadcast_to(array, sizes.shape)


def _check_positive(name: str, value: Any, whole: bool = False) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in ("iu" if whole else "iuf") or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} = {value!r} must be {'an integer >= 1' if whole else 'positive and finite'}.")


def _per_client(problem: Problem, index: np.ndarray, leaf: Any) -> Any:
    """One value per client of a bucket, from one for all or one per client in the user's order."""
    array = np.asarray(leaf)
    array = array.astype(problem.dtype) if array.dtype.kind == "f" else array
    if array.ndim == 0:
        return np.broadcast_to(array, index.shape).copy()
    if array.shape[0] != len(problem.clients):
        raise ValueError(f"{len(array)} values of a setting for {len(problem.clients)} clients: give one, or one each.")
    return array[index]
