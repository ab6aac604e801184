"""Reading files into one table per site, before anything is known about what the columns mean."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

__all__ = ["Files", "SiteTable", "read_sites", "split_sites"]

Files = str | Path | Sequence[str | Path] | Mapping[str, str | Path]
"""One file, several, or site -> file."""


@dataclass(frozen=True)
class SiteTable:
    """The raw columns of one site.

    Args:
        site: the site's name, its identity everywhere.
        source: the file, for messages.
        frame: the columns as read; of a CSV file all are text.
        rows: the row of the file that each row of `frame` came from, shape `(n,)`, counted from 1 without the header.

    Example:
        >>> table = SiteTable("A", "a.csv", pl.DataFrame({"age": [60, 70]}), np.array([1, 2]))
        >>> table.where(np.array([False, True])).at("age", 0)
        "a.csv (site 'A'), column 'age', row 2"
    """

    site: str
    source: str
    frame: pl.DataFrame
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, mask: np.ndarray) -> SiteTable:
        """The rows at which `mask`, shape `(n,)`, is true."""
        return SiteTable(self.site, self.source, self.frame.filter(pl.Series(mask, dtype=pl.Boolean)), self.rows[mask])

    def at(self, column: str, row: int | None = None) -> str:
        """How messages name a place: file, site, column and, for the position `row` of this table, the file's row."""
        place = f"{self.source} (site {self.site!r}), column {column!r}"
        return place if row is None else f"{place}, row {self.rows[row]}"


def read_sites(files: Files, site: str | None = None) -> tuple[SiteTable, ...]:
    """Read one file per site, or files with a column that names the site.

    Args:
        files: CSV, TSV, Parquet or Arrow (Feather, IPC) files, chosen by suffix. Without a mapping or a column
            `site`, a file's name without its suffix is its site.
        site: the column that names the site of every row. With a mapping, only the rows of the named sites are kept.

    Raises:
        ValueError: a file is unreadable, empty, ragged or has a column twice; the site column is absent or blank in
            a row; a site's name is blank; a site appears in two files or has no row; two sites would get the same
            rows. File, column and row are named.
        FileNotFoundError: a file does not exist.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "all.csv"
        >>> _ = path.write_text("hospital,age\\nA,60\\nB,70\\nA,80\\n")
        >>> [(table.site, table.frame["age"].to_list()) for table in read_sites(path, site="hospital")]
        [('A', ['60', '80']), ('B', ['70'])]
        >>> [table.rows.tolist() for table in read_sites({"A": path}, site="hospital")]
        [[1, 3]]
    """
    named = isinstance(files, Mapping)
    if isinstance(files, Mapping):
        pairs = [(str(name), Path(file)) for name, file in files.items()]
    else:
        pairs = [(Path(file).stem, Path(file)) for file in ([files] if isinstance(files, str | Path) else files)]
    if not pairs:
        raise ValueError("no files were given.")
    tables: list[SiteTable] = []
    for name, path in pairs:
        frame, rows = _read(path)
        if site is None:
            tables.append(SiteTable(name, str(path), frame, rows))
            continue
        found = split_sites(frame, site, str(path), rows)
        kept = [table for table in found if table.site == name] if named else found
        if not kept:
            raise ValueError(
                f"{path} has no row with {site} = {name!r}; its sites are {[table.site for table in found]}."
            )
        tables += kept
    _check_sites(tables, whole_files=site is None)
    return tuple(tables)


def split_sites(
    frame: pl.DataFrame, site: str, source: str = "table", rows: np.ndarray | None = None
) -> list[SiteTable]:
    """Split a table by the column `site`, sites in order of appearance, rows in theirs.

    Raises:
        ValueError: the column is absent, or blank in a row.

    Example:
        >>> frame = pl.DataFrame({"hospital": ["a", "b", "a"], "x": [1, 2, 3]})
        >>> [(t.site, t.frame["x"].to_list()) for t in split_sites(frame, "hospital")]
        [('a', [1, 3]), ('b', [2])]
    """
    rows = np.arange(1, len(frame) + 1) if rows is None else rows
    if site not in frame.columns:
        raise ValueError(
            f"{source} has no column {site!r} to name the site of each row; it has {frame.columns}. Without it every "
            "row would count as every site's."
        )
    names = frame[site].cast(pl.String).str.strip_chars().fill_null("")
    if blank := np.flatnonzero(names.to_numpy() == "").tolist():
        raise ValueError(f"{source}, column {site!r}, row {rows[blank[0]]}: no site is given ({len(blank)} such rows).")
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names.to_list()):
        groups.setdefault(name, []).append(index)
    rest = frame.drop(site)
    return [SiteTable(name, source, rest[index], rows[index]) for name, index in groups.items()]


def _check_sites(tables: Sequence[SiteTable], whole_files: bool) -> None:
    seen: dict[str, str] = {}
    owners: dict[Path, str] = {}
    for table in tables:
        if not table.site.strip():
            raise ValueError(f"{table.source}: the site's name is blank; every site needs a name of its own.")
        if table.site in seen:
            raise ValueError(
                f"site {table.site!r} appears twice: {seen[table.site]} and {table.source}. Give every site one file "
                "and a name of its own, for example as {'A': 'a.csv', 'B': 'b.csv'}."
            )
        seen[table.site] = table.source
        owner = owners.setdefault(Path(table.source).resolve(), table.site)
        if whole_files and owner != table.site:
            raise ValueError(
                f"sites {owner!r} and {table.site!r} would both get all rows of {table.source}. Give each its own "
                "file, or the column that names the site."
            )


def _read(path: Path) -> tuple[pl.DataFrame, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file.")
    if path.suffix.lower() not in _READERS:
        raise ValueError(f"{path}: unknown suffix {path.suffix!r}; known ones are {', '.join(_READERS)}.")
    try:
        frame = _READERS[path.suffix.lower()](path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from None
    frame = frame.rename(dict(zip(frame.columns, _column_names(path, frame.columns), strict=True)))
    rows = np.arange(1, len(frame) + 1)
    if frame.width > 1:  # A blank line of a CSV file is a row in which everything is missing.
        full = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series().to_numpy()
        frame, rows = frame.filter(pl.Series(full)), rows[full]
    if frame.is_empty():
        raise ValueError(f"{path} has no rows.")
    return frame, rows


def _read_csv(path: Path) -> pl.DataFrame:
    """All columns as text, so that a bad number is reported with its row instead of deciding a column's type."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            first = lines.readline()
            separator = max(",;\t", key=first.count)
            lines.seek(0)
            # Polars fills short rows with missing values and renames repeated columns without a word.
            reader = csv.reader(lines, delimiter=separator)
            header = next(reader, [])
            for row, cells in enumerate(reader, start=1):
                if cells and len(cells) != len(header):
                    raise ValueError(
                        f"{path}, row {row} (line {reader.line_num}) has {len(cells)} values for {len(header)} columns."
                    )
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not CSV in UTF-8: {error}. Save it as UTF-8.") from None
    if not header:
        raise ValueError(f"{path} is empty.")
    _column_names(path, header)
    return pl.read_csv(path, separator=separator, infer_schema=False)


def _column_names(path: Path, names: Sequence[str]) -> list[str]:
    stripped = [name.strip() for name in names]
    if twice := sorted({name for name in stripped if stripped.count(name) > 1}):
        raise ValueError(f"{path}: columns {twice} appear twice; every column needs a name of its own.")
    return stripped


_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": pl.read_parquet,
    ".arrow": pl.read_ipc,
    ".feather": pl.read_ipc,
    ".ipc": pl.read_ipc,
}
