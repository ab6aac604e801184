"""Peak memory of a large run, as a multiple of its data and states."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

__all__ = ["main", "measure"]


def measure(gigabytes: float = 1.0, clients: int = 400, features: int = 50, rounds: int = 3) -> dict:
    """Run FedPD on that much random data in this process, which should be a fresh one.

    Args:
        gigabytes: of features and targets, in units of 10^9 bytes.
        clients: of unequal size, up to a factor of three.
        features: d.
        rounds: of two local gradient steps.

    Returns:
        Bytes: `data`, `states`, `peak` (the most that was resident, less what was before the data were loaded), and
        `ratio` = peak/(data + states).
    """
    import fedual as fd

    # What has to be resident for any run at all: the libraries and a compiled program.
    _run(fd, _tables(0.001, 4, features), rounds)
    before = _resident("VmRSS")
    tables = _tables(gigabytes, clients, features)
    solution = _run(fd, tables, rounds)
    import jax

    data = sum(x.nbytes + y.nbytes for x, y in tables)
    states = sum(leaf.nbytes for leaf in jax.tree.leaves(solution.state.device))
    peak = _resident("VmHWM") - before
    return {"data": data, "states": states, "peak": peak, "ratio": peak / (data + states)}


def _tables(gigabytes: float, clients: int, features: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    shares = rng.uniform(1, 3, size=clients)
    rows = np.maximum(1, shares / shares.sum() * gigabytes * 1e9 / 8 / (features + 1)).astype(int)
    tables = []
    for count in rows:
        x = rng.standard_normal((count, features))
        tables.append((x, x @ np.ones(features) + rng.standard_normal(count)))
    return tables


def _run(fd: object, tables: list, rounds: int):
    problem = fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays(tables))
    oracle = fd.oracles.GradientDescent(steps=2, learning_rate=0.1)
    solution = fd.solve(problem, fd.FedPD(oracle, step_size=1.0), rounds)
    if not np.isfinite(solution.objective):
        raise RuntimeError("the run diverged; its memory would mean nothing.")
    return solution


def _resident(field: str) -> int:
    """Bytes, from the kernel's account of this process (Linux only)."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))


def main(arguments: Sequence[str] | None = None) -> dict:
    """Measure in a fresh process, print one line, return the figures."""
    parser = argparse.ArgumentParser(prog="fedual bench memory", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=400)
    parser.add_argument("--features", type=int, default=50)
    sizes = vars(parser.parse_args(arguments))
    code = (
        "import json, sys; from fedual.bench.memory import measure; print(json.dumps(measure(**json.load(sys.stdin))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(sizes), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the measurement failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    print(
        f"data {result['data'] / 1e9:.2f} GB, states {result['states'] / 1e6:.1f} MB, "
        f"peak {result['peak'] / 1e9:.2f} GB: {result['ratio']:.2f} times data plus states"
    )
    return result


if __name__ == "__main__":
    main()
