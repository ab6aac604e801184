"""Pictures of runs for papers, through Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual.files import replacing
from fedual.solution import COLUMNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "save_picture"]

_LOGARITHMIC = frozenset({"stationarity", "primal_residual", "dual_residual"})
_LABELS = {
    "communications": "communicated rounds",
    "uplink_bytes": "bytes sent by clients",
    "downlink_bytes": "bytes sent to clients",
    "stationarity": r"$\|\nabla f(\theta)\|^2$",
    "objective": r"$f(\theta)$",
    "gradient_evaluations": "gradients of single samples",
    "seconds": "time in seconds",
    "p": "p (probability of skipping)",
}


def plot(runs: Mapping[str, Any], x: str = "communications", y: str = "stationarity") -> Figure:
    """One column of the history against another, one curve per run.

    Rounds that were not evaluated are left out. Stationarity and residuals have a logarithmic axis, on which values
    that are not positive cannot be shown.

    Args:
        runs: label -> anything with a `history`: a `Solution`, or a run read by `fedual.load`.
        x, y: columns of the history.

    Returns:
        A Matplotlib figure; `save_picture` or its own `savefig` writes it.

    Raises:
        ValueError: there is no such column, or no run.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> solution = fd.solve(fd.Problem(fd.losses.least_squares(), clients), fd.ADMM(step_size=1.0), rounds=5)
        >>> len(plot({"ADMM": solution}).axes[0].lines)
        1
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not runs:
        raise ValueError("there is no run to plot.")
    for name, column in (("x", x), ("y", y)):
        if column not in COLUMNS:
            raise ValueError(f"{name} = {column!r} is not a column of the history; it has {', '.join(COLUMNS)}.")
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, run in runs.items():
        across, up = (np.asarray(run.history[column], dtype=float) for column in (x, y))
        known = ~np.isnan(up) & ((up > 0) | (y not in _LOGARITHMIC))
        # A single point makes no line.
        axes.plot(across[known], up[known], label=label, marker="o" if known.sum() == 1 else None)
    if y in _LOGARITHMIC:
        axes.set_yscale("log")
    axes.set_xlabel(_LABELS.get(x, x.replace("_", " ")))
    axes.set_ylabel(_LABELS.get(y, y.replace("_", " ")))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def save_picture(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format that the suffix names: .png, .svg or .pdf.

    Raises:
        ValueError: another suffix.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"{path} must end in .png, .svg or .pdf.")
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=200)
