"""`fedual datasets`, `fedual inspect` and `fedual new`: from data to an experiment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fedual.cli.show import print_table

__all__ = ["datasets", "inspect", "new"]

Target = Annotated[str | None, typer.Option(help="The column to predict; guessed if not given.")]
Site = Annotated[str | None, typer.Option(help="The column that names each row's site, where a file holds several.")]

_EXPERIMENT = """\
# Run it with:  fedual run {name} --out runs/{stem}
# Change any setting for one run with --set, for example --set oracle.steps=20

[data]
{data}
test_fraction = 0.2        # share of every client's rows held out for the metrics

[loss]
{loss}
intercept = true           # not penalized

[algorithm]
name = "FedPD"
step_size = "auto"         # s > 0, or "auto"

[oracle]                   # solves the local problem of every client
name = "GradientDescent"
steps = 20                 # local steps per round
learning_rate = "auto"

[schedule]
name = "Skip"
probability = 0.0          # p, the probability that a round sends nothing, in [0, 1)

[stop]
rounds = 300
tolerance = 1e-10          # on the squared norm of the gradient

[output]
checkpoint_every = 50
"""


def datasets() -> None:
    """List the data sets that are known by name, and how to obtain those that are not installed."""
    from fedual.data import describe, names

    entries = [describe(name) for name in names()]
    print_table(
        "Data sets: [data] source = ...",
        ("name", "clients", "rows", "features", "task", "installed"),
        [(e.name, str(e.silos), str(e.rows), str(e.features), e.task, "yes" if e.available else "no") for e in entries],
    )
    for entry in entries:
        typer.echo(f"{entry.name}: {entry.title}. One client per {entry.silo}.")
        if not entry.available:
            typer.echo(f"    {entry.obtain}")


def inspect(
    files: Annotated[list[Path], typer.Argument(help="One table per site, or one with --site.")],
    target: Target = None,
    site: Site = None,
    out: Annotated[Path | None, typer.Option(help="Write the schema here instead of showing it.")] = None,
) -> None:
    """Propose a schema: what each column means, and what is wrong with it at which site."""
    from fedual import tables
    from fedual.files import write_text

    schema = tables.inspect_files([str(file) for file in files], target, site)
    if out is None:
        typer.echo(schema.to_toml())
    else:
        write_text(out, schema.to_toml())
    typer.echo(str(tables.validate_files([str(file) for file in files], schema)), err=True)


def new(
    files: Annotated[
        list[Path] | None, typer.Argument(help="One table per site, or one with --site; none: flights.")
    ] = None,
    target: Target = None,
    site: Site = None,
    out: Annotated[Path, typer.Option(help="The experiment; the schema is written beside it.")] = Path(
        "experiment.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write an experiment that runs as it is, and a schema of the tables to check and correct."""
    from fedual.files import write_text

    schema_file = out.with_name(f"{out.stem}.schema.toml")
    texts = {}
    if files:
        data, loss, texts[schema_file] = _from_files(files, target, site, out.parent, schema_file)
    else:
        data, loss = 'source = "flights"', 'name = "logistic"\nl2 = 1e-3'
    texts[out] = _EXPERIMENT.format(name=out, stem=out.stem, data=data, loss=loss)
    for path in texts:
        if path.exists() and not force:
            raise FileExistsError(f"{path} exists and was not touched; name another with --out, or use --force.")
    for path, text in texts.items():
        write_text(path, text)
        typer.echo(f"Wrote {path}.")
    typer.echo(f"Next: fedual run {out} --out runs/{out.stem}")


def _from_files(
    files: list[Path], target: str | None, site: str | None, folder: Path, schema_file: Path
) -> tuple[str, str, str]:
    """The entries of [data] and [loss], and the schema's text."""
    import tomli_w

    from fedual import tables

    paths = [str(file) for file in files]
    schema = tables.inspect_files(paths, target, site)
    classes = tables.prepare(paths, schema, intercept=False).transform.classes
    entries = {
        "files": [os.path.relpath(path, folder or ".") for path in paths],
        "schema": schema_file.name,
    }
    if not classes:
        loss = {"name": "least_squares", "l2": 1e-3}
    elif len(classes) == 2:
        loss = {"name": "logistic", "l2": 1e-3}
    else:
        loss = {"name": "softmax", "classes": len(classes), "l2": 1e-3}
    return tomli_w.dumps(entries).rstrip(), tomli_w.dumps(loss).rstrip(), schema.to_toml()
