"""`fedual plot` and `fedual predict`: what one does with finished runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["plot", "predict"]


def plot(
    folders: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Folders of runs.")],
    x: Annotated[str, typer.Option(help="Column of the history across.")] = "communications",
    y: Annotated[str, typer.Option(help="Column of the history upwards.")] = "stationarity",
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("plot.png"),
) -> None:
    """Draw runs into one picture."""
    from fedual import pictures, runs

    # The shortest label that tells the runs apart.
    names = [folder.resolve().name for folder in folders]
    labels = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    loaded = {label: runs.load(folder) for label, folder in zip(labels, folders, strict=True)}
    pictures.save_picture(pictures.plot(loaded, x, y), out)
    typer.echo(f"Wrote {out}.")


def predict(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, or its model.safetensors.")],
    files: Annotated[list[Path], typer.Argument(help="Tables with the columns of the training files.")],
    out: Annotated[Path | None, typer.Option(help="A CSV file; standard output if not given.")] = None,
) -> None:
    """Predict with a run's global model for new tables, coded as the training tables were."""
    from fedual import runs
    from fedual.files import replacing

    model = runs.load_model(folder / "model.safetensors" if folder.is_dir() else folder)
    table = runs.predict_files(model, [str(file) for file in files])
    if out is None:
        table.write_csv(sys.stdout.buffer)
        return
    with replacing(out) as temporary:
        table.write_csv(temporary)
    typer.echo(f"Wrote {len(table)} predictions to {out}.")
