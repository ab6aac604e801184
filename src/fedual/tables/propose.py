"""A first schema from the files themselves, for a person to correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fedual.tables.cells import parse_floats, parse_texts
from fedual.tables.columns import Category, ClassTarget, Number, NumberTarget, Offset, TimeTarget
from fedual.tables.read import SiteTable
from fedual.tables.schema import MISSING, Schema
from fedual.tables.text import listed, ordered

__all__ = ["propose"]

TARGET_NAMES = ("target", "y", "label", "outcome", "class")
SENTINELS = (-1.0, -9.0, -99.0, -999.0, -9999.0)
MOST_CATEGORIES = 50
MOST_MARKERS = 3


@dataclass(frozen=True)
class _Column:
    """All values of one column over the sites that have it: text, null where missing."""

    name: str
    text: pl.Series
    site: pl.Series

    @classmethod
    def gather(cls, name: str, tables: Sequence[SiteTable]) -> _Column:
        text = pl.concat([table.frame[name].cast(pl.String) for table in tables]).str.strip_chars()
        text = text.set(text.is_in(MISSING), None)
        sites = np.repeat([table.site for table in tables], [len(table) for table in tables])
        return cls(name, text, pl.Series(sites.tolist(), dtype=pl.String))

    def numbers(self) -> tuple[pl.Series, list[str]] | None:
        """The values as numbers and the few texts among them, or `None` if this is not a column of numbers."""
        values, odd = parse_floats(self.text, ())
        markers = ordered(self.text[odd].unique().to_list())
        few = len(markers) <= MOST_MARKERS and 2 * len(odd) < self.text.count()
        values[odd] = np.nan
        return (pl.Series(values, nan_to_null=True), markers) if few else None

    def labels(self) -> tuple[str, ...]:
        return tuple(ordered(parse_texts(self.text.drop_nulls().unique()).unique().to_list()))

    def note(self, *parts: str) -> str:
        lost = self.text.null_count()
        return "; ".join([*([f"{lost} of {len(self.text)} values are missing"] if lost else []), *filter(None, parts)])


def propose(
    tables: Sequence[SiteTable],
    target: str | None = None,
    site: str | None = None,
    event: str | None = None,
    exposure: str | None = None,
    offset: str | None = None,
) -> Schema:
    """Guess what the columns mean. The result is a proposal: its notes say what was guessed and from what.

    A column of numbers stays one when up to three texts stand among them; these, and a lone negative sentinel such
    as -1, are proposed as markers of a missing value. A column that some site lacks, that is constant, that names
    its site, that looks like an identifier or that has too many categories is proposed to be ignored, with the reason.

    Args:
        tables: one per site.
        target: the column to predict; guessed by its name, else the last column that every file has.
        site: the site column that the tables were split by, if they were.
        event: the column that tells whether the event was observed; the target is then the time to it.
        exposure: the column of exposures of a target that counts something.
        offset: the column of offsets of such a target, in place of exposures.

    Raises:
        ValueError: target, event, exposure or offset are not in every file, the target has less than two values, the
            event's column other than two labels, exposure and offset are both given, the sites share no column, or no
            feature is left; they are named.

    Example:
        >>> frame = pl.DataFrame({"age": ["60", "?", "70", "80"], "sex": ["F", "M", "F", "F"], "y": [0, 1, 1, 0]})
        >>> schema = propose([SiteTable("A", "a.csv", frame, frame.with_row_index()["index"].to_numpy() + 1)])
        >>> schema.features["age"].missing, schema.features["sex"].categories, schema.target.classes
        (('?',), ('F', 'M'), ('0', '1'))
    """
    names = list(dict.fromkeys(name for table in tables for name in table.frame.columns))
    shared = [name for name in names if all(name in table.frame.columns for table in tables)]
    if not shared:
        raise ValueError("no column is in every file: " + "; ".join(f"{t.source}: {t.frame.columns}" for t in tables))
    roles = {"target": target, "event": event, "exposure": exposure, "offset": offset}
    for role, name in roles.items():
        if name is not None and name not in shared:
            lacking = next(table for table in tables if name not in table.frame.columns)
            raise ValueError(f"{lacking.source} has no column {name!r} for the {role}; it has {lacking.frame.columns}.")
    if exposure is not None and offset is not None:
        raise ValueError(f"exposure = {exposure!r} and offset = {offset!r}: give one of the two.")
    guessed = target is None
    if target is None:
        free = [name for name in shared if name not in roles.values()]
        target = next((name for name in free if name.lower() in TARGET_NAMES), free[-1] if free else shared[-1])
    features: dict[str, Number | Category] = {}
    ignore: dict[str, str] = {}
    for name in names:
        if name in (target, event, exposure, offset):
            continue
        found = _feature(name, tables)
        if isinstance(found, str):
            ignore[name] = found
        else:
            features[name] = found
    if not features:
        raise ValueError(f"no column besides the target {target!r} can serve as a feature: {ignore}.")
    return Schema(
        target=_time(target, event, tables, guessed)
        if event is not None
        else _target(target, tables, guessed, counts=exposure is not None or offset is not None),
        offset=_offset(exposure, offset),
        site=site,
        features=features,
        ignore=ignore,
    )


def _offset(exposure: str | None, offset: str | None) -> Offset | None:
    if exposure is not None:
        return Offset(name=exposure, kind="exposure")
    return None if offset is None else Offset(name=offset, kind="offset")


def _outcome(name: str, role: str, tables: Sequence[SiteTable]) -> tuple[_Column, tuple[str, ...]]:
    """A column that a row cannot do without, and its labels."""
    if unusable := _unusable(name, tables):
        raise ValueError(f"column {name!r} cannot be the {role}: {unusable}.")
    column = _Column.gather(name, tables)
    labels = column.labels()
    if len(labels) < 2:
        raise ValueError(f"column {name!r} cannot be the {role}: its only values are {list(labels)}.")
    return column, labels


def _target(name: str, tables: Sequence[SiteTable], guessed: bool, counts: bool) -> NumberTarget | ClassTarget:
    column, labels = _outcome(name, "target", tables)
    note = column.note("guessed to be the target" if guessed else "")
    numbers = column.numbers()
    if numbers is None or (len(labels) == 2 and not counts):
        return ClassTarget(name=name, classes=labels, note=note)
    return NumberTarget(name=name, missing=tuple(numbers[1]), note=note)


def _time(name: str, event: str, tables: Sequence[SiteTable], guessed: bool) -> TimeTarget:
    column, _ = _outcome(name, "target", tables)
    numbers = column.numbers()
    if numbers is None:
        raise ValueError(f"column {name!r} cannot be the time to an event: it does not hold numbers.")
    _, labels = _outcome(event, "event", tables)
    if len(labels) != 2:
        raise ValueError(f"column {event!r} cannot be the event: its values are {list(labels)}, where two are needed.")
    note = column.note("guessed to be the target" if guessed else "", f"{labels[1]!r} taken for an observed event")
    return TimeTarget(name=name, event=event, labels=(labels[0], labels[1]), missing=tuple(numbers[1]), note=note)


def _feature(name: str, tables: Sequence[SiteTable]) -> Number | Category | str:
    """The proposed meaning, or why the column is better ignored."""
    having = [table for table in tables if name in table.frame.columns]
    if len(having) < len(tables):
        return f"only at {listed('site', [table.site for table in having])}"
    if unusable := _unusable(name, tables):
        return unusable
    column = _Column.gather(name, tables)
    distinct = column.text.n_unique() - (column.text.null_count() > 0)
    if distinct == 0:
        return "no value in any file"
    if distinct == 1:
        return f"{column.text.drop_nulls()[0]!r} in every row"
    if name.lower().endswith("id") and distinct == len(column.text):
        return "an identifier: every value is different"
    numbers = column.numbers()
    if numbers is not None:
        return _number(column, *numbers)
    if len(tables) > 1 and pl.DataFrame({"s": column.site, "t": column.text}).n_unique() == len(tables):
        return "one value at every site: it tells the site"
    if distinct > MOST_CATEGORIES or (len(column.text) >= 20 and 2 * distinct > len(column.text)):
        return f"{distinct} different texts in {len(column.text)} rows"
    return Category(categories=column.labels(), note=column.note())


def _unusable(name: str, tables: Sequence[SiteTable]) -> str:
    for table in tables:
        dtype = table.frame[name].dtype
        if dtype.is_temporal() or dtype.is_nested() or dtype == pl.Binary:
            return f"type {dtype} in {table.source}"
    return ""


def _number(column: _Column, values: pl.Series, markers: list[str]) -> Number:
    negative = values.filter(values < 0).unique().to_list()
    others = values.filter(values >= 0)
    if len(negative) == 1 and negative[0] in SENTINELS and others.n_unique() >= 3:
        markers = [*markers, f"{negative[0]:g}"]
        values = values.set(values < 0, None)
    guess = f"{markers} taken for missing" if markers else ""
    return Number(missing=tuple(markers), note=column.note(guess, _units(column, values)))


def _units(column: _Column, values: pl.Series) -> str:
    """A remark when two sites' medians are so far apart that they may be in different units."""
    frame = pl.DataFrame({"site": column.site, "value": values}).drop_nulls()
    medians = frame.group_by("site", maintain_order=True).agg(pl.col("value").median()).sort("value")
    if len(medians) < 2 or medians["value"][0] <= 0 or medians["value"][-1] < 5 * medians["value"][0]:
        return ""
    low, high = medians.row(0), medians.row(-1)
    return f"median {low[1]:g} at site {low[0]!r} and {high[1]:g} at site {high[0]!r}: one unit? see factors"
