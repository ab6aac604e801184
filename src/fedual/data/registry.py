"""The data sets the package knows: where they come from, what their silos are, what to expect of them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from fedual.clients import Clients
from fedual.data.catalog import ENTRIES
from fedual.data.entry import Baseline, Entry

__all__ = ["Baseline", "Dataset", "Entry", "describe", "load", "names"]


@dataclass(frozen=True)
class Dataset:
    """A loaded data set: its `clients`, and its `entry` in the registry (provenance, licence, task, baselines)."""

    entry: Entry
    clients: Clients


def names() -> tuple[str, ...]:
    """The names that `load` and `describe` take.

    Example:
        >>> "flights" in names()
        True
    """
    return tuple(entry.name for entry in ENTRIES)


def describe(name: str) -> Entry:
    """The registry's entry of a data set; reads no data.

    Raises:
        KeyError: no data set has this name.

    Example:
        >>> describe("flights").silo
        'destination airport'
    """
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    close = get_close_matches(name, names(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise KeyError(f"no data set is called {name!r}; {hint}known are {', '.join(names())}.")


def load(name: str, path: str | Path | None = None) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of `names()`.
        path: the folder with the source's files, where they are not where its installation puts them.

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
    return Dataset(entry=entry, clients=entry.read(entry.source.locate(path)))
