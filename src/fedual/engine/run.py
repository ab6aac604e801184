"""`solve` and `iterate`: the simulator."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedual.arrays import precision, tree_bytes
from fedual.engine.bind import Bound, bind
from fedual.engine.chunk import run_chunk
from fedual.engine.round import GROWS, NOT_FINITE, REACHED, RUNNING, STALLS, Control, Data, Row
from fedual.engine.state import RunState, check_state, duals, placed, start_state
from fedual.engine.stored import advance_stored, choose, move, whole
from fedual.engine.watch import PATIENCE
from fedual.layout import client_mesh
from fedual.problem import Problem
from fedual.protocols import Algorithm, Participation, Schedule, Work
from fedual.solution import Solution

__all__ = ["Views", "device_count", "iterate", "solve"]


def solve(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int = 300,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    theta0: Any = None,
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    evaluate_every: int = 1,
    clients_at_once: int | str = "auto",
    state_memory: int | None = None,
    state: RunState | None = None,
    callbacks: Iterable[Callable[[Solution], Any]] = (),
) -> Solution:
    """Run a federated method in simulation, all clients in one compiled program.

    Args:
        problem: what to minimize.
        algorithm: `FedPD()` and its relatives.
        rounds: the last round's number; with `state` the run goes on from there up to this round.
        schedule: which rounds skip the communication; none by default.
        participation: who takes part; everyone by default.
        seed: of all randomness: coins, participation, minibatches. Same seed, same numbers.
        theta0: theta^(0), shape `(d,)`; the loss's default (zeros for linear predictors) if not given.
        tolerance: stop at the first evaluated round with stationarity ||grad f(theta)||^2 at most this.
        relative_tolerance: stop at the first communicated round whose residuals are at most this fraction of
            (sum w_k ||theta_k||^2)^(1/2) and (sum w_k ||lambda_k||^2)^(1/2). Needs a method with duals.
        evaluate_every: evaluate objective and stationarity at the multiples of this round number; the iterates do not
            depend on it.
        clients_at_once: clients that go through their local steps together; "auto" chooses what a core's cache holds.
            Take 1 for losses with convolutions, which XLA runs slowly on CPUs where several clients' are stacked.
        state_memory: bytes that the states of clients may take. Where those of all would take more, only participants'
            are in memory and the others in a temporary file without a name (in TMPDIR), with the same numbers; an
            earlier solution's `thetas` and `duals` are then readable only until the run goes on. None for no limit.
        state: `solution.state` of an earlier call with the same problem and method, to go on from.
        callbacks: each is called with the solution so far after every chunk of rounds; the numbers do not depend on
            them.

    Returns:
        A `Solution`. A result that is not finite ends the run with status "diverged" and the last finite state.

    Raises:
        ValueError: arguments that do not fit each other; the message names the remedy.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> solution = fd.solve(problem, fd.ADMM(step_size=1.0), rounds=200, tolerance=1e-20)
        >>> solution.status, round(float(solution.theta[0]), 6)
        ('converged', 0.8)
    """
    callbacks = tuple(callbacks)
    for solution in iterate(
        problem, algorithm, rounds, schedule, participation, seed, theta0, tolerance, relative_tolerance,
        evaluate_every, clients_at_once, state_memory, state,
    ):  # fmt: skip
        for callback in callbacks:
            callback(solution)
    return solution


def iterate(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int = 300,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    theta0: Any = None,
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    evaluate_every: int = 1,
    clients_at_once: int | str = "auto",
    state_memory: int | None = None,
    state: RunState | None = None,
    chunk_rounds: int = 50,
) -> Iterator[Solution]:
    """The generator under `solve`: yields the solution so far after every `chunk_rounds` rounds and at the end.

    The arguments are those of `solve`; the numbers do not depend on `chunk_rounds`. Where JAX has several CPU devices
    the clients are shared out among them; to have two, set the environment variable
    `XLA_FLAGS=--xla_force_host_platform_device_count=2` before JAX is first used.

    Yields:
        `Solution`, at least once.

    Raises:
        ValueError: as `solve`.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> [s.history.rounds for s in fd.iterate(problem, fd.ADMM(step_size=1.0), rounds=5, chunk_rounds=2)]
        [2, 4, 5]
    """
    for name, value in (("rounds", rounds), ("evaluate_every", evaluate_every), ("chunk_rounds", chunk_rounds)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} = {value!r} must be an integer >= 1.")
    for name, bound_ in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance)):
        if bound_ is not None and not 0 < bound_ < float("inf"):
            raise ValueError(f"{name} = {bound_!r} must be positive and finite, or None.")
    mesh = _mesh(problem) if state_memory is None else None  # one device where states may be on disk
    with precision(problem.dtype):
        bound = bind(problem, algorithm, schedule, participation, clients_at_once, 1 if mesh is None else mesh.size)
        first = problem.vector(problem.loss.start(problem.feature_shape) if theta0 is None else theta0, "theta0")
        store = choose(bound, first, state_memory)
        if state is None:
            state = start_state(bound, first, seed, None if store is None else (store, store.version))
        else:
            check_state(bound, state)
            state = move(bound, state, store)
        state = placed(state, mesh)
        run = Run(bound, mesh, evaluate_every, tolerance, relative_tolerance)
    while True:
        with precision(problem.dtype):
            more = min(chunk_rounds, rounds - state.history.rounds)
            solution, code = run.advance(state, more, chunk_rounds, rounds)
        state = solution.state
        yield solution
        if code != RUNNING or state.history.rounds >= rounds:
            return


def device_count(problem: Problem) -> int:
    """Over how many devices a run shares out its clients: all there are, but not more than clients."""
    return min(len(jax.local_devices()), len(problem.clients))


def _mesh(problem: Problem) -> Mesh | None:
    return client_mesh(device_count(problem))


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
