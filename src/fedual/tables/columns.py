"""What one column means: the entries of a schema."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fedual.tables.records import Record
from fedual.tables.text import canonical

__all__ = ["Category", "ClassTarget", "Number", "NumberTarget", "Offset", "TimeTarget"]


def _distinct(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if values is not None and len(set(values)) != len(values):
        raise ValueError(f"{list(values)} names a value twice")
    return values


def _finite_factors(factors: dict[str, float]) -> dict[str, float]:
    for site, factor in factors.items():
        if factor == 0 or not math.isfinite(factor):
            raise ValueError(f"factor {factor} for site {site!r} must be finite and not 0")
    return factors


Text = Annotated[str, AfterValidator(canonical)]
Texts = Annotated[tuple[Text, ...], AfterValidator(_distinct)]


class _Column(Record):
    missing: Texts = ()
    note: str = ""


class _NumberColumn(_Column):
    unit: str = ""
    factors: Annotated[dict[str, float], AfterValidator(_finite_factors)] = Field(default_factory=dict)


class _TextColumn(_Column):
    recode: dict[Text, Text] = Field(default_factory=dict)


class Number(_NumberColumn):
    """A numeric feature.

    Args:
        missing: markers of a missing value in this column, besides the schema's; compared as text and as numbers.
        fill: `"mean"` (pooled over all sites), `"refuse"`, or a number that stands in for every missing value.
        unit: the unit of the design and of the reported coefficients; text for people.
        factors: site -> what that site's values are multiplied by to reach `unit`; 1 for sites not named.
        note: free text.

    Example:
        >>> Number(unit="mg/dL", factors={"B": 18.016}).fill
        'mean'
    """

    kind: Literal["number"] = "number"
    fill: float | Literal["mean", "refuse"] = "mean"


class Category(_TextColumn):
    """A categorical feature, coded as 0/1 indicators of every level but the first.

    Args:
        categories: the levels in order, the first being the reference; values outside them are gathered as
            "other" at the site itself, so their text never leaves it. `None`: the sorted union over all sites.
        fill: `"most frequent"` (pooled over all sites), `"refuse"`, or a category that stands in for every
            missing value.
        minimum: levels with fewer rows than this over all sites join "other".
        recode: text as found, if it is not a marker of a missing value -> category.
        missing, note: as for `Number`.

    Example:
        >>> Category(categories=("F", "M"), recode={"male": "M"}).minimum
        1
    """

    kind: Literal["category"] = "category"
    categories: Texts | None = None
    fill: Text = "most frequent"
    minimum: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Category:
        known = self.categories
        if known is not None and not known:
            raise ValueError("categories is empty; list the levels, or leave it out to learn them")
        if known is not None and self.fill not in ("most frequent", "refuse", *known):
            raise ValueError(f"fill = {self.fill!r} must be 'most frequent', 'refuse' or one of {list(known)}")
        return self


class NumberTarget(_NumberColumn):
    """A numeric target, kept on its scale. Fields as for `Number`; rows without a target are dropped.

    Example:
        >>> NumberTarget(name="days", unit="d", missing=("-1",)).missing
        ('-1',)
    """

    kind: Literal["number"] = "number"
    name: str


class ClassTarget(_TextColumn):
    """A class label, coded 0, 1, ... by one map for all sites.

    Args:
        name: the column.
        classes: the labels in the order of their codes. `None`: the sorted union over all sites.
        recode, missing, note: as for `Category`.

    Example:
        >>> ClassTarget(name="died", classes=[0, 1]).classes
        ('0', '1')
    """

    kind: Literal["class"] = "class"
    name: str
    classes: Texts | None = None

    @model_validator(mode="after")
    def _check(self) -> ClassTarget:
        if self.classes is not None and len(self.classes) < 2:
            raise ValueError(f"classes = {list(self.classes)} needs at least two labels")
        return self


class TimeTarget(_NumberColumn):
    """The time until an event, or until the row was censored without it; for Cox's model.

    Args:
        name: the column of times, >= 0.
        event: the column that tells whether the event was observed.
        labels: what that column holds for a censored row and for an observed event, in this order.
        recode: text as found in the column `event` -> one of the labels.
        missing, unit, factors, note: of the times, as for `Number`. A row without time or event is dropped.

    Example:
        >>> TimeTarget(name="days", event="status", labels=("alive", "dead")).labels[1]
        'dead'
    """

    kind: Literal["time"] = "time"
    name: str
    event: str
    labels: tuple[Text, Text] = ("0", "1")
    recode: dict[Text, Text] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> TimeTarget:
        if self.labels[0] == self.labels[1]:
            raise ValueError(f"labels = {list(self.labels)} must tell a censored row from an observed event")
        return self


class Offset(_NumberColumn):
    """A column that enters the linear predictor of counts with coefficient 1, neither standardized nor estimated.

    Args:
        name: the column.
        kind: "exposure" for a positive quantity, such as person-days, whose logarithm is the offset; "offset" for the
            offset itself.
        missing, unit, factors, note: as for `Number`. A row without it is dropped, like one without a target.

    Example:
        >>> Offset(name="beds", kind="exposure").name
        'beds'
    """

    kind: Literal["exposure", "offset"]
    name: str
