"""How many communications a method needs to a stationarity of 1e-6 and of 1e-12.

Every method may choose the best of a grid of settings in hindsight, except `FedPD auto`, which is `FedPD()` without a
number from the user; its set-up exchange (the sites' smoothness constants, one number each) counts as a communication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual import algorithms, oracles, schedules, theory
from fedual.bench.problems import PROBLEMS, Case
from fedual.engine import solve
from fedual.problem import Problem
from fedual.protocols import Algorithm, Auto, Schedule
from fedual.solution import Solution

if TYPE_CHECKING:
    import polars

__all__ = ["METHODS", "TOLERANCES", "Method", "communications_to", "measure", "summarize"]

TOLERANCES = (1e-6, 1e-12)
_MOST_ROUNDS = 3000


@dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Attributes:
        name: for tables.
        settings: from the problem's L to the settings to try: a number and the algorithm with its schedule.
        setup: exchanges before the first round.
        patience: how many times as many communications as `FedPD auto` a setting may take.
        silent: rounds per communication, at most, that the settings lead one to expect.
    """

    name: str
    settings: Callable[[float], Iterable[tuple[float, Algorithm, Schedule | None]]]
    setup: int = 0
    patience: float = 3.0
    silent: int = 1


def _steps(algorithm: Algorithm, low: float, high: float, count: int) -> Callable[[float], Any]:
    """`algorithm` with s at `count` values from low/L to high/L."""

    def settings(L: float) -> Any:
        for s in (np.geomspace(low, high, count) / L).tolist():
            yield s, replace(algorithm, step_size=s), None

    return settings


def _as_it_is(algorithm: Algorithm, schedule: Schedule | None = None) -> Callable[[float], Any]:
    return lambda L: [(np.nan, algorithm, schedule)]


def _rates(make: Callable[[Any], Algorithm], low: float, high: float, count: int = 9) -> Callable[[float], Any]:
    """`make` of gradient steps with learning rates from low/L to high/L, 8 a round."""

    def settings(L: float) -> Any:
        for rate in (np.geomspace(low, high, count) / L).tolist():
            yield rate, make(oracles.GradientDescent(steps=8, learning_rate=rate)), None

    return settings


def _prox(L: float) -> Any:
    return [(mu, algorithms.FedProx(mu=mu), None) for mu in (np.geomspace(0.01, 10, 9) * L).tolist()]


def _prox_skip(L: float) -> Any:
    for rate in (0.5, 1.0, 1.5):
        for p in (0.5, 0.75, 0.9, 0.95):
            yield p, algorithms.ProxSkip(learning_rate=rate / L, skip_probability=p), None


AUTO = Method("FedPD auto", _as_it_is(algorithms.FedPD()), setup=1)
METHODS = (
    Method("FedPD, fixed s", _steps(algorithms.FedPD(), 0.03, 300, 25)),
    Method("FedPD auto from 1e-4", _as_it_is(algorithms.FedPD(step_size=Auto(1e-4)))),
    Method("FedPD auto from 1e4", _as_it_is(algorithms.FedPD(step_size=Auto(1e4)))),
    Method("FedPD auto, p = 0.5", _as_it_is(algorithms.FedPD(), schedules.Skip(0.5)), setup=1, silent=3),
    Method("FedPD auto, every second round", _as_it_is(algorithms.FedPD(), schedules.Periodic(2)), setup=1, silent=2),
    Method("FedPD auto, decaying p", _as_it_is(algorithms.FedPD(), schedules.Decay(60)), setup=1, silent=3),
    Method("FedPD auto, adaptive p", _as_it_is(algorithms.FedPD(), schedules.Adaptive(1e-12)), setup=1, silent=10),
    Method("FedDR auto, relaxation 1.5", _as_it_is(algorithms.FedDR(relaxation=1.5)), setup=1),
    Method("FedDR auto, relaxation 1.9", _as_it_is(algorithms.FedDR(relaxation=1.9)), setup=1),
    Method("FedSplit auto", _as_it_is(algorithms.FedSplit()), setup=1),
    Method("FedDyn, fixed s", _steps(algorithms.FedDyn(), 0.1, 100, 9)),
    Method("FedProx", _prox),
    Method("FedAvg, 8 steps", _rates(algorithms.FedAvg, 0.03, 2)),
    Method("SCAFFOLD, 8 steps", _rates(algorithms.SCAFFOLD, 0.01, 1), patience=10),
    Method("ProxSkip", _prox_skip, patience=10, silent=20),
)


def communications_to(solution: Solution, tolerance: float) -> float:
    """Communications up to the first evaluated round with stationarity at most `tolerance`; infinity if there is none.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> solution = fd.solve(problem, fd.ADMM(step_size=0.5), rounds=5)
        >>> communications_to(solution, 1.0), communications_to(solution, 1e-30)
        (1.0, inf)
    """
    reached = np.flatnonzero(solution.history["stationarity"] <= tolerance)
    return float(solution.history["communications"][reached[0]]) if len(reached) else np.inf


def measure(
    cases: Sequence[Case] = PROBLEMS,
    methods: Sequence[Method] = METHODS,
    seeds: Sequence[int] = range(5),
    report: Callable[[Mapping[str, Any]], Any] = lambda row: None,
) -> polars.DataFrame:
    """One row per problem, data seed, method and setting, with the communications to each tolerance.

    Args:
        cases: the problems; those whose package is not installed raise.
        methods: the rows; `FedPD auto` always comes first, and limits how long the others may take.
        seeds: of the data, for generated problems.
        report: called with every row as it is known.
    """
    import polars

    rows = []
    for case in cases:
        for seed in seeds if case.generated else (0,):
            for row in _measure(case, seed, methods):
                report(row)
                rows.append(row)
    return polars.DataFrame(rows)


def _measure(case: Case, seed: int, methods: Sequence[Method]) -> Iterator[dict[str, Any]]:
    problem = case.make(seed)
    L = theory.smoothness(problem)
    limit = 1000.0
    for method in (AUTO, *methods):
        for setting, algorithm, schedule in method.settings(L):
            found = _run(problem, algorithm, schedule, int(min(limit * method.silent, _MOST_ROUNDS)))
            counts = [communications_to(found, tolerance) + method.setup for tolerance in TOLERANCES]
            yield {
                "problem": case.name, "seed": seed, "method": method.name, "setting": setting,
                **{f"to {t:g}": c for t, c in zip(TOLERANCES, counts, strict=True)},
                "status": found.status, "uplink_bytes": found.history.last("uplink_bytes"),
            }  # fmt: skip
            if method is AUTO:
                needed = counts[-1] if np.isfinite(counts[-1]) else found.history.rounds
        following = methods[0 if method is AUTO else min(methods.index(method) + 1, len(methods) - 1)]
        limit = following.patience * needed + 20


def _run(problem: Problem, algorithm: Algorithm, schedule: Schedule | None, rounds: int) -> Solution:
    return solve(problem, algorithm, rounds=rounds, schedule=schedule, tolerance=min(TOLERANCES))


def summarize(table: polars.DataFrame) -> polars.DataFrame:
    """Per problem, method and tolerance: the best setting's count, the median over settings, the worst over seeds.

    The best setting is chosen per seed. `ratio` is the largest over seeds of the method's best count to that of the
    best fixed s of FedPD.
    """
    import polars as pl

    counts = [f"to {t:g}" for t in TOLERANCES]
    long = table.unpivot(on=counts, index=["problem", "seed", "method", "setting"], variable_name="tolerance")
    per_seed = long.group_by("problem", "tolerance", "method", "seed", maintain_order=True).agg(
        best=pl.col("value").min(), median=pl.col("value").median()
    )
    fixed = per_seed.filter(pl.col("method") == "FedPD, fixed s").select(
        "problem", "tolerance", "seed", reference="best"
    )
    joined = per_seed.join(fixed, on=["problem", "tolerance", "seed"], how="left")
    return joined.group_by("problem", "tolerance", "method", maintain_order=True).agg(
        best=pl.col("best").median(),
        worst=pl.col("best").max(),
        median=pl.col("median").median(),
        ratio=(pl.col("best") / pl.col("reference")).max(),
    )
