"""What became of every row, site and column, and what deserves a look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedual.tables.columns import Number, TimeTarget
from fedual.tables.summary import Summary
from fedual.tables.text import listed
from fedual.tables.transform import Transform

__all__ = ["Report", "SiteReport"]


@dataclass(frozen=True)
class SiteReport:
    """One site's part of a `Report`.

    Args:
        site: its name.
        rows: rows of its file.
        used: rows with a target and all that belongs to it (event, offset), n_k.
        dropped: why the site is left out; empty if it is not.
        missing: feature -> missing values among the used rows, filled as the schema says.
        extra: columns of its file that the schema does not name; dropped.
        classes: label -> rows, for a time to an event those of its two labels; empty for a numeric target.
    """

    site: str
    rows: int
    used: int
    dropped: str
    missing: dict[str, int]
    extra: tuple[str, ...]
    classes: dict[str, int]


@dataclass(frozen=True)
class Report:
    """What validation found, from the sites' summaries alone, so it is the same where no table can be seen.

    Args:
        sites: one entry per site, in the order of their names.
        dropped_columns: column -> why it is not in the design: constant, absent, ignored or undeclared.
        warnings: sentences that name column and site.

    Example:
        >>> import polars as pl
        >>> from fedual.tables import NumberTarget, Schema, split_sites, summarize
        >>> frame = pl.DataFrame({"h": ["A", "A", "B", "B"], "x": [1, 2, 7, 7], "y": [0.5, None, 1.0, 2.0]})
        >>> schema = Schema(target=NumberTarget(name="y"), features={"x": Number()})
        >>> summaries = [summarize(table, schema) for table in split_sites(frame, "h")]
        >>> print(Report.of(Transform.fit(schema, summaries), summaries))
        3 of 4 rows and 2 of 2 sites are used.
        rows without a target at site 'A': 1
        warning: column 'x' is constant (zero variance) at site 'B'
    """

    sites: tuple[SiteReport, ...]
    dropped_columns: dict[str, str]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, transform: Transform, summaries: Sequence[Summary]) -> Report:
        """The report on the sites from whose summaries `transform` was learned."""
        schema, summaries = transform.declared, sorted(summaries, key=lambda summary: summary.site)
        holders: dict[str, list[str]] = {}
        for summary in summaries:
            for column in summary.extra:
                holders.setdefault(column, []).append(summary.site)
        extra = {column: f"not in the schema, found at {listed('site', sites)}" for column, sites in holders.items()}
        ignored = {column: f"ignored: {why}" if why else "ignored" for column, why in schema.ignore.items()}
        return cls(
            sites=tuple(_site(summary, schema.target.name) for summary in summaries),
            dropped_columns={**transform.dropped, **ignored, **extra},
            warnings=tuple(_warnings(transform, [summary for summary in summaries if summary.used])),
        )

    @property
    def rows_without_target(self) -> dict[str, int]:
        """Site -> rows dropped because they have no target; only sites that have such rows."""
        return {site.site: site.rows - site.used for site in self.sites if site.rows > site.used}

    @property
    def dropped_sites(self) -> dict[str, str]:
        """Site -> why it is left out."""
        return {site.site: site.dropped for site in self.sites if site.dropped}

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        used, rows = sum(site.used for site in self.sites), sum(site.rows for site in self.sites)
        kept = len(self.sites) - len(self.dropped_sites)
        lines = [f"{used} of {rows} rows and {kept} of {len(self.sites)} sites are used."]
        lines += [f"rows without a target at site {site!r}: {n}" for site, n in self.rows_without_target.items()]
        lines += [f"site {site!r} is left out: {why}" for site, why in self.dropped_sites.items()]
        lines += [f"column {column!r} is dropped: {why}" for column, why in self.dropped_columns.items()]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def _site(summary: Summary, target: str) -> SiteReport:
    return SiteReport(
        site=summary.site,
        rows=summary.rows,
        used=summary.used,
        dropped="" if summary.used else f"none of its {summary.rows} rows has a target {target!r}",
        missing={name: count for name, count in summary.missing.items() if count},
        extra=summary.extra,
        classes=summary.classes,
    )


def _warnings(transform: Transform, summaries: Sequence[Summary]) -> list[str]:
    """One sentence per column and fault, naming the sites; a single row is constant by nature and not worth one."""
    declared = transform.declared
    several = [summary for summary in summaries if summary.used > 1]
    found: list[tuple[str, list[str]]] = []
    for name, column in declared.features.items():
        if name in transform.dropped:
            continue
        found.append(
            (f"column {name!r} has no value and is filled", [s.site for s in summaries if s.missing[name] == s.used])
        )
        if isinstance(column, Number):
            constant = [s.site for s in several if s.moments[name].count > 1 and s.moments[name].deviation == 0]
            found.append((f"column {name!r} is constant (zero variance)", constant))
        else:
            found.append((f"column {name!r} has one category", [s.site for s in several if len(s.levels[name]) == 1]))
    if transform.classes:
        one = [s.site for s in several if len(s.classes) == 1]
        found.append((f"target {declared.target.name!r} has one class", one))
    if isinstance(declared.target, TimeTarget):
        none = [s.site for s in summaries if declared.target.labels[1] not in s.classes]
        found.append(("no event was observed", none))
    everywhere = [f"column {name!r} is dropped from the design: {why}" for name, why in transform.dropped.items()]
    return everywhere + [f"{text} at {listed('site', sites)}" for text, sites in found if sites]
