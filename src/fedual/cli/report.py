"""`fedual report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the run's folder, or here for several, if not given.")
    ] = None,
) -> None:
    """Write a run, or several side by side, as one HTML page that opens offline."""
    try:
        from fedual.report import write
    except ModuleNotFoundError as missing:
        raise ImportError(f'the report needs {missing.name}: pip install "fedual[report]"') from None

    out = (folders[0] if len(folders) == 1 else Path()) / "report.html" if out is None else out
    write(folders, out)
    typer.echo(f"Wrote {out}.")
