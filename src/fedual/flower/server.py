"""The server's side as a Flower ServerApp."""

from __future__ import annotations

import json
import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedual.engine.coordinator import Coordinator
from fedual.engine.message import Refused, Reply
from fedual.engine.server_state import ServerState, Stretch, load_state, save_state
from fedual.engine.settings import shared_settings
from fedual.flower.handshake import Hello, check_hellos, method_of
from fedual.flower.link import Answer, Link
from fedual.flower.records import to_records
from fedual.flower.store import read_arrays, write_arrays
from fedual.protocols import Algorithm, Participation, Regularizer, Schedule
from fedual.runs import RunFolder

__all__ = ["Plan", "conduct", "server_app"]

_log = logging.getLogger("fedual")
_STATE = "server.safetensors"


@dataclass(frozen=True)
class Plan:
    """A run as the server sees it; see `server_app` for the fields."""

    algorithm: Algorithm
    sites: Sequence[str]
    folder: Path
    schedule: Schedule | None = None
    participation: Participation | None = None
    regularizer: Regularizer | None = None
    weights: Any = "samples"
    theta0: Any = None
    rounds: int = 300
    tolerance: float | None = None
    relative_tolerance: float | None = None
    seed: int = 0
    quorum: int | None = None
    timeout: float = 3600.0
    start_timeout: float = 600.0
    largest_message: int = 2_000_000_000
    transform: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None
    at: Callable[[str], Any] = field(default=lambda point: None)

    def check(self) -> None:
        """Raise ValueError where numbers of sites do not fit each other."""
        if not self.sites or len(set(self.sites)) != len(self.sites):
            raise ValueError(f"sites = {list(self.sites)!r} must name every site once.")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.sites):
            raise ValueError(f"quorum = {self.quorum} must be from 1 to {len(self.sites)}, the number of sites.")
        if self.quorum is not None and self.quorum < len(self.sites) and not self.algorithm.partial:
            raise ValueError(
                f"quorum = {self.quorum} of {len(self.sites)}: {self.algorithm.name} needs every site in every "
                f"communication: {self.algorithm.why_not_partial}"
            )
        picked = getattr(self.participation, "count", None)
        if self.quorum is not None and picked is not None and picked < self.quorum:
            raise ValueError(f"quorum = {self.quorum}, but only {picked} sites are picked for a communication.")


def server_app(
    algorithm: Algorithm, sites: Sequence[str], folder: str | Path = "fedual-run", **settings: Any
) -> ServerApp:
    """A Flower ServerApp that conducts a run with the sites of `client_app`.

    It waits for all sites, compares what they are about to work with, and then runs communication by communication: a
    skipped round sends nothing. After every communication its state is on disk; `flwr run` with the run configuration
    `resume=true` goes on from there.

    Args:
        algorithm: as in a simulation; the same as the sites'.
        sites: their names, in a fixed order.
        folder: for the server's state and the results: `server.safetensors`, `history.csv`, `model.safetensors`,
            `summary.json`, `run.log`.
        **settings: `schedule`, `participation`, `rounds`, `tolerance`, `relative_tolerance`, `seed`, `theta0` as for
            `fedual.solve`; `regularizer`, `weights` as for `fedual.Problem`;
            `quorum`: how many replies suffice to close a communication when the time is over (all by default);
            `timeout`: seconds to wait for replies, 3600 by default; `start_timeout`: for all sites to come, 600;
            `largest_message`: bytes that one message may take.

    Raises:
        TypeError: an unknown setting.
        ValueError: numbers of sites that do not fit each other.

    Example:
        >>> import fedual as fd
        >>> app = server_app(fd.FedPD(step_size=1.0), ["north", "south"], rounds=100)
    """
    plan = Plan(algorithm, tuple(sites), Path(folder), **settings)
    plan.check()
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        folder = Path(str(context.run_config.get("folder", "") or plan.folder))
        with _told(folder / "run.log"):
            state = conduct(replace(plan, folder=folder), grid, bool(context.run_config.get("resume", False)))
        if state.status == "diverged":
            raise RuntimeError(f"the run diverged: {state.reason}")

    return app


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What happens goes to a file and to standard output, which `flwr log` shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handlers = [logging.StreamHandler(sys.stdout), logging.FileHandler(path, encoding="utf-8")]
    level = _log.level
    _log.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _log.addHandler(handler)
    try:
        yield
    except Exception as error:
        _log.error("the run stops: %s", error)
        raise
    finally:
        _log.setLevel(level)
        for handler in handlers:
            _log.removeHandler(handler)
            handler.flush()
        handlers[1].close()


def conduct(plan: Plan, grid: Grid, resume: bool = False) -> ServerState:
    """Conduct a run over a Grid, from the start or from its last communication.

    Raises:
        FileExistsError: the folder holds a run and `resume` is not set.
        TimeoutError: sites did not come or not answer in time; they are named.
        Refused: the sites do not fit each other, or a message would be too large.
    """
    path = plan.folder / _STATE
    if path.is_file() and not resume:
        raise FileExistsError(f"{plan.folder} holds a run: resume it, or name another folder.")
    saved = read_arrays(path) if path.is_file() else None
    facts: dict[str, Any] = {"run": uuid.uuid4().hex} if saved is None else json.loads(saved[0])
    link = Link(grid)
    if saved is None and plan.transform is not None:
        facts["transform"] = _transform(plan, link)
    hellos = _handshake(plan, link, facts["run"], facts.get("transform"))
    coordinator = _coordinator(plan, hellos, facts.get("rows"))
    _check_sizes(plan, coordinator)
    state = coordinator.start(facts["run"])
    if saved is not None:
        state = load_state(state, facts["state"], saved[1])
        _log.info("run %s goes on after round %d", state.run, state.round)
    return _Conductor(plan, link, coordinator, hellos, facts.get("transform")).go_on(state)


def _transform(plan: Plan, link: Link) -> dict[str, Any]:
    messages = {name: to_records("summary", "{}", {}) for name in plan.sites}
    found, failed = link.exchange(messages, plan.start_timeout, lambda n, a: _named(n, a)["summary"], "summaries")
    _stop_without(failed)
    return plan.transform([found[name] for name in plan.sites])  # type: ignore[misc]


def _named(name: str, answer: Answer) -> dict[str, Any]:
    facts = json.loads(answer.facts)
    if facts.get("site") != name:
        raise Refused("site", f"the node of site {name!r} says that it is site {facts.get('site')!r}.")
    return facts


def _handshake(plan: Plan, link: Link, run: str, transform: Any) -> dict[str, Hello]:
    automatic = any(getattr(plan.algorithm, name) == "auto" for name in shared_settings(plan.algorithm))
    asked = json.dumps({"run": run, "transform": transform, "smoothness": automatic})

    def accept(name: str, answer: Answer) -> Hello:
        hello = Hello.from_parts(answer.facts, answer.arrays)
        if (hello.site, hello.run) != (name, run):
            raise Refused("site", f"the node of site {name!r} says that it is site {hello.site!r} in run {hello.run}.")
        return hello

    messages = {name: to_records("hello", asked, {}) for name in plan.sites}
    hellos, failed = link.exchange(messages, plan.start_timeout, accept, "handshake")
    _stop_without(failed)
    hellos = {name: hellos[name] for name in plan.sites}
    for note in check_hellos(hellos, method_of(plan.algorithm, plan.regularizer)):
        _log.warning("%s", note)
    return hellos


def _stop_without(failed: Mapping[str, str]) -> None:
    if failed:
        raise TimeoutError("the run cannot start: " + "; ".join(failed.values()))


def _coordinator(plan: Plan, hellos: Mapping[str, Hello], rows: Mapping[str, int] | None) -> Coordinator:
    first = next(iter(hellos.values()))
    constants = [hello.smoothness for hello in hellos.values()]
    for name, count in (rows or {}).items():
        if name in hellos and hellos[name].rows != count:
            raise Refused("rows", f"site {name!r} has {hellos[name].rows} rows; the run began with {count}.")
    return Coordinator(
        plan.algorithm, first.start[""] if plan.theta0 is None else np.asarray(plan.theta0, first.dtype),
        plan.sites, [hello.rows for hello in hellos.values()], plan.schedule, plan.participation, plan.regularizer,
        plan.weights, first.dtype, constants if all(constants) else None, plan.seed, plan.rounds, plan.tolerance,
        plan.relative_tolerance,
    )  # fmt: skip


def _check_sizes(plan: Plan, coordinator: Coordinator) -> None:
    for what, size in zip(("order", "reply"), coordinator.payload(), strict=True):
        if size > plan.largest_message:
            raise Refused(
                "shape",
                f"one {what} of {plan.algorithm.name} with {coordinator.theta0.size} parameters takes {size} bytes, "
                f"more than largest_message = {plan.largest_message}. Methods that send one vector, such as FedPD, "
                "and dtype = 'float32' need less.",
            )


@dataclass
class _Conductor:
    """A run that is under way."""

    plan: Plan
    link: Link
    coordinator: Coordinator
    hellos: Mapping[str, Hello]
    transform: Any

    def go_on(self, state: ServerState) -> ServerState:
        plan, coordinator = self.plan, self.coordinator
        self._save(state)
        last = time.monotonic()
        while state.status == "running" and (stretch := coordinator.plan(state)) is not None:
            replies = self._replies(state, stretch)
            now = time.monotonic()
            state = coordinator.close(state, stretch, replies, now - last)
            last = now
            plan.at("before save")
            self._save(state)
            plan.at("after save")
            _log.info("round %d: %d of %d sites replied", state.round, len(replies), len(stretch.active))
        if state.status == "running":
            state = replace(state, status="round limit", reason=f"{state.round} rounds were done.")
        self._save(state)
        self._finish(state)
        return state

    def _replies(self, state: ServerState, stretch: Stretch) -> dict[str, Reply]:
        plan, coordinator = self.plan, self.coordinator
        orders = {name: coordinator.order(state, stretch, name) for name in stretch.active}
        messages = {name: to_records("order", *order.parts()) for name, order in orders.items()}

        def accept(name: str, answer: Answer) -> Reply:
            reply = Reply.from_parts(answer.facts, answer.arrays)
            if reply.site != name:
                raise Refused("site", f"the node of site {name!r} sent a reply of site {reply.site!r}.")
            coordinator.check(state, stretch, reply)
            plan.at("received")
            return reply

        what = f"rounds {stretch.first} to {stretch.last}"
        replies, failed = self.link.exchange(messages, plan.timeout, accept, what)
        enough = len(plan.sites) if plan.quorum is None else plan.quorum
        needed = len(stretch.active) if not coordinator.algorithm.partial else min(enough, len(stretch.active))
        if len(replies) < needed:
            raise TimeoutError(
                f"{what}: {len(replies)} of {len(stretch.active)} sites replied, {needed} are needed. "
                + "; ".join(failed.values())
                + ". The state is that of the last communication; resume the run when the sites are back."
            )
        for name, why in failed.items():
            _log.warning("%s: goes on without %r: %s", what, name, why)
        return replies

    def _save(self, state: ServerState) -> None:
        facts, arrays = save_state(state)
        rows = {name: hello.rows for name, hello in self.hellos.items()}
        whole = {"run": state.run, "transform": self.transform, "rows": rows, "state": facts}
        write_arrays(self.plan.folder / _STATE, json.dumps(whole), arrays)

    def _finish(self, state: ServerState) -> None:
        """Write the results, and tell the sites what was accepted last."""
        folder, coordinator = RunFolder(self.plan.folder), self.coordinator
        folder.write_table("history.csv", state.ledger.history.to_polars())
        first = next(iter(self.hellos.values()))
        columns = first.columns or None
        folder.write_arrays("model.safetensors", {"theta": coordinator.theta(state)}, columns=columns)
        summary = {"status": state.status, "reason": state.reason, "round": state.round, "run": state.run}
        folder.write_json("summary.json", {**summary, "sites": list(self.plan.sites), "settings": dict(state.settings)})
        orders = {name: coordinator.farewell(state, name) for name in self.plan.sites}
        messages = {name: to_records("order", *order.parts()) for name, order in orders.items()}
        _, failed = self.link.exchange(messages, min(self.plan.timeout, 60.0), lambda n, a: a, "farewell")
        for name, why in failed.items():
            _log.warning("farewell: site %r was not told how the run ended: %s", name, why)
        _log.info("%s: %s", state.status, state.reason)
