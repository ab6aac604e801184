"""A run from its handshake to its results, communication by communication."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedual.engine.coordinator import Coordinator
from fedual.engine.message import Refused, Reply
from fedual.engine.server_state import ServerState, Stretch, load_state, save_state
from fedual.engine.settings import shared_settings
from fedual.flower.handshake import Hello, check_hellos, method_of
from fedual.flower.link import Answer, Link
from fedual.flower.plan import Plan
from fedual.flower.records import to_records
from fedual.flower.store import read_arrays, write_arrays
from fedual.runs import RunFolder

__all__ = ["conduct"]

_log = logging.getLogger("fedual")
_STATE = "server.safetensors"


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
    known: dict[str, Any] = {"run": uuid.uuid4().hex} if saved is None else json.loads(saved[0])
    link = Link(grid)
    if saved is None:
        known["transform"] = None if plan.transform is None else _transform(plan, link)
    hello = _handshake(plan, link, known)
    coordinator = _coordinator(plan, hello, known)
    _check_sizes(plan, coordinator)
    state = coordinator.start(known["run"])
    if saved is not None:
        state = load_state(state, known.pop("state"), saved[1])
        _log.info("run %s goes on after round %d", state.run, state.round)
    return _Conductor(plan, link, coordinator, known).go_on(state)


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


def _handshake(plan: Plan, link: Link, known: dict[str, Any]) -> Hello:
    """Compare the sites; adds what they told to `known`, and returns the word of one of them.

    At the start all must come. A resumed run knows them, and goes on with as many as the quorum asks.
    """
    automatic = any(_is_auto(getattr(plan.algorithm, name)) for name in shared_settings(plan.algorithm))
    asked = {"run": known["run"], "transform": known["transform"], "smoothness": automatic}

    def accept(name: str, answer: Answer) -> Hello:
        hello = Hello.from_parts(answer.facts, answer.arrays)
        if (hello.site, hello.run) != (name, known["run"]):
            raise Refused("site", f"the node of site {name!r} says that it is site {hello.site!r} in run {hello.run}.")
        return hello

    messages = {name: to_records("hello", json.dumps(asked), {}) for name in plan.sites}
    found, failed = link.exchange(messages, plan.start_timeout, accept, "handshake")
    if not (found and "rows" in known and len(found) >= (plan.quorum or len(plan.sites))):
        _stop_without(failed)
    hellos = {name: found[name] for name in plan.sites if name in found}
    for note in check_hellos(hellos, method_of(plan.algorithm, plan.regularizer)):
        _log.warning("%s", note)
    for name, hello in hellos.items():
        count = known.get("rows", {}).get(name, hello.rows)
        if hello.rows != count:
            raise Refused("rows", f"site {name!r} has {hello.rows} rows; the run began with {count}.")
    hello = next(iter(hellos.values()))
    known.setdefault("rows", {name: each.rows for name, each in hellos.items()})
    known.setdefault("smoothness", {name: each.smoothness for name, each in hellos.items()})
    known.setdefault("columns", hello.columns or None)
    return hello


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _stop_without(failed: Mapping[str, str]) -> None:
    if failed:
        raise TimeoutError("the run cannot start: " + "; ".join(failed.values()))


def _coordinator(plan: Plan, hello: Hello, known: Mapping[str, Any]) -> Coordinator:
    rows = [known["rows"][name] for name in plan.sites]
    constants = [known["smoothness"][name] for name in plan.sites]
    return Coordinator(
        plan.algorithm, hello.start[""] if plan.theta0 is None else np.asarray(plan.theta0, hello.dtype), plan.sites,
        rows, plan.schedule, plan.participation, plan.regularizer, plan.weights, hello.dtype,
        constants if all(constants) else None, plan.seed, plan.rounds, plan.tolerance, plan.relative_tolerance,
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
    known: Mapping[str, Any]

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
        write_arrays(self.plan.folder / _STATE, json.dumps({**self.known, "state": facts}), arrays)

    def _finish(self, state: ServerState) -> None:
        """Write the results, and tell the sites what was accepted last."""
        folder, coordinator = RunFolder(self.plan.folder), self.coordinator
        folder.write_table("history.csv", state.ledger.history.to_polars())
        facts = {"columns": self.known["columns"], "transform": self.known["transform"], **self.plan.model_facts}
        folder.write_arrays("model.safetensors", {"theta": coordinator.theta(state)}, **facts)
        summary = {"status": state.status, "reason": state.reason, "round": state.round, "run": state.run}
        folder.write_json("summary.json", {**summary, "sites": list(self.plan.sites), "settings": dict(state.settings)})
        orders = {name: coordinator.farewell(state, name) for name in self.plan.sites}
        messages = {name: to_records("order", *order.parts()) for name, order in orders.items()}
        _, failed = self.link.exchange(messages, min(self.plan.timeout, 60.0), lambda n, a: a, "farewell")
        for name, why in failed.items():
            _log.warning("farewell: site %r was not told how the run ended: %s", name, why)
        _log.info("%s: %s", state.status, state.reason)
