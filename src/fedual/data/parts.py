"""A split of a table's rows into clients, and measures and a picture of how unlike the clients are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual.clients import Clients

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Heterogeneity", "Partition", "label_codes"]


@dataclass(frozen=True)
class Heterogeneity:
    """How unlike the clients of a partition are; all zero for identical clients of the same size.

    Args:
        label_distance: the mean over rows of the total variation distance between the label frequencies of the row's
            client and those of all rows, sum_k (n_k/n) sum_c |q_kc - q_c| / 2, from 0 to 1.
        farthest: the largest such distance of a client.
        size_variation: standard deviation of the clients' sizes over their mean.
        missing_labels: the mean over clients of the fraction of labels that a client has no row of.
    """

    label_distance: float
    farthest: float
    size_variation: float
    missing_labels: float


@dataclass(frozen=True)
class Partition:
    """Rows of a table by client.

    Args:
        rows: K arrays of row numbers in increasing order; disjoint, none empty, together 0 .. n-1.
        names: K distinct names.
    """

    rows: tuple[np.ndarray, ...]
    names: tuple[str, ...]

    @property
    def sizes(self) -> np.ndarray:
        """Rows per client, n_k, shape `(K,)`."""
        return np.array([len(rows) for rows in self.rows], dtype=np.int64)

    def clients(self, x: Any, y: Any, columns: Sequence[str] | None = None) -> Clients:
        """The clients' shares of features `x`, shape `(n, ...)`, and targets `y`, shape `(n, ...)`.

        Raises:
            ValueError: `x` or `y` has another number of rows, or as `fedual.data.from_arrays`.
        """
        x, y, n = np.asarray(x), np.asarray(y), int(self.sizes.sum())
        if len(x) != n or len(y) != n:
            raise ValueError(f"the partition is of {n} rows, but X has {len(x)} and y has {len(y)}.")
        return Clients.build(((x[rows], y[rows]) for rows in self.rows), names=self.names, columns=columns)

    def counts(self, labels: Any) -> np.ndarray:
        """Rows of every client with every label (in sorted order), shape `(K, classes)`."""
        _, codes = label_codes(labels, int(self.sizes.sum()))
        return np.stack([np.bincount(codes[rows], minlength=codes.max() + 1) for rows in self.rows])

    def heterogeneity(self, labels: Any) -> Heterogeneity:
        """Measure how far the clients' labels and sizes are from those of identical clients.

        Example:
            >>> from fedual.data.partition import by_column
            >>> opposed = by_column(["a", "a", "b", "b"])
            >>> opposed.heterogeneity([0, 0, 1, 1])
            Heterogeneity(label_distance=0.5, farthest=0.5, size_variation=0.0, missing_labels=0.5)
        """
        counts, sizes = self.counts(labels), self.sizes
        distance = np.abs(counts / sizes[:, None] - counts.sum(axis=0) / sizes.sum()).sum(axis=1) / 2
        return Heterogeneity(
            label_distance=float(sizes @ distance / sizes.sum()),
            farthest=float(distance.max()),
            size_variation=float(sizes.std() / sizes.mean()),
            missing_labels=float((counts == 0).mean()),
        )

    def plot(self, labels: Any) -> Figure:
        """A picture: one bar per client, as long as it has rows, divided by label.

        Example:
            >>> from fedual.data.partition import iid
            >>> figure = iid(100, clients=5).plot([0, 1] * 50)
            >>> len(figure.axes)
            1
        """
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        values, _ = label_codes(labels, int(self.sizes.sum()))
        counts = self.counts(labels)
        height = min(max(2.5, 0.22 * len(self.rows)), 20)
        figure = Figure(figsize=(8, height), layout="constrained")
        axes = figure.add_subplot()
        left = np.zeros(len(counts))
        for label, color, column in zip(
            values.tolist(), colormaps["viridis"](np.linspace(0, 1, len(values))), counts.T, strict=True
        ):
            axes.barh(self.names, column, left=left, color=color, label=str(label))
            left += column
        axes.invert_yaxis()
        axes.set_xlabel("rows")
        axes.tick_params(axis="y", labelsize=8 if len(self.rows) <= 90 else 4)
        if len(values) <= 20:
            figure.legend(title="label", loc="outside right upper")
        return figure


def label_codes(labels: Any, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The distinct labels in sorted order, and for every row the position of its label among them."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "biuUS":
        whole = labels.ndim == 1 and labels.dtype.kind == "f" and np.isfinite(labels).all()
        if not (whole and (labels == np.rint(labels)).all()):
            raise ValueError(
                f"labels have shape {labels.shape} and dtype {labels.dtype}; expected one whole number or text per "
                "row. Sort a continuous target into bins first."
            )
    if rows is not None and len(labels) != rows:
        raise ValueError(f"the partition is of {rows} rows, but there are {len(labels)} labels.")
    values, codes = np.unique(labels, return_inverse=True)
    return values, codes
