"""A bound method with its stop rules: advances states, turns the program's rows into history, judges."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedual.arrays import precision, tree_bytes
from fedual.engine.bind import Bound
from fedual.engine.chunk import run_chunk
from fedual.engine.round import GROWS, NOT_FINITE, REACHED, STALLS, Control, Data, Row
from fedual.engine.state import RunState, duals
from fedual.engine.stored import advance_stored, whole
from fedual.engine.watch import PATIENCE
from fedual.protocols import Work
from fedual.solution import Solution

__all__ = ["Run", "Views"]


@dataclass(frozen=True)
class Run:
    """A bound method with its stop rules: advances states and judges them."""

    bound: Bound
    mesh: Mesh | None
    every: int
    tolerance: float | None
    relative: float | None

    def data(self) -> Data:
        """The problem as the compiled program sees it."""
        problem = self.bound.problem
        return Data(problem.loss, problem.regularizer, self.bound.layout.buckets, self.bound.words)

    def control(self, rounds: int) -> Control:
        """The stop rules for at most `rounds` more rounds."""
        dtype = self.bound.problem.dtype
        return Control(
            jnp.int32(rounds),
            jnp.int32(self.every),
            jnp.asarray(-1 if self.tolerance is None else self.tolerance, dtype),
            jnp.asarray(-1 if self.relative is None else self.relative, dtype),
        )

    def advance(self, state: RunState, more: int, capacity: int, rounds: int) -> tuple[Solution, int]:
        """At most `more` rounds further on the way to `rounds`: the solution so far and the stop code."""
        if state.stored is not None:
            return advance_stored(self, state, more, capacity, rounds)
        begun = time.perf_counter()
        results = jax.block_until_ready(
            run_chunk(
                self.data(), self.bound.method, state.device, self.control(more), capacity=capacity, mesh=self.mesh
            )
        )
        return self.finish(state, results, begun, rounds), int(results[3])

    def finish(self, state: RunState, results: Any, begun: float, rounds: int) -> Solution:
        """A `Solution` from the state before and what the program returned."""
        device, rows, done, code, bad = results
        rows = jax.tree.map(lambda column: np.asarray(column)[: int(done)], rows)
        history = state.history.extend(self._figures(state, rows, begun))
        state = dataclasses.replace(state, device=device, history=history)
        return self.solution(state, int(code), int(bad), rounds)

    def _figures(self, state: RunState, rows: Row, begun: float) -> dict[str, np.ndarray]:
        """The program's rows as history columns: counts made cumulative, bytes from messages."""
        old, count = state.history, len(rows.communicated)
        numbers = np.arange(1, count + 1)

        def since(column: str, values: np.ndarray) -> np.ndarray:
            return (old[column][-1] if old.rounds else 0.0) + np.cumsum(values, dtype=np.float64)

        seconds = time.perf_counter() - begun
        up, down = self.message_bytes(state)
        return {
            "round": old.rounds + numbers,
            "communicated": rows.communicated,
            "communications": since("communications", rows.communicated),
            "uplinks": since("uplinks", rows.uplinks),
            "downlinks": since("downlinks", rows.downlinks),
            "uplink_bytes": since("uplink_bytes", rows.uplinks.astype(float) * up),
            "downlink_bytes": since("downlink_bytes", rows.downlinks.astype(float) * down),
            "gradient_evaluations": since("gradient_evaluations", rows.gradient_evaluations),
            "seconds": since("seconds", np.full(count, seconds / max(count, 1))),
            **{name: getattr(rows, name).astype(float) for name in
               ("objective", "stationarity", "primal_residual", "dual_residual", "s", "p")},
        }  # fmt: skip

    def message_bytes(self, state: RunState) -> tuple[int, int]:
        """What one client's message up and one broadcast down take."""
        algorithm = self.bound.method.algorithm
        client = jax.eval_shape(lambda theta: algorithm.init(theta)[1], state.device.mean)
        work = Work(jnp.int32(1), jnp.asarray(1.0), jnp.zeros_like)
        message = jax.eval_shape(lambda c: algorithm.update(c, c.model, work)[1], client)
        up, down = tree_bytes(message), tree_bytes(state.device.broadcast)
        number = client.model.dtype.itemsize
        if self.bound.method.adapts:  # two movements up, s down
            up, down = up + 2 * number, down + number
        if self.bound.method.schedule.observes:  # a gradient and its square up, p down
            up, down = up + tree_bytes(client.model) + number, down + number
        return up, down

    def solution(self, state: RunState, code: int, bad: int, rounds: int) -> Solution:
        """The verdict on a state."""
        done = state.history.rounds
        status, remedy = "round limit", ""
        reason = f"{done} rounds were done."
        if code == REACHED:
            status = "converged"
            reason = f"round {done} reached the tolerance: stationarity {state.history.last('stationarity'):.3g}."
        elif code == NOT_FINITE:
            status = "diverged"
            names = self.bound.problem.clients.names
            who = f"client {names[bad]!r}" if bad < len(names) else "the server"
            reason = f"in round {done + 1} the result of {who} was not finite; the state is that after round {done}."
            remedy = (
                "Take a smaller learning rate or step_size, or 'auto'; check that client's data for extreme values."
            )
        elif code == GROWS:
            status = "diverged"
            reason = (
                f"after round {done} the stationarity is a million times what it was in the first rounds, "
                f"{state.history.last('stationarity'):.3g}, and the objective has grown."
            )
            remedy = "Take a smaller learning rate or step_size, or 'auto'. `solution.best` has the best model seen."
        elif code == STALLS:
            status = "stalled"
            reason = (
                f"round {done}: the stationarity made no progress for {PATIENCE} rounds; its best, "
                f"{float(state.device.watch.best):.3g}, is of round {int(state.device.watch.round)}."
            )
            remedy = (
                "Where p > 0 is constant, let it go to 0 (schedules.Decay, schedules.Adaptive); take an exact or "
                "variance-reduced oracle, or a method without bias. `solution.best` has the best model seen."
            )
        elif self.tolerance is not None or self.relative is not None:
            reason = f"{done} rounds were done without reaching the tolerance."
            remedy = "Allow more rounds; where p > 0 is constant, let it go to 0 (schedules.Decay)."
        return Solution(self.bound.problem, state, status, reason, remedy, Views(self.bound, state))


@dataclass(frozen=True)
class Views:
    """Reads a solution's vectors out of the run's state."""

    bound: Bound
    state: RunState

    def theta(self) -> np.ndarray:
        return np.asarray(self.bound.method.algorithm.theta(self.state.device.server))

    def thetas(self) -> np.ndarray:
        return self.bound.layout.gather([client.model for client in whole(self.bound, self.state).clients])

    def duals(self) -> np.ndarray:
        with precision(self.bound.problem.dtype):
            algorithm, device = self.bound.method.algorithm, whole(self.bound, self.state)
            parts = zip(device.clients, device.records, strict=True)
            return self.bound.layout.gather([duals(algorithm, *part) for part in parts])

    def step_size(self) -> float:
        """s of the last round, 1 for a method without one."""
        s = self.state.history.last("s")
        return s if np.isfinite(s) else 1.0

    def best(self) -> tuple[np.ndarray, int, float]:
        """The evaluated model of the lowest stationarity, its round, and that stationarity."""
        watch = self.state.device.watch
        return np.asarray(watch.theta), int(watch.round), float(watch.best)
