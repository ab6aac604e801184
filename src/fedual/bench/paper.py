"""Measurements behind two figures of the FedPD paper: how often skipping is possible, and methods against rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual import algorithms, data, formulas, losses, oracles, schedules, theory
from fedual.bench.communications import communications_to
from fedual.engine import solve
from fedual.problem import Problem

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

__all__ = ["compare_on_reference", "draw_comparison", "draw_skipping", "measure_skipping"]

_RATIOS = np.geomspace(1e-9, 1e-2, 15)
_PROBABILITIES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def measure_skipping(
    ratios: Sequence[float] = tuple(_RATIOS.tolist()),
    probabilities: Sequence[float] = _PROBABILITIES,
    seeds: Sequence[int] = range(5),
    communications: int = 500,
) -> polars.DataFrame:
    """Communications to ||grad f||^2 <= epsilon for every p, as clients become more alike: as epsilon/G^2 grows.

    FedPD with exact local solutions and the theory's s on quadratics of condition 10 with Hessians and minimizers of
    their own (`data.synthetic.quadratics`, one set of data per seed), G at the common minimizer. Moving the clients'
    minimizers together by a factor scales all iterates, G and the gradients by it, so one run per p and seed
    serves every epsilon/G^2. A p fails where a seed does not get there within `communications`.

    Args:
        ratios: values of epsilon/G^2.
        probabilities: values of p, 0 among them.
        seeds: of the data and the coin.
        communications: the limit, in the mean.

    Returns:
        Columns ratio, p, communications (mean over seeds; infinity where one fails).
    """
    import polars

    needed = np.zeros((len(probabilities), len(seeds), len(ratios)))
    for j, seed in enumerate(seeds):
        made = data.synthetic.quadratics(seed=seed)
        problem = Problem(losses.least_squares(), made.clients, weights="uniform")
        algorithm = algorithms.FedPD(oracles.Exact(), step_size=theory.step_size(made.smoothness))
        for i, p in enumerate(probabilities):
            found = solve(problem, algorithm, int(communications / (1 - p)), schedules.Skip(p), seed=seed)
            needed[i, j] = [communications_to(found, ratio * made.dissimilarity**2) for ratio in ratios]
    mean = needed.mean(axis=1)
    rows = [
        {"ratio": ratio, "p": p, "communications": float(mean[i, k])}
        for i, p in enumerate(probabilities)
        for k, ratio in enumerate(ratios)
    ]
    return polars.DataFrame(rows)


def draw_skipping(table: polars.DataFrame) -> Figure:
    """Share of communications saved by the best p, and the largest p that works, with the theory's p over them."""
    import polars as pl
    from matplotlib.figure import Figure

    works = table.filter(pl.col("communications").is_finite())
    never = works.filter(pl.col("p") == 0).select("ratio", plain="communications")
    shown = works.join(never, on="ratio").group_by("ratio").agg(
        largest=pl.col("p").max(), saved=(1 - pl.col("communications") / pl.col("plain")).max()
    ).sort("ratio")  # fmt: skip
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(shown["ratio"], shown["saved"], "o-", label="communications saved by the best p, measured")
    axes.plot(shown["ratio"], shown["largest"], "s:", label="largest p that reaches epsilon, measured")
    for form in formulas.FORMS:
        p = [theory.skip_probability(ratio, 1.0, 1.0, form=form) for ratio in shown["ratio"]]  # type: ignore[arg-type]
        axes.plot(shown["ratio"], p, lw=1, label=f"p of theory, {form}")
    axes.set(xscale="log", xlabel="epsilon / G²", ylabel="share of rounds", ylim=(-0.02, 1))
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
