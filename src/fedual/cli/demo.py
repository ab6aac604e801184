"""`fedual demo`: real data, the whole way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from fedual.cli.devices import start_jax
from fedual.cli.progress import Display
from fedual.cli.run import Devices, Quiet, end
from fedual.cli.show import figure, print_table

if TYPE_CHECKING:
    from fedual.config import Experiment
    from fedual.metrics import Evaluation
    from fedual.runs import Outcome

__all__ = ["CONFIG", "compare", "demo"]

_L2 = 1e-3
# The penalty makes the objective strongly convex with constant l2, so that this stationarity bounds the excess of the
# objective over its minimum by 1e-10/(2 l2) = 5e-8.
CONFIG: dict[str, Any] = {
    "data": {"source": "flights", "test_fraction": 0.3},
    "loss": {"name": "logistic", "l2": _L2, "intercept": True},
    "algorithm": {"name": "FedPD", "step_size": 30.0},
    "oracle": {"name": "GradientDescent", "steps": 20},
    "stop": {"rounds": 600, "tolerance": 1e-10},
    "output": {"progress_every": 20},
}
_SHOWN = 4


def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for the results; a new one in runs/ if not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in that folder.")] = False,
    devices: Devices = None,
    quiet: Quiet = False,
) -> None:
    """Train one model over 90 airports that keep their flights to themselves, and compare it.

    Flights out of New York in 2013: which arrive more than 15 minutes late? FedPD is compared with all rows in one
    place (pooled), with every airport alone, and with FedAvg at the same number of communications.
    """
    start_jax(devices)
    from fedual import runs
    from fedual.config import Config, build

    out = _free_folder(Path("runs/demo")) if out is None else out
    runs.RunFolder.check_free(out, force)
    experiment = build(Config.from_dict(CONFIG))
    clients = experiment.problem.clients
    console = Console(quiet=quiet)
    console.print(
        f"{len(clients)} airports with {clients.sizes.min()} to {clients.sizes.max()} training flights each, "
        f"{clients.sizes.sum()} together; 30 % of every airport's flights are held out.",
        highlight=False,
    )
    with Display(experiment.config.stop.rounds, "FedPD over the airports", quiet) as display:
        outcome = runs.run(experiment, out, force, [display])
    if outcome.stopped_by:
        end(outcome, quiet)
    end(outcome, quiet, lambda outcome: _show(experiment, outcome, console))


def _free_folder(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def compare(experiment: Experiment, outcome: Outcome) -> tuple[float, float, dict[str, Evaluation]]:
    """How far FedPD's and FedAvg's objectives are above the pooled minimum, relative; four models on held-out rows."""
    from fedual import oracles
    from fedual.algorithms import FedAvg
    from fedual.engine import solve
    from fedual.metrics import GLOBAL, LOCAL, evaluate

    problem, solution, test = experiment.problem, outcome.solution, experiment.test
    assert test is not None, "the demo holds rows out"
    names, loss = problem.clients.names, problem.loss
    communications = int(solution.history.last("communications"))
    average = solve(problem, FedAvg(experiment.algorithm.oracle), rounds=communications)
    # After one round of local solves from 0, and before anything is averaged, theta_k is the client's own minimizer.
    alone = solve(problem, FedAvg(oracles.Newton(1e-10)), rounds=1).thetas
    minimum = problem.minimum()
    models = {
        "FedPD": (solution.theta, GLOBAL),
        "pooled": (minimum.theta, GLOBAL),
        "FedAvg": (average.theta, GLOBAL),
        "alone": (alone, LOCAL),
    }
    evaluated = {name: evaluate(loss, test, theta, names, label) for name, (theta, label) in models.items()}
    excess = [(value - minimum.value) / abs(minimum.value) for value in (solution.objective, average.objective)]
    return excess[0], excess[1], evaluated


def _show(experiment: Experiment, outcome: Outcome, console: Console) -> None:
    import polars as pl

    solution = outcome.solution
    console.print("Comparing with pooled, FedAvg and every airport alone ...")
    excess, average_excess, evaluated = compare(experiment, outcome)
    console.print(
        f"\n[bold]{solution.status}[/bold]: {solution.reason}\n"
        f"The objective of FedPD is {excess:.1e} above the pooled minimum, relative; that of FedAvg after as many "
        f"communications ({solution.history.last('communications'):.0f}) {average_excess:.1e}.",
        highlight=False,
    )
    print_table(
        f"{int(evaluated['FedPD'].rows.sum())} held-out flights",
        ("model", "AUC, all pooled", "AUC by airports", "log-loss by flights", "log-loss by airports"),
        [
            (
                f"{name}: {evaluation.model.split(' (')[0]}",
                figure(evaluation.pooled["auc"]),
                figure(evaluation.average("auc", "clients")),
                figure(evaluation.average("log_loss", "samples")),
                figure(evaluation.average("log_loss", "clients")),
            )
            for name, evaluation in evaluated.items()
        ],
        console,
    )
    names, sizes = experiment.problem.clients.names, experiment.problem.sizes
    losses = {name: evaluation.clients["log_loss"] for name, evaluation in evaluated.items()}
    gain = losses["alone"] - losses["FedPD"]
    order = np.argsort(-gain, kind="stable")
    print_table(
        f"Airports by what they gain over learning alone: {np.sum(gain > 0)} of {len(names)} gain; "
        f"the first and last {_SHOWN}",
        ("airport", "training flights", "held-out log-loss, FedPD", "alone", "gain"),
        [
            (names[k], str(sizes[k]), figure(losses["FedPD"][k]), figure(losses["alone"][k]), f"{gain[k]:+.4f}")
            for k in (*order[:_SHOWN], *order[-_SHOWN:])
        ],
        console,
    )
    columns = {
        f"{metric} {name}": evaluation.clients[metric]
        for metric in ("auc", "log_loss")
        for name, evaluation in evaluated.items()
    }
    table = pl.DataFrame({"client": names, "rows": sizes, **columns}).fill_nan(None)
    outcome.folder.write_table("comparison.csv", table)
    console.print(
        f"Results are in {outcome.folder.path}: history.csv, clients.csv, comparison.csv, model.safetensors.",
        highlight=False,
        soft_wrap=True,
    )
