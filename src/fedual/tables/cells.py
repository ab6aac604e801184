"""From the raw columns of one site to numbers and categories, as the schema declares them.

Everything here looks at one site alone and is the same in a summary, a design and a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import polars as pl

from fedual.tables.columns import Category, ClassTarget, Number, NumberTarget, Offset, TimeTarget
from fedual.tables.read import SiteTable
from fedual.tables.schema import Schema
from fedual.tables.text import as_number, canonical

__all__ = ["OTHER", "columns_of", "feature", "labelled", "offsets", "parse_floats", "parse_texts", "refuse_unknown"]

OTHER = "other"
"""The level of a category that gathers undeclared, rare and unseen values."""


def columns_of(table: SiteTable, schema: Schema, needed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare a file's columns with the schema's.

    Returns:
        The needed columns that the file lacks, and the columns that the schema does not name.

    Raises:
        ValueError: there are some, and the schema refuses them; both lists are given.
    """
    named = {*schema.features, *schema.ignore, *schema.outcome, schema.site}
    absent = tuple(name for name in needed if name not in table.frame.columns)
    extra = tuple(name for name in table.frame.columns if name not in named)
    faults = []
    if absent and schema.absent == "refuse":
        faults.append(f"lacks columns {list(absent)} (set absent = 'fill' or 'drop' to allow it)")
    if extra and schema.extra == "refuse":
        faults.append(f"has undeclared columns {list(extra)} (declare or ignore them, or set extra = 'drop')")
    if faults:
        raise ValueError(
            f"{table.source} (site {table.site!r}) {' and '.join(faults)}: its {table.frame.width} columns are "
            f"{table.frame.columns}, the schema needs the {len(needed)} columns {list(needed)}."
        )
    return absent, extra


def labelled(table: SiteTable, schema: Schema) -> tuple[SiteTable, np.ndarray]:
    """The rows that have a target, with all that belongs to it (event, offset), and their targets.

    Targets are floats or labels as text, shape `(n,)`, or pairs (time, event) of floats, shape `(n, 2)`.

    Raises:
        ValueError: a target is not a number, not one of the declared classes, or a negative time; an exposure is not
            positive; file, column and row are named.
    """
    target = schema.target
    if not set(schema.outcome) <= set(table.frame.columns):
        columns_of(table, schema, [*schema.outcome, *schema.features])
        return table.where(np.zeros(len(table), bool)), np.empty((0, 2) if isinstance(target, TimeTarget) else 0)
    if isinstance(target, NumberTarget):
        parts = [_numbers(table, target.name, target, schema.missing)]
    elif isinstance(target, ClassTarget):
        parts = [_texts(table, target.name, target, schema.missing, None)]
        if target.classes is not None:
            refuse_unknown(table, target.name, parts[0], target.classes)
    else:
        parts = [_times(table, target, schema.missing), _events(table, target, schema.missing)]
    have = np.all([part.is_not_null().to_numpy() for part in parts], axis=0)
    if schema.offset is not None:
        have &= offsets(table, schema.offset, schema.missing).is_not_null().to_numpy()
    columns = [part.filter(pl.Series(have)).to_numpy() for part in parts]
    return table.where(have), np.column_stack(columns) if len(columns) > 1 else columns[0]


def offsets(table: SiteTable, column: Offset, missing: tuple[str, ...]) -> pl.Series:
    """What is added to the linear predictor of every row, null where it is missing.

    Raises:
        ValueError: an exposure is not positive; file, column and row are named.
    """
    values = _numbers(table, column.name, column, missing)
    if column.kind == "offset":
        return values
    _refuse(table, column.name, values <= 0, "an exposure must be positive: correct it, or declare it missing")
    return values.log()


def _times(table: SiteTable, column: TimeTarget, missing: tuple[str, ...]) -> pl.Series:
    values = _numbers(table, column.name, column, missing)
    _refuse(table, column.name, values < 0, "a time must be >= 0: correct it, or declare it missing")
    return values


def _events(table: SiteTable, column: TimeTarget, missing: tuple[str, ...]) -> pl.Series:
    """1.0 for an observed event, 0.0 for a censored row."""
    labels = Category(recode=column.recode)
    texts = _texts(table, column.event, labels, missing, None)
    refuse_unknown(table, column.event, texts, column.labels)
    return (texts == column.labels[1]).cast(pl.Float64)


def _refuse(table: SiteTable, name: str, bad: pl.Series, remedy: str) -> None:
    if rows := np.flatnonzero(bad.fill_null(False).to_numpy()).tolist():
        raise ValueError(f"{table.at(name, rows[0])}: {table.frame[name][rows[0]]} ({len(rows)} such rows); {remedy}.")


def refuse_unknown(table: SiteTable, name: str, texts: pl.Series, known: Collection[str]) -> None:
    """Raise a `ValueError` for the first label that is neither missing nor `known`; file, column and row are named."""
    allowed = {None, *known}
    unknown = [row for row, text in enumerate(texts.to_list()) if text not in allowed]
    if unknown:
        row = unknown[0]
        raise ValueError(
            f"{table.at(name, row)}: {texts[row]!r} is not one of the labels {list(known)} "
            f"({len(unknown)} such rows). Add it to the schema, recode it, or declare it missing."
        )


def feature(table: SiteTable, name: str, schema: Schema) -> tuple[pl.Series, int]:
    """One parsed feature, floats or text with null for missing, and how many of its values were missing.

    A fill value that the schema declares is put in here already, because it needs no other site; a category outside
    the declared ones becomes "other".

    Raises:
        ValueError: a text in a number, an infinite number, a type without meaning here, or a missing value where the
            schema refuses them; file, column and row are named.
    """
    column = schema.features[name]
    if name not in table.frame.columns:
        table = replace(table, frame=table.frame.with_columns(pl.lit(None, dtype=pl.String).alias(name)))
    if isinstance(column, Number):
        values = _numbers(table, name, column, schema.missing)
    else:
        values = _texts(table, name, column, schema.missing, column.categories)
    lost = values.null_count()
    if column.fill == "refuse" and lost:
        raise ValueError(
            f"{table.at(name, int(np.argmax(values.is_null())))}: the value is missing ({lost} such rows) and the "
            "schema says fill = 'refuse'. Complete the file, or choose another fill."
        )
    if column.fill not in ("mean", "most frequent", "refuse"):
        values = values.fill_null(column.fill)
    return values, lost


def parse_texts(column: pl.Series, meaning: Callable[[str], str | None] = lambda text: text) -> pl.Series:
    """A column as text, each canonical text replaced by its meaning, `None` for missing, and NaN and null by null."""
    cells = (column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String).to_list()
    meanings = {cell: None if cell is None else meaning(canonical(cell)) for cell in set(cells)}
    return pl.Series([meanings[cell] for cell in cells], dtype=pl.String)


def parse_floats(column: pl.Series, markers: Collection[str]) -> tuple[np.ndarray, np.ndarray]:
    """A column as float64 with NaN for missing, shape `(n,)`, and the rows that are neither finite nor missing."""
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers = np.array(column.cast(pl.Float64).to_numpy())
        bad = np.flatnonzero(np.isinf(numbers))
    else:
        text = column.cast(pl.String).str.strip_chars()
        numbers = np.array(text.cast(pl.Float64, strict=False).to_numpy())
        odd = np.flatnonzero(~np.isfinite(numbers))
        missing = {None, *markers}
        bad = odd[[cell not in missing for cell in text[odd].to_list()]]
    # A marker such as -1 is meant as a number too: -1.00 is the same value.
    numbers[np.isin(numbers, [value for value in map(as_number, markers) if value is not None])] = np.nan
    return numbers, bad


def _numbers(
    table: SiteTable, name: str, column: Number | NumberTarget | TimeTarget | Offset, missing: tuple[str, ...]
) -> pl.Series:
    raw = table.frame[name]
    if raw.dtype.is_temporal() or raw.dtype.is_nested() or raw.dtype == pl.Binary:
        raise ValueError(f"{table.at(name)}: type {raw.dtype} is not a number; convert it, or move it to [ignore].")
    numbers, bad = parse_floats(raw, (*missing, *column.missing))
    if len(bad):
        row = int(bad[0])
        raise ValueError(
            f"{table.at(name, row)}: {raw[row]!r} is not a finite number ({len(bad)} such rows). Correct it, or declare"
            f" it as a missing marker of this column: missing = [{str(raw[row])!r}]."
        )
    return pl.Series(numbers * column.factors.get(table.site, 1.0), nan_to_null=True)


def _texts(
    table: SiteTable, name: str, column: Category | ClassTarget, missing: tuple[str, ...], known: Collection[str] | None
) -> pl.Series:
    raw = table.frame[name]
    if raw.dtype.is_nested() or raw.dtype == pl.Binary:
        raise ValueError(f"{table.at(name)}: type {raw.dtype} is not a category; convert it, or move it to [ignore].")
    markers = {*missing, *column.missing}

    def meaning(text: str) -> str | None:
        if text in markers:
            return None
        text = column.recode.get(text, text)
        return text if known is None or text in known else OTHER

    return parse_texts(raw, meaning)
