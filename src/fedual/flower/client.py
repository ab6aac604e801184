"""The site's side as a Flower ClientApp."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedual.clients import Clients
from fedual.engine.message import Order, Refused
from fedual.engine.site import Site
from fedual.files import write_text
from fedual.flower.handshake import greet
from fedual.flower.records import from_records, to_records
from fedual.flower.store import SiteFolder
from fedual.problem import Problem
from fedual.protocols import Algorithm, Loss, Regularizer

__all__ = ["Desk", "Source", "app_of", "client_app"]

_log = logging.getLogger("fedual")


@dataclass(frozen=True)
class Source:
    """A site's data as the messages need them.

    Attributes:
        clients: from the federation's transform (None where there is none) to the data of this site alone.
        summary: what the site shares so that the transform can be made; None where it shares nothing.
        classes: names of the labels.
        schema: digest of the schema, "" without.
    """

    clients: Callable[[dict[str, Any] | None], Clients]
    summary: Callable[[], dict[str, Any]] | None = None
    classes: Callable[[dict[str, Any] | None], Sequence[str]] = lambda transform: ()
    schema: str = ""


@dataclass(frozen=True)
class Desk:
    """Everything of one site that answers messages.

    Attributes:
        name: the site's.
        folder: its state.
        source: its data.
        algorithm, loss, regularizer, dtype: the method.
        sites: all names in the run's order, where settings differ between sites.
        minimum_rows: with fewer the site does not take part.
        share: what it consents to share beyond messages: "smoothness" (L_k).
        at: see `SiteFolder`.
    """

    name: str
    folder: Path
    source: Source
    algorithm: Algorithm
    loss: Loss
    regularizer: Regularizer | None = None
    dtype: str = "float64"
    sites: Sequence[str] | None = None
    minimum_rows: int = 1
    share: Sequence[str] = ()
    at: Callable[[str], Any] = field(default=lambda point: None)

    def answer(self, message: Message) -> Message:
        """The reply to any message; what is refused is answered as such, with the reason."""
        try:
            kind, facts, arrays = from_records(message.content)
            records = getattr(self, f"_{kind}", self._unknown)(facts, arrays)
        except (Refused, ValueError, FloatingPointError) as error:
            reason = error.kind if isinstance(error, Refused) else type(error).__name__
            _log.warning("refused: %s", error)
            text = json.dumps({"site": self.name, "kind": reason, "text": str(error)})
            records = to_records("refused", text, {})
        return Message(records, reply_to=message)

    def _unknown(self, facts: str, arrays: Any) -> Any:
        raise Refused("format", f"site {self.name!r} got a message of a kind it does not know.")

    def _name(self, facts: str, arrays: Any) -> Any:
        return to_records("name", json.dumps({"site": self.name}), {})

    def _summary(self, facts: str, arrays: Any) -> Any:
        if self.source.summary is None:
            raise Refused("consent", f"site {self.name!r} does not share a summary of its columns.")
        return to_records("summary", json.dumps({"site": self.name, "summary": self.source.summary()}), {})

    def _hello(self, facts: str, arrays: Any) -> Any:
        asked = json.loads(facts)
        run, transform = str(asked["run"]), asked["transform"]
        store = SiteFolder(self.folder)
        write_text(_ensured(store.path(run).with_name("transform.json")), json.dumps(transform))
        site = self._site(transform)
        kept = store.load(site, run)
        smoothness = bool(asked["smoothness"]) and "smoothness" in self.share
        classes = tuple(self.source.classes(transform))
        hello = greet(site, run, 0 if kept is None else kept.number, smoothness, classes, self.source.schema)
        return to_records("hello", *hello.parts())

    def _order(self, facts: str, arrays: Any) -> Any:
        order = Order.from_parts(facts, arrays)
        store = SiteFolder(self.folder, self.at)
        path = store.path(order.run).with_name("transform.json")
        if not path.is_file():
            raise Refused(
                "gap", f"site {self.name!r} does not know run {order.run}: no handshake, or its folder is lost."
            )
        site = self._site(json.loads(path.read_text(encoding="utf-8")))
        return to_records("reply", *store.serve(site, order).parts())

    def _site(self, transform: dict[str, Any] | None) -> Site:
        clients = self.source.clients(transform)
        rows = int(clients.sizes[0])
        if rows < self.minimum_rows:
            raise Refused(
                "rows",
                f"site {self.name!r} has {rows} rows, fewer than its minimum of {self.minimum_rows}: it stays out.",
            )
        problem = Problem(self.loss, clients, "uniform", self.regularizer, self.dtype)  # type: ignore[arg-type]
        return Site(problem, self.algorithm, self.sites)


def client_app(
    load_client: Callable[[Context], Any],
    algorithm: Algorithm,
    loss: Loss,
    *,
    regularizer: Regularizer | None = None,
    dtype: str = "float64",
    sites: Sequence[str] | None = None,
    minimum_rows: int = 1,
    share: Sequence[str] = (),
    at: Callable[[str], Any] = lambda point: None,
) -> ClientApp:
    """A Flower ClientApp that takes part in a run of `server_app`.

    The site's name is `site` in the node's configuration (`--node-config 'site="north"'`); the name with which the
    SuperNode's key was registered, where it has one, must be the same. State is kept in the folder `state` of the
    node's configuration, by default `fedual-state/<site>` in the directory where the SuperNode was started.

    Args:
        load_client: from Flower's context to this site's `(X, y)`, of shapes `(n_k, ...)` and `(n_k,)`.
        algorithm, loss, regularizer, dtype: as in a simulation; the same at every site and at the server.
        sites: all names in the order of the run, where settings differ between sites.
        minimum_rows: a site with fewer rows does not take part.
        share: what this site consents to share beyond the method's messages: "smoothness", its L_k, which a step size
            "auto" needs.
        at: called at the points "before save" and "after save", so that tests can interrupt there.

    Returns:
        The app. Errors of the site go to the server as refusals with their reason.

    Example:
        >>> import fedual as fd
        >>> app = client_app(lambda context: ([[1.0]], [0.0]), fd.FedPD(step_size=1.0), fd.losses.least_squares())
    """

    def desk(context: Context) -> Desk:
        config = context.node_config
        name = str(config.get("site", "")).strip()
        if not name:
            raise ValueError(
                "the node's configuration lacks the site's name: start it with --node-config 'site=\"...\"'."
            )

        def clients(transform: dict[str, Any] | None) -> Clients:
            return Clients.build([tuple(load_client(context))], names=[name])

        folder = Path(str(config.get("state", "") or Path("fedual-state") / name))
        return Desk(
            name, folder, Source(clients), algorithm, loss, regularizer, dtype, sites, minimum_rows, tuple(share), at
        )

    return app_of(desk)


def app_of(desk: Callable[[Context], Desk]) -> ClientApp:
    """The ClientApp whose messages a site's desk answers."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        here = desk(context)
        _keep_compiled(here.folder / "compiled")
        return here.answer(message)

    app.query()(answer)
    app.train()(answer)
    return app


def _keep_compiled(folder: Path) -> None:
    """Let JAX keep what it compiles on disk: Flower starts a new process for every message.

    This process is Flower's and ends with the message, so that JAX's settings are nobody else's.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder.resolve()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _ensured(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
