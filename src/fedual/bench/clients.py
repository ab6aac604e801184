"""Very many clients: how much memory a run takes whose states are larger than memory.

fedual bench clients    # 10,000 clients of 10^5 parameters under 2 GiB
fedual bench growth     # 500 rounds of 100 clients: memory does not grow
fedual bench loop       # 1,000 rounds beside the same rounds as a plain NumPy loop
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedual.algorithms import FedADMM, FedPD
from fedual.clients import Clients
from fedual.engine import iterate, solve
from fedual.losses import from_function, logistic
from fedual.oracles import GradientDescent, StochasticGradient
from fedual.participation import Uniform
from fedual.problem import Problem

__all__ = ["against_loop", "growth", "many_clients"]


def _network(parameters: dict[str, Any], rows: tuple[Any, Any]) -> Any:
    """Cross-entropy of a network with one hidden layer, one per row."""
    x, y = rows
    scores = jnp.tanh(x @ parameters["in"]) @ parameters["out"]
    return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]


def _problem(clients: int, hidden: int, rows: int, features: int = 20, classes: int = 10) -> Problem:
    rng = np.random.default_rng(0)
    start = {
        "in": rng.normal(0, features**-0.5, (features, hidden)),
        "out": rng.normal(0, hidden**-0.5, (hidden, classes)),
    }
    pairs = [
        (rng.normal(size=(rows, features)).astype(np.float32), rng.integers(0, classes, rows)) for _ in range(clients)
    ]
    return Problem(from_function(_network, start), Clients.build(pairs), dtype="float32")


def anonymous_bytes() -> int:
    """Resident memory of this process that is not backed by a file; Linux only."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("this system does not tell a process's anonymous memory.")


@contextmanager
def _watching() -> Iterator[list[int]]:
    """The largest anonymous memory while the body runs, looked at fifty times a second."""
    peak, done = [anonymous_bytes()], threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_bytes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def many_clients(
    clients: int = 10_000, hidden: int = 3334, participants: int = 100, rounds: int = 5, state_memory: int = 2**28
) -> dict[str, float]:
    """FedADMM on networks of 30 `hidden` parameters (100,020 by default), five rows each.

    Args:
        clients: K.
        hidden: units.
        participants: per round.
        rounds: of which the last is evaluated on all clients.
        state_memory: bytes.

    Returns:
        parameters; state_bytes, of all clients; peak_anonymous_bytes; seconds_per_round; objective at the end.
    """
    with _watching() as peak:
        problem = _problem(clients, hidden, rows=5)
        algorithm = FedADMM(StochasticGradient(steps=2, learning_rate=0.05, batch_size=4), step_size=0.1)
        begun = time.perf_counter()
        solution = solve(
            problem, algorithm, rounds=rounds, participation=Uniform(count=participants), evaluate_every=rounds,
            state_memory=state_memory,
        )  # fmt: skip
        seconds = (time.perf_counter() - begun) / rounds
    return {
        "parameters": problem.dimension,
        "state_bytes": 4 * clients * problem.dimension * 4,
        "peak_anonymous_bytes": peak[0],
        "seconds_per_round": seconds,
        "objective": solution.history.last("objective"),
    }


def growth(rounds: int = 500, clients: int = 100, state_memory: int | None = 2**18) -> dict[str, float]:
    """Peak resident memory of this process after a tenth of the rounds, after all, and after a second run.

    Returns:
        early, late, second: bytes.
    """
    problem = _problem(clients, hidden=30, rows=20)
    algorithm = FedADMM(StochasticGradient(steps=2, learning_rate=0.05, batch_size=4), step_size=0.1)
    run = partial(
        iterate, problem, algorithm, rounds=rounds, participation=Uniform(count=10), chunk_rounds=rounds // 10
    )
    peaks = [
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        for _ in range(2)
        for _ in run(state_memory=state_memory)
    ]
    return {"early": peaks[0], "late": peaks[9], "second": peaks[-1]}


def against_loop(clients: int = 100, rows: int = 200, features: int = 50, rounds: int = 1000) -> dict[str, Any]:
    """FedPD with 8 gradient steps on logistic clients, beside the same arithmetic as a loop over clients in NumPy.

    Returns:
        seconds and loop_seconds; their ratio; theta and loop_theta, which agree.
    """
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(rows, features)), np.where(rng.random(rows) < 0.5, -1.0, 1.0)) for _ in range(clients)]
    s, steps, rate = 1.0, 8, 0.5
    problem = Problem(logistic(), Clients.build(pairs))
    algorithm = FedPD(GradientDescent(steps=steps, learning_rate=rate), step_size=s)
    run = partial(solve, problem, algorithm, rounds=rounds, evaluate_every=rounds)
    run()  # compiles
    begun = time.perf_counter()
    theta = run().theta
    seconds = time.perf_counter() - begun

    begun = time.perf_counter()
    mean = np.zeros(features)
    models, duals = np.zeros((clients, features)), np.zeros((clients, features))
    for _ in range(rounds):
        total = np.zeros(features)
        for k, (x, y) in enumerate(pairs):
            model = models[k]
            for _ in range(steps):
                slope = -(y / (1 + np.exp(y * (x @ model)))) @ x / rows
                model = model - rate * (slope + duals[k] + (model - mean) / s)
            models[k], duals[k] = model, duals[k] + (model - mean) / s
            total += (model + s * duals[k]) / clients
        mean = total
    loop_seconds = time.perf_counter() - begun
    ratio = seconds / loop_seconds
    return {"seconds": seconds, "loop_seconds": loop_seconds, "ratio": ratio, "theta": theta, "loop_theta": mean}
