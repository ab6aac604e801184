"""Pictures of the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from fedual import formulas, theory

if TYPE_CHECKING:
    import polars

__all__ = ["draw_communications", "draw_comparison", "draw_skipping"]


def draw_communications(summary: polars.DataFrame) -> Figure:
    """Communications per problem and method, one panel per tolerance; a method that does not arrive has no mark.

    Args:
        summary: from `communications.summarize`.
    """
    import polars as pl

    problems = summary["problem"].unique(maintain_order=True).to_list()
    methods = summary["method"].unique(maintain_order=True).to_list()
    tolerances = summary["tolerance"].unique(maintain_order=True).to_list()
    figure = Figure(figsize=(10, 1 + 0.45 * len(problems) + 0.2 * len(methods)), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(tolerances), sharey=True))
    for axes, tolerance in zip(panels, tolerances, strict=True):
        for number, method in enumerate(methods):
            rows = summary.filter((pl.col("method") == method) & (pl.col("tolerance") == tolerance))
            counts = dict(zip(rows["problem"], rows["best"], strict=True))
            places = [i + 0.6 * (number / len(methods) - 0.5) for i in range(len(problems))]
            values = [counts.get(problem, np.inf) for problem in problems]
            axes.plot(
                [v if np.isfinite(v) else np.nan for v in values], places, "os^vDP*X<>"[number % 10],
                color=f"C{number % 10}", mfc="none" if number >= 10 else None, ms=5, label=method,
            )  # fmt: skip
        axes.set(xscale="log", xlabel=f"communications {tolerance}")
        axes.set_yticks(range(len(problems)), problems)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize="small")
    return figure


def draw_skipping(table: polars.DataFrame) -> Figure:
    """Share of communications saved by the best p, and the largest p that works, with the theory's p over them."""
    import polars as pl

    works = table.filter(pl.col("communications").is_finite())
    never = works.filter(pl.col("p") == 0).select("ratio", plain="communications")
    shown = works.join(never, on="ratio").group_by("ratio").agg(
        largest=pl.col("p").max(), saved=(1 - pl.col("communications") / pl.col("plain")).max()
    ).sort("ratio")  # fmt: skip
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(shown["ratio"], shown["saved"], "o-", label="communications saved by the best p, measured")
    axes.plot(shown["ratio"], shown["largest"], "s:", label="largest p that reaches epsilon, measured")
    for form in formulas.FORMS:
        p = [theory.skip_probability(ratio, 1.0, 1.0, form=form) for ratio in shown["ratio"]]  # type: ignore[arg-type]
        axes.plot(shown["ratio"], p, lw=1, label=f"p of theory, {form}")
    axes.set(xscale="log", xlabel="epsilon / G²", ylabel="share of rounds", ylim=(-0.02, 1))
    axes.legend(fontsize="small")
    return figure


def draw_comparison(weak: dict[str, Any], strong: dict[str, Any]) -> Figure:
    """||grad f||^2 against rounds, one panel for each of two results of `compare_on_reference`."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, title, histories in zip(panels, ("weakly non-iid", "strongly non-iid"), (weak, strong), strict=True):
        for name, history in histories.items():
            axes.plot(history["round"], history["stationarity"], lw=1, label=name)
        axes.set(yscale="log", xlabel="round", title=title)
    panels[0].set_ylabel("||grad f||²")
    panels[1].legend(fontsize="small")
    return figure
