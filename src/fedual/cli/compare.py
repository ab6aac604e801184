"""`fedual compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedual.cli.devices import start_jax
from fedual.cli.progress import Display
from fedual.cli.run import Devices, Quiet
from fedual.cli.show import figure, print_table

__all__ = ["compare"]


def compare(
    experiments: Annotated[list[Path], typer.Argument(help="TOML files that differ in their method alone.")],
    out: Annotated[Path, typer.Option(help="Folder for the comparison and, within it, the runs.")],
    force: Annotated[bool, typer.Option("--force", help="Replace earlier results in that folder.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting of all; can be given several times."),
    ] = None,
    devices: Devices = None,
    quiet: Quiet = False,
) -> None:
    """Run several methods on the same data from the same start with the same coins, and put them side by side.

    Writes comparison.csv and comparison.png, and a folder per run, named after its file.
    """
    start_jax(devices)
    from fedual import runs
    from fedual.comparison import compare as side_by_side
    from fedual.config import Config, build
    from fedual.files import write_text
    from fedual.pictures import save_picture

    names = [path.stem for path in experiments]
    if len(set(names)) < len(names):
        raise ValueError(f"the files {', '.join(map(str, experiments))} need different names: runs are called by them.")
    for name in names:
        runs.RunFolder.check_free(out / name, force)
    built = {name: build(Config.load(path, overrides or [])) for name, path in zip(names, experiments, strict=True)}
    solutions = {}
    for name, experiment in built.items():
        with Display(experiment.config.stop.rounds, name, quiet) as display:
            outcome = runs.run(experiment, out / name, force, [display])
        if outcome.stopped_by:
            raise KeyboardInterrupt
        solutions[name] = outcome.solution
    comparison = side_by_side(solutions)
    table = comparison.table()
    write_text(out / "comparison.csv", table.write_csv())
    save_picture(comparison.plot(), out / "comparison.png")
    if not quiet:
        print_table(
            "Methods side by side",
            ["", *table["run"]],  # a column per run: a row per run would be too wide for a terminal
            ([c.replace("_", " "), *map(_cell, table[c])] for c in table.columns if c != "run"),
        )
        Console().print(f"Results are in {out}.", highlight=False, soft_wrap=True)


def _cell(value: object) -> str:
    if value is None:
        return "never"
    return figure(value, 6) if isinstance(value, float) else str(value)
