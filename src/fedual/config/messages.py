"""What a person is told about a configuration that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

__all__ = ["explain", "near"]


def near(name: Any, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing where no known name is close.

    Example:
        >>> near("learning_rat", ["steps", "learning_rate"])
        " Did you mean 'learning_rate'?"
    """
    close = get_close_matches(str(name), list(known), n=1)
    folded = {other.lower(): other for other in known}
    best = close[0] if close else folded.get(str(name).lower())
    return f" Did you mean {best!r}?" if best else ""


def explain(error: ValidationError, where: str, given: Mapping[str, Any], model: type[BaseModel]) -> str:
    """One line per setting that cannot be used: its section and name, its value, what is allowed."""
    known = [field.alias or name for name, field in model.model_fields.items()]
    found: dict[str, list[str]] = {}
    for item in error.errors():
        key = str(item["loc"][0]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            text = f"is not a setting here.{near(key, known)} Known are {', '.join(known) or 'none'}"
        elif item["type"] == "missing":
            text = "is required"
        else:
            text = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        texts = found.setdefault(key, [])
        if text not in texts:
            texts.append(text)
    lines = []
    for key, texts in found.items():
        value = f"{key} = {given[key]!r}" if key in given else key
        lines.append(" ".join([where, value, ", or ".join(texts)]).replace("  ", " ").rstrip(".") + ".")
    return "\n".join(lines)
