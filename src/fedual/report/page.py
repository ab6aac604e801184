"""The page itself: one file, with its data, its styles and the charting library inside."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
import vl_convert

from fedual.files import write_text
from fedual.report.charts import X, Y, charts, history_rows, strip_rows
from fedual.report.facts import Facts, Source, gather

__all__ = ["page", "write"]

_VEGA_LITE = "6.1"  # 6.4 shows text as "undefined" at the point nearest to the pointer
_WORST = 5  # clients marked per run
_MOST_CLIENTS = 1000  # rows of the table of clients

_ACROSS = {
    "round": "rounds",
    "communications": "communicated rounds",
    "bytes": "bytes sent, up and down",
    "gradient_evaluations": "gradients of single samples",
    "seconds": "seconds",
}
_UPWARDS = {
    "stationarity": "stationarity ||∇f(θ)||²",
    "objective": "objective f(θ)",
    "excess": "objective above the lowest on this page",
}
_CLIENT_TITLES = {
    "client": "client",
    "rows": "rows",
    "weight": "weight",
    "loss": "loss f_k(θ)",
    "gradient_norm": "||∇f_k(θ)||",
    "dual_norm": "||λ_k||",
    "distance": "||θ_k - θ||",
}


def write(runs: Source | Sequence[Source] | Mapping[str, Source], path: str | Path, title: str | None = None) -> None:
    """Write the report of one run or several to an HTML file.

    Args:
        runs: a `Solution`, a run read by `fedual.load`, a run's folder; several of them, or label -> run.
        path: of the file; it is replaced in one piece.
        title: of the page.

    Raises:
        ValueError: there is no run.
        FileNotFoundError: a folder is not that of a run.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> solution = fd.solve(fd.Problem(fd.losses.least_squares(), clients), fd.ADMM(step_size=1.0), rounds=5)
        >>> write(solution, "report.html")
    """
    write_text(Path(path), page(runs, title))


def page(runs: Source | Sequence[Source] | Mapping[str, Source], title: str | None = None) -> str:
    """The report as HTML text; arguments as for `write`."""
    facts = _labelled(runs)
    several = len(facts) > 1
    data = {
        "charts": charts([run.label for run in facts]),
        "datasets": {"history": history_rows(facts), "strip": strip_rows(facts)},
        "titles": _ACROSS | _UPWARDS,
        "fields": {"x": X, "y": Y},
    }
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"figure": _figure, "size": _size}
    return environment.get_template("page.html").render(
        title=title or (f"{len(facts)} runs side by side" if several else facts[0].label),
        runs=[_shown(run) for run in facts],
        across=_ACROSS,
        upwards=_UPWARDS,
        data=json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", r"\u003c"),
        library=_library(),
        style=_asset("page.css"),
        script=_asset("page.js"),
    )


def _labelled(runs: Source | Sequence[Source] | Mapping[str, Source]) -> list[Facts]:
    if isinstance(runs, Mapping):
        facts = [gather(run, label) for label, run in runs.items()]
    else:
        facts = (
            [gather(run) for run in runs]
            if isinstance(runs, Sequence) and not isinstance(runs, str)
            else [gather(runs)]
        )
    if not facts:
        raise ValueError("there is no run to report on.")
    labels = [run.label for run in facts]
    if len(set(labels)) < len(labels):
        raise ValueError(f"several runs share a label in {labels}: give them as a mapping of label to run.")
    return facts


def _shown(run: Facts) -> dict[str, Any]:
    """What the template prints of a run."""
    history = run.history
    return {
        "label": run.label,
        "status": run.status,
        "verdict": run.verdict,
        "rounds": history.rounds,
        **{
            name: history.last(name)
            for name in ("communications", "uplink_bytes", "downlink_bytes", "objective", "stationarity", "seconds",
                         "gradient_evaluations")
        },
        "clients": None if run.clients is None else _clients(run.clients),
        "coefficients": None if run.coefficients is None else _table(run.coefficients, {}),
        "metrics": run.metrics,
        "data": run.data,
        "configuration": run.configuration,
        "provenance": run.provenance,
    }  # fmt: skip


def _clients(table: pl.DataFrame) -> dict[str, Any]:
    """The clients, those first whose gradient at the global model is largest; the very first are marked."""
    table = table.sort("gradient_norm", descending=True, nulls_last=True, maintain_order=True)
    shown = _table(table.head(_MOST_CLIENTS), _CLIENT_TITLES)
    shown["sorted"] = table.columns.index("gradient_norm")
    shown["worst"] = _WORST if len(table) > _WORST else 0
    shown["left_out"] = max(0, len(table) - _MOST_CLIENTS)
    return shown


def _table(table: pl.DataFrame, titles: Mapping[str, str]) -> dict[str, Any]:
    columns = [titles.get(name, name.replace("_", " ")) for name in table.columns]
    return {"columns": columns, "rows": table.rows(), "sorted": None, "worst": 0}


def _figure(value: Any) -> str:
    """A number for people; n/a for one that is not defined."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "n/a"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


def _size(value: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000 or unit == "GB":
            return f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError


def _asset(name: str) -> str:
    return resources.files("fedual.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed."""
    return vl_convert.javascript_bundle(vl_version=_VEGA_LITE)  # type: ignore[call-arg]
