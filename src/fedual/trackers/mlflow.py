"""Runs in an MLflow tracking store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fedual.solution import Solution
from fedual.trackers.tracker import Tracker, settings

__all__ = ["MLflow"]


class MLflow(Tracker):
    """Log the history, the settings and the verdict as one MLflow run. MLflow's own telemetry is switched off.

    Args:
        store: where runs are kept: a folder, a database address or a server's address, as MLflow takes them.
        experiment: its name.
        run: the run's name; MLflow makes one up if not given.
        skip: rounds that are not handed over again.

    Raises:
        ImportError: the extra `trackers` is not installed.

    Example:
        >>> import fedual as fd
        >>> from fedual.trackers import MLflow
        >>> with MLflow("sqlite:///runs.db", experiment="flights") as tracker:  # doctest: +SKIP
        ...     fd.solve(problem, fd.FedPD(), callbacks=[tracker])
    """

    def __init__(self, store: str, experiment: str = "fedual", run: str | None = None, skip: int = 0) -> None:
        super().__init__(skip)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise ImportError('MLflow runs need mlflow: pip install "fedual[trackers]".') from error
        self._client = MlflowClient(tracking_uri=store)
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        self._run = self._client.create_run(number, run_name=run).info.run_id
        self._solution: Solution | None = None

    def __call__(self, solution: Solution) -> None:
        self._solution = solution
        super().__call__(solution)

    def begin(self, solution: Solution) -> None:
        for name, value in settings(solution).items():
            self._client.log_param(self._run, name, str(value)[:500])

    def log(self, round: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        metrics: list[Any] = [Metric(name, value, 0, round) for name, value in figures.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        if self._solution is not None:
            self._client.set_tag(self._run, "status", self._solution.status)
            self._client.set_tag(self._run, "reason", self._solution.reason)
        self._client.set_terminated(self._run)
