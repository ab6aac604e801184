"""The base of everything in this package that is saved or crosses between processes."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["Record"]


class Record(BaseModel):
    """Immutable named values; refuses unknown keys, NaN and infinity, and converts to plain JSON types."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types only; floats survive `json.dumps` and `json.loads` bit for bit."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, value: dict[str, Any], source: str | None = None) -> Self:
        """The inverse of `to_dict`, validated.

        Args:
            value: plain types, for example parsed JSON.
            source: where it came from, named in errors; the name of the class by default.

        Raises:
            ValueError: a key is unknown, missing or holds an impossible value; the key is named.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            lines = []
            for item in error.errors():
                key = ".".join(str(part) for part in item["loc"]) or "(top level)"
                given = "" if isinstance(item["input"], dict) else f" (given: {item['input']!r})"
                lines.append(f"{key}: {item['msg'].removeprefix('Value error, ')}{given}")
            raise ValueError(f"{source or cls.__name__}: " + "; ".join(lines)) from None
