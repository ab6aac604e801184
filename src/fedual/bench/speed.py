"""Run time of the simulator: the FedPD paper's experiment against a plain NumPy loop and a streaming lower bound.

Every number of devices is measured in a process of its own, because JAX fixes it when it starts. Within a process the
contestants take turns, so that a ratio compares like with like; times are medians, compilation is stated apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["main", "measure", "measure_apart", "table"]

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
    import jax

    import fedual as fd
    from fedual.arrays import precision
    from fedual.bench.rivals import numpy_loop, streaming_floor

    data = fd.data.synthetic.reference(clients=clients, rows=rows, dimension=features).clients
    problem = fd.Problem(fd.losses.logistic_nonconvex(beta=0.1, alpha=1.0), data, weights="uniform")
    L = float(problem.smoothness().max())
    s = fd.theory.step_size(L)
    rate = 1 / (L + 1 / s)
    algorithm = fd.FedPD(fd.oracles.GradientDescent(STEPS, rate), s)
    tables = list(zip(data.features, data.targets, strict=True))
    with precision("float64"):
        stacked, start = jax.device_put((np.stack(data.features), np.ones((clients, features))), jax.devices()[0])

    def floor() -> Any:
        with precision("float64"):
            return jax.block_until_ready(streaming_floor(stacked, start, rounds * STEPS))

    contestants: dict[str, Callable[[], Any]] = {
        "run": lambda: fd.solve(problem, algorithm, rounds, evaluate_every=rounds),
        "run_evaluated": lambda: fd.solve(problem, algorithm, rounds),
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


def measure_apart(devices: int, **sizes: int) -> dict:
    """`measure` in a process of its own with so many CPU devices."""
    others = [f for f in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in f]
    flags = " ".join([*others, f"--xla_force_host_platform_device_count={devices}"])
    code = (
        "import json, sys; from fedual.bench.speed import measure; print(json.dumps(measure(**json.load(sys.stdin))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(sizes),
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the measurement with {devices} devices failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


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


def main(arguments: Sequence[str] | None = None) -> list[dict]:
    """Measure with one and with two devices, print a table, return the figures."""
    parser = argparse.ArgumentParser(prog="fedual bench speed", description=__doc__)
    for name, value in {"clients": 100, "rows": 400, "features": 20, "rounds": 600, "repeats": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2])
    options = vars(parser.parse_args(arguments))
    print(f"FedPD, {options['rounds']} rounds of {STEPS} steps; seconds, medians of {options['repeats']}")
    results = [measure_apart(count, **options) for count in options.pop("devices")]
    print(table(results))
    return results


if __name__ == "__main__":
    main()
