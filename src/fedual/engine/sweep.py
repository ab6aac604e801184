"""A grid of numeric settings and seeds in one compiled program."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedual.arrays import precision
from fedual.engine.bind import bind
from fedual.engine.chunk import many_rounds
from fedual.engine.runner import Run
from fedual.engine.state import RunState, start_state
from fedual.problem import Problem
from fedual.protocols import Algorithm, Participation, Schedule
from fedual.solution import Solution

if TYPE_CHECKING:
    import polars

__all__ = ["Sweep", "sweep"]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes:
        settings: one mapping per grid point, from setting to value; `seed` among them.
        solutions: one `Solution` per grid point, in the same order.
        criterion: the history column by which settings are judged.
    """

    settings: tuple[Mapping[str, float], ...]
    solutions: tuple[Solution, ...]
    criterion: str

    def scores(self) -> np.ndarray:
        """The last known value of the criterion per grid point; infinity for a run that diverged or knows none."""
        values = [s.history.last(self.criterion) for s in self.solutions]
        bad = [s.status == "diverged" or not np.isfinite(v) for s, v in zip(self.solutions, values, strict=True)]
        return np.where(bad, np.inf, values)

    def best(self) -> dict[str, float]:
        """The setting, without its seed, whose worst seed scores lowest; the first of equals.

        Raises:
            RuntimeError: every setting diverged for some seed.
        """
        worst: dict[tuple[tuple[str, float], ...], float] = {}
        for setting, score in zip(self.settings, self.scores(), strict=True):
            key = tuple((name, value) for name, value in setting.items() if name != "seed")
            worst[key] = max(worst.get(key, -np.inf), score)
        key = min(worst, key=worst.__getitem__)
        if not np.isfinite(worst[key]):
            raise RuntimeError("every setting of the sweep diverged; take smaller step sizes or learning rates.")
        return dict(key)

    def to_polars(self) -> polars.DataFrame:
        """One row per grid point: its settings, status, rounds, communications, and the last known figures."""
        import polars

        figures = ("communications", "objective", "stationarity", "gradient_evaluations")
        rows = [
            {**setting, "status": s.status, "rounds": s.history.rounds, **{f: s.history.last(f) for f in figures}}
            for setting, s in zip(self.settings, self.solutions, strict=True)
        ]
        return polars.DataFrame(rows)


def sweep(
    problem: Problem,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[float]],
    rounds: int = 300,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    seeds: Sequence[int] = (0,),
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    evaluate_every: int = 1,
    criterion: Literal["stationarity", "objective"] = "stationarity",
    at_once: int | Literal["auto"] = "auto",
) -> Sweep:
    """Run a method for every combination of numeric settings and seeds, in one compiled program.

    Args:
        problem: what to minimize.
        algorithm: the method; the settings in the grid replace its own.
        grid: from a setting's name to its values. A name is a path: "step_size" (of the algorithm),
            "oracle.learning_rate", "schedule.probability". Only numbers that the compiled program takes as
            data can vary; the number of local steps, for one, cannot.
        rounds, schedule, participation, tolerance, relative_tolerance, evaluate_every: as for `solve`.
        seeds: every setting is run with each of them.
        criterion: the history column to judge by; lower is better.
        at_once: grid points that advance together; the numbers do not depend on it beyond rounding.

    Raises:
        ValueError: an unknown setting (the known ones are named), a setting that is part of the program, or a value
            out of range.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> found = fd.sweep(problem, fd.ADMM(step_size=1.0), {"step_size": [0.01, 1.0, 100.0]}, rounds=20)
        >>> found.best()
        {'step_size': 1.0}
    """
    values = [[v.item() if isinstance(v, np.generic) else v for v in column] for column in grid.values()]
    points = [dict(zip(grid, point, strict=True)) for point in itertools.product(*values)]
    settings = tuple({**point, "seed": seed} for point in points for seed in seeds)
    if not settings:
        raise ValueError("the grid is empty: give at least one value per setting and one seed.")
    if at_once != "auto" and (isinstance(at_once, bool | str) or at_once < 1):
        raise ValueError(f"at_once = {at_once!r} must be an integer >= 1 or 'auto'.")
    runs, states = [], []
    with precision(problem.dtype):
        theta = problem.vector(problem.loss.start(problem.feature_shape))
        for point in points:
            bound = bind(problem, *_place(point, algorithm, schedule, participation))
            runs += [Run(bound, None, evaluate_every, tolerance, relative_tolerance)] * len(seeds)
            states += [start_state(bound, theta, seed) for seed in seeds]
    size = len(settings) if at_once == "auto" else at_once
    solutions: list[Solution] = []
    for first in range(0, len(settings), size):
        solutions += _advance(runs[first : first + size], states[first : first + size], rounds)
    return Sweep(settings, tuple(solutions), criterion)


def _advance(runs: list[Run], states: list[RunState], rounds: int) -> list[Solution]:
    """Some grid points from their first states to their ends."""
    begun, first = time.perf_counter(), runs[0]
    with precision(first.bound.problem.dtype):
        methods = _stack([run.bound.method for run in runs])
        devices = _stack([state.device for state in states])
        results = jax.block_until_ready(
            _run_grid(first.data(), methods, devices, first.control(rounds), capacity=rounds)
        )
        parts = [jax.tree.map(lambda leaf, i=i: leaf[i], results) for i in range(len(runs))]
        return [run.finish(state, part, begun, rounds) for run, state, part in zip(runs, states, parts, strict=True)]


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@partial(jax.jit, static_argnames="capacity")
def _run_grid(data: Any, methods: Any, devices: Any, control: Any, *, capacity: int) -> Any:
    return jax.vmap(lambda method, device: many_rounds(data, method, device, control, capacity, None))(methods, devices)


def _place(
    point: Mapping[str, float], algorithm: Algorithm, schedule: Schedule | None, participation: Participation | None
) -> tuple[Algorithm, Schedule | None, Participation | None]:
    """The parts of a method with a grid point's values in their places."""
    parts: dict[str, Any] = {"": algorithm, "oracle": getattr(algorithm, "oracle", None)}
    parts |= {"schedule": schedule, "participation": participation}
    known = {
        f"{name}.{field.name}".removeprefix("."): bool(field.metadata.get("static"))
        for name, part in parts.items()
        if part is not None
        for field in dataclasses.fields(part)
        if field.name != "oracle"
    }
    for path, value in point.items():
        if path not in known:
            raise ValueError(f"unknown setting {path!r} in the grid; there are {', '.join(sorted(known))}.")
        if known[path]:
            raise ValueError(f"setting {path!r} is part of the compiled program and cannot vary within a sweep.")
        root, _, field = path.rpartition(".")
        parts[root] = dataclasses.replace(parts[root], **{field: value})
    if parts["oracle"] is not None:
        parts[""] = dataclasses.replace(parts[""], oracle=parts["oracle"])
    return parts[""], parts["schedule"], parts["participation"]
