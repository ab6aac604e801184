"""The apps that `fedual deploy init` writes: everything from the experiment's TOML and, at a site, from its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field

from fedual import tables
from fedual.clients import Clients
from fedual.config import Config, build_method, hold_out
from fedual.config.sections import read_toml
from fedual.flower.client import Desk, Source, app_of
from fedual.flower.plan import Plan, refuse_protection
from fedual.flower.server import conducted
from fedual.tables.summary import digest

__all__ = ["App", "Deployment", "SiteConfig", "app_plan", "coordinator_app", "read_app", "site_app", "site_source"]

_FROZEN = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Deployment(BaseModel):
    """`deployment.toml`: what a deployment needs beyond the experiment.

    Args:
        sites: names in a fixed order.
        folder: where the server keeps its state and results.
        quorum, timeout, start_timeout, largest_message: as for `server_app`.
    """

    model_config = _FROZEN

    sites: list[str] = Field(min_length=1)
    folder: str = "run"
    quorum: int | None = None
    timeout: float = Field(default=3600.0, gt=0)
    start_timeout: float = Field(default=600.0, gt=0)
    largest_message: int = Field(default=2_000_000_000, ge=1)


class SiteConfig(BaseModel):
    """A site's own TOML file, which stays at the site.

    Args:
        name: the site's.
        file: its table, CSV or Parquet.
        state: the folder for its state.
        minimum_rows: with fewer the site does not take part.
        share: what the site consents to share beyond the method's messages: "summary" (per column counts, means,
            deviations and levels, without which raw columns cannot be coded alike) and "smoothness" (its L_k).
    """

    model_config = _FROZEN

    name: str = Field(min_length=1)
    file: str
    state: str
    minimum_rows: int = Field(default=1, ge=1)
    share: list[Literal["summary", "smoothness"]] = []

    @classmethod
    def load(cls, path: str | Path) -> SiteConfig:
        """Read it; paths in it are relative to its folder.

        Raises:
            ValueError: an unknown key, or a value of a wrong type.
        """
        path = Path(path).expanduser()
        try:
            site = cls.model_validate(read_toml(path))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        folder = path.resolve().parent
        return site.model_copy(update={"file": str(folder / site.file), "state": str(folder / site.state)})


@dataclasses.dataclass(frozen=True)
class App:
    """The three files of an app's folder."""

    config: Config
    deployment: Deployment
    schema: tables.Schema


def read_app(folder: str | Path) -> App:
    """Read the files that `deploy init` wrote.

    Raises:
        ValueError: one of them is not valid; the key is named.
        FileNotFoundError: one of them is missing.
    """
    folder = Path(folder)
    text = (folder / "schema.toml").read_text(encoding="utf-8")
    return App(
        Config.load(folder / "experiment.toml"),
        _deployment(folder / "deployment.toml"),
        tables.Schema.from_toml(text, str(folder / "schema.toml")),
    )


def _deployment(path: Path) -> Deployment:
    table = read_toml(path)
    refuse_protection(table)
    return Deployment.model_validate(table)


def site_app(folder: str | Path) -> ClientApp:
    """The ClientApp of an app's folder."""
    return app_of(lambda context: _desk(read_app(folder), context))


def coordinator_app(folder: str | Path) -> ServerApp:
    """The ServerApp of an app's folder."""
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        conducted(app_plan(read_app(folder)), grid, context)

    return server


def _desk(app: App, context: Context) -> Desk:
    path = str(context.node_config.get("config", ""))
    if not path:
        raise ValueError("start the SuperNode with --node-config 'config=\"/path/of/site.toml\"'.")
    site = SiteConfig.load(path)
    loss, regularizer, algorithm, _, _ = build_method(app.config)
    return Desk(
        name=site.name, folder=Path(site.state), source=site_source(app, site), algorithm=algorithm, loss=loss,
        regularizer=regularizer, dtype=app.config.problem.dtype, sites=app.deployment.sites,
        minimum_rows=site.minimum_rows, share=site.share,
    )  # fmt: skip


def site_source(app: App, site: SiteConfig) -> Source:
    """A site's table as the messages need it."""

    def training() -> tables.SiteTable:
        (table,) = tables.read_sites([site.file])
        named = dataclasses.replace(table, site=site.name)
        return hold_out(named, app.schema, app.config.data.test_fraction, app.config.run.seed)[0]

    def clients(transform: dict[str, Any] | None) -> Clients:
        if transform is None:
            raise ValueError("the coordinator sent no transform of the raw columns.")
        return tables.Transform.from_dict(transform).clients([training()], intercept=False)

    shared = "summary" in site.share
    return Source(
        clients,
        (lambda: tables.summarize(training(), app.schema).to_dict()) if shared else None,
        lambda transform: () if transform is None else tables.Transform.from_dict(transform).classes,
        digest(app.schema),
    )


def app_plan(app: App) -> Plan:
    """The run that an app's files describe.

    Raises:
        ValueError: numbers of sites that do not fit each other.
    """
    config, deployment = app.config, app.deployment
    _, regularizer, algorithm, schedule, participation = build_method(config)

    def transform(summaries: list[dict[str, Any]]) -> dict[str, Any]:
        shared = [tables.Summary.from_dict(summary) for summary in summaries]
        return tables.Transform.fit(app.schema, shared).to_dict()

    plan = Plan(
        algorithm, deployment.sites, Path(deployment.folder), schedule, participation, regularizer,
        config.problem.weights, None, config.stop.rounds, config.stop.tolerance, config.stop.relative_tolerance,
        config.run.seed, deployment.quorum, deployment.timeout, deployment.start_timeout, deployment.largest_message,
        transform, {"loss": config.loss},
    )  # fmt: skip
    plan.check()
    return plan
