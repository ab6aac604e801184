"""From raw columns to the design matrix, with what was learned from all sites together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from fedual.clients import Clients
from fedual.tables.cells import OTHER, columns_of, feature, labelled, offsets, refuse_unknown
from fedual.tables.codes import Levels, Scaling, check_factors, classes_of
from fedual.tables.columns import ClassTarget, Number, TimeTarget
from fedual.tables.read import SiteTable
from fedual.tables.records import Record
from fedual.tables.schema import Schema
from fedual.tables.summary import Moments, Summary, digest, merge
from fedual.tables.text import listed

__all__ = ["Transform"]

_log = logging.getLogger("fedual")


class Transform(Record):
    """The one map from a table to numbers: the same in simulation, in deployment and in prediction.

    It is data, not code: `to_dict` gives plain JSON types and `from_dict` reads them back, bit for bit.

    Args:
        declared: the schema.
        sites: the names of the sites that it was learned from.
        codes: a `Scaling` or `Levels` per feature of the design, in its order.
        classes: the label whose code is its position; empty for a numeric target.
        dropped: feature of the schema that is not in the design -> why.

    Example:
        >>> from fedual.tables import Category, NumberTarget, split_sites, summarize
        >>> frame = pl.DataFrame({"h": ["A", "A", "B"], "age": [50, None, 70], "sex": ["F", "M", "F"], "y": [1, 2, 3]})
        >>> schema = Schema(target=NumberTarget(name="y"), features={"age": Number(), "sex": Category()})
        >>> tables = split_sites(frame, "h")
        >>> transform = Transform.fit(schema, [summarize(table, schema) for table in tables])
        >>> transform.columns, transform.features(tables[0]).tolist()
        (('age', 'sex=M'), [[-1.0, 0.0], [0.0, 1.0]])
        >>> Transform.from_dict(transform.to_dict()) == transform
        True
    """

    declared: Schema
    sites: tuple[str, ...]
    codes: tuple[Scaling | Levels, ...]
    classes: tuple[str, ...]
    dropped: dict[str, str]

    @classmethod
    def fit(cls, schema: Schema, summaries: Iterable[Summary]) -> Transform:
        """Learn the transform from what the sites shared.

        Means and deviations (divisor n) are those of the observed values in the rows with a target, over all sites.
        A feature that is constant over all sites is dropped: it cannot be told from the intercept.

        Raises:
            ValueError: the summaries do not belong together (see `merge`), no row has a target, a feature has no
                value at any site, nothing is left of the features, the target has one class only or no observed
                event, the schema gives a factor for a site that sent no summary, or the sites used another schema.
        """
        summaries = sorted(summaries, key=lambda summary: summary.site)
        pooled = merge(summaries)
        sites = tuple(summary.site for summary in summaries)
        if pooled.schema_digest != digest(schema):
            raise ValueError(
                f"the sites {list(sites)} used another schema than the one given here; distribute this one."
            )
        check_factors(schema, sites)
        if pooled.used == 0:
            raise ValueError(f"no row has a target {schema.target.name!r}: 0 of {pooled.rows} rows at {list(sites)}.")
        codes: list[Scaling | Levels] = []
        dropped: dict[str, str] = {}
        for name, column in schema.features.items():
            lacking = [s.site for s in summaries if name in s.absent and s.used]
            if schema.absent == "drop" and lacking:
                dropped[name] = f"absent at {listed('site', lacking)}"
                continue
            moments, counts = pooled.moments.get(name, Moments()), pooled.levels.get(name, {})
            if moments.count == 0 and not counts:
                raise ValueError(
                    f"feature {name!r} has no value in any row with a target at {listed('site', sites)}. Move it to "
                    "[ignore], or declare a value to fill it with."
                )
            if isinstance(column, Number):
                codes.append(Scaling.learn(name, column, moments, schema.standardize))
                if moments.deviation == 0:
                    dropped[name] = f"constant ({moments.mean:g}) at every site"
            else:
                codes.append(levels := Levels.learn(name, column, counts))
                if len(levels.levels) == 1:
                    dropped[name] = f"{levels.levels[0]!r} in every row of every site"
        codes = [code for code in codes if code.name not in dropped]
        if not codes:
            raise ValueError(f"no feature is left for the design: {dropped}.")
        return cls(
            declared=schema, sites=sites, codes=tuple(codes), classes=classes_of(schema, pooled), dropped=dropped
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The d columns of the design: `age`, `sex=M`, ..., in the order of the schema's features."""
        return tuple(column for code in self.codes for column in code.columns)

    def features(self, table: SiteTable) -> np.ndarray:
        """The design of every row, with or without a target: shape `(n, d)`, float64, always finite.

        A category that is not among the learned levels counts as "other" if that is one, as the schema asks, else
        as missing, with a warning in the log.

        Raises:
            ValueError: the table does not fit the schema; file, column and row are named.
        """
        names = [code.name for code in self.codes]
        absent, _ = columns_of(table, self.declared, names)
        if absent and self.declared.absent == "drop":
            raise ValueError(f"{table.source} (site {table.site!r}) lacks columns {list(absent)} of the fitted design.")
        self._tell_units(table)
        blocks = []
        for code in self.codes:
            values, _ = feature(table, code.name, self.declared)
            if isinstance(code, Levels):
                self._tell_unknown(table, code, values)
            blocks.append(code.design(values))
        return np.concatenate(blocks, axis=1)

    def offset(self, table: SiteTable) -> np.ndarray:
        """The schema's offset of every row, shape `(n,)`: the logarithm of an exposure, or the offset itself.

        Raises:
            ValueError: the schema declares none, the file lacks the column, or a row lacks the value; it is named.
        """
        column = self.declared.offset
        if column is None:
            raise ValueError("the schema declares no offset.")
        if column.name not in table.frame.columns:
            raise ValueError(f"{table.source} (site {table.site!r}) lacks column {column.name!r}, the {column.kind}.")
        values = offsets(table, column, self.declared.missing)
        if values.null_count():
            row = int(np.argmax(values.is_null()))
            raise ValueError(f"{table.at(column.name, row)}: no {column.kind} is given ({values.null_count()} rows).")
        return values.to_numpy()

    def apply(self, table: SiteTable) -> tuple[np.ndarray, np.ndarray]:
        """The pair (X, y) of the rows with a target: shapes `(n_k, d)` and `(n_k,)`.

        y is float64; for classes the int64 codes 0, 1, ... into `classes`, the same at every site; for a time to an
        event the pairs (time, event), shape `(n_k, 2)`. With an offset X ends in it as a further column.

        Raises:
            ValueError: the table does not fit the schema, or holds a label that is not among the classes.
        """
        used, targets = labelled(table, self.declared)
        if isinstance(self.declared.target, ClassTarget):
            labels = pl.Series(targets.tolist(), dtype=pl.String)
            refuse_unknown(used, self.declared.target.name, labels, self.classes)
            codes = {label: code for code, label in enumerate(self.classes)}
            targets = np.array([codes[label] for label in targets], dtype=np.int64)
        x = self.features(used)
        if self.declared.offset is not None:
            x = np.column_stack([x, self.offset(used) if len(used) else np.empty(0)])
        return x, targets

    def clients(self, tables: Sequence[SiteTable], intercept: bool = True) -> Clients:
        """The data of all sites with a target as `Clients`; sites without any are left out.

        Args:
            tables: one per site.
            intercept: put a column of ones, named `intercept`, after the columns of the design. A time to an event
                never gets one: its model has a baseline hazard instead.

        Returns:
            `Clients` whose columns are `columns`, `intercept` if asked for, and the name of the offset if there is one.
        """
        intercept = intercept and not isinstance(self.declared.target, TimeTarget)
        columns = (*self.columns, "intercept") if intercept else self.columns
        if self.declared.offset is not None:
            columns = (*columns, self.declared.offset.name)
        pairs, names = [], []
        for table in tables:
            x, y = self.apply(table)
            pairs.append((np.insert(x, len(self.columns), 1.0, axis=1) if intercept else x, y))
            names.append(table.site)
        return Clients.build(pairs, names=names, columns=columns, empty="skip")

    def scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """Center and scale of every column of the design, each of shape `(d,)`; 0 and 1 for indicators."""
        pairs = [
            (code.center, code.scale) if isinstance(code, Scaling) else (0.0, 1.0)
            for code in self.codes
            for _ in code.columns
        ]
        center, scale = np.array(pairs).T
        return center, scale

    def original_scale(self, coef: np.ndarray, intercept: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients per unit of each feature (its schema's unit), from those of the standardized design.

        With z = (x - center) / scale: <coef, z> + intercept = <coef / scale, x> + (intercept - <coef / scale, center>).

        Args:
            coef: shape `(d,)`, or `(m, d)` for m outputs.
            intercept: shape `()`, or `(m,)`.

        Returns:
            The same shapes.

        Raises:
            ValueError: the last axis of `coef` is not d.
        """
        coef = np.asarray(coef, dtype=np.float64)
        center, scale = self.scaling()
        if coef.shape[-1:] != scale.shape:
            raise ValueError(f"coef has shape {coef.shape}; its last axis must be the {len(scale)} of {self.columns}.")
        original = coef / scale
        return original, np.asarray(intercept - original @ center)

    def _tell_unknown(self, table: SiteTable, code: Levels, values: pl.Series) -> None:
        unknown = code.unknown(values)
        if not unknown.any():
            return
        row = int(np.argmax(unknown))
        text = (
            f"{table.at(code.name, row)}: {values[row]!r} is not one of the levels {list(code.levels)} "
            f"({unknown.sum()} such rows)"
        )
        if self.declared.features[code.name].fill == "refuse" and code.fallback != OTHER:
            raise ValueError(f"{text}, and the schema says fill = 'refuse'.")
        level = logging.INFO if code.fallback == OTHER else logging.WARNING
        _log.log(level, "%s; it counts as %r", text, code.fallback)

    def _tell_units(self, table: SiteTable) -> None:
        columns = self.declared.features
        scaled = [code.name for code in self.codes if getattr(columns[code.name], "factors", None)]
        if scaled and table.site not in self.sites:
            _log.warning(
                "%s: site %r is not one of %s, so columns %s are taken to be in the schema's units",
                *(table.source, table.site, list(self.sites), scaled),
            )
