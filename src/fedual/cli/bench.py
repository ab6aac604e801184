"""`fedual bench`: the measurements that the documentation quotes, to be made again on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app"]

app = typer.Typer(name="bench", no_args_is_help=True, help="Measure speed, memory, communications and deployment.")

Folder = Annotated[Path, typer.Argument(help="Where to write; made if it does not exist.")]


def _show(figures: Mapping[str, Any]) -> None:
    for name, value in figures.items():
        typer.echo(f"{name.replace('_', ' ')}: {value:,.6g}" if isinstance(value, float) else f"{name}: {value}")


@app.command()
def speed(
    devices: Annotated[list[int], typer.Option(help="Numbers of devices to measure with; repeatable.")] = [1, 2],  # noqa: B006
    rounds: Annotated[int, typer.Option(min=1)] = 600,
    repeats: Annotated[int, typer.Option(min=1, help="Medians are over so many.")] = 5,
) -> None:
    """FedPD on the reference experiment beside a NumPy loop over clients and the bare streaming of all data."""
    from fedual.bench.process import measure_apart
    from fedual.bench.speed import table

    typer.echo(table([measure_apart("speed", count, rounds=rounds, repeats=repeats) for count in devices]))


@app.command()
def memory(
    gigabytes: Annotated[float, typer.Option(help="Size of the data.")] = 1.0,
    clients: Annotated[int, typer.Option(min=1)] = 400,
    features: Annotated[int, typer.Option(min=1)] = 50,
) -> None:
    """Peak memory of a run on large data, against the size of the data and the states."""
    from fedual.bench.process import measure_apart

    _show(measure_apart("memory", gigabytes=gigabytes, clients=clients, features=features))


@app.command()
def communications(
    folder: Folder,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of generated data.")] = 5,
) -> None:
    """Communications to a given accuracy, for every method on every problem; about an hour on two cores."""
    from fedual.bench.evidence import write

    write(folder, seeds=range(seeds), report=lambda row: typer.echo("  ".join(map(str, row.values()))))
    typer.echo(f"Tables and pictures are in {folder}.")


@app.command()
def clients(
    count: Annotated[int, typer.Option(min=1, help="Clients, K.")] = 10_000,
    participants: Annotated[int, typer.Option(min=1, help="Clients that take part in a round.")] = 100,
    memory: Annotated[int, typer.Option(min=1, help="Bytes that states may take in memory.")] = 2**28,
) -> None:
    """Very many clients with 100,020 parameters each, their states on disk."""
    from fedual.bench.clients import many_clients

    _show(many_clients(clients=count, participants=participants, state_memory=memory))


@app.command()
def growth(rounds: Annotated[int, typer.Option(min=10)] = 500) -> None:
    """Peak memory after a tenth of the rounds, after all, and after a second run in the same process."""
    from fedual.bench.clients import growth as measure

    _show(measure(rounds))


@app.command()
def loop(rounds: Annotated[int, typer.Option(min=1)] = 1000) -> None:
    """100 logistic clients with 200 rows of 50 features beside the same arithmetic as a NumPy loop."""
    from fedual.bench.clients import against_loop

    _show({name: value for name, value in against_loop(rounds=rounds).items() if isinstance(value, float)})


@app.command()
def aircraft(rounds: Annotated[int, typer.Option(min=1)] = 600) -> None:
    """FedADMM over 1,728 aircraft, a tenth of them in a round, against the pooled optimum."""
    from fedual.bench.aircraft import against_the_pooled_optimum

    _show(against_the_pooled_optimum(rounds))


@app.command()
def tables(folder: Folder) -> None:
    """Federated, pooled and local-only models on four tables with natural silos, as a page in Markdown."""
    from fedual.bench.tables import page

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.md").write_text(page(), encoding="utf-8")
    typer.echo(f"The page is {folder / 'tables.md'}.")


@app.command()
def vision(
    images: Annotated[Path, typer.Argument(help="Folder with the IDX files of Fashion-MNIST.")],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per method and seed; 0 for the speed alone.")] = 100,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """A convolutional network over 100 clients with two label shards each: seconds a round, and accuracy."""
    from fedual.bench.vision import METHODS, accuracy, speed

    _show(speed(images))
    typer.echo("method  seed  round  MB up  MB down  accuracy")
    for name in METHODS:
        for seed in range(seeds):
            for row in accuracy(images, name, rounds, seed):
                typer.echo("  ".join([name, str(seed), *(f"{value:.4g}" for value in row)]))


@app.command()
def deploy(
    folder: Folder,
    kills: Annotated[int, typer.Option(min=0, help="Random kills of clients, nodes, servers and the link.")] = 20,
    numbers: Annotated[int, typer.Option(min=1, help="Numbers per message for the overhead.")] = 128,
) -> None:
    """A deployed run on this machine under random kills, and its overhead beside a bare Flower app."""
    from fedual.flower import bench

    if kills:
        _show(bench.kills(folder / "kills", count=kills))
    _show(bench.overhead(folder / "overhead", numbers))
