"""Measurements behind two figures of the FedPD paper: how often skipping is possible, and methods against rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual import algorithms, data, formulas, losses, oracles, schedules, theory
from fedual.engine import solve
from fedual.problem import Problem

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

__all__ = ["compare_on_reference", "draw_comparison", "draw_skipping", "measure_skipping"]

_DIALS = np.geomspace(1e-4, 1, 13)
_PROBABILITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def measure_skipping(
    epsilon: float = 1e-4,
    dials: Sequence[float] = tuple(_DIALS.tolist()),
    probabilities: Sequence[float] = _PROBABILITIES,
    seeds: Sequence[int] = range(5),
    communications: int = 400,
) -> polars.DataFrame:
    """Communications to ||grad f||^2 <= epsilon for every p, as clients go from identical to opposed.

    FedPD with exact local solutions and the theory's s on linear regressions whose L = 1 and G are exact
    (`data.synthetic.least_squares`). A p fails where a seed does not get there within `communications`.

    Args:
        epsilon: the accuracy, for ||grad f||^2.
        dials: how unlike the clients are, 0 to 1.
        probabilities: values of p, the first of them 0.
        seeds: of the coin.
        communications: the limit.

    Returns:
        Columns dial, ratio (epsilon/G^2), p, communications (mean over seeds; infinity where one fails).
    """
    import polars

    rows = []
    for dial in dials:
        made = data.synthetic.least_squares(dial)
        problem = Problem(losses.least_squares(), made.clients, weights="uniform")
        algorithm = algorithms.FedPD(oracles.Exact(), step_size=theory.step_size(made.smoothness))
        for p in probabilities:
            rounds = int(communications / (1 - p))
            found = [
                solve(problem, algorithm, rounds, schedules.Skip(p), seed=seed, tolerance=epsilon) for seed in seeds
            ]
            counts = [s.history.last("communications") if s.converged else np.inf for s in found]
            rows.append(
                {
                    "dial": dial,
                    "ratio": epsilon / made.dissimilarity**2,
                    "p": p,
                    "communications": float(np.mean(counts)),
                }
            )
    return polars.DataFrame(rows)


def draw_skipping(table: polars.DataFrame) -> Figure:
    """Share of communications saved by the best p, and that p, against epsilon/G^2, with the theory's p over them."""
    import polars as pl
    from matplotlib.figure import Figure

    never = table.filter(pl.col("p") == 0).select("dial", plain="communications")
    best = (
        table.sort("communications", "p")
        .group_by("dial", maintain_order=True)
        .first()
        .join(never, on="dial")
        .with_columns(saved=1 - pl.col("communications") / pl.col("plain"))
        .sort("ratio")
    )
    largest = table.filter(pl.col("communications").is_finite()).group_by("ratio").agg(pl.col("p").max()).sort("ratio")
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(best["ratio"], best["saved"], "o-", label="communications saved by the best p, measured")
    axes.plot(largest["ratio"], largest["p"], "s:", label="largest p that reaches epsilon, measured")
    ratios = np.geomspace(best["ratio"].min(), best["ratio"].max(), 300)
    for form in formulas.FORMS:
        p = [theory.skip_probability(float(r), 1.0, 1.0, form=form) for r in ratios]  # type: ignore[arg-type]
        axes.plot(ratios, p, lw=1, label=f"p of theory, {form}")
    axes.set(xscale="log", xlabel="epsilon / G²", ylabel="share of rounds", ylim=(0, 1))
    axes.legend(fontsize="small")
    return figure


def compare_on_reference(strong: bool, rounds: int = 600, clients: int = 100, seed: int = 0) -> dict[str, Any]:
    """The paper's comparison: histories of eight methods on its non-convex problem, by name.

    FedPD has the theory's s; full gradient steps have the learning rate 1/(L + 1/s), single samples a tenth of it.

    Args:
        strong: strongly or weakly non-iid.
        rounds: of every method.
        clients: K.
        seed: of the data and the runs.
    """
    made = data.synthetic.reference(strong, clients=clients, seed=seed)
    problem = Problem(losses.logistic_nonconvex(), made.clients)
    s = theory.step_size(made.smoothness)
    rate = 1 / (made.smoothness + 1 / s)
    gd = oracles.GradientDescent(steps=8, learning_rate=rate)
    sgd = oracles.StochasticGradient(steps=600, learning_rate=rate / 10, batch_size=1)
    methods: dict[str, tuple[Any, Any]] = {
        "FedPD-GD, p = 0": (algorithms.FedPD(gd, s), None),
        "FedPD-GD, p = 0.5": (algorithms.FedPD(gd, s), schedules.Skip(0.5)),
        "FedPD-GD, p = (T-t)/T": (algorithms.FedPD(gd, s), schedules.Decay(rounds)),
        "FedPD-SGD": (algorithms.FedPD(sgd, s), None),
        "FedPD-VR": (algorithms.FedPD(oracles.VarianceReduced(20, 0.1, 1, 20), s), None),
        "FedAvg-GD": (algorithms.FedAvg(gd), None),
        "FedAvg-SGD": (algorithms.FedAvg(sgd), None),
        "FedProx-VR": (algorithms.FedProx(oracles.VarianceReduced(20, 0.1, 1, 1), mu=1 / s), None),
    }
    return {
        name: solve(problem, algorithm, rounds, schedule, seed=seed).history
        for name, (algorithm, schedule) in methods.items()
    }


def draw_comparison(weak: dict[str, Any], strong: dict[str, Any]) -> Figure:
    """||grad f||^2 against rounds, one panel for each of two results of `compare_on_reference`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, title, histories in zip(panels, ("weakly non-iid", "strongly non-iid"), (weak, strong), strict=True):
        for name, history in histories.items():
            axes.plot(history["round"], history["stationarity"], lw=1, label=name)
        axes.set(yscale="log", xlabel="round", title=title)
    panels[0].set_ylabel("||grad f||²")
    panels[1].legend(fontsize="small")
    return figure
