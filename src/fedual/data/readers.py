"""A user's own data as `Clients`: arrays, one table with a column of sites, or one data set object per client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedual.clients import Clients

__all__ = ["from_arrays", "from_frame", "from_table", "from_torch", "rows_by_site"]

_MISSING_AS_TEXT = frozenset({"nan", "NaN", "None", "<NA>", "NaT"})


def from_arrays(
    pairs: Iterable[tuple[Any, Any]],
    names: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    empty: Literal["error", "skip"] = "error",
) -> Clients:
    """One pair `(X_k, y_k)` of shapes `(n_k, d)` and `(n_k,)` per client; sizes may differ.

    Args:
        pairs: anything that `numpy.asarray` takes.
        names: one distinct name per client; `client 0`, `client 1`, ... by default.
        columns: one name per feature.
        empty: refuse a client without rows, or leave it out with a log message.

    Raises:
        ValueError: a client is empty, not numeric or of another shape, or names are missing, empty or repeated.

    Example:
        >>> import numpy as np
        >>> from_arrays([(np.eye(2), [0, 1]), (np.ones((1, 2)), [1])], names=["north", "south"]).sizes.tolist()
        [2, 1]
    """
    return Clients.build(pairs, names=names, columns=columns, empty=empty)


def from_table(x: Any, y: Any, groups: Any, columns: Sequence[str] | None = None) -> Clients:
    """Split one table by the site of each row; every row goes to exactly one client.

    Args:
        x: features, shape `(n, d)`.
        y: targets, shape `(n,)`.
        groups: the site of each row, shape `(n,)`: text or whole numbers. A client is named by its site; clients are
            in sorted order of the sites, rows keep their order.
        columns: one name per feature.

    Raises:
        TypeError: `groups` is a single value.
        ValueError: lengths differ; a site is missing, empty, not text or a whole number, or two sites would get the
            same name; or as `from_arrays`.

    Example:
        >>> clients = from_table([[1.0], [2.0], [3.0]], [0, 1, 1], ["b", "a", "b"])
        >>> clients.names, clients.features[1].tolist()
        (('a', 'b'), [[1.0], [3.0]])
    """
    x, y, rows = np.asarray(x), np.asarray(y), rows_by_site(groups)
    n = sum(map(len, rows.values()))
    if x.ndim == 0 or y.ndim == 0 or not len(x) == len(y) == n:
        raise ValueError(f"X has shape {x.shape}, y {y.shape} and there are {n} sites; each needs one entry per row.")
    return Clients.build(((x[r], y[r]) for r in rows.values()), names=tuple(rows), columns=columns)


def from_frame(frame: Any, target: str, site: str, features: Sequence[str] | None = None) -> Clients:
    """Split a table of named columns by its column of sites.

    Args:
        frame: a Polars or pandas frame, a PyArrow table, or a Hugging Face `datasets.Dataset`.
        target: the column to predict.
        site: the column that says whose row it is; text or whole numbers, never missing.
        features: the columns to predict from; all others by default. A column may hold one number per row or one
            array of the same shape per row (an embedding, an image); arrays beside other columns are flattened.

    Raises:
        KeyError: a column does not exist.
        ValueError: a feature or the target holds text, dates or missing values (the column and site are named), or as
            `from_table`.

    Example:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"age": [50, 61, 47], "ill": [0, 1, 0], "hospital": ["A", "B", "A"]})
        >>> clients = from_frame(frame, target="ill", site="hospital")
        >>> clients.names, clients.columns, clients.sizes.tolist()
        (('A', 'B'), ('age',), [2, 1])
    """
    known = _column_names(frame)
    if twice := sorted({name for name in known if known.count(name) > 1}):
        raise ValueError(f"the table has several columns called {twice[0]!r}.")
    if features is None:
        features = [name for name in known if name not in (target, site)]
    if len({target, site, *features}) != 2 + len(features):
        raise ValueError(f"target {target!r}, site {site!r} and features {list(features)} must be different columns.")
    if not features:
        raise ValueError(f"no feature is left beside the target {target!r} and the site {site!r}.")
    for name in (target, site, *features):
        if name not in known:
            raise KeyError(f"the table has no column {name!r}; its columns are {', '.join(map(repr, known))}.")
    rows = rows_by_site(_column(frame, site))
    y = _numbers(frame, target, rows)
    blocks = [_numbers(frame, name, rows) for name in features]
    if len(blocks) == 1 and blocks[0].ndim > 1:
        x, columns = blocks[0], None
    else:
        x = np.column_stack([block.reshape(len(block), -1) for block in blocks])
        columns = tuple(features) if x.shape[1] == len(features) else None
    return Clients.build(((x[r], y[r]) for r in rows.values()), names=tuple(rows), columns=columns)


def from_torch(datasets: Mapping[str, Any] | Sequence[Any], names: Sequence[str] | None = None) -> Clients:
    """One map-style data set per client, as `torch.utils.data.Dataset` defines it: a length and items `(x, y)`.

    Everything is read once, into memory; a random transformation of the data set is therefore drawn once.

    Args:
        datasets: by name, or in a sequence beside `names`. A `torch.utils.data.Subset` is a data set, too: to split one
            data set, give one subset per client, for example from a partition of `fedual.data.partition`.
        names: one distinct name per data set, when they come in a sequence.

    Raises:
        TypeError: an object has no length or is not indexable, or its items are not pairs.
        ValueError: as `from_arrays`.

    Example:
        >>> ward = [([0.0, 1.0], 1), ([2.0, 3.0], 0)]  # any object with a length whose items are pairs
        >>> from_torch({"ward 1": ward, "ward 2": ward[:1]}).sizes.tolist()
        [2, 1]
    """
    if isinstance(datasets, Mapping):
        if names is not None:
            raise ValueError("names are already given by the mapping of data sets; leave out `names`.")
        names, datasets = tuple(datasets), list(datasets.values())
    names = tuple(f"client {k}" for k in range(len(datasets))) if names is None else tuple(names)
    if len(names) != len(datasets):
        raise ValueError(f"{len(names)} names were given for {len(datasets)} data sets.")
    pairs = [_items(dataset, name) for name, dataset in zip(names, datasets, strict=True)]
    return Clients.build(pairs, names=names)


def _items(dataset: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"client {name!r}: {type(dataset).__name__} has no length or is not indexable; stream data sets must be "
            "read into memory first."
        )
    items = [dataset[i] for i in range(len(dataset))]
    if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        raise TypeError(f"client {name!r}: every item of the data set must be a pair (x, y).")
    if not items:
        return np.zeros((0, 1)), np.zeros(0)
    return np.stack([np.asarray(x) for x, _ in items]), np.stack([np.asarray(y) for _, y in items])


def rows_by_site(groups: Any) -> dict[str, np.ndarray]:
    """Name of each site, in sorted order -> its rows; refuses whatever would quietly merge or lose a site."""
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise TypeError(f"the sites must be one entry per row, not the single value {groups!r}.")
    # A list, because numpy.asarray would turn a missing value beside text into the text "nan".
    values = list(groups)
    first: dict[Any, int] = {}
    for row, value in enumerate(values):
        first.setdefault(value, row)
    if missing := [site for site in first if _is_missing(site)]:
        row = min(first[site] for site in missing)
        raise ValueError(
            f"{sum(map(_is_missing, values))} of {len(values)} rows have no site (the first is row {row}: "
            f"{values[row]!r}). Every row must belong to exactly one site: fill the site in or remove those rows."
        )
    names = {site: _site_name(site, row) for site, row in first.items()}
    seen: dict[str, str] = {}
    for site, name in names.items():
        if name.strip() in seen:
            raise ValueError(
                f"the sites {seen[name.strip()]!r} and {site!r} would be two clients that look the same; write a site "
                "the same way in every row."
            )
        seen[name.strip()] = site
    # Whole numbers sort as numbers, text as text, and of a mixture the numbers come first.
    order = sorted(first, key=lambda site: (isinstance(site, str), site))
    position = {site: k for k, site in enumerate(order)}
    codes = np.fromiter((position[site] for site in values), dtype=np.int64, count=len(values))
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=len(order)))[:-1])
    return {names[site]: r for site, r in zip(order, rows, strict=True)}


def _site_name(site: Any, row: int) -> str:
    if isinstance(site, str):
        return str(site)
    if isinstance(site, int | np.integer) or (isinstance(site, float | np.floating) and float(site).is_integer()):
        return str(int(site))
    raise ValueError(f"row {row} has the site {site!r}; a site is text or a whole number.")


def _is_missing(value: Any) -> bool:
    # By their text, None, NaN, NaT and pandas' NA are found alike, and so is their text when it stands in a column.
    text = str(value).strip()
    return not text or text in _MISSING_AS_TEXT


def _column_names(frame: Any) -> list[str]:
    names = getattr(frame, "column_names", None)
    names = getattr(frame, "columns", None) if names is None else names
    if names is None or isinstance(names, Mapping) or not hasattr(frame, "__getitem__"):
        remedy = "Select one of its splits first." if isinstance(names, Mapping) else ""
        raise TypeError(f"{type(frame).__name__} is not a table of named columns. {remedy}".rstrip())
    return list(names)


def _column(frame: Any, name: str) -> Any:
    column = frame[name]
    return column.to_pylist() if hasattr(column, "to_pylist") else column


def _numbers(frame: Any, name: str, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """A column as numbers, shape `(n, ...)`; errors name the column, and the site of the first missing value."""
    column = _column(frame, name)
    try:
        array = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else list(column))
        missing = _missing_rows(array)
        if array.dtype == object and not missing.any():
            array = np.stack([np.asarray(value) for value in array])
    except ValueError as error:
        raise ValueError(f"column {name!r} does not hold one number, or arrays of one shape: {error}") from error
    if missing.any():
        site, row = next((site, r[missing[r]][0]) for site, r in rows.items() if missing[r].any())
        raise ValueError(
            f"column {name!r} has {int(missing.sum())} missing values, the first at site {site!r}, row {int(row)}; "
            "fill them in or remove those rows."
        )
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name!r} holds values like {next(iter(column))!r}, not numbers. Code text and categories as "
            "numbers first, the same way at every site."
        )
    return array


def _missing_rows(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        return np.array([np.ndim(value) == 0 and _is_missing(value) for value in array], dtype=bool)
    if array.dtype.kind == "f":
        return np.isnan(array).reshape(len(array), -1).any(axis=1)
    return np.zeros(len(array), dtype=bool)
