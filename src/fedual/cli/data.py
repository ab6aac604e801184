"""`fedual datasets`, `fedual inspect` and `fedual new`: from data to an experiment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from fedual.cli.show import print_table

__all__ = ["datasets", "inspect", "new"]

Target = Annotated[str | None, typer.Option(help="The column to predict; guessed if not given.")]
Site = Annotated[str | None, typer.Option(help="The column that names each row's site, where a file holds several.")]
Event = Annotated[
    str | None, typer.Option(help="The column that tells an observed event (Cox's model); the target is then the time.")
]
Exposure = Annotated[str | None, typer.Option(help="The column of exposures, where the target counts something.")]
Offset = Annotated[str | None, typer.Option(help="The column of offsets, in place of exposures.")]

_EXPERIMENT = """\
# Run it with:  fedual run {name} --out runs/{stem}
# Change any setting for one run with --set, for example --set oracle.steps=20

[data]
{data}
test_fraction = 0.2        # share of every client's rows held out for the metrics

[loss]
{loss}

[algorithm]
name = "FedPD"
step_size = "auto"         # s > 0, or "auto"

[oracle]                   # solves the local problem of every client
{oracle}

[schedule]
name = "Skip"
probability = 0.0          # p, the probability that a round sends nothing, in [0, 1)

[stop]
rounds = 300
tolerance = 1e-10          # on the squared norm of the gradient

[output]
checkpoint_every = 50
"""


_GRADIENT = """\
name = "GradientDescent"
steps = 20                 # local steps per round
learning_rate = "auto\""""
_NEWTON = 'name = "Newton"'  # needs no learning rate, which is unknown where the gradient has no Lipschitz constant


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
    event: Event = None,
    exposure: Exposure = None,
    offset: Offset = None,
    out: Annotated[Path | None, typer.Option(help="Write the schema here instead of showing it.")] = None,
) -> None:
    """Propose a schema: what each column means, and what is wrong with it at which site."""
    from fedual import tables
    from fedual.files import write_text

    schema = tables.inspect_files([str(file) for file in files], target, site, event, exposure, offset)
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
    event: Event = None,
    exposure: Exposure = None,
    offset: Offset = None,
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
        from fedual import tables

        paths = [str(file) for file in files]
        schema = tables.inspect_files(paths, target, site, event, exposure, offset)
        texts[schema_file] = schema.to_toml()
        relative = [os.path.relpath(path, out.parent or ".") for path in paths]
        data = _toml({"files": relative, "schema": schema_file.name})
        loss, oracle = _model(schema, len(tables.prepare(paths, schema).transform.classes))
    else:
        data, oracle = 'source = "flights"', _GRADIENT
        loss = _toml({"name": "logistic", "l2": 1e-3, "intercept": True})
    texts[out] = _EXPERIMENT.format(name=out, stem=out.stem, data=data, loss=loss, oracle=oracle)
    for path in texts:
        if path.exists() and not force:
            raise FileExistsError(f"{path} exists and was not touched; name another with --out, or use --force.")
    for path, text in texts.items():
        write_text(path, text)
        typer.echo(f"Wrote {path}.")
    typer.echo(f"Next: fedual run {out} --out runs/{out.stem}")


def _model(schema: Any, classes: int) -> tuple[str, str]:
    """The entries of [loss] that suit a schema's target, and those of [oracle] that suit the loss."""
    penalized = {"l2": 1e-3, "intercept": True}  # the intercept is not penalized
    if schema.target.kind == "time":
        return _toml({"name": "cox", "l2": 1e-3}), _NEWTON
    if schema.offset is not None:
        return _toml({"name": "poisson", **penalized, "offset": True}), _NEWTON
    if classes > 2:
        return _toml({"name": "softmax", "classes": classes, **penalized}), _GRADIENT
    return _toml({"name": "logistic" if classes else "least_squares", **penalized}), _GRADIENT


def _toml(table: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(table).rstrip()
