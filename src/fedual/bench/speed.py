"""Run time of the simulator: the FedPD paper's experiment against a plain NumPy loop and a streaming lower bound.

Every number of devices is measured in a process of its own, because JAX fixes it when it starts. Within a process the
contestants take turns, so that a ratio compares like with like; times are medians, compilation is stated apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedual.algorithms import FedPD
from fedual.arrays import precision
from fedual.bench.rivals import numpy_loop, streaming_floor
from fedual.data.synthetic import reference
from fedual.engine import solve
from fedual.losses import logistic_nonconvex
from fedual.oracles import GradientDescent
from fedual.problem import Problem
from fedual.theory import smoothness, step_size

__all__ = ["measure", "table"]

STEPS = 8


def measure(clients: int = 100, rows: int = 400, features: int = 20, rounds: int = 600, repeats: int = 5) -> dict:
    """Time FedPD and its rivals in this process, on the devices that JAX has.

    Args:
        clients, rows, features: K, n, d of the strongly non-iid experiment.
        rounds: of 8 local gradient steps each.
        repeats: the medians are over this many.

    Returns:
        Seconds: `run` (objective evaluated once, at the end), `run_evaluated` (in every round), `compile`,
        `numpy_loop`, `streaming_floor`; and `devices`, `difference` (largest relative difference from the loop).

    Raises:
        RuntimeError: the results of simulator and loop differ by more than 1e-10.
    """
    data = reference(clients=clients, rows=rows, dimension=features).clients
    problem = Problem(logistic_nonconvex(beta=0.1, alpha=1.0), data, weights="uniform")
    L = smoothness(problem)
    s = step_size(L)
    rate = 1 / (L + 1 / s)
    algorithm = FedPD(GradientDescent(STEPS, rate), s)
    tables = list(zip(data.features, data.targets, strict=True))
    with precision("float64"):
        stacked, start = jax.device_put((np.stack(data.features), np.ones((clients, features))), jax.devices()[0])

    def floor() -> Any:
        with precision("float64"):
            return jax.block_until_ready(streaming_floor(stacked, start, rounds * STEPS))

    contestants: dict[str, Callable[[], Any]] = {
        "run": lambda: solve(problem, algorithm, rounds, evaluate_every=rounds),
        "run_evaluated": lambda: solve(problem, algorithm, rounds),
        "streaming_floor": floor,
        "numpy_loop": lambda: numpy_loop(tables, s, rate, STEPS, rounds),
    }
    first = {name: _timed(function) for name, function in contestants.items() if name != "numpy_loop"}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    results: dict[str, Any] = {}
    for _ in range(repeats):
        for name, function in contestants.items():
            seconds, results[name] = _timed(function)
            times[name].append(seconds)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    theta, duals = results["numpy_loop"]
    ours = results["run"]
    difference = max(_difference(ours.theta, theta), _difference(ours.duals, duals))
    if not difference <= 1e-10:
        raise RuntimeError(f"the simulator and the NumPy loop differ by {difference:.2g} relative.")
    compiling = max(0.0, first["run"][0] - medians["run"])
    return {"devices": jax.local_device_count(), **medians, "compile": compiling, "difference": difference}


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = function()
    return time.perf_counter() - begun, result


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def table(results: Sequence[dict]) -> str:
    """The results as lines of text, with the ratios to the rivals of the same process."""
    lines = [
        "devices    run  evaluated  compile  NumPy loop  floor   loop/run  run/floor",
        *(
            f"{r['devices']:7d} {r['run']:6.2f} {r['run_evaluated']:10.2f} {r['compile']:8.2f} {r['numpy_loop']:11.2f} "
            f"{r['streaming_floor']:6.2f} {r['numpy_loop'] / r['run']:10.2f} {r['run'] / r['streaming_floor']:10.2f}"
            for r in results
        ),
    ]
    return "\n".join(lines)
