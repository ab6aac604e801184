"""The driver: rounds of a federated method on a PyTorch module, one client after the other."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

import jax
import numpy as np

from fedual.engine.bind import rules
from fedual.oracles import GradientDescent
from fedual.protocols import Algorithm, Participation, Schedule
from fedual.torch.oracle import client_oracles
from fedual.torch.problem import TorchProblem
from fedual.torch.round import Method, Outcome, one_round
from fedual.torch.state import TorchSolution, TorchState, Views, start_state

__all__ = ["iterate", "solve"]


def solve(
    problem: TorchProblem,
    algorithm: Algorithm,
    rounds: int = 300,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    theta0: Any = None,
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    evaluate_every: int = 1,
    state: TorchState | None = None,
    callbacks: Iterable[Callable[[TorchSolution], Any]] = (),
) -> TorchSolution:
    """Run a federated method on a module. As `fedual.solve`, which runs JAX functions; here only what differs.

    Args:
        problem: a `TorchProblem`.
        algorithm: with numbers for step_size and learning rates: nothing is known of a module's smoothness. Its oracle
            is a `TorchOptimizer`, or a first-order one of `fedual.oracles`.
        rounds, schedule, participation, seed, tolerance, relative_tolerance, state: as for `fedual.solve`.
        theta0: a vector `(d,)`, or arrays by parameter name (a state dict); the module's own parameters by default.
        evaluate_every: an evaluation is a pass over all rows of all clients, in evaluation mode.
        callbacks: each is called with the solution so far after every round.

    Raises:
        ValueError: arguments that do not fit each other; the message names the remedy.

    Example:
        >>> import torch, fedual, fedual.torch
        >>> data = [(torch.tensor([[1.0]]), torch.tensor([[0.0]])), (torch.tensor([[2.0]]), torch.tensor([[2.0]]))]
        >>> problem = fedual.torch.TorchProblem(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, data)
        >>> oracle = fedual.oracles.StochasticGradient(steps=5, learning_rate=0.1, batch_size=1)
        >>> fedual.torch.solve(problem, fedual.FedAvg(oracle), rounds=3).history["uplinks"].tolist()
        [2.0, 4.0, 6.0]
    """
    callbacks = tuple(callbacks)
    for solution in iterate(
        problem, algorithm, rounds, schedule, participation, seed, theta0, tolerance, relative_tolerance,
        evaluate_every, state,
    ):  # fmt: skip
        for callback in callbacks:
            callback(solution)
    return solution


def iterate(
    problem: TorchProblem,
    algorithm: Algorithm,
    rounds: int = 300,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    theta0: Any = None,
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    evaluate_every: int = 1,
    state: TorchState | None = None,
) -> Iterator[TorchSolution]:
    """The generator under `solve`: yields the solution so far after every round. The arguments are those of `solve`.

    Example:
        >>> import torch, fedual, fedual.torch
        >>> data = [(torch.tensor([[1.0]]), torch.tensor([[0.0]])), (torch.tensor([[2.0]]), torch.tensor([[2.0]]))]
        >>> problem = fedual.torch.TorchProblem(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, data)
        >>> algorithm = fedual.FedPD(fedual.oracles.GradientDescent(5, 0.1), step_size=1.0)
        >>> [solution.history.rounds for solution in fedual.torch.iterate(problem, algorithm, rounds=3)]
        [1, 2, 3]
    """
    for name, value in (("rounds", rounds), ("evaluate_every", evaluate_every)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} = {value!r} must be an integer >= 1.")
    for name, goal in (("tolerance", tolerance), ("relative_tolerance", relative_tolerance)):
        if goal is not None and not 0 < goal < float("inf"):
            raise ValueError(f"{name} = {goal!r} must be positive and finite, or None.")
    method = _bind(problem, algorithm, schedule, participation, seed)
    if state is None:
        theta = problem.vector(problem.start if theta0 is None else theta0, "theta0").clone()
        state = start_state(problem, method.algorithm, method.schedule, theta, seed)
    while True:
        begun = time.perf_counter()
        outcome = one_round(problem, method, state, evaluate_every)
        if outcome.bad is None:
            outcome.row["seconds"] = time.perf_counter() - begun
            state = dataclasses.replace(outcome.state, history=_extend(state.history, outcome.row))
        solution = _judge(problem, method, state, outcome, tolerance, relative_tolerance)
        yield solution
        if solution.status != "round limit" or state.round >= rounds:
            return


def _bind(problem: TorchProblem, algorithm: Any, schedule: Any, participation: Any, seed: int) -> Method:
    """Check that everything fits."""
    if not isinstance(problem, TorchProblem):
        raise TypeError(f"problem must be a fedual.torch.TorchProblem, not {type(problem)}; fedual.solve runs others.")
    composite = problem.regularizer is not None
    schedule, participation, chances = rules(algorithm, schedule, participation, problem.names, composite)
    if getattr(schedule, "observes", False):
        raise ValueError(f"schedules.{type(schedule).__name__} is not available for modules; use Skip or Decay.")
    for field in ("step_size", "learning_rate"):
        if not isinstance(getattr(algorithm, field, 1.0), int | float):
            raise ValueError(
                f"{field} = {getattr(algorithm, field)!r}: a module has no known smoothness constant; give {field} as "
                "a number."
            )
    oracle = getattr(algorithm, "oracle", None)
    if oracle is None:
        settings = algorithm.default_oracle()
        if not isinstance(settings.get("learning_rate"), int | float):
            raise ValueError(
                f"{algorithm.name} needs an oracle with a learning rate of its own for a module, such as "
                "oracle=fedual.torch.TorchOptimizer(functools.partial(torch.optim.SGD, lr=0.1), steps=10)."
            )
        oracle = GradientDescent(**settings)
    oracles = client_oracles(problem, oracle)
    for one in oracles:
        algorithm.check_oracle(one)
    bare = dataclasses.replace(algorithm, oracle=None) if hasattr(algorithm, "oracle") else algorithm
    plain = jax.tree.map(lambda leaf: np.asarray(leaf).item(), bare)
    return Method(plain, oracles, schedule, participation, chances, problem.names, seed)


def _extend(history: Any, row: dict[str, Any]) -> Any:
    """The history with one more row; counts are made cumulative."""
    total = (
        "communications",
        "uplinks",
        "downlinks",
        "uplink_bytes",
        "downlink_bytes",
        "gradient_evaluations",
        "seconds",
    )
    old = {name: history[name][-1] if history.rounds else 0.0 for name in total}
    return history.extend({n: np.array([v + old[n] if n in total else v]) for n, v in row.items()})


def _judge(
    problem: TorchProblem, method: Method, state: TorchState, outcome: Outcome, tolerance: Any, relative: Any
) -> TorchSolution:
    """The verdict on a round."""
    views = Views(problem, method.algorithm, state)
    solution = partial(TorchSolution, cast(Any, problem), state, _views=views)
    done = state.round
    if outcome.bad is not None:
        return solution(
            "diverged",
            f"in round {done + 1} the result of {outcome.bad} was not finite; the state is that after round {done}.",
            "Take a smaller learning rate or step_size; check that client's data for extreme values.",
        )
    stationarity, row = outcome.row["stationarity"], outcome.row
    if tolerance is not None and stationarity <= tolerance:
        return solution("converged", f"round {done} reached the tolerance: stationarity {stationarity:.3g}.")
    if relative is not None and row["communicated"]:
        model, dual = outcome.scales
        if row["primal_residual"] <= relative * model and row["dual_residual"] <= relative * dual:
            return solution("converged", f"round {done} reached the relative tolerance.")
    if tolerance is not None or relative is not None:
        return solution(
            "round limit",
            f"{done} rounds were done without reaching the tolerance.",
            "Allow more rounds; where p > 0 is constant, let it go to 0 (schedules.Decay).",
        )
    return solution("round limit", f"{done} rounds were done.")
