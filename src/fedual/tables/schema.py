"""What a column means: the schema that every site and every run validates against, and its TOML form."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from fedual.tables.records import Record
from fedual.tables.text import canonical

__all__ = ["Category", "ClassTarget", "Number", "NumberTarget", "Schema"]

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")


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


class Schema(Record):
    """The meaning of every column, the same for all sites, in simulation, deployment and prediction.

    Args:
        target: `NumberTarget` or `ClassTarget`.
        features: column -> `Number` or `Category`. This order is the order of the design; a file's is irrelevant.
        site: the column that names the site, where one file holds several.
        ignore: column -> why it is left out.
        missing: markers of a missing value in every column.
        absent: a feature that a site's file lacks is refused, filled like a missing value, or dropped for all sites.
        extra: columns of a file that the schema does not name are dropped (and reported) or refused.
        standardize: whether numeric features are centered and divided by their pooled standard deviation.

    Example:
        >>> schema = Schema(target=ClassTarget(name="died"), features={"age": Number(), "sex": Category()})
        >>> Schema.from_toml(schema.to_toml()) == schema
        True
    """

    target: NumberTarget | ClassTarget = Field(discriminator="kind")
    site: str | None = None
    absent: Literal["refuse", "fill", "drop"] = "refuse"
    extra: Literal["drop", "refuse"] = "drop"
    standardize: bool = True
    missing: Texts = MISSING
    features: dict[str, Annotated[Number | Category, Field(discriminator="kind")]]
    ignore: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Schema:
        if not self.features:
            raise ValueError("no features: declare at least one")
        special = {"target": self.target.name, "site": self.site}
        for role, name in special.items():
            if name in self.features or name in self.ignore:
                raise ValueError(f"column {name!r} is the {role} and cannot be a feature or ignored as well")
        if both := sorted(set(self.features) & set(self.ignore)):
            raise ValueError(f"columns {both} are features and ignored at once")
        if self.site == self.target.name:
            raise ValueError(f"column {self.site!r} is both target and site")
        return self

    def to_toml(self) -> str:
        """The schema as TOML text, to be edited by hand; `from_toml` reads it back."""
        return _HEADER + _tables(self.to_dict(), self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def from_toml(cls, text: str, source: str = "schema") -> Schema:
        """Read a schema.

        Args:
            text: TOML.
            source: the file's name, for errors.

        Raises:
            ValueError: the text is not TOML, or a key is unknown, missing or impossible; the key is named.
        """
        try:
            value = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{source} is not valid TOML: {error}") from None
        return cls.from_dict(value, source)


_HEADER = """\
# What each column means, for all sites.
#   absent: a feature missing from a file is "refuse"d, "fill"ed or "drop"ped for all sites; extra: "drop" or "refuse"
#   number:   fill = "mean", "refuse" or a number; missing = ["-1"]; unit = "mg/dL"; factors = {site = 18.016}
#   category: fill = "most frequent", "refuse" or a category; minimum = 5 (rarer levels join "other");
#             recode = {male = "M"}; the first of `categories` is the reference level

"""
# Shown even at their defaults, because they are what people come to change.
_SHOWN = ("kind", "fill", "absent", "extra", "standardize", "missing")


def _tables(full: dict[str, Any], changed: dict[str, Any]) -> str:
    def entries(values: dict[str, Any], kept: dict[str, Any]) -> list[str]:
        chosen = [k for k in values if k in kept or (k in _SHOWN and values[k] != [])]
        return [f"{_key(k)} = {_value(values[k])}" for k in chosen]

    target, features, ignore = (full.pop(key) for key in ("target", "features", "ignore"))
    blocks = [entries(full, changed), ["[target]", *entries(target, changed["target"])]]
    blocks += [
        [f"[features.{_key(name)}]", *entries(column, changed["features"][name])] for name, column in features.items()
    ]
    if ignore:
        blocks.append(["[ignore]", *entries(ignore, ignore)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "_").replace("_", "a").isalnum()
    return name if bare else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    # A JSON scalar is a TOML value, except that TOML also wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
