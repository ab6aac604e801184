"""What a site shares about its table, and how the shared parts are merged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from fedual.tables.cells import columns_of, feature, labelled
from fedual.tables.columns import ClassTarget, Number, NumberTarget, TimeTarget
from fedual.tables.read import SiteTable
from fedual.tables.records import Record
from fedual.tables.schema import Schema

__all__ = ["Moments", "Summary", "merge", "summarize"]

POOLED = "all sites"


class Moments(Record):
    """Count, mean and M2 = sum of (x - mean)² of the observed values of a column.

    Example:
        >>> Moments.of(np.array([1.0, 3.0])).merge(Moments.of(np.array([5.0])))
        Moments(count=3, mean=3.0, m2=8.0)
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """The moments of `values`, shape `(n,)`, in two passes around the first value.

        Measured from the first value, a constant column has exactly M2 = 0, however large it is.
        """
        if len(values) == 0:
            return cls()
        shifted = values - values[0]
        mean = shifted.mean()
        return cls(count=len(values), mean=float(values[0] + mean), m2=float(((shifted - mean) ** 2).sum()))

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets of values together.

        Chan, Golub and LeVeque, *Updating Formulae and a Pairwise Algorithm for Computing Sample Variances* (1979),
        equation (2.1) in the form with the difference of means, which does not cancel.
        """
        if self.count == 0 or other.count == 0:
            return other if self.count == 0 else self
        count, gap = self.count + other.count, other.mean - self.mean
        return Moments(
            count=count,
            mean=self.mean + gap * (other.count / count),
            m2=self.m2 + other.m2 + gap * gap * (self.count * other.count / count),
        )

    @property
    def deviation(self) -> float:
        """Standard deviation with divisor n; 0 for a column that is constant but for rounding."""
        if self.count == 0:
            return 0.0
        deviation = (self.m2 / self.count) ** 0.5
        return 0.0 if deviation <= 8 * np.finfo(float).eps * abs(self.mean) else deviation


class Summary(Record):
    """All that a site tells the others about its table. In a deployment exactly this crosses.

    It holds counts, means and names, never a row; but the mean of a one-row site is that row, and a category list
    that the schema does not declare is shared as found. All counts but `rows` are of the rows that have a target.

    Args:
        site: the site's name.
        schema_digest: fingerprint of the schema that the site used.
        features: the schema's features.
        rows: rows of the file.
        used: rows with a target and all that belongs to it (event, offset), n_k.
        absent: features that the file lacks.
        extra: columns of the file that the schema does not name.
        missing: feature -> missing values.
        moments: numeric feature -> moments of the observed values, in the schema's units.
        levels: categorical feature -> category -> rows.
        classes: label -> rows, for a time to an event those of its two labels; empty for a numeric target.

    Example:
        >>> import polars as pl
        >>> from fedual.tables import NumberTarget
        >>> schema = Schema(target=NumberTarget(name="y"), features={"x": Number()})
        >>> table = SiteTable("A", "a.csv", pl.DataFrame({"x": [1, 3, None], "y": [0, 0, 1]}), np.arange(1, 4))
        >>> summary = summarize(table, schema)
        >>> summary.moments, summary.missing
        ({'x': Moments(count=2, mean=2.0, m2=2.0)}, {'x': 1})
        >>> Summary.from_dict(summary.to_dict()) == summary
        True
    """

    site: str
    schema_digest: str
    features: tuple[str, ...]
    rows: int
    used: int
    absent: tuple[str, ...]
    extra: tuple[str, ...]
    missing: dict[str, int]
    moments: dict[str, Moments]
    levels: dict[str, dict[str, int]]
    classes: dict[str, int]


def summarize(table: SiteTable, schema: Schema) -> Summary:
    """The summary of one site's table.

    Raises:
        ValueError: the table does not fit the schema; file, column and row are named.
    """
    absent, extra = columns_of(table, schema, schema.features)
    used, targets = labelled(table, schema)
    moments, levels, missing = {}, {}, {}
    for name, column in schema.features.items():
        values, missing[name] = feature(used, name, schema)
        if isinstance(column, Number):
            with np.errstate(over="ignore", invalid="ignore"):
                observed = values.drop_nulls().to_numpy()
                if len(observed) and not np.isfinite(np.sum((observed - observed[0]) ** 2)):
                    raise ValueError(f"{table.at(name)}: values up to {np.abs(observed).max()} are too large to scale.")
            moments[name] = Moments.of(observed)
        else:
            levels[name] = _counts(values.drop_nulls().to_list())
    return Summary(
        site=table.site,
        schema_digest=digest(schema),
        features=tuple(schema.features),
        rows=len(table),
        used=len(used),
        absent=absent,
        extra=extra,
        missing=missing,
        moments=moments,
        levels=levels,
        classes=_labels(schema.target, targets),
    )


def _labels(target: ClassTarget | NumberTarget | TimeTarget, targets: np.ndarray) -> dict[str, int]:
    if isinstance(target, TimeTarget):
        targets = np.array(target.labels, dtype=object)[targets[:, 1].astype(int)]
    return {} if isinstance(target, NumberTarget) else _counts(targets.tolist())


def merge(summaries: Iterable[Summary]) -> Summary:
    """The summary of all sites together, as if their rows had been in one table.

    Sites are merged in the order of their names, so the result does not depend on who reported first.

    Raises:
        ValueError: there is none, two have the same site, or two sites used different schemas; the sites are named,
            and both lists of features if those differ.
    """
    ordered = sorted(summaries, key=lambda summary: summary.site)
    if not ordered:
        raise ValueError("no site sent a summary.")
    for previous, summary in pairwise(ordered):
        if previous.site == summary.site:
            raise ValueError(f"two summaries come from site {summary.site!r}; every site needs a name of its own.")
    for summary in ordered[1:]:
        _check_same_schema(ordered[0], summary)
    return reduce(_merge_two, ordered).model_copy(update={"site": POOLED})


def digest(schema: Schema) -> str:
    """A fingerprint that is equal for equal schemas."""
    return hashlib.sha256(json.dumps(schema.to_dict()).encode()).hexdigest()


def _check_same_schema(a: Summary, b: Summary) -> None:
    if a.features != b.features:
        raise ValueError(
            f"sites {a.site!r} and {b.site!r} have different features: {len(a.features)} {list(a.features)} and "
            f"{len(b.features)} {list(b.features)}. Give every site the same schema."
        )
    if a.schema_digest != b.schema_digest:
        raise ValueError(
            f"sites {a.site!r} and {b.site!r} used schemas that differ in something other than their features, for "
            "example a fill, a unit or a list of classes. Give every site the same schema."
        )


def _merge_two(a: Summary, b: Summary) -> Summary:
    return a.model_copy(
        update={
            "rows": a.rows + b.rows,
            "used": a.used + b.used,
            "absent": _union(a.absent, b.absent),
            "extra": _union(a.extra, b.extra),
            "missing": _add(a.missing, b.missing),
            "moments": {name: own.merge(b.moments[name]) for name, own in a.moments.items()},
            "levels": {name: _add(own, b.levels[name]) for name, own in a.levels.items()},
            "classes": _add(a.classes, b.classes),
        }
    )


def _counts(texts: Sequence[str]) -> dict[str, int]:
    levels, counts = np.unique(np.array(texts, dtype=object), return_counts=True)
    return dict(zip(levels.tolist(), counts.tolist(), strict=True))


def _add(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return a | {name: a.get(name, 0) + count for name, count in b.items()}


def _union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b)))
