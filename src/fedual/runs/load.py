"""Reading a run's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors import SafetensorError, safe_open

from fedual.config import build_part
from fedual.runs.folder import RunFolder
from fedual.solution import COLUMNS, History

__all__ = ["Model", "Run", "load", "load_model"]


@dataclass(frozen=True)
class Model:
    """A trained global model, from a run's `model.safetensors`.

    Attributes:
        theta: shape `(d,)`.
        loss: what it was trained with; `loss.predict(theta, X)` gives means or probabilities.
        columns: names of the features; None where they are not known.
        transform: raw columns -> features, as plain types; None where the data were numbers already.
    """

    theta: np.ndarray
    loss: Any
    columns: tuple[str, ...] | None
    transform: dict[str, Any] | None

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Means or probabilities of the targets: shape `(n,)`, with several classes `(n, classes)`.

        Args:
            features: shape `(n, d)`, coded as in training.
        """
        return self.loss.predict(self.theta, features)


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it; has the attributes of a `Solution` that need no data.

    Attributes:
        path: the folder.
        history: one row per round; see `History`.
        summary: `summary.json`; empty as long as the run has not ended.
    """

    path: Path
    history: History
    summary: dict[str, Any]

    @property
    def status(self) -> str:
        """As `Solution.status`; "unfinished" for a run that was killed: go on with `fedual resume`."""
        return self.summary.get("status", "unfinished")

    @property
    def reason(self) -> str:
        """One sentence on the status."""
        return self.summary.get("reason", "The run was killed before its end; `fedual resume` goes on with it.")

    @property
    def remedy(self) -> str:
        """What to try, empty where nothing is wrong."""
        return self.summary.get("remedy", "")

    @property
    def converged(self) -> bool:
        """Whether the tolerance that was asked for is reached."""
        return self.status == "converged"

    @cached_property
    def model(self) -> Model:
        """The global model."""
        return load_model(self.path / "model.safetensors")

    @property
    def theta(self) -> np.ndarray:
        """The global model's parameters, shape `(d,)`."""
        return self.model.theta

    @cached_property
    def clients(self) -> pl.DataFrame:
        """`clients.csv`: one row per client."""
        return pl.read_csv(_existing(self.path / "clients.csv"), schema_overrides={"client": pl.String})

    @cached_property
    def thetas(self) -> np.ndarray:
        """The local models theta_k, shape `(K, d)`, in the order of `clients`."""
        return _arrays(self.path / "clients.safetensors")[0]["thetas"]

    @cached_property
    def duals(self) -> np.ndarray:
        """The dual variables lambda_k, shape `(K, d)`; NaN for a method without duals."""
        return _arrays(self.path / "clients.safetensors")[0]["duals"]


def load(run_folder: str | Path) -> Run:
    """Read the folder of a run, finished or not.

    Args:
        run_folder: as given to `fedual run --out`.

    Raises:
        FileNotFoundError: it is not the folder of a run, or no round has been saved yet.

    Example:
        >>> import fedual as fd
        >>> run = fd.load("runs/flights")  # doctest: +SKIP
        >>> run.history["stationarity"][-1]  # doctest: +SKIP
    """
    folder = RunFolder.open(run_folder)
    table = pl.read_csv(_existing(folder / "history.csv"), infer_schema=False)
    kinds = {"round": pl.Int64}
    history = {
        name: (table[name] == "true" if name == "communicated" else table[name].cast(kinds.get(name, pl.Float64)))
        for name in COLUMNS
    }
    path = folder / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Run(folder.path, History({name: column.to_numpy() for name, column in history.items()}), summary)


def load_model(path: str | Path) -> Model:
    """Read a run's `model.safetensors`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a model of this package.
    """
    arrays, facts = _arrays(path)
    columns = facts["columns"]
    loss = build_part("loss", facts["loss"])
    return Model(arrays["theta"], loss, None if columns is None else tuple(columns), facts["transform"])


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there yet; go on with the run by `fedual resume {path.parent}`.")
    return path


def _arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        with safe_open(_existing(Path(path)), "numpy") as file:
            facts = json.loads((file.metadata() or {})["fedual"])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} was not written by fedual, or is damaged: {error}") from None
