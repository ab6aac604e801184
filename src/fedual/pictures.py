"""Pictures of runs for papers, through Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedual.files import replacing
from fedual.solution import COLUMNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["panels", "plot", "save_picture"]

_LOGARITHMIC = frozenset({"stationarity", "primal_residual", "dual_residual", "excess"})
_LABELS = {
    "communications": "communicated rounds",
    "uplink_bytes": "bytes sent by clients",
    "downlink_bytes": "bytes sent to clients",
    "stationarity": r"$\|\nabla f(\theta)\|^2$",
    "objective": r"$f(\theta)$",
    "excess": r"$f(\theta)$ above the lowest",
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
    figure = _figure(runs, (6.4, 4.0))
    axes = figure.add_subplot()
    _draw(axes, runs, x, y)
    axes.legend()
    return figure


def panels(runs: Mapping[str, Any], xs: Sequence[str], ys: Sequence[str]) -> Figure:
    """Several columns of the history against several others, one panel for each pair, one legend for all.

    Args:
        runs: label -> anything with a `history`, as for `plot`.
        xs: columns across; a column of panels for each.
        ys: columns up; a row of panels for each. "excess" is the objective above the lowest value of any run.

    Returns:
        A Matplotlib figure.

    Raises:
        ValueError: there is no such column, or no run.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> solution = fd.solve(fd.Problem(fd.losses.least_squares(), clients), fd.ADMM(step_size=1.0), rounds=5)
        >>> len(panels({"ADMM": solution}, ["round", "uplink_bytes"], ["excess", "stationarity"]).axes)
        4
    """
    figure = _figure(runs, (2.9 * len(xs), 2.7 * len(ys) + 0.4))
    grid = figure.subplots(len(ys), len(xs), sharey="row", squeeze=False)
    for row, y in zip(grid, ys, strict=True):
        for axes, x in zip(row, xs, strict=True):
            _draw(axes, runs, x, y)
            axes.label_outer(remove_inner_ticks=False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=max(1, min(len(labels), len(xs))))
    return figure


def _figure(runs: Mapping[str, Any], size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not runs:
        raise ValueError("there is no run to plot.")
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw(axes: Axes, runs: Mapping[str, Any], x: str, y: str) -> None:
    """One curve per run."""
    best = min(np.nanmin(run.history["objective"], initial=np.inf) for run in runs.values()) if y == "excess" else 0.0
    column = "objective" if y == "excess" else y
    for axis, name in (("x", x), ("y", column)):
        if name not in COLUMNS:
            raise ValueError(f"{axis} = {name!r} is not a column of the history; it has {', '.join(COLUMNS)}.")
    for label, run in runs.items():
        across, up = (np.asarray(run.history[name], dtype=float) for name in (x, column))
        up = up - best
        known = ~np.isnan(up) & ((up > 0) | (y not in _LOGARITHMIC))
        # A single point makes no line.
        axes.plot(across[known], up[known], label=label, marker="o" if known.sum() == 1 else None)
    if y in _LOGARITHMIC:
        axes.set_yscale("log")
    axes.set_xlabel(_LABELS.get(x, x.replace("_", " ")))
    axes.set_ylabel(_LABELS.get(y, y.replace("_", " ")))
    axes.grid(alpha=0.3)


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
