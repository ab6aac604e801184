"""The files of a run: their names, and writing each in one piece."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import save_file

from fedual import __version__
from fedual.files import replacing, write_text

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """A folder with the files of one run.

    `config.toml`: the complete experiment, enough to repeat it. `history.csv`: one row per round. `clients.csv`: one
    row per client, at the end. `rounds.csv`: the same per round, where asked for. `model.safetensors`: the global model
    and what is needed to predict with it. `clients.safetensors`: local models and duals. `checkpoint.safetensors`: the
    state to go on from. `summary.json`: verdict, costs, metrics, versions. `report.html` and `comparison.csv`: written
    by `fedual report` and `fedual demo`.
    """

    path: Path

    NAMES = (
        "config.toml",
        "history.csv",
        "clients.csv",
        "rounds.csv",
        "model.safetensors",
        "clients.safetensors",
        "checkpoint.safetensors",
        "summary.json",
        "comparison.csv",
        "report.html",
    )

    @classmethod
    def create(cls, path: str | Path, force: bool = False) -> RunFolder:
        """An empty folder for a new run.

        Args:
            path: made if it does not exist.
            force: remove the files of an earlier run, and nothing else.

        Raises:
            FileExistsError: it holds something and `force` is not given.
        """
        cls.check_free(path, force)
        folder = cls(Path(path))
        folder.path.mkdir(parents=True, exist_ok=True)
        for name in cls.NAMES:
            (folder / name).unlink(missing_ok=True)
        return folder

    @staticmethod
    def check_free(path: str | Path, force: bool = False) -> None:
        """Raise FileExistsError where `create` would."""
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise FileExistsError(f"{path} is a file; name a folder.")
        if path.is_dir() and any(path.iterdir()) and not force:
            raise FileExistsError(
                f"{path} is not empty, and nothing in it was touched. Name another folder, go on with `fedual resume`, "
                "or replace its run with --force."
            )

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """The folder of an existing run.

        Raises:
            FileNotFoundError: there is no `config.toml` in it.
        """
        if not (Path(path) / "config.toml").is_file():
            raise FileNotFoundError(f"{path} is not the folder of a run: it holds no config.toml.")
        return cls(Path(path))

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def write_table(self, name: str, table: pl.DataFrame) -> None:
        """A CSV file; numbers are written so that they read back bit for bit, a missing one as an empty cell."""
        with replacing(self / name) as temporary:
            table.write_csv(temporary)

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file; NaN and infinity become null, which JSON has."""
        write_text(self / name, json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n")

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray], **facts: Any) -> None:
        """A safetensors file; `facts` go into its metadata as JSON, under `fedual`."""
        with replacing(self / name) as temporary:
            save_file(
                {key: np.ascontiguousarray(array) for key, array in arrays.items()},
                temporary,
                metadata={"fedual": json.dumps({"version": __version__, **_finite(facts)})},
            )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
