"""Before round 1 every site says what it is about to work with; what does not fit is listed side by side."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from fedual import __version__
from fedual.checkpoint.identity import describe
from fedual.clients import Clients
from fedual.engine.message import Arrays, Message, Refused
from fedual.engine.site import Site

__all__ = ["Hello", "check_hellos", "greet", "method_of", "versions"]

# What the numbers of a run depend on; differences in other versions are only told.
_MUST_AGREE = ("dimension", "dtype", "shape", "columns", "classes", "schema", "method", "versions.fedual")


@dataclass(frozen=True)
class Hello(Message):
    """A site's answer to the first message of a run.

    Attributes:
        site, run: who, and for which run.
        rows: n_k; the coordinator weighs and checks by it.
        dimension: d.
        dtype: of the arithmetic.
        shape: of one row's features.
        columns, classes: names of features and labels, in order; empty where the data have none.
        schema: digest of the schema of the columns, "" without.
        method: the settings that the site will work with.
        versions: of the programs.
        smoothness: L_k, where the site consents to share it and it is asked for; else 0.
        stretch: the last one that the site has state of, 0 for none.
        start: the loss's default theta^(0), which depends on no data.
    """

    site: str
    run: str
    rows: int
    dimension: int
    dtype: str
    shape: list[int]
    columns: list[str]
    classes: list[str]
    schema: str
    method: dict[str, Any]
    versions: dict[str, str]
    smoothness: float
    stretch: int
    start: Arrays = field(default_factory=dict)


def versions() -> dict[str, str]:
    """Of this package, Python and what computes."""
    names = ("jax", "numpy", "flwr")
    return {"fedual": __version__, "python": sys.version.split()[0]} | {name: version(name) for name in names}


def method_of(algorithm: Any, regularizer: Any) -> dict[str, Any]:
    """The part of a method that coordinator and sites must share, as dotted names and values."""
    return describe(algorithm, "algorithm") | describe(regularizer, "regularizer")


def greet(
    site: Site, run: str, stretch: int, smoothness: bool, classes: tuple[str, ...] = (), schema: str = ""
) -> Hello:
    """A site's `Hello`.

    Args:
        smoothness: whether L_k is asked for and shared.
    """
    problem = site.problem
    clients: Clients = problem.clients
    told = method_of(site.given, problem.regularizer) | describe(problem.loss, "loss")
    return Hello(
        site=site.name, run=run, rows=site.rows, dimension=problem.dimension, dtype=problem.dtype,
        shape=list(problem.feature_shape), columns=list(clients.columns or ()), classes=list(classes), schema=schema,
        method=told, versions=versions(), smoothness=float((site.smoothness() if smoothness else None) or 0.0),
        stretch=stretch,
        start={"": np.asarray(problem.loss.start(problem.feature_shape), problem.dtype)},
    )  # fmt: skip


def check_hellos(hellos: Mapping[str, Hello], method: Mapping[str, Any]) -> list[str]:
    """Refuse sites that do not fit each other or the coordinator.

    Args:
        hellos: by site.
        method: the coordinator's `method_of`.

    Returns:
        Differences that are allowed, as sentences.

    Raises:
        Refused: they differ in what must agree; every difference is one line, with one column per site.
    """
    facts = {name: _flat(hello) for name, hello in hellos.items()}
    own = {f"method.{key}": value for key, value in method.items()}
    own["versions.fedual"] = __version__
    keys = sorted({key for each in facts.values() for key in each} | set(own))
    rows, notes = [], []
    for key in keys:
        values = {name: each.get(key, "(none)") for name, each in facts.items()}
        if key in own:
            values = {"coordinator": own[key], **values}
        if len({repr(value) for value in values.values()}) == 1:
            continue
        if key.split(".")[0] in _MUST_AGREE or key in _MUST_AGREE:
            rows.append((key, values))
        else:
            notes.append(f"{key} differs: " + ", ".join(f"{name} {value}" for name, value in values.items()))
    if rows:
        raise Refused("handshake", "the sites do not fit each other:\n" + _table(rows))
    return notes


def _flat(hello: Hello) -> dict[str, Any]:
    flat: dict[str, Any] = {name: getattr(hello, name) for name in ("dimension", "dtype", "shape", "schema")}
    for name in ("columns", "classes"):
        flat |= {f"{name}.{position}": value for position, value in enumerate(getattr(hello, name))}
    for name in ("method", "versions"):
        flat |= {f"{name}.{key}": value for key, value in getattr(hello, name).items()}
    return flat


def _table(rows: list[tuple[str, dict[str, Any]]], most: int = 20) -> str:
    found = dict.fromkeys(name for _, values in rows for name in values)
    names = sorted(found, key=lambda name: name != "coordinator")  # the coordinator's column first, if it has one
    lines = [["", *names]]
    lines += [[key, *(str(values.get(name, "")) for name in names)] for key, values in rows[:most]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)
    return text if len(rows) <= most else f"{text}\n  and {len(rows) - most} more"
