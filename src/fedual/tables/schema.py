"""What a column means: the schema that every site and every run validates against, and its TOML form."""

from __future__ import annotations

import json
import tomllib
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedual.tables.columns import Category, ClassTarget, Number, NumberTarget, Offset, Texts, TimeTarget
from fedual.tables.records import Record

__all__ = ["MISSING", "Schema"]

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")


class Schema(Record):
    """The meaning of every column, the same for all sites, in simulation, deployment and prediction.

    Args:
        target: `NumberTarget`, `ClassTarget` or `TimeTarget`.
        offset: the exposure or offset of a numeric target that counts something.
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

    target: NumberTarget | ClassTarget | TimeTarget = Field(discriminator="kind")
    offset: Offset | None = None
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
        if isinstance(self.target, TimeTarget):
            special["event"] = self.target.event
        if self.offset is not None:
            special["offset"] = self.offset.name
            if not isinstance(self.target, NumberTarget):
                raise ValueError(f"offset {self.offset.name!r} needs a target of kind 'number', which counts something")
        for role, name in special.items():
            if name in self.features or name in self.ignore:
                raise ValueError(f"column {name!r} is the {role} and cannot be a feature or ignored as well")
        roles: dict[str | None, str] = {}
        for role, name in special.items():
            if name in roles:
                raise ValueError(f"column {name!r} is both {roles[name]} and {role}")
            roles[name] = role
        if both := sorted(set(self.features) & set(self.ignore)):
            raise ValueError(f"columns {both} are features and ignored at once")
        return self

    @property
    def outcome(self) -> tuple[str, ...]:
        """The columns without which a row is of no use: target, event, offset."""
        event = (self.target.event,) if isinstance(self.target, TimeTarget) else ()
        return (self.target.name, *event, *(() if self.offset is None else (self.offset.name,)))

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
#   target:   kind = "number", "class" or "time" (with event = "died", labels = ["censored", "observed"])
#   [offset]: of counts; kind = "exposure" (its logarithm is added to the predictor) or "offset"

"""
# Shown even at their defaults, because they are what people come to change.
_SHOWN = ("kind", "fill", "absent", "extra", "standardize", "missing", "labels")


def _tables(full: dict[str, Any], changed: dict[str, Any]) -> str:
    def entries(values: dict[str, Any], kept: dict[str, Any]) -> list[str]:
        chosen = [k for k in values if k in kept or (k in _SHOWN and values[k] != [])]
        return [f"{_key(k)} = {_value(values[k])}" for k in chosen]

    target, offset, features, ignore = (full.pop(key) for key in ("target", "offset", "features", "ignore"))
    blocks = [entries(full, changed), ["[target]", *entries(target, changed["target"])]]
    if offset is not None:
        blocks.append(["[offset]", *entries(offset, changed["offset"])])
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
