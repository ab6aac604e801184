"""All measurements, written to a folder: tables as CSV, pictures as SVG."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedual.bench.communications import measure, summarize
from fedual.bench.figures import draw_communications, draw_comparison, draw_skipping
from fedual.bench.paper import compare_on_reference, measure_skipping
from fedual.bench.problems import PROBLEMS

__all__ = ["write"]


def write(
    folder: str | Path, seeds: Sequence[int] = range(5), report: Callable[[Mapping[str, Any]], Any] = lambda row: None
) -> None:
    """Measure everything and write communications.csv, summary.csv, skipping.csv and the three pictures.

    It takes about an hour on two cores. Problems whose package is not installed are left out.

    Args:
        folder: made if it does not exist; files of the same names are replaced.
        seeds: of the data, for generated problems.
        report: called with every row of communications.csv as it is known.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    cases = [case for case in PROBLEMS if not case.needs or importlib.util.find_spec(case.needs)]
    counts = measure(cases, seeds=seeds, report=report)
    counts.write_csv(folder / "communications.csv")
    summary = summarize(counts)
    summary.write_csv(folder / "summary.csv")
    draw_communications(summary).savefig(folder / "communications.svg")
    skipping = measure_skipping(seeds=seeds)
    skipping.write_csv(folder / "skipping.csv")
    draw_skipping(skipping).savefig(folder / "skipping.svg")
    draw_comparison(compare_on_reference(strong=False), compare_on_reference(strong=True)).savefig(
        folder / "comparison.svg"
    )
