"""The application: its commands, and one clear message for whatever goes wrong."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fedual import __version__
from fedual.cli import bench, compare, data, demo, deploy, look, report, run

__all__ = ["app", "main"]

app = typer.Typer(
    name="fedual",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Federated learning by primal-dual optimization: FedPD and its relatives.",
)
for command in (
    *(demo.demo, data.datasets, data.inspect, data.new),
    *(run.run, run.resume, compare.compare, look.plot, look.predict, report.report),
):
    app.command()(command)
app.add_typer(deploy.app)
app.add_typer(bench.app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: a mistake of the user ends with one message on standard error and exit code 2.

    Set the environment variable `FEDUAL_TRACEBACK=1` to see where an error arose.
    """
    try:
        app()
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        if os.environ.get("FEDUAL_TRACEBACK"):
            raise
        print(f"fedual: {error}", file=sys.stderr)
        sys.exit(2)
