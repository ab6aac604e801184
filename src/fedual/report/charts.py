"""The charts as Vega-Lite specifications, made by Altair. The page's script fills in what X and Y stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from fedual.report.facts import Facts
from fedual.solution import COLUMNS

__all__ = ["X", "Y", "charts", "history_rows", "strip_rows"]

X, Y = "X", "Y"  # fields that the reader of the page chooses
_MOST_ROWS = 1000  # of one run; more do not show on a screen
_SILENT, _TALKING = "#e3e6ea", "#3b5bdb"
_COLORS = ["#3b5bdb", "#e8590c", "#2b8a3e", "#9c36b5", "#c2255c", "#0b7285", "#f08c00", "#868e96"]


def charts(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Element of the page -> specification, for runs of these names; data come in as `history` and `strip`."""
    drawn = {
        "convergence": _lines(Y, labels, height=340),
        "primal": _lines("primal_residual", labels, height=220),
        "dual": _lines("dual_residual", labels, height=220),
        "strip": _strip(labels),
        "p": _lines("p", labels, height=140),
        "s": _lines("s", labels, height=140),
    }
    specifications = {name: _themed(chart).to_dict() for name, chart in drawn.items()}
    for specification in specifications.values():
        del specification["$schema"]  # the page brings its own version of Vega-Lite
    return specifications


def _lines(y: str, labels: Sequence[str], height: int) -> Any:
    """A line per run; the point nearest to the pointer shows its values."""
    legend = alt.Legend(orient="top", columns=2, title=None) if len(labels) > 1 else None
    shown = (
        alt.Chart(alt.NamedData("history"))
        .transform_filter(f"isValid(datum['{X}']) && isValid(datum['{y}'])")
        .encode(
            x=alt.X(f"{X}:Q", axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False)),
            y=alt.Y(f"{y}:Q", title=None, scale=alt.Scale(zero=False)),
            color=alt.Color("run:N", sort=list(labels), legend=legend),
        )
    )
    if y == "p":
        shown = shown.encode(alt.Y("p:Q", title=None, scale=alt.Scale(domain=[0, 1])))
    near = alt.selection_point(name="near", nearest=True, on="pointermove", clear="pointerout", empty=False)
    points = shown.mark_point(filled=True, size=70).encode(
        opacity=alt.condition(near, alt.value(1), alt.value(0)),
        tooltip=["run:N", "round:Q", "communications:Q", alt.Tooltip(f"{y}:Q", format=".6g")],
    )
    return alt.layer(shown.mark_line(strokeWidth=2), points.add_params(near)).properties(height=height)


def _strip(labels: Sequence[str]) -> alt.Chart:
    several = len(labels) > 1
    return (
        alt.Chart(alt.NamedData("strip"), height=26 * len(labels))
        .mark_rect()
        .encode(
            x=alt.X("from:Q", title="round", scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(grid=False)),
            x2="to:Q",
            y=alt.Y("run:N", title=None, sort=list(labels), axis=alt.Axis(labels=several, ticks=False, domain=False)),
            color=alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=[_SILENT, _TALKING]), legend=None),
            tooltip=["run:N", "rounds:N", alt.Tooltip("share:Q", title="communicated", format=".0%")],
        )
    )


def _themed(chart: Any) -> Any:
    grey = "#495057"
    return (
        chart.properties(width="container", autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            labelFontSize=12, titleFontSize=12, titleFontWeight="normal", titleColor=grey, labelColor=grey,
            gridColor="#eef0f3", domainColor="#adb5bd", tickColor="#adb5bd", labelLimit=120,
        )
        .configure_legend(labelFontSize=12, labelLimit=130, symbolStrokeWidth=3)
        .configure_range(category=_COLORS)
    )  # fmt: skip


def history_rows(runs: Sequence[Facts]) -> list[dict[str, Any]]:
    """The histories' rows, thinned evenly where there are very many; what is not a number is None."""
    known = [run.history["objective"][np.isfinite(run.history["objective"])] for run in runs]
    lowest = min((column.min() for column in known if len(column)), default=np.nan)
    rows = []
    for run in runs:
        history = run.history
        columns = {name: history[name] for name in COLUMNS}
        columns["bytes"] = history["uplink_bytes"] + history["downlink_bytes"]
        columns["excess"] = history["objective"] - lowest
        rows += [
            {"run": run.label} | {name: _plain(column[k]) for name, column in columns.items()}
            for k in _kept(history["stationarity"])
        ]
    return rows


def _kept(evaluated: np.ndarray) -> np.ndarray:
    """Positions of the rows to show: some of all rounds, and some of those that were evaluated."""
    every, known = np.arange(len(evaluated)), np.flatnonzero(~np.isnan(evaluated))
    picked = [
        which[np.unique(np.linspace(0, len(which) - 1, _MOST_ROWS).round().astype(int))]
        for which in (every, known)
        if len(which)
    ]
    return np.unique(np.concatenate(picked)) if picked else every


def _plain(value: Any) -> Any:
    if isinstance(value, np.bool_):
        return bool(value)
    return float(f"{value:.7g}") if np.isfinite(value) else None


def strip_rows(runs: Sequence[Facts]) -> list[dict[str, Any]]:
    """Stretches of rounds and the share of them that communicated; a stretch is one round unless there are many."""
    size = max(1, -(-max(run.history.rounds for run in runs) // _MOST_ROWS))
    rows = []
    for run in runs:
        communicated = run.history["communicated"]
        for start in range(0, len(communicated), size):
            part = communicated[start : start + size]
            first, last = start + 1, start + len(part)
            rounds = str(first) if first == last else f"{first} to {last}"
            place = {"from": first - 0.5, "to": last + 0.5}
            rows.append({"run": run.label, "rounds": rounds, "share": float(np.mean(part)), **place})
    return rows
