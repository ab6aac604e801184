"""What the registry keeps about a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedual.clients import Clients
from fedual.data.sources import Source

__all__ = ["Baseline", "Entry"]


@dataclass(frozen=True)
class Baseline:
    """What a plain scikit-learn model reaches on held-out rows, measured by `scripts/measure_baselines.py`.

    The model is trained on everyone's rows together (`pooled`), and once per silo on its own rows (`alone`);
    30 % of every silo's rows are held out with seed 0. Both are evaluated on all held-out rows together.

    Args:
        metric: `auc`, `log_loss`, `accuracy` or `r2`.
        pooled: its value for the pooled model.
        alone: its value when every silo has a model of its own.
        gaining: how many silos have a smaller held-out loss (log-loss or squared error) with the pooled model.
        compared: out of how many: the silos that are large enough to hold a row out.
    """

    metric: Literal["auc", "log_loss", "accuracy", "r2"]
    pooled: float
    alone: float
    gaining: int
    compared: int


@dataclass(frozen=True)
class Entry:
    """What is known about a data set without loading it.

    Args:
        name: what `load` takes.
        title: one line on what is predicted from what.
        task: `binary`, `multiclass` or `regression`; binary targets are 0 and 1, classes are 0, 1, 2, ...
        silo: what a client is.
        silos: number of clients, K.
        rows: number of rows of all clients together, n.
        features: number of features per row, d.
        provenance: where the data come from.
        licence: the terms of the data, as far as their publisher states any.
        source: where their files lie and how to obtain them.
        read: reads the clients from the folder of the source.
        baselines: measured figures.
    """

    name: str
    title: str
    task: Literal["binary", "multiclass", "regression"]
    silo: str
    silos: int
    rows: int
    features: int
    provenance: str
    licence: str
    source: Source
    read: Callable[[Path], Clients]
    baselines: tuple[Baseline, ...]

    @property
    def obtain(self) -> str:
        """The one command that installs the source; empty where the data are inside this package."""
        return self.source.obtain

    @property
    def available(self) -> bool:
        """Whether the source is installed where `load` looks for it."""
        return self.source.find() is not None
