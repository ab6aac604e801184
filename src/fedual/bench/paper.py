"""Measurements behind two figures of the FedPD paper: how often skipping is possible, and methods against rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual import algorithms, data, losses, oracles, schedules, theory
from fedual.bench.communications import communications_to
from fedual.engine import solve
from fedual.problem import Problem

if TYPE_CHECKING:
    import polars

__all__ = ["compare_on_reference", "measure_skipping"]

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


def compare_on_reference(
    strong: bool, rounds: int = 600, clients: int = 100, seed: int = 0, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """The paper's comparison: histories of eight methods on its non-convex problem, by name.

    FedPD has the theory's s; full gradient steps have the learning rate 1/(L + 1/s), single samples a tenth of it.

    Args:
        strong: strongly or weakly non-iid.
        rounds: of every method.
        clients: K.
        seed: of the data and the runs.
        only: the names of some of the eight.
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
        if only is None or name in only
    }
