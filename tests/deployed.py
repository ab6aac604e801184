"""A federation in one process: the coordinator's and the sites' halves with nothing between them but their messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedual as fd
from fedual.arrays import precision
from fedual.engine.coordinator import Coordinator
from fedual.engine.message import Order, Reply
from fedual.engine.server_state import ServerState
from fedual.engine.site import Site, SiteState
from fedual.engine.state import duals


def parts_of(problem: fd.Problem) -> dict[str, fd.Problem]:
    """The problem of every site alone."""
    clients = problem.clients
    return {
        name: fd.Problem(problem.loss, clients.select([name]), "uniform", problem.regularizer, problem.dtype)
        for name in clients.names
    }


@dataclass
class Federation:
    """One coordinator and its sites; `absent` names sites by stretch that do not answer."""

    problem: fd.Problem
    algorithm: Any
    settings: dict[str, Any]
    absent: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        p = self.problem
        names = p.clients.names
        self.sites = {name: Site(part, self.algorithm, names) for name, part in parts_of(p).items()}
        self.coordinator = Coordinator(
            self.algorithm, p.loss.start(p.feature_shape), names, p.sizes, regularizer=p.regularizer,
            weights=p.weights, dtype=p.dtype, smoothness=[s.smoothness() for s in self.sites.values()], **self.settings,
        )  # fmt: skip
        self.kept: dict[str, SiteState | None] = dict.fromkeys(names)

    def run(self) -> Iterator[ServerState]:
        """The server's state after every communication; the last one is followed by farewells."""
        state = self.coordinator.start("test")
        while state.status == "running" and (stretch := self.coordinator.plan(state)) is not None:
            replies = {}
            for name in stretch.active:
                order = over_the_wire(self.coordinator.order(state, stretch, name))
                self.kept[name], reply = self.sites[name].work(self.kept[name], order)
                if name not in self.absent.get(stretch.number, ()):
                    replies[name] = over_the_wire(reply)
                    self.coordinator.check(state, stretch, replies[name])
            state = self.coordinator.close(state, stretch, replies)
            yield state
        for name, site in self.sites.items():
            self.kept[name], _ = site.work(self.kept[name], over_the_wire(self.coordinator.farewell(state, name)))

    def local(self, accepted: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """theta_k and lambda_k of all sites, as if the last replies had been accepted."""
        models, lambdas = [], []
        with precision(self.problem.dtype):
            for name, site in self.sites.items():
                done = self.kept[name].done
                models.append(np.asarray(done.client.model[0]))
                algorithm = site._bound[1].method.algorithm
                lambdas.append(np.asarray(duals(algorithm, done.client, done.record)[0]))
        return np.array(models), np.array(lambdas)


def over_the_wire(message: Order | Reply) -> Any:
    """The message after a trip as bytes."""
    facts, arrays = message.parts()
    copies = {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in arrays.items()}
    return type(message).from_parts(facts, copies)
