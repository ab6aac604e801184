"""The whole way from files to `Clients`, for the command line and for people who do not need the steps."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fedual.clients import Clients
from fedual.tables.propose import propose
from fedual.tables.read import Files, SiteTable, read_sites
from fedual.tables.report import Report
from fedual.tables.schema import Schema
from fedual.tables.summary import summarize
from fedual.tables.transform import Transform

__all__ = ["Prepared", "inspect_files", "prepare", "validate_files"]

_log = logging.getLogger("fedual")


@dataclass(frozen=True)
class Prepared:
    """What `prepare` returns.

    Args:
        clients: the data of every site with a target.
        transform: the map that made it, to be kept with the model.
        report: what became of rows, sites and columns.
    """

    clients: Clients
    transform: Transform
    report: Report


def inspect_files(
    files: Files,
    target: str | None = None,
    site: str | None = None,
    event: str | None = None,
    exposure: str | None = None,
    offset: str | None = None,
) -> Schema:
    """Propose a schema for files; see `propose`.

    Args:
        files: as for `read_sites`.
        target: the column to predict; guessed by its name, else the last column that every file has.
        site: the column that names the site, where a file holds several.
        event, exposure, offset: further columns of the outcome, as for `propose`.

    Raises:
        ValueError: the files cannot be read or do not have these columns; named.
    """
    return propose(read_sites(files, site), target, site, event, exposure, offset)


def validate_files(files: Files, schema: Schema) -> Report:
    """Check files against a schema without building a design.

    Raises:
        ValueError: the files do not fit; file, column and row are named.
    """
    return _learn(read_sites(files, schema.site), schema)[1]


def prepare(files: Files, schema: Schema, intercept: bool = True) -> Prepared:
    """From one file per site, or one with a site column, to `Clients`.

    A simulation's shortcut for what a deployment does in pieces: `summarize` at every site, `Transform.fit` where
    the summaries meet, `Transform.apply` at every site. The numbers are the same bit for bit. Warnings are logged.

    Args:
        files: as for `read_sites`.
        schema: as proposed by `inspect_files` and edited.
        intercept: put a column of ones, named `intercept`, after the columns of the design; see `Transform.clients`.

    Raises:
        ValueError: the files do not fit the schema or give nothing to learn from; file, column and row are named.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "A.csv").write_text("age,died\\n60,no\\n80,yes\\n")
        >>> _ = (folder / "B.csv").write_text("died,age\\nyes,70\\n")
        >>> files = [folder / "A.csv", folder / "B.csv"]
        >>> prepared = prepare(files, inspect_files(files, target="died"))
        >>> prepared.clients.names, prepared.clients.columns, prepared.transform.classes
        (('A', 'B'), ('age', 'intercept'), ('no', 'yes'))
    """
    tables = read_sites(files, schema.site)
    transform, report = _learn(tables, schema)
    for warning in report.warnings:
        _log.warning("%s", warning)
    return Prepared(transform.clients(tables, intercept), transform, report)


def _learn(tables: tuple[SiteTable, ...], schema: Schema) -> tuple[Transform, Report]:
    summaries = [summarize(table, schema) for table in tables]
    transform = Transform.fit(schema, summaries)
    return transform, Report.of(transform, summaries)
