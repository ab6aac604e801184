"""What leaves a site: every field of every message, its size and its purpose."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from fedual.engine.coordinator import Coordinator
from fedual.engine.message import Reply
from fedual.flower.app import App, SiteConfig, app_plan, read_app
from fedual.flower.handshake import Hello

__all__ = ["Leaving", "audit", "audit_text"]

_ADDRESSING = "which site and run the message belongs to"
_REPLY = {
    "run": _ADDRESSING, "site": _ADDRESSING, "number": "which stretch of rounds it answers",
    "first": "the stretch's first round", "last": "its last round", "rows": "the site's number of rows: its weight",
    "evaluations": "how many sample gradients were computed: the history's cost column",
    "gap": "squared distance of the local from the global model: the primal residual",
    "model_square": "squared length of the local model: the scale of the primal residual",
    "dual_square": "squared length of the dual variable: the scale of the dual residual",
    "value": "the site's loss at the global model, where tolerance is set; else 0",
    "moved": "how far model and dual moved, where step_size adapts: the rule for s",
    "message": "the method's message: what the model is made of",
    "observed": "gradient at the received model, and its square, where the schedule adapts",
    "gradient": "gradient of the site's loss at the global model, where tolerance is set",
    "dual": "the site's dual variable, where relative_tolerance cannot be judged otherwise",
}  # fmt: skip
_HELLO = {
    "site": _ADDRESSING, "run": _ADDRESSING, "rows": "the site's number of rows: its weight",
    "dimension": "number of parameters, to compare", "dtype": "precision, to compare",
    "shape": "shape of one row's features, to compare", "columns": "names of the features, to compare",
    "classes": "names of the labels, to compare", "schema": "digest of the schema, to compare",
    "method": "settings of method and loss, to compare", "versions": "versions of programs, to compare",
    "smoothness": "L_k: an upper bound on the curvature of the site's loss, only if shared; else 0",
    "stretch": "how far the site's own state goes", "start": "the model's default start; depends on no data",
}  # fmt: skip
_SUMMARY = "per column: count, mean, squared deviation, levels with counts; from them the columns are coded alike"


@dataclass(frozen=True)
class Leaving:
    """One field that leaves a site.

    Attributes:
        message: "handshake", "summary" or "reply".
        name: of the field.
        size: in bytes, or in words where it depends on the data.
        purpose: what it is for.
    """

    message: str
    name: str
    size: str
    purpose: str


def audit(folder: str | Path, dimension: int, site: str | Path | None = None) -> list[Leaving]:
    """Every field that leaves a site in a run of an app's folder.

    Args:
        folder: the app's, as written by `deploy init`.
        dimension: d, the number of parameters.
        site: a site's own TOML file; with it, what the site does not consent to share is left out.

    Example:
        >>> [field.name for field in fields(Reply)][:3]
        ['run', 'site', 'number']
    """
    app = read_app(folder)
    share = ("summary", "smoothness") if site is None else SiteConfig.load(site).share
    rows = [Leaving("summary", "summary", "depends on the columns", _SUMMARY)] if "summary" in share else []
    sizes = _sizes(app, dimension)
    told = [field.name for field in fields(Hello) if field.name != "smoothness" or "smoothness" in share]
    rows += [Leaving("handshake", name, sizes.get(f"hello {name}", "a few"), _HELLO[name]) for name in told]
    said = {field.name: sizes.get(field.name, "8") for field in fields(Reply)}
    rows += [Leaving("reply", name, size, _REPLY[name]) for name, size in said.items() if size != "0"]
    return rows


def audit_text(rows: list[Leaving]) -> str:
    """The rows as a table of plain text."""
    lines = [("message", "field", "bytes", "purpose"), *((r.message, r.name, r.size, r.purpose) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    head = [
        line[0].ljust(widths[0]) + "  " + line[1].ljust(widths[1]) + "  " + line[2].ljust(widths[2]) for line in lines
    ]
    return "\n".join(f"{start}  {line[3]}" for start, line in zip(head, lines, strict=True))


def _sizes(app: App, dimension: int) -> dict[str, str]:
    """Bytes of the fields whose size depends on the run; "0" for those that stay empty."""
    import numpy as np

    plan, names = app_plan(app), app.deployment.sites
    dtype = app.config.problem.dtype
    coordinator = Coordinator(
        plan.algorithm, np.zeros(dimension, dtype), names, [1] * len(names), plan.schedule, plan.participation,
        plan.regularizer, "uniform", dtype, [1.0] * len(names), plan.seed, plan.rounds, plan.tolerance,
        plan.relative_tolerance,
    )  # fmt: skip
    number = np.dtype(dtype).itemsize
    vector = number * dimension
    return {
        "message": str(coordinator.message_bytes()),
        "gradient": str(vector * (plan.tolerance is not None)),
        "value": str(8 * (plan.tolerance is not None)),
        "dual": str(vector * coordinator.duals),
        "observed": str((vector + number) * coordinator.schedule.observes),
        "moved": str(16 * coordinator.adapts),
        "hello start": str(vector),
        "hello columns": "depends on the columns",
    }
