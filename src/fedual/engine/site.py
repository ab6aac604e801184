"""One client as a deployment runs it: the simulator's own functions on a bucket of one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedual import theory
from fedual.arrays import precision
from fedual.engine.bind import Bound, bind
from fedual.engine.message import Arrays, Order, Refused, Reply, digest, pack, unpack
from fedual.engine.participants import Flags, Sums
from fedual.engine.settings import own_part, with_settings
from fedual.engine.state import duals, start_state
from fedual.engine.stretch import Point, evaluate, run_stretch
from fedual.problem import Problem
from fedual.protocols import Algorithm

__all__ = ["Site", "SiteState", "Stored"]


@dataclasses.dataclass(frozen=True)
class SiteState:
    """What a site keeps between stretches.

    Attributes:
        run: of which run.
        number, accepted: of the last stretch it worked through, and of the last one whose reply was accepted before.
        base, done: its `Point` at the start of that stretch and at its end.
        order: digest of the order, so that the same order again is answered by the same reply.
        data: digest of the site's data.
        started: the method's shared settings when the run started.
        reply: what it answered.
    """

    run: str
    number: int
    accepted: int
    order: str
    data: str
    started: dict[str, float]
    base: Point
    done: Point
    reply: Reply


class Stored(NamedTuple):
    """A `SiteState` as JSON and arrays by name."""

    facts: str
    base: Arrays
    done: Arrays
    reply: Arrays


_PLAIN = ("run", "number", "accepted", "order", "data", "started")


class Site:
    """The client's side of a run.

    Args:
        problem: with this client alone; its name is the site's identity.
        algorithm: as in the simulation of the whole federation; settings of one value per client included.
        names: all clients' names in the order of the run, where settings differ between clients.

    Raises:
        ValueError: the problem has other than one client.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0])], names=["a"])
        >>> site = Site(fd.Problem(fd.losses.least_squares(), clients), fd.FedPD(step_size=1.0))
        >>> site.name, site.rows
        ('a', 1)
    """

    def __init__(self, problem: Problem, algorithm: Algorithm, names: Sequence[str] | None = None) -> None:
        if len(problem.clients) != 1:
            raise ValueError(f"a site has one client; this problem has {len(problem.clients)}.")
        self.problem = problem
        self.name = problem.clients.names[0]
        self.rows = int(problem.sizes[0])
        self.given = algorithm
        self.algorithm = own_part(algorithm, self.name, (self.name,) if names is None else tuple(names))
        self._bound: tuple[Any, Bound] | None = None

    @cached_property
    def data(self) -> str:
        """Digest of the data."""
        clients = self.problem.clients
        return digest({"features": clients.features[0], "targets": clients.targets[0]}, self.name)

    def smoothness(self) -> float:
        """L_k: the loss's bound, or an estimate."""
        with precision(self.problem.dtype):
            return float(theory.local_smoothness(self.problem)[0])

    def work(self, state: SiteState | None, order: Order) -> tuple[SiteState, Reply]:
        """Work through a stretch.

        The same order again returns the state and the reply as they are. The caller must have stored the new state
        before the reply leaves.

        Args:
            state: what this site kept, None if nothing.
            order: from the coordinator.

        Raises:
            Refused: the order is not for this site and state, or does not have the form that the method asks for.
            FloatingPointError: the result is not finite; the state is unchanged.
        """
        with precision(self.problem.dtype):
            self._check(state, order)
            if state is not None and state.order == order.digest():
                return state, state.reply
            bound = self._bind(order.started)
            broadcast = self._read(bound, order.broadcast, "broadcast")
            base, accepted = self._base(bound, state, order)
            done, sums = base, Sums((), 1.0, 1, 0.0, (), ())
            if order.first <= order.last:
                done, sums = self._stretch(bound, base, broadcast, order)
            reply = self._reply(bound, order, done, sums)
        new = SiteState(order.run, order.number, accepted, order.digest(), self.data, order.started, base, done, reply)
        return new, reply

    def _check(self, state: SiteState | None, order: Order) -> None:
        me = f"site {self.name!r}"
        if order.site != self.name:
            raise Refused("site", f"{me} got an order for site {order.site!r}; check which key belongs to which site.")
        if order.rows != self.rows:
            raise Refused("rows", f"{me} has {self.rows} rows; the coordinator counts {order.rows}.")
        if state is None:
            if order.accepted:
                raise Refused(
                    "gap",
                    f"{me} has no state of run {order.run}, but its reply {order.accepted} was accepted: its state "
                    "folder is missing or another one. Restore that folder; without it the site cannot go on.",
                )
            return
        if state.run != order.run:
            raise Refused("run", f"{me} holds state of run {state.run}; the order is for run {order.run}.")
        if state.reply.site != self.name:
            raise Refused("site", f"{me}: its folder holds the state of site {state.reply.site!r}; give each its own.")
        if state.data != self.data:
            raise Refused("data", f"{me}: the data have changed since the run began. Restore them or start a new run.")
        if order.number < state.number or order.number <= order.accepted:
            raise Refused("old", f"{me} is at stretch {state.number}; an order for stretch {order.number} is dropped.")

    def _base(self, bound: Bound, state: SiteState | None, order: Order) -> tuple[Point, int]:
        """The point from which the stretch starts: after an accepted stretch its end, else its start once more."""
        if state is None or (order.accepted == 0 and state.accepted == 0):
            return self._start(bound, self._read(bound, order.start or order.broadcast, "start")), 0
        if order.accepted == state.number:
            done = state.done
            if bound.method.algorithm.answered and order.answer:
                told = self._read(bound, order.answer, "answer")
                answered = jax.vmap(partial(bound.method.algorithm.answer, broadcast=told))(done.client)
                done = done._replace(client=answered)
            return done, state.number
        if order.accepted == state.accepted:
            return state.base, state.accepted
        raise Refused(
            "gap",
            f"site {self.name!r} holds stretch {state.number}, and {state.accepted} before it; the coordinator "
            f"accepted its reply {order.accepted}. One side runs on an older copy of its state.",
        )

    def _bind(self, started: dict[str, float]) -> Bound:
        """The method with the run's settings; kept while they stay the same."""
        known = tuple(sorted(started.items()))
        if self._bound is None or self._bound[0] != known:
            self._bound = known, bind(self.problem, with_settings(self.algorithm, started))
        return self._bound[1]

    def _start(self, bound: Bound, theta: Any) -> Point:
        device = start_state(bound, theta, 0).device
        return Point(device.clients[0], device.carries[0], device.records[0])

    def _read(self, bound: Bound, arrays: Arrays, what: str) -> Any:
        """The arrays of an order as what they stand for, checked."""
        theta = np.zeros(self.problem.dimension, self.problem.dtype)
        template = theta
        if what in ("broadcast", "answer"):
            template = jax.eval_shape(bound.method.algorithm.first_broadcast, theta)
        return unpack(template, arrays, who=f"order for site {self.name!r}, {what}")

    def _stretch(self, bound: Bound, base: Point, broadcast: Any, order: Order) -> tuple[Point, Sums]:
        method = bound.method
        dtype = self.problem.dtype
        done, sums, observed = run_stretch(
            Flags(order.adapts, order.observes), self.problem.loss, self.problem.regularizer,
            with_settings(method.algorithm, order.settings),
            method.oracles[0], method.limits[0], np.full(1, order.chance, dtype), bound.layout.buckets[0], base,
            jax.tree.map(jnp.asarray, broadcast), np.asarray(order.key, np.uint32),
            np.asarray(order.settings.get("step_size", np.nan), dtype), np.int32(order.first), np.int32(order.last),
        )  # fmt: skip
        if not bool(np.all(done.record.finite)):
            raise FloatingPointError(
                f"site {self.name!r}: the result of rounds {order.first} to {order.last} is not finite. Take a smaller "
                "learning rate or step_size; check this site's data for extreme values."
            )
        return done, sums._replace(observed=observed)

    def _reply(self, bound: Bound, order: Order, done: Point, sums: Sums) -> Reply:
        value, gradient, dual, observed = 0.0, {}, {}, {}
        lam = np.nan_to_num(np.asarray(duals(bound.method.algorithm, done.client, done.record)[0]))
        if order.evaluate:
            theta = self._read(bound, order.theta or order.broadcast, "theta")
            loss, slope = evaluate(self.problem.loss, bound.layout.buckets[0], jnp.asarray(theta))
            value, gradient = float(loss), {"": np.asarray(slope)}
        if order.observes and sums.observed:
            observed = dict(zip(("gradient", "square"), (np.asarray(o) for o in sums.observed), strict=True))
        if order.duals:
            dual = {"": lam}
        model = np.asarray(done.client.model[0])
        return Reply(
            run=order.run, site=self.name, number=order.number, first=order.first, last=order.last, rows=self.rows,
            evaluations=float(sums.evaluations), gap=float(done.record.gap[0]), model_square=float(model @ model),
            dual_square=float(lam @ lam), value=value,
            moved=[float(square) for square in sums.movement], message=pack(sums.message), observed=observed,
            gradient=gradient, dual=dual,
        )  # fmt: skip

    def save(self, state: SiteState) -> Stored:
        """A state as JSON and named arrays."""
        facts, reply = state.reply.parts()
        plain = {name: getattr(state, name) for name in _PLAIN}
        return Stored(json.dumps(plain | {"reply": facts}), pack(state.base), pack(state.done), reply)

    def load(self, stored: Stored) -> SiteState:
        """The inverse of `save`.

        Raises:
            Refused: the state does not fit this site's problem and method.
        """
        with precision(self.problem.dtype):
            values = json.loads(stored.facts)
            start = partial(self._start, self._bind(values["started"]))
            template = jax.eval_shape(start, np.zeros(self.problem.dimension, self.problem.dtype))
            who = f"stored state of site {self.name!r}"
            # As NumPy arrays: making them JAX's would compile a transfer for every shape.
            base, done = (unpack(template, arrays, who=who, finite=False) for arrays in (stored.base, stored.done))
        plain = {name: values[name] for name in _PLAIN}
        return SiteState(**plain, base=base, done=done, reply=Reply.from_parts(values["reply"], stored.reply))
