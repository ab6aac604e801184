"""What a report shows of a run, whether it is a `Solution` in memory or a folder on disk."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from fedual import __version__
from fedual.checkpoint.identity import describe_method
from fedual.inference import names_of, parameter_names
from fedual.losses import LinearPredictor
from fedual.runs import Run, load
from fedual.runs.tables import client_table
from fedual.solution import History, Solution

__all__ = ["Facts", "gather"]

Source = Solution | Run | str | Path


@dataclass(frozen=True)
class Facts:
    """One run.

    Attributes:
        label: what it is called on the page.
        status, verdict: in a word, in a sentence.
        history: one row per round.
        clients: one row per client, see `fedual.runs.tables.client_table`; None where it is not known yet.
        coefficients: one row per parameter of a linear model; None for other models.
        metrics: model -> metric -> averages, on held-out rows.
        data: what was learned from.
        configuration: as text.
        provenance: seed and versions.
    """

    label: str
    status: str
    verdict: str
    history: History
    clients: pl.DataFrame | None
    coefficients: pl.DataFrame | None
    metrics: dict[str, dict[str, dict[str, float | None]]]
    data: dict[str, Any]
    configuration: str
    provenance: dict[str, Any]


def gather(source: Source, label: str | None = None) -> Facts:
    """The facts of a `Solution`, of a run read by `fedual.load`, or of a run's folder.

    Raises:
        FileNotFoundError: it is not the folder of a run.
        TypeError: it is something else altogether.
    """
    if isinstance(source, str | Path):
        source = load(source)
    if isinstance(source, Run):
        return _from_folder(source, source.path.resolve().name if label is None else label)
    if isinstance(source, Solution):
        return _from_solution(source, source.bound.algorithm.name if label is None else label)
    raise TypeError(f"a report shows a Solution, a run or the folder of a run, not {type(source).__name__}.")


def _from_solution(solution: Solution, label: str) -> Facts:
    problem = solution.problem
    clients = client_table(solution, ())
    coefficients = None
    if isinstance(problem.loss, LinearPredictor):
        coefficients = _coefficients(parameter_names(problem), solution.theta, solution.thetas, problem.weights)
    settings = describe_method(solution.bound, solution.state.seed)
    return Facts(
        label,
        solution.status,
        _verdict(solution),
        solution.history,
        clients,
        coefficients,
        {},
        _data_summary(clients) | {"parameters": problem.dimension},
        "\n".join(f"{name} = {value}" for name, value in settings.items()),
        {"seed": solution.state.seed} | _versions(),
    )


def _from_folder(run: Run, label: str) -> Facts:
    summary = run.summary
    clients = run.clients if (run.path / "clients.csv").exists() else None
    coefficients, model = None, run.model
    if isinstance(model.loss, LinearPredictor):
        thetas = run.thetas if clients is not None else None
        weights = None if clients is None else clients["weight"].to_numpy()
        columns = model.columns
        names = (
            [f"parameter {j}" for j in range(len(model.theta))]
            if columns is None
            else names_of(model.loss, columns, len(model.theta))
        )
        coefficients = _coefficients(names, model.theta, thetas, weights)
    data = {} if clients is None else _data_summary(clients)
    extra = {key: summary[key] for key in ("held-out rows", "parameters") if key in summary}
    versions = {f"{name} version": version for name, version in summary.get("versions", {}).items()}
    return Facts(
        label,
        run.status,
        _verdict(run),
        run.history,
        clients,
        coefficients,
        summary.get("metrics on held-out rows", {}),
        data | extra,
        (run.path / "config.toml").read_text(encoding="utf-8"),
        {key: summary[key] for key in ("seed", "devices") if key in summary} | versions,
    )


def _verdict(run: Solution | Run) -> str:
    return f"{run.status.capitalize()}: {run.reason} {run.remedy}".rstrip()


def _versions() -> dict[str, str]:
    return {
        "fedual version": __version__,
        "jax version": jax.__version__,
        "python version": platform.python_version(),
    }


def _data_summary(clients: pl.DataFrame) -> dict[str, Any]:
    rows = clients["rows"].to_numpy()
    return {
        "clients": len(rows),
        "training rows": int(rows.sum()),
        "rows of a client": f"{rows.min()} to {rows.max()}, median {np.median(rows):g}",
        "largest weight": float(clients["weight"].to_numpy().max()),
    }


def _coefficients(names: Any, theta: np.ndarray, thetas: np.ndarray | None, weights: np.ndarray | None) -> pl.DataFrame:
    """The global model and how the clients' own models scatter around it."""
    columns: dict[str, Any] = {"parameter": list(names), "coefficient": theta}
    if thetas is not None:
        deviation = np.sqrt(np.average((thetas - theta) ** 2, axis=0, weights=weights))
        columns |= {"lowest at a client": thetas.min(0), "highest at a client": thetas.max(0), "spread": deviation}
    return pl.DataFrame(columns)
