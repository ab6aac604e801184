"""`fedual deploy`: the same experiment on real sites, over Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(name="deploy", no_args_is_help=True, help="Run an experiment on real sites, over Flower.")

Experiment = Annotated[Path, typer.Option("--config", help="The experiment's TOML file.")]
Seconds = Annotated[float, typer.Option(help="Seconds for the whole run.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; must be empty or not exist.")],
    config: Experiment,
    site: Annotated[
        list[str] | None,
        typer.Option(help="A site's name, once per site; by default the names of the files in [data]."),
    ] = None,
    host: Annotated[str, typer.Option(help="Under which the sites reach the coordinator.")] = "coordinator.example.org",
    quorum: Annotated[int | None, typer.Option(help="Replies that suffice when the time for a round is over.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the replies of a round.")] = 3600.0,
) -> None:
    """Write the app, a configuration template per site, and a page with every command."""
    from fedual import flower

    flower.init(folder, config, site, host, timeout=timeout, **({} if quorum is None else {"quorum": quorum}))
    typer.echo(f"{folder}: read COMMANDS.md; each site gets its file from sites/.")


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="For the keys.")],
    host: Annotated[list[str], typer.Option(help="Name or address of the coordinator, as sites use it; repeatable.")],
    days: Annotated[int, typer.Option(min=1, help="How long they are valid.")] = 365,
) -> None:
    """Make the certificate authority and the coordinator's certificate."""
    from fedual import flower

    for path in flower.certificates(folder, host, [], days):
        typer.echo(path)


@app.command()
def key(
    folder: Annotated[Path, typer.Argument(help="For the key.")],
    site: Annotated[str, typer.Option(help="The site's name.")],
) -> None:
    """Make a site's key: the private half stays, the public one goes to the coordinator."""
    from fedual.flower.keys import make_site_key

    for path in make_site_key(folder, site):
        typer.echo(path)


@app.command()
def join(
    site: Annotated[Path, typer.Argument(help="The site's TOML file.")],
    link: Annotated[str, typer.Option(help="HOST:PORT of the coordinator.")],
    certificate: Annotated[Path, typer.Option("--ca", help="ca.crt of the coordinator.")],
    key: Annotated[Path, typer.Option(help="The site's private key.")],
    port: Annotated[int, typer.Option(help="For the site's own processes, on 127.0.0.1.")] = 9094,
) -> None:
    """Take part: connect this site until it is interrupted."""
    from fedual.flower.join import join as connect

    raise typer.Exit(connect(site, link, certificate, key, port))


@app.command()
def local(
    config: Experiment,
    sites: Annotated[list[Path], typer.Argument(help="One table per site.")],
    out: Annotated[Path, typer.Option(help="Folder for everything.")],
    timeout: Seconds = 3600.0,
) -> None:
    """A first trial on this machine: TLS, keys, and a process per site."""
    from fedual import flower

    typer.echo(f"the results are in {flower.local(config, sites, out, timeout)}")


@app.command()
def resume(
    config: Experiment,
    sites: Annotated[list[Path], typer.Argument(help="The tables of the trial, in the same order.")],
    out: Annotated[Path, typer.Option(help="Its folder.")],
    timeout: Seconds = 3600.0,
) -> None:
    """Go on with an interrupted trial; on real sites: `flwr run app deployment --run-config resume=true`."""
    from fedual import flower

    typer.echo(f"the results are in {flower.resume(config, sites, out, timeout)}")


@app.command()
def audit(
    folder: Annotated[Path, typer.Argument(help="The app's folder.")],
    parameters: Annotated[int, typer.Option(min=1, help="Number of parameters of the model.")],
    site: Annotated[Path | None, typer.Option(help="A site's TOML file: leave out what it does not share.")] = None,
) -> None:
    """Print every field that leaves a site, its size and its purpose."""
    from fedual.flower.leaving import audit as listed
    from fedual.flower.leaving import audit_text

    typer.echo(audit_text(listed(folder, parameters, site)))
