"""The clients' data as the rest of the package sees it: ragged arrays, one pair per client.

This is the only container of data in the core. Loaders, partitioners and table readers all produce a
`Clients`; a `Problem` consumes one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["Clients"]

_log = logging.getLogger("fedual")


@dataclass(frozen=True)
class Clients:
    """Private data sets of K clients, in a fixed order.

    Build one with `fedual.data.from_arrays`, `from_table` or `from_frame`, or with `Clients.build`, which
    validates; the bare constructor trusts its arguments.

    Args:
        names: K distinct, non-empty names. A name is a client's identity: its random draws, its state in a
            checkpoint and its messages in a deployment are bound to the name, not to the position.
        features: K arrays; client k's has shape `(n_k, *feature_shape)`, usually `(n_k, d)`.
        targets: K arrays; client k's has shape `(n_k,)` or `(n_k, *target_shape)`.
        columns: names of the features, where they are known.

    Example:
        >>> import numpy as np
        >>> clients = Clients.build([(np.eye(2), [0.0, 1.0]), (np.ones((1, 2)), [1.0])])
        >>> clients.names, clients.sizes.tolist()
        (('client 0', 'client 1'), [2, 1])
    """

    names: tuple[str, ...]
    features: tuple[np.ndarray, ...]
    targets: tuple[np.ndarray, ...]
    columns: tuple[str, ...] | None = None

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[Any, Any]],
        names: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        empty: Literal["error", "skip"] = "error",
    ) -> Clients:
        """Validate pairs `(X_k, y_k)` of shapes `(n_k, d)` and `(n_k,)` and keep them as arrays.

        Args:
            pairs: one `(X, y)` per client; anything that `numpy.asarray` takes.
            names: one per client; `client 0`, `client 1`, ... by default.
            columns: one name per feature.
            empty: what to do with a client without rows: refuse it, or leave it out with a log message.

        Raises:
            ValueError: a client has no rows, a different feature or target shape, unequal lengths of X and y,
                a missing or infinite number, or a name that is empty or taken; the client is named. Also when
                no client is left.
        """
        pairs = list(pairs)
        names = tuple(f"client {k}" for k in range(len(pairs))) if names is None else tuple(names)
        _check_names(names, len(pairs))
        kept: list[tuple[str, np.ndarray, np.ndarray]] = []
        for name, pair in zip(names, pairs, strict=True):
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                raise ValueError(f"client {name!r}: expected a pair (X, y), got {type(pair).__name__}.")
            x, y = _as_numbers(pair[0], name, "X"), _as_numbers(pair[1], name, "y")
            if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
                raise ValueError(
                    f"client {name!r}: X has shape {x.shape} and y has shape {y.shape}; both need the same "
                    "number of rows in their first axis."
                )
            if len(x) == 0:
                if empty == "error":
                    raise ValueError(
                        f"client {name!r} has no rows, so its loss (a mean over rows) is undefined. Remove it, "
                        "or pass empty='skip' to leave such clients out."
                    )
                _log.warning("client %r has no rows and is left out", name)
                continue
            kept.append((name, x, y))
        if not kept:
            raise ValueError("no client has any rows: there is nothing to learn from.")
        _check_shapes(kept, columns)
        return cls(
            names=tuple(name for name, _, _ in kept),
            features=tuple(x for _, x, _ in kept),
            targets=tuple(y for _, _, y in kept),
            columns=None if columns is None else tuple(columns),
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> np.ndarray:
        """Rows per client, n_k, shape `(K,)`."""
        return np.array([len(x) for x in self.features], dtype=np.int64)

    def select(self, which: Sequence[int] | Sequence[str]) -> Clients:
        """The given clients, by position or name, in the given order.

        Raises:
            KeyError: a name is unknown.
        """
        position = {name: k for k, name in enumerate(self.names)}
        indices = [position[k] if isinstance(k, str) else int(k) for k in which]
        return Clients(
            names=tuple(self.names[k] for k in indices),
            features=tuple(self.features[k] for k in indices),
            targets=tuple(self.targets[k] for k in indices),
            columns=self.columns,
        )

    def split(self, fraction: float = 0.3, seed: int = 0) -> tuple[Clients, Clients]:
        """Hold out a random `fraction` of every client's rows; returns `(train, test)`.

        Every client keeps at least one training row; a client too small to hold any row out is missing from
        the test part. The draw of a client depends on the seed and its name alone.

        Raises:
            ValueError: `fraction` is not in (0, 1), or no client is large enough to hold a row out.
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction = {fraction} must lie strictly between 0 and 1.")
        parts: tuple[list, list] = ([], [])
        for name, x, y in zip(self.names, self.features, self.targets, strict=True):
            held = min(round(fraction * len(x)), len(x) - 1)
            order = np.random.default_rng([seed, *name.encode()]).permutation(len(x))
            for part, rows in zip(parts, (np.sort(order[held:]), np.sort(order[:held])), strict=True):
                if len(rows):
                    part.append((name, x[rows], y[rows]))
        if not parts[1]:
            raise ValueError("no client has enough rows to hold one out; take a larger fraction or more rows.")
        (names, train_x, train_y), (test_names, test_x, test_y) = (zip(*part, strict=True) for part in parts)
        return Clients(names, train_x, train_y, self.columns), Clients(test_names, test_x, test_y, self.columns)

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows in one table, clients in order: shapes `(n, d)` and `(n,)`. For reference solutions."""
        return np.concatenate(self.features), np.concatenate(self.targets)


def _check_names(names: tuple[str, ...], count: int) -> None:
    if len(names) != count:
        raise ValueError(f"{len(names)} names were given for {count} clients.")
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"client name {name!r} must be a non-empty string.")
        if name in seen:
            raise ValueError(f"client name {name!r} appears twice; every client needs a name of its own.")
        seen.add(name)


def _as_numbers(value: Any, name: str, what: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise ValueError(
            f"client {name!r}: {what} has dtype {array.dtype}, not numbers. Code text and categories as numbers "
            "first, the same way for every client."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"client {name!r}: {what} holds {array[where]} at index {where}; missing and infinite numbers must be "
            "filled in or their rows removed."
        )
    return array


def _check_shapes(kept: list[tuple[str, np.ndarray, np.ndarray]], columns: Sequence[str] | None) -> None:
    first, x0, y0 = kept[0]
    for name, x, y in kept[1:]:
        for what, a, b in (("features", x0, x), ("targets", y0, y)):
            if a.shape[1:] != b.shape[1:]:
                raise ValueError(
                    f"clients {first!r} and {name!r} differ in the shape of their {what}: "
                    f"{a.shape[1:]} and {b.shape[1:]} per row."
                )
    if columns is not None and x0.ndim == 2 and len(columns) != x0.shape[1]:
        raise ValueError(f"{len(columns)} column names were given for {x0.shape[1]} features.")
