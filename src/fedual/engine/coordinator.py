"""The server as a deployment runs it: it knows the method and the sites' names and sizes, and no data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedual import tuning
from fedual.arrays import precision, random_key, tree_bytes
from fedual.engine.bind import rules
from fedual.engine.draws import Draws
from fedual.engine.expected import Expected
from fedual.engine.ledger import Figures, Ledger
from fedual.engine.message import Order, Reply, pack, shapes
from fedual.engine.server_state import ServerState, Stretch
from fedual.engine.settings import has_duals, settle, with_settings
from fedual.problem import client_weights
from fedual.protocols import Algorithm, Auto, Participation, Regularizer, Schedule, Work

__all__ = ["Coordinator"]


class Coordinator:
    """The server's side of a run.

    Args:
        algorithm, schedule, participation, seed: as for `fedual.solve`.
        theta0: theta^(0), shape `(d,)`.
        names: the sites, in a fixed order.
        rows: n_k of every site.
        weights, dtype: as for `fedual.Problem`.
        regularizer: r, None for none.
        smoothness: L_k of every site where "auto" settings need them; None if unknown.
        rounds, tolerance, relative_tolerance: when to stop, as for `fedual.solve`. A tolerance makes every reply carry
            a gradient of d numbers in addition. The relative one makes it carry lambda_k where the messages do not
            tell the mean of the duals: with skipped rounds, absent clients, or other methods than FedPD and ADMM.

    Raises:
        ValueError: settings that do not fit each other, or that need what the sites did not tell.

    Example:
        >>> import fedual as fd, numpy as np
        >>> server = Coordinator(fd.FedPD(step_size=1.0), np.zeros(2), ["a", "b"], [3, 1])
        >>> server.weights.tolist(), server.plan(server.start("run 1")).active
        ([0.75, 0.25], ('a', 'b'))
    """

    def __init__(
        self,
        algorithm: Algorithm,
        theta0: Any,
        names: Sequence[str],
        rows: Sequence[int],
        schedule: Schedule | None = None,
        participation: Participation | None = None,
        regularizer: Regularizer | None = None,
        weights: Any = "samples",
        dtype: str = "float64",
        smoothness: Sequence[float] | None = None,
        seed: int = 0,
        rounds: int = 300,
        tolerance: float | None = None,
        relative_tolerance: float | None = None,
    ) -> None:
        self.names = tuple(names)
        self.rows = dict(zip(self.names, map(int, rows), strict=True))
        self.weights = client_weights(weights, np.asarray(rows), self.names)
        self.dtype = dtype
        self.theta0 = np.asarray(theta0, dtype)
        self.regularizer = regularizer
        self.schedule, self.participation, chances = rules(
            algorithm, schedule, participation, self.names, regularizer is not None
        )
        self.chances = dict(zip(self.names, np.nan_to_num(chances).tolist(), strict=True))
        self.settings = settle(algorithm, smoothness, self.weights)
        step_size = getattr(algorithm, "step_size", None)
        self.adapts = isinstance(step_size, Auto) or step_size == "auto"
        # The server runs no oracle.
        bare = dataclasses.replace(algorithm, oracle=None) if hasattr(algorithm, "oracle") else algorithm
        self.algorithm = with_settings(bare, self.settings)
        self.rounds, self.tolerance, self.relative = rounds, tolerance, relative_tolerance
        with precision(dtype):
            self.key = random_key(seed)
            self._message = jax.eval_shape(self._example, self.theta0)
            self.draws = Draws(self.schedule, self.participation, self.names, self.key)
        told = self.schedule.never_skips and self.participation.everyone and self._tells(self.algorithm)
        self.duals = relative_tolerance is not None and not told
        if self.duals and (regularizer is not None or not has_duals(self.algorithm, self.theta0, dtype)):
            raise ValueError(
                f"relative_tolerance: the residuals of {algorithm.name} with these settings cannot be known from "
                "messages; use tolerance, or rounds alone."
            )
        self.expected = Expected(
            self.rows, self._message, self.theta0, self.tolerance is not None, self.duals, self.schedule.observes,
            self.adapts,
        )  # fmt: skip

    def _example(self, theta: Any) -> Any:
        work = Work(jnp.int32(1), jnp.asarray(1.0), jnp.zeros_like, jnp.asarray(1.0))
        return self.algorithm.update(self.algorithm.init(theta)[1], theta, work)[1]

    def _tells(self, algorithm: Algorithm) -> bool:
        return algorithm.means(self.theta0, self.theta0, self.theta0) is not None

    def message_bytes(self) -> int:
        """Bytes of the method's message of one site."""
        return tree_bytes(self._message)

    def payload(self) -> tuple[int, int]:
        """Bytes of the largest order and the largest reply of one site."""
        d = self.theta0.nbytes
        with precision(self.dtype):
            down = tree_bytes(jax.eval_shape(self.algorithm.first_broadcast, self.theta0))
        extra = d * ((self.tolerance is not None) + self.duals + self.schedule.observes)
        return down * (1 + self.algorithm.answered) + 2 * d, self.message_bytes() + extra

    def start(self, run: str) -> ServerState:
        """The state before round 1."""
        with precision(self.dtype):
            server, _ = self.algorithm.init(jnp.asarray(self.theta0))
            broadcast = self.algorithm.first_broadcast(jnp.asarray(self.theta0))
            schedule = self.schedule.init()
            tuner = tuning.start(jnp.asarray(self.settings["step_size"], self.dtype)) if self.adapts else ()
        accepted = dict.fromkeys(self.names, 0)
        ledger = Ledger.start(self.names, self.theta0)
        return ServerState(run, 0, 0, self.settings, server, broadcast, accepted, {}, schedule, tuner, ledger)

    def theta(self, state: ServerState) -> np.ndarray:
        """The server's model, shape `(d,)`."""
        return np.asarray(self.algorithm.theta(state.server))

    def plan(self, state: ServerState) -> Stretch | None:
        """The next stretch with participants; None where no further communication fits into `rounds`.

        Coins and participants are those of the simulator with the same seed and names.
        """
        with precision(self.dtype):
            return self.draws.next(state.round, state.stretch, state.schedule, self.rounds)

    def order(self, state: ServerState, stretch: Stretch, name: str) -> Order:
        """What a participant is to do."""
        return self._order(state, name, stretch.number, stretch.first, stretch.last)

    def farewell(self, state: ServerState, name: str) -> Order:
        """The last order of a run: nothing to work; the site learns what was accepted, and the model."""
        return self._order(state, name, state.stretch + 1, state.round + 1, state.round)

    def _order(self, state: ServerState, name: str, number: int, first: int, last: int) -> Order:
        broadcast, theta = pack(state.broadcast), self.theta(state)
        accepted = state.accepted[name]

        def beside(array: np.ndarray) -> dict[str, np.ndarray]:
            return {} if set(broadcast) == {""} and np.array_equal(broadcast[""], array) else {"": array}

        evaluate = self.tolerance is not None and last >= first
        answer = state.answers.get(name)
        return Order(
            run=state.run, site=name, number=number, accepted=accepted, first=first, last=last,
            rows=self.rows[name], key=[int(word) for word in np.asarray(self.key)], settings=dict(state.settings),
            started=self.settings, chance=self.chances[name],
            adapts=self.adapts and last >= first, observes=self.schedule.observes and last >= first,
            evaluate=evaluate, duals=self.duals and last >= first,
            broadcast=broadcast, answer={} if answer is None else pack(answer),
            theta=beside(theta) if evaluate or last < first else {}, start={} if accepted else beside(self.theta0),
        )  # fmt: skip

    def check(self, state: ServerState, stretch: Stretch, reply: Reply) -> None:
        """Refuse a reply that does not answer this stretch in the form that the method asks for.

        Raises:
            Refused: the site and what is wrong with it are named.
        """
        self.expected.check(state.run, stretch, reply)

    def close(
        self, state: ServerState, stretch: Stretch, replies: Mapping[str, Reply], seconds: float = 0.0
    ) -> ServerState:
        """The communication at the end of a stretch, from checked replies.

        Where the replies show that the model from before the stretch had reached the tolerance already, they are not
        accepted: the state stays, with status "converged", and `farewell` sends the sites back to where it was formed.

        Args:
            seconds: wall clock since the last communication.

        Raises:
            ValueError: nobody replied, or not everybody and the method needs everybody.
        """
        missing = [name for name in stretch.active if name not in replies]
        if not replies or (missing and not self.algorithm.partial):
            raise ValueError(f"{self.algorithm.name} cannot close stretch {stretch.number} without {missing}.")
        weights = dict(zip(self.names, self.weights, strict=True))
        ordered = {name: replies[name] for name in self.names if name in replies}
        with precision(self.dtype):
            ledger = state.ledger
            if self.tolerance is not None:
                ledger, stationarity = self._evaluate(state, ordered, weights)
                if stationarity <= self.tolerance:
                    reason = f"round {state.round} reached the tolerance: stationarity {stationarity:.3g}."
                    return dataclasses.replace(state, ledger=ledger, status="converged", reason=reason)
            scaled = [
                jax.tree.map(lambda leaf, w=weights[name]: jnp.asarray(w * leaf), self._unpacked(reply))
                for name, reply in ordered.items()
            ]
            total = jax.tree.map(lambda *leaves: sum(leaves), *scaled)
            weight = jnp.asarray(sum(weights[name] for name in ordered), self.dtype)
            algorithm = with_settings(self.algorithm, state.settings)
            server, broadcast = _aggregate(algorithm, self.regularizer, state.server, total, weight)
            if not np.isfinite(np.asarray(algorithm.theta(server))).all():
                reason = f"the model of round {stretch.last} is not finite; the state is that of round {state.round}."
                return dataclasses.replace(state, status="diverged", reason=reason)
            settings, tuner = self._adapted(state, ordered, weights)
            schedule = self._observed(state, ordered, weights)
            means = None
            if stretch.first == stretch.last and len(ordered) == len(self.names) and self._tells(algorithm):
                means = partial(algorithm.means, total, self.theta(state))
            figures = Figures(
                stretch=stretch, replies=ordered, weights=weights, means=means,
                s=state.settings.get("step_size", np.nan), composite=self.regularizer is not None,
                orders=sum(self.order(state, stretch, name).nbytes() for name in stretch.active), seconds=seconds,
            )  # fmt: skip
            ledger = ledger.add(figures)
        reached = self.relative is not None and ledger.reached(self.relative)
        return dataclasses.replace(
            state, round=stretch.last, stretch=stretch.number, server=server, broadcast=broadcast, ledger=ledger,
            accepted={**state.accepted, **dict.fromkeys(ordered, stretch.number)},
            answers={**state.answers, **dict.fromkeys(ordered, broadcast)} if self.algorithm.answered else {},
            settings=settings, schedule=schedule, tuner=tuner,
            status="converged" if reached else "running",
            reason=f"round {stretch.last} reached the relative tolerance." if reached else "",
        )  # fmt: skip

    def _adapted(self, state: ServerState, replies: Mapping[str, Reply], weights: Any) -> tuple[Any, Any]:
        """The shared settings from now on, and the memory of the rule for s."""
        if not self.adapts:
            return state.settings, state.tuner
        moved = np.sum([weights[name] * np.array(reply.moved) for name, reply in replies.items()], axis=0)
        s = jnp.asarray(state.settings["step_size"], self.dtype)
        tuner, s = tuning.adapt(state.tuner, s, tuning.Movement(*jnp.asarray(moved, self.dtype)))
        return {**state.settings, "step_size": float(s)}, tuner

    def _observed(self, state: ServerState, replies: Mapping[str, Reply], weights: Any) -> Any:
        """The schedule's state from now on."""
        if not self.schedule.observes:
            return state.schedule
        total = sum(weights[name] for name in replies)
        means = [
            jnp.asarray(sum(weights[name] * reply.observed[what] for name, reply in replies.items()) / total)
            for what in ("gradient", "square")
        ]
        return self.schedule.communicated(self.schedule.observe(state.schedule, *means))

    def _unpacked(self, reply: Reply) -> Any:
        names = list(shapes(self._message))
        return jax.tree.unflatten(jax.tree.structure(self._message), [reply.message[name] for name in names])

    def _evaluate(self, state: ServerState, replies: Mapping[str, Reply], weights: Any) -> tuple[Ledger, float]:
        """Objective and stationarity at the model from before the stretch, where all sites tell."""
        if len(replies) < len(self.names) or not state.round:
            return state.ledger, np.inf
        value = sum(weights[name] * reply.value for name, reply in replies.items())
        step = sum(weights[name] * reply.gradient[""] for name, reply in replies.items())
        if self.regularizer is not None:
            s, theta = state.settings["step_size"], jnp.asarray(self.theta(state))
            value += float(self.regularizer.value(theta))
            step = np.asarray((theta - self.regularizer.prox(theta - s * step, s)) / s)
        stationarity = float(step @ step)
        return state.ledger.evaluated(value, stationarity, sum(self.rows.values())), stationarity


@jax.jit
def _aggregate(algorithm: Any, regularizer: Any, server: Any, total: Any, weight: Any) -> tuple[Any, Any]:
    def prox(v: Any, scale: Any) -> Any:
        return v if regularizer is None else regularizer.prox(v, scale)

    return algorithm.aggregate(server, total, weight, prox)
