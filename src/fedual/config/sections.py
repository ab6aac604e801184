"""An experiment as one TOML file: its sections, reading, overriding and writing it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedual.config.messages import explain, near
from fedual.config.parts import KINDS

__all__ = ["Config", "DataSection", "OutputSection", "ProblemSection", "RunSection", "StopSection", "read_toml"]

_Count = Annotated[int, Field(ge=1)]
_Positive = Annotated[float, Field(gt=0)]
# Sections that are `name` and settings, checked against the class they name; `optimizer` belongs inside another.
_PARTS = tuple(kind for kind in KINDS if kind != "optimizer")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataSection(_Section):
    """[data]: where the clients' rows come from.

    Args:
        source: a data set of `fedual.data.names()`.
        path: the folder of its files, where they are not where its installation puts them.
        files: one file per client.
        file: one file for all, with the column `site` that names each row's client.
        site: that column.
        target: the column to predict; needed without `schema`.
        schema: a TOML file with the meaning of every column, as `fedual inspect` writes.
        test_fraction: share of every client's rows held out for the metrics, in [0, 1).
    """

    source: str | None = None
    path: str | None = None
    files: list[str] | None = None
    file: str | None = None
    site: str | None = None
    target: str | None = None
    schema_: str | None = Field(default=None, alias="schema")
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        given = [name for name in ("source", "files", "file") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of source, files and file; given are {given or 'none of them'}")
        if self.file is not None and self.site is None and self.schema_ is None:
            raise ValueError("file needs site: the column that says whose row it is")
        # A setting that would have no effect is refused: whoever wrote it expects one.
        idle: tuple[str, ...] = ("path",)
        beside = "files" if self.file is None else "file"
        if self.source is not None:
            idle, beside = ("site", "target", "schema_"), "source"
        elif self.schema_ is not None:
            idle, beside = ("path", "site", "target"), "schema"
        for name in idle:
            if getattr(self, name) is not None:
                raise ValueError(f"{name.rstrip('_')} = {getattr(self, name)!r} does not apply beside {beside}")
        return self

    def located(self, folder: Path) -> Self:
        """The same with paths made absolute, those in the file being relative to `folder`."""

        def absolute(path: str) -> str:
            return str((folder / Path(path).expanduser()).resolve())

        changes: dict[str, Any] = {
            key: absolute(value) for key in ("path", "file", "schema_") if (value := getattr(self, key)) is not None
        }
        if self.files is not None:
            changes["files"] = [absolute(path) for path in self.files]
        return self.model_copy(update=changes)


class ProblemSection(_Section):
    """[problem]: the clients' weights and the precision, as for `fedual.Problem`."""

    weights: Literal["samples", "uniform"] | list[_Positive] = "samples"
    dtype: Literal["float64", "float32"] = "float64"


class StopSection(_Section):
    """[stop]: when a run ends, as for `fedual.solve`."""

    rounds: _Count = 300
    tolerance: _Positive | None = None
    relative_tolerance: _Positive | None = None


class RunSection(_Section):
    """[run]: what else `fedual.solve` takes."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    evaluate_every: _Count = 1
    clients_at_once: _Count | Literal["auto"] = "auto"


class OutputSection(_Section):
    """[output]: what is written, and when. None of it changes a number.

    Args:
        checkpoint_every: rounds between checkpoints.
        checkpoint_seconds: write one as well when this much time has passed since the last.
        progress_every: rounds between updates of the display.
        clients_every: rounds between rows per client in `rounds.csv`; 0 for none.
    """

    checkpoint_every: _Count = 50
    checkpoint_seconds: _Positive = 60.0
    progress_every: _Count = 10
    clients_every: Annotated[int, Field(ge=0)] = 0


class Config(_Section):
    """A validated experiment; `load`, `from_dict` and `to_toml` read and write it, `fedual.config.build` makes it run.

    Example:
        >>> config = Config.from_dict({"data": {"source": "flights"}, "loss": {"name": "logistic", "l2": 1e-3}})
        >>> config.stop.rounds, config.algorithm
        (300, {'name': 'FedPD'})
    """

    data: DataSection
    problem: ProblemSection = ProblemSection()
    loss: dict[str, Any]
    regularizer: dict[str, Any] | None = None
    algorithm: dict[str, Any] = Field(default_factory=lambda: {"name": "FedPD"})
    oracle: dict[str, Any] | None = None
    schedule: dict[str, Any] | None = None
    participation: dict[str, Any] | None = None
    stop: StopSection = StopSection()
    run: RunSection = RunSection()
    output: OutputSection = OutputSection()

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> Config:
        """Read a TOML file; paths in it are relative to its folder.

        Args:
            path: the file.
            overrides: `section.key=value`, applied before anything is checked; the value is written as in TOML, and
                quotes around text may be left out.

        Raises:
            ValueError: not TOML, an unknown section or key, a value of a wrong type or out of range. Key, value and
                what is allowed are named.
            FileNotFoundError: there is no such file.
        """
        path = Path(path)
        table = read_toml(path)
        for override in overrides:
            _apply(table, override)
        try:
            config = cls.from_dict(table)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return config.model_copy(update={"data": config.data.located(path.parent)})

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Config:
        """Check the sections; those with a `name` are checked by `fedual.config.build` against the class they name.

        Raises:
            ValueError: as `load`.
        """
        for key, value in table.items():
            if key not in cls.model_fields:
                raise ValueError(f"[{key}] is not a section.{near(key, cls.model_fields)} Known are {_known(cls)}.")
            if not isinstance(value, dict):
                raise ValueError(f"{key} = {value!r} must be a section, [{key}].")
            if key in _PARTS and not isinstance(value.get("name"), str):
                raise ValueError(f'[{key}] needs name = "...", a text.')
        for key in ("data", "loss"):
            if key not in table:
                raise ValueError(f"the section [{key}] is missing.")
        values: dict[str, Any] = {
            key: value if key in _PARTS else _checked(cls, key, value) for key, value in table.items()
        }
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, nothing that is None: what `from_dict` takes."""
        return self.model_dump(exclude_none=True, by_alias=True)

    def to_toml(self) -> str:
        """The file's text."""
        return tomli_w.dumps(self.to_dict())


def _known(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)


def _checked(cls: type[Config], section: str, table: dict[str, Any]) -> BaseModel:
    model = cls.model_fields[section].annotation
    assert isinstance(model, type)
    try:
        return model.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise ValueError(explain(error, f"[{section}]", table, model)) from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ValueError: it is not TOML; the line is named.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file. `fedual new` writes one.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = key.strip().split(".")
    if not equals or len(path) < 2 or not all(path):
        raise ValueError(f"override {override!r} must have the form section.key=value, such as oracle.steps=20.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ValueError(f"override {override!r}: {part} is a value, not a section.")
    table[path[-1]] = value
