"""Results for people, on standard output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from fedual.metrics import Evaluation
    from fedual.runs import Outcome

__all__ = ["figure", "print_table", "show_outcome"]

_WORST = 5


def figure(value: float | None, digits: int = 4) -> str:
    """A number, or n/a for one that is not defined.

    Example:
        >>> figure(0.70651), figure(float("nan")), figure(None)
        ('0.7065', 'n/a', 'n/a')
    """
    return "n/a" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], console: Console | None = None
) -> None:
    """A table, the first column text, the others figures."""
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(escape, row))
    (Console() if console is None else console).print(table)


def show_outcome(outcome: Outcome) -> None:
    """Verdict, held-out metrics, the clients that hold the run back, where the files are."""
    console = Console()
    solution, history = outcome.solution, outcome.solution.history
    ended = f"stopped by {outcome.stopped_by} after round {history.rounds}" if outcome.stopped_by else solution.status
    console.print(f"[bold]{ended}[/bold]: {solution.reason} {solution.remedy}".rstrip(), highlight=False)
    console.print(
        f"objective {solution.objective:.8g}, stationarity {solution.stationarity:.3g}, "
        f"{history.last('communications'):.0f} communications, {history.last('uplink_bytes') / 1e6:.3g} MB up and "
        f"{history.last('downlink_bytes') / 1e6:.3g} MB down",
        highlight=False,
    )
    show_metrics(outcome.evaluated, console)
    show_clients(outcome, console)
    console.print(f"Results are in {outcome.folder.path}.", highlight=False, soft_wrap=True)
    if outcome.stopped_by:
        console.print(f"Go on with: fedual resume {outcome.folder.path}", highlight=False, soft_wrap=True)


def show_metrics(evaluated: tuple[Evaluation, ...], console: Console) -> None:
    """Every metric with its averages, a table per model; nothing where no rows are held out."""
    for evaluation in evaluated:
        print_table(
            f"{evaluation.model} on {evaluation.rows.sum()} held-out rows",
            ("metric", "all rows pooled", "mean by samples", "mean by clients", "clients"),
            [
                (
                    name,
                    *(figure(entry[key]) for key in ("pooled", "mean by samples", "mean by clients")),
                    str(entry["clients"]),
                )
                for name, entry in evaluation.summary().items()
            ],
            console,
        )


def show_clients(outcome: Outcome, console: Console) -> None:
    """The clients whose gradient at the global model is largest: those it serves worst."""
    problem, solution = outcome.solution.problem, outcome.solution
    gradients = np.linalg.norm(problem.local_gradients(solution.theta), axis=1)
    values = problem.local_values(solution.theta)
    worst = np.argsort(-gradients, kind="stable")[:_WORST]
    names, sizes = problem.clients.names, problem.sizes
    print_table(
        f"Clients the global model suits least ({len(worst)} of {len(names)}; all are in clients.csv)",
        ("client", "rows", "loss f_k", "||grad f_k||", "distance of theta_k"),
        [
            (
                names[k],
                str(sizes[k]),
                figure(values[k]),
                figure(gradients[k]),
                figure(float(np.linalg.norm(solution.thetas[k] - solution.theta))),
            )
            for k in worst
        ],
        console,
    )
