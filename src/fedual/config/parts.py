"""From a name and settings to an object, by looking at the signature of the class: no configuration class per part.

A part of an experiment is a table such as `{name = "Skip", probability = 0.5}`. The name is looked up among the public
names of the part's module; the parameters of what it finds become a Pydantic model, which checks the settings. So a
class that is added to a module can be configured at once.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from fedual.config.messages import explain, near

__all__ = ["KINDS", "Kind", "build_part", "complete_part"]

_Auto = Literal["auto"]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Count = Annotated[int, Field(ge=1)]

# What a setting may be, wherever it appears: the package uses one name for one thing. Beyond that a setting is checked
# by its annotation and by the class itself.
_VOCABULARY: dict[str, Any] = {
    "steps": _Count | _Auto | list[_Count],
    "learning_rate": _Positive | _Auto | list[_Positive],
    "gamma": _Positive | _Auto | list[_Positive],
    "step_size": _Positive | _Auto,
    "batch_size": _Count,
    "refresh": _Count,
    "max_steps": _Count,
    "epochs": _Positive,
    "tolerance": _Positive,
    "probability": float | list[float],
    "skip_probability": float,
    "rounds": _Count,
    "period": _Count,
    "l1": _NotNegative,
    "l2": _NotNegative,
    "strength": _NotNegative,
    "mu": _NotNegative,
}
_CALLABLE = re.compile(r"(typing\.|collections\.abc\.)?Callable\b")


@dataclass(frozen=True)
class Kind:
    """Where the parts of one kind live.

    Args:
        module: the module whose public names are the choices.
        base: module and name of the class that they derive from.
        functions: whether the choices are functions that return such an object, rather than classes.
    """

    module: str
    base: tuple[str, str]
    functions: bool = False

    def choices(self) -> dict[str, Callable[..., Any]]:
        """Name -> class or function, all that a configuration can name."""
        names = vars(importlib.import_module(self.module))
        return {name: names[name] for name in names["__all__"] if name in names and self._is_choice(names[name])}

    def _is_choice(self, value: Any) -> bool:
        base = getattr(importlib.import_module(self.base[0]), self.base[1])
        if not self.functions:
            return inspect.isclass(value) and issubclass(value, base) and not value.__module__.startswith(_PROTOCOLS)
        if not inspect.isfunction(value):
            return False
        if any(_CALLABLE.match(str(p.annotation)) for p in _required(value)):
            return False  # needs a Python function, which a file cannot hold
        try:
            returned = typing.get_type_hints(value).get("return")
        except NameError:  # an annotation for type checkers alone; such a function returns no part
            return False
        return inspect.isclass(returned) and issubclass(returned, base)


_PROTOCOLS = "fedual.protocols"
KINDS = {
    "loss": Kind("fedual.losses", (_PROTOCOLS, "Loss"), functions=True),
    "regularizer": Kind("fedual.prox", (_PROTOCOLS, "Regularizer"), functions=True),
    "algorithm": Kind("fedual.algorithms", (_PROTOCOLS, "Algorithm")),
    "oracle": Kind("fedual.oracles", (_PROTOCOLS, "Oracle")),
    "schedule": Kind("fedual.schedules", (_PROTOCOLS, "Schedule")),
    "participation": Kind("fedual.participation", (_PROTOCOLS, "Participation")),
    "optimizer": Kind("optax", ("optax", "GradientTransformation"), functions=True),
}


def _required(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(factory).parameters.values() if p.default is inspect.Parameter.empty]


def build_part(kind: str, table: dict[str, Any], **given: Any) -> Any:
    """The object that a table describes.

    Args:
        kind: a key of `KINDS`, which is also the name of the section.
        table: `name` and settings; a setting that is a part in turn (`optimizer`, the oracles of `PerClient`) is a
            table with a `name`, or a table of such tables.
        given: parts that have a section of their own, such as the algorithm's oracle.

    Raises:
        ValueError: the name or a setting is unknown, a setting is missing, of a wrong type or out of range. Section,
            key, value and what is allowed are named.

    Example:
        >>> build_part("schedule", {"name": "Skip", "probability": 0.5})
        Skip(probability=0.5)
    """
    factory = _lookup(kind, table)
    settings = _checked(kind, factory, table)
    for key, part in given.items():
        if key not in inspect.signature(factory).parameters:
            raise ValueError(f"[{key}] does not apply: {table['name']} takes no {key}. Remove the section.")
        settings[key] = part
    settings = {key: _nested(key if key in KINDS else kind, value) for key, value in settings.items()}
    try:
        part = factory(**settings)
        if kind in ("algorithm", "schedule"):
            part.check()
    except (TypeError, ValueError) as error:
        raise ValueError(f"[{kind}] {table['name']}: {error}") from error
    return part


def _nested(kind: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return build_part(kind, value) if "name" in value else {key: _nested(kind, part) for key, part in value.items()}


def complete_part(kind: str, table: dict[str, Any]) -> dict[str, Any]:
    """The table with the defaults of its class filled in, as far as a file can hold them."""
    parameters = inspect.signature(_lookup(kind, table)).parameters.values()
    defaults = {p.name: p.default for p in parameters if isinstance(p.default, bool | int | float | str)}
    return {"name": table["name"], **defaults, **table}


def _lookup(kind: str, table: dict[str, Any]) -> Callable[..., Any]:
    choices = KINDS[kind].choices()
    name = table.get("name")
    if name not in choices:
        known = ", ".join(sorted(choices)) if len(choices) < 30 else f"the functions of {KINDS[kind].module}"
        raise ValueError(f"[{kind}] name = {name!r} is unknown.{near(name, choices)} Known are {known}.")
    return choices[name]


def _checked(kind: str, factory: Callable[..., Any], table: dict[str, Any]) -> dict[str, Any]:
    settings = {key: value for key, value in table.items() if key != "name"}
    model = _model(factory)
    try:
        # TOML's types are JSON's, and in JSON mode a strict tuple may be given as an array.
        model.model_validate_json(json.dumps(settings, default=str))
    except ValidationError as error:
        raise ValueError(explain(error, f"[{kind}]", settings, model)) from None
    return settings


@cache
def _model(factory: Callable[..., Any]) -> type[BaseModel]:
    """The parameters of a class or function as a Pydantic model."""
    try:
        hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except (NameError, TypeError):
        hints = {}
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        required = parameter.default is parameter.empty
        hint = _VOCABULARY.get(parameter.name) or _plain(hints.get(parameter.name, Any))
        fields[parameter.name] = (hint, ... if required else parameter.default)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return create_model(factory.__name__, __config__=config, **fields)


def _plain(hint: Any) -> Any:
    """The annotation, where it is made of types that a file can hold; else Any."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal or hint in (int, float, bool, str, types.NoneType, Any):
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_plain(a) for a in arguments)]  # noqa: UP007 the operands are computed
    if origin in (tuple, list, Sequence):
        return list[_plain(arguments[0])]  # type: ignore[misc]
    return Any
