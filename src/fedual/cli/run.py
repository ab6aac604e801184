"""`fedual run` and `fedual resume`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedual.cli.devices import start_jax
from fedual.cli.progress import Display
from fedual.cli.show import show_outcome

if TYPE_CHECKING:
    from fedual.runs import Outcome

__all__ = ["Devices", "Quiet", "end", "resume", "run"]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")]
Devices = Annotated[
    str | None,
    typer.Option(
        help="Processor cores to share the clients out over: a number, or auto. More are faster on large data."
    ),
]


def run(
    experiment: Annotated[Path, typer.Argument(help="The TOML file; `fedual new` writes one.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in that folder.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting; can be given several times."),
    ] = None,
    devices: Devices = None,
    quiet: Quiet = False,
) -> None:
    """Run an experiment, and write its results into a folder.

    Ctrl-C stops it after the present rounds with everything written; `fedual resume` goes on.
    """
    start_jax(devices)
    from fedual import runs
    from fedual.config import Config, build

    config = Config.load(experiment, overrides or [])
    runs.RunFolder.check_free(out, force)  # before the data are read
    built = build(config)
    with Display(config.stop.rounds, config.algorithm["name"], quiet) as display:
        outcome = runs.run(built, out, force, [display])
    end(outcome, quiet)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of the run.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="A new last round; it can only be raised.")] = None,
    devices: Devices = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a run from its last checkpoint.

    On the layout of the first part (the default) the result is bit-identical to that of an uninterrupted run; with
    another number of devices it agrees to about 1e-12. It says which.
    """
    from fedual import checkpoint, runs
    from fedual.config import Config

    files = runs.RunFolder.open(folder)
    if devices is None and (files / "checkpoint.safetensors").exists():
        devices = str(checkpoint.saved_devices(files / "checkpoint.safetensors"))
    start_jax(devices)
    config = Config.load(files / "config.toml")

    def tell(text: str) -> None:
        if not quiet:
            display.console.print(text[0].upper() + text[1:], soft_wrap=True, highlight=False)

    with Display(rounds or config.stop.rounds, config.algorithm["name"], quiet) as display:
        outcome = runs.resume(folder, rounds, [display], tell)
    end(outcome, quiet)


def end(outcome: Outcome, quiet: bool, show: Callable[[Outcome], None] = show_outcome) -> None:
    """Show the outcome; a run that a signal stopped ends with the exit code that says so."""
    if not quiet:
        show(outcome)
    if outcome.stopped_by:
        raise typer.Exit(128 + signal.Signals[outcome.stopped_by].value)
