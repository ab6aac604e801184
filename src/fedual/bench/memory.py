"""Peak memory of a large run, as a multiple of its data and states."""

from __future__ import annotations

import jax
import numpy as np

from fedual.algorithms import FedPD
from fedual.data import from_arrays
from fedual.engine import solve
from fedual.losses import least_squares
from fedual.oracles import GradientDescent
from fedual.problem import Problem
from fedual.solution import Solution

__all__ = ["measure"]


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
    # What has to be resident for any run at all: the libraries and a compiled program.
    _run(_tables(0.001, 4, features), rounds)
    before = _resident("VmRSS")
    tables = _tables(gigabytes, clients, features)
    solution = _run(tables, rounds)
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


def _run(tables: list[tuple[np.ndarray, np.ndarray]], rounds: int) -> Solution:
    problem = Problem(least_squares(l2=0.1), from_arrays(tables))
    oracle = GradientDescent(steps=2, learning_rate=0.1)
    solution = solve(problem, FedPD(oracle, step_size=1.0), rounds)
    if not np.isfinite(solution.objective):
        raise RuntimeError("the run diverged; its memory would mean nothing.")
    return solution


def _resident(field: str) -> int:
    """Bytes, from the kernel's account of this process (Linux only)."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))
