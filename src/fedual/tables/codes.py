"""How one feature becomes columns of the design, learned from what all sites observed of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from fedual.tables.cells import OTHER
from fedual.tables.columns import Category, ClassTarget, Number, TimeTarget
from fedual.tables.records import Record
from fedual.tables.schema import Schema
from fedual.tables.summary import Moments, Summary
from fedual.tables.text import ordered

__all__ = ["Levels", "Scaling", "check_factors", "classes_of"]


class Scaling(Record):
    """A numeric feature's column of the design is (x - center) / scale, a missing x first replaced by `fill`."""

    name: str
    fill: float
    center: float
    scale: float

    @classmethod
    def learn(cls, name: str, column: Number, moments: Moments, standardize: bool) -> Scaling:
        """From the pooled moments, with the deviation's divisor n."""
        fill = moments.mean if isinstance(column.fill, str) else column.fill
        if not standardize:
            return cls(name=name, fill=fill, center=0.0, scale=1.0)
        return cls(name=name, fill=fill, center=moments.mean, scale=moments.deviation or 1.0)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns of the design."""
        return (self.name,)

    def design(self, values: pl.Series) -> np.ndarray:
        """From `(n,)` values with null for missing to `(n, 1)` columns."""
        return ((values.fill_null(self.fill).to_numpy() - self.center) / self.scale)[:, None]


class Levels(Record):
    """A categorical feature's columns of the design: one 0/1 indicator per level but the first, the reference."""

    name: str
    levels: tuple[str, ...]
    fill: str

    @classmethod
    def learn(cls, name: str, column: Category, counts: Mapping[str, int]) -> Levels:
        """From the pooled count of every category, of which there is at least one.

        Only levels that occur are kept: the indicator of one that does not would be a column of zeros.
        """
        common = {level: count for level, count in counts.items() if count >= column.minimum and level != OTHER}
        if column.categories is None:
            levels = ordered(common)
        else:
            levels = [level for level in column.categories if level in common]
        if rest := sum(counts.values()) - sum(common[level] for level in levels):
            levels.append(OTHER)
            common[OTHER] = rest
        fill = column.fill if column.fill in levels else max(levels, key=lambda level: common[level])
        return cls(name=name, levels=tuple(levels), fill=fill)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns of the design."""
        return tuple(f"{self.name}={level}" for level in self.levels[1:])

    @property
    def fallback(self) -> str:
        """The level that an unknown category counts as: "other" if it is a level, else that of a missing value."""
        return OTHER if OTHER in self.levels else self.fill

    def unknown(self, values: pl.Series) -> np.ndarray:
        """Where a value is present and not a level, shape `(n,)`."""
        known = {None, *self.levels}
        return np.array([value not in known for value in values.to_list()], dtype=bool)

    def design(self, values: pl.Series) -> np.ndarray:
        """From `(n,)` values with null for missing to `(n, levels - 1)` indicators."""
        codes: dict[str | None, int] = {level: code for code, level in enumerate(self.levels)}
        codes[None], unknown = codes[self.fill], codes[self.fallback]
        return np.eye(len(self.levels))[[codes.get(value, unknown) for value in values.to_list()], 1:]


def classes_of(schema: Schema, pooled: Summary) -> tuple[str, ...]:
    """The class labels in the order of their codes; empty for a target that is no class.

    Raises:
        ValueError: all rows are of one class, or none has an observed event.
    """
    if isinstance(schema.target, TimeTarget):
        if not pooled.classes.get(schema.target.labels[1]):
            raise ValueError(f"no row of any site has an observed event: {schema.target.event!r} is {pooled.classes}.")
        return ()
    if not isinstance(schema.target, ClassTarget):
        return ()
    if len(pooled.classes) < 2:
        raise ValueError(f"target {schema.target.name!r} has one class only over all sites: {pooled.classes}.")
    return schema.target.classes or tuple(ordered(pooled.classes))


def check_factors(schema: Schema, sites: tuple[str, ...]) -> None:
    """Raise a `ValueError` if the schema gives a factor for a site that is not among `sites`."""
    columns: dict[str, object] = {**schema.features, schema.target.name: schema.target}
    if schema.offset is not None:
        columns[schema.offset.name] = schema.offset
    for name, column in columns.items():
        if unknown := sorted(set(getattr(column, "factors", {})) - set(sites)):
            raise ValueError(f"column {name!r} has factors for sites {unknown}, which are not among {list(sites)}.")
