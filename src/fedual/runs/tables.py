"""What a run's tables say about every client, and its summary."""

from __future__ import annotations

import platform
from typing import Any

import jax
import numpy as np
import polars as pl

from fedual import __version__
from fedual.config import Experiment
from fedual.metrics import GLOBAL, LOCAL, Evaluation, evaluate
from fedual.solution import Solution

__all__ = ["client_table", "evaluations", "summarize"]

_SHORT = {GLOBAL: "global", LOCAL: "local"}


def evaluations(experiment: Experiment, solution: Solution) -> tuple[Evaluation, ...]:
    """The global and the local models on the held-out rows; empty where there are none or the loss cannot predict."""
    loss, names = experiment.problem.loss, experiment.problem.clients.names
    if experiment.test is None or loss.task is None:
        return ()
    models = ((solution.theta, GLOBAL), (solution.thetas, LOCAL))
    return tuple(evaluate(loss, experiment.test, theta, names, label) for theta, label in models)


def client_table(solution: Solution, evaluated: tuple[Evaluation, ...]) -> pl.DataFrame:
    """One row per client.

    Columns: client; rows n_k; weight w_k; loss f_k(theta) and gradient_norm ||grad f_k(theta)|| at the global model, on
    the training rows; dual_norm ||lambda_k|| and distance ||theta_k - theta||; test_rows; and the held-out metrics,
    `global_...` of the global theta and `local_...` of theta_k. What is not defined is empty.
    """
    problem = solution.problem
    columns: dict[str, Any] = {
        "client": problem.clients.names,
        "rows": problem.sizes,
        "weight": problem.weights,
        "loss": problem.local_values(solution.theta),
        "gradient_norm": np.linalg.norm(problem.local_gradients(solution.theta), axis=1),
        "dual_norm": np.linalg.norm(solution.duals, axis=1),
        "distance": np.linalg.norm(solution.thetas - solution.theta, axis=1),
    }
    for evaluation in evaluated:
        columns["test_rows"] = evaluation.rows
        columns |= {f"{_SHORT[evaluation.model]}_{name}": values for name, values in evaluation.clients.items()}
    return pl.DataFrame(columns).fill_nan(None)


def summarize(experiment: Experiment, solution: Solution, evaluated: tuple[Evaluation, ...]) -> dict[str, Any]:
    """The verdict, what it cost, how good the models are, and how to repeat it; plain types for JSON."""
    history, problem = solution.history, solution.problem
    return {
        "status": solution.status,
        "reason": solution.reason,
        "remedy": solution.remedy,
        "rounds": history.rounds,
        **{
            name: history.last(name)
            for name in (
                "communications",
                "uplinks",
                "downlinks",
                "uplink_bytes",
                "downlink_bytes",
                "gradient_evaluations",
                "seconds",
                "primal_residual",
                "dual_residual",
                "s",
                "p",
            )
        },
        "objective": solution.objective,
        "stationarity": solution.stationarity,
        "metrics on held-out rows": {evaluation.model: evaluation.summary() for evaluation in evaluated},
        "clients": len(problem.clients),
        "training rows": int(problem.sizes.sum()),
        "held-out rows": 0 if experiment.test is None else int(experiment.test.sizes.sum()),
        "parameters": problem.dimension,
        "seed": solution.state.seed,
        "devices": solution.bound.devices,
        "versions": {"fedual": __version__, "jax": jax.__version__, "python": platform.python_version()},
    }
