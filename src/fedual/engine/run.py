"""`solve` and `iterate`: the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from fedual.arrays import precision
from fedual.devices import client_mesh
from fedual.engine.bind import bind
from fedual.engine.round import RUNNING
from fedual.engine.runner import Run
from fedual.engine.state import RunState, check_state, placed, start_state
from fedual.engine.stored import choose, move
from fedual.problem import Problem
from fedual.protocols import Algorithm, Participation, Schedule
from fedual.solution import Solution

__all__ = ["device_count", "iterate", "solve"]


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
