"""Several runs of one problem side by side: what each reached, and at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedual.checkpoint.identity import data_digests, describe
from fedual.pictures import panels
from fedual.solution import Solution

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

COSTS = ("round", "communications", "uplink_bytes", "downlink_bytes", "gradient_evaluations")
"""The history's columns that a comparison counts as cost."""

__all__ = ["COSTS", "Comparison", "compare", "cost_to_reach"]


@dataclass(frozen=True)
class Comparison:
    """Runs that started from the same point on the same data with the same coins.

    Attributes:
        solutions: label to `Solution`, in the order given.
    """

    solutions: Mapping[str, Solution]

    def table(self, targets: Sequence[float] = (1e-6, 1e-12)) -> polars.DataFrame:
        """One row per run: what it reached, what it sent, and the cost of reaching each target.

        Args:
            targets: levels of the stationarity ||grad f(theta)||^2. For each there is a column
                `communications to <target>`: the communicated rounds until an evaluated round was first at or below
                it, null where none was.
        """
        import polars

        rows = []
        for label, solution in self.solutions.items():
            history = solution.history
            totals = ("communications", "uplink_bytes", "downlink_bytes", "gradient_evaluations")
            rows.append(
                {
                    "run": label,
                    "status": solution.status,
                    "rounds": history.rounds,
                    "objective": history.last("objective"),
                    "stationarity": history.last("stationarity"),
                    **{name: int(history.last(name)) for name in totals},
                    **{f"communications to {t:g}": cost_to_reach(solution, t) for t in targets},
                }
            )
        return polars.DataFrame(rows, infer_schema_length=None)

    def plot(self) -> Figure:
        """Objective and stationarity against rounds, communications, bytes up and down, and gradient evaluations.

        The objective is shown as its excess over the lowest one that any of the runs reached.

        Returns:
            A Matplotlib figure.
        """
        return panels(self.solutions, COSTS, ("excess", "stationarity"))


def cost_to_reach(solution: Solution, target: float, column: str = "communications") -> int | None:
    """A cumulative history column at the first evaluated round with stationarity <= target; None if there is none.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> solution = fd.solve(problem, fd.ADMM(step_size=0.2), rounds=60)
        >>> cost_to_reach(solution, 1e-4) < cost_to_reach(solution, 1e-12) < 60
        True
    """
    reached = np.flatnonzero(solution.history["stationarity"] <= target)
    return int(solution.history[column][reached[0]]) if len(reached) else None


def compare(solutions: Sequence[Solution] | Mapping[str, Solution]) -> Comparison:
    """Put runs side by side that differ in their method alone.

    Args:
        solutions: the runs, labelled or not; without labels a run is called by its algorithm, numbered where several
            share one.

    Returns:
        A `Comparison`.

    Raises:
        ValueError: no run, or runs that differ in data, loss, regularizer, weights, precision, seed or starting point;
            the message names what differs and between which runs.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> runs = [fd.solve(problem, a, rounds=5) for a in (fd.FedPD(step_size=1.0), fd.FedAvg())]
        >>> fd.compare(runs).table()["run"].to_list()
        ['FedPD', 'FedAvg']
    """
    labelled = dict(solutions) if isinstance(solutions, Mapping) else _label(solutions)
    if not labelled:
        raise ValueError("there is nothing to compare: give at least one solution.")
    (first, reference), *others = labelled.items()
    for label, solution in others:
        if what := _difference(reference, solution):
            raise ValueError(f"runs {first!r} and {label!r} differ in their {what}: comparing them would mislead.")
    return Comparison(labelled)


def _label(solutions: Sequence[Solution]) -> dict[str, Solution]:
    names = [solution.bound.algorithm.name for solution in solutions]
    labels = [
        name if names.count(name) == 1 else f"{name} {names[: k + 1].count(name)}" for k, name in enumerate(names)
    ]
    return dict(zip(labels, solutions, strict=True))


def _difference(a: Solution, b: Solution) -> str | None:
    """What differs of all that has to agree; None where nothing does."""
    p, q = a.problem, b.problem
    if p is not q:
        same = {
            "clients": p.clients.names == q.clients.names,
            "data": np.array_equal(data_digests(p.clients), data_digests(q.clients)),
            "loss": describe(p.loss) == describe(q.loss),
            "regularizer": describe(p.regularizer) == describe(q.regularizer),
            "weights": np.array_equal(p.weights, q.weights),
            "dtype": p.dtype == q.dtype,
        }
        for what, agrees in same.items():
            if not agrees:
                return what
    if a.state.seed != b.state.seed:
        return "seed"
    return None if np.array_equal(a.state.device.start, b.state.device.start) else "starting point"
