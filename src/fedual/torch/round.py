"""One round of all participants on a PyTorch module."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from fedual.arrays import name_words, precision, random_key, wrap_key
from fedual.engine.keys import COIN, MINIBATCH, PARTICIPATION, client_key, client_uniforms, uniform_number
from fedual.engine.local_work import draw_indices
from fedual.protocols import Work
from fedual.torch.bridge import to_jax, to_torch, tree_to_torch
from fedual.torch.modules import weighted_sum
from fedual.torch.oracle import solve_subproblem
from fedual.torch.problem import TorchProblem
from fedual.torch.state import ClientState, TorchState, tensor_bytes

__all__ = ["Method", "Outcome", "one_round"]


@dataclass(frozen=True)
class Method:
    """What runs: plain numbers for all settings, one oracle per client, every client's chance of taking part."""

    algorithm: Any
    oracles: list[Any]
    schedule: Any
    participation: Any
    chances: np.ndarray
    names: tuple[str, ...]
    seed: int

    @cached_property
    def words(self) -> np.ndarray:
        """Two words per client, shape `(K, 2)`."""
        return np.array([name_words(name) for name in self.names], dtype=np.uint32)

    @cached_property
    def most_steps(self) -> int:
        """One number of steps to draw minibatches for, so that one compiled program draws them all."""
        return max(oracle.steps for oracle in self.oracles)


@dataclass(frozen=True)
class Outcome:
    """What a round gave.

    Attributes:
        state: after the round, without its history; that before the round if a result was not finite.
        row: the history's columns, counts being the round's own.
        scales: (sum w_k ||theta_k||^2)^(1/2) and (sum w_k ||lambda_k||^2)^(1/2).
        bad: whose result was not finite, None if all is well.
    """

    state: TorchState
    row: dict[str, Any]
    scales: tuple[float, float]
    bad: str | None


@jax.jit
def _uniforms(key: Any, words: Any) -> Any:
    return client_uniforms(jax.random.fold_in(key, PARTICIPATION), words)


@partial(jax.jit, static_argnames=("steps", "batch_size"))
def _draw(key: Any, words: Any, count: Any, steps: int, batch_size: int) -> Any:
    key = client_key(jax.random.fold_in(wrap_key(key), MINIBATCH), words)
    return draw_indices(key, steps, batch_size, count), jax.random.key_data(key)


def one_round(problem: TorchProblem, method: Method, state: TorchState, every: int) -> Outcome:
    """The round after `state`, evaluated if its number is a multiple of `every`."""
    algorithm, number = method.algorithm, state.round + 1
    with precision(problem.dtype):
        key = jax.random.fold_in(wrap_key(random_key(state.seed)), number)
        p = float(method.schedule.p(state.schedule, number))
        silent = bool(uniform_number(jax.random.fold_in(key, COIN)) < p)
        active = state.active
        if state.fresh and not method.participation.everyone:
            uniform = _uniforms(key, method.words)
            active = np.asarray(method.participation.draw(uniform, state.stretch))
    participants = [int(k) for k in np.flatnonzero(active)]

    books = _Sums(problem, state)
    clients = list(state.clients)
    for k in participants:
        try:
            fine = _work(problem, method, state, k, jax.random.key_data(key), silent, clients, books)
        except Exception as error:
            error.add_note(f"in the local work of client {method.names[k]!r}, round {number}")
            raise
        if not fine:
            return Outcome(state, {}, (0.0, 0.0), f"client {method.names[k]!r}")

    server, broadcast, buffers = state.server, state.broadcast, state.buffers
    communicated = not silent and bool(participants)
    if communicated:
        server, broadcast, buffers = _communicate(problem, algorithm, state, books)
        if algorithm.answered:
            for k in participants:
                clients[k] = clients[k]._replace(books=algorithm.answer(clients[k].books, broadcast))
    after = dataclasses.replace(
        state, round=number, stretch=state.stretch + (not silent), fresh=not silent, active=active, server=server,
        broadcast=broadcast, buffers=buffers, clients=tuple(clients), means=(books.mean, books.dual),
    )  # fmt: skip
    with precision(problem.dtype):
        theta = to_torch(algorithm.theta(server), problem.flat.device)
    if not torch.isfinite(theta).all():
        return Outcome(state, {}, (0.0, 0.0), "the server")
    row = _row(problem, algorithm, state, after, books, communicated, len(participants), p)
    objective = stationarity = np.nan
    if number % every == 0:
        objective, stationarity = problem.evaluate(theta, row["s"], _evaluation_buffers(problem, after))
    row |= {"objective": objective, "stationarity": stationarity}
    squares = np.array([client.squares for client in clients])
    scales = np.sqrt(problem.weights @ squares)
    return Outcome(after, row, (float(scales[0]), float(scales[1])), None)


class _Sums:
    """What participants contribute; vectors are added up in place, in the order of the clients."""

    def __init__(self, problem: TorchProblem, state: TorchState) -> None:
        self.message: Any = None
        self.weight = 0.0
        self.evaluations = 0
        self.message_bytes = 0
        self.buffers: Any = None
        self.mean, self.dual = (mean.clone() for mean in state.means)


def _work(
    problem: TorchProblem, method: Method, state: TorchState, k: int, key: Any, silent: bool,
    clients: list[ClientState], sums: _Sums,
) -> bool:  # fmt: skip
    """One participant's round: its new state into `clients`, its contribution to `sums`; False if not finite."""
    algorithm, oracle, old, local = method.algorithm, method.oracles[k], clients[k], problem.locals[k]
    client = algorithm.receive(old.books, state.broadcast) if state.fresh else old.books
    subproblem = algorithm.subproblem(client)
    shared = {name: state.buffers[name] for name in problem.shared_names} if state.fresh else {}
    problem.flat.set_buffers(old.buffers | shared)
    with precision(problem.dtype):
        indices, words = _draw(key, method.words[k], local.count, method.most_steps, oracle.batch_size or 1)
        rows = to_torch(indices, problem.flat.device).long()[: oracle.steps]
    devices = [problem.flat.device] if problem.flat.device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # what the module itself draws, such as dropout
        torch.manual_seed(int(words[0]) << 31 ^ int(words[1]))
        x, carry, spent = solve_subproblem(
            oracle, local, subproblem, old.carry, old.visits, None if oracle.batch_size is None else rows
        )
    rate = oracle.rate(subproblem) if hasattr(oracle, "rate") else float("nan")
    work = Work(oracle.steps, rate, local.gradient, float(method.chances[k]))
    new, message = algorithm.update(client, x, work)
    done = algorithm.skip(new, message, problem.prox) if silent else algorithm.sent(new, message)
    if not all(torch.isfinite(leaf.sum()) for leaf in jax.tree.leaves((x, message))):
        return False

    weight, buffers = float(problem.weights[k]), problem.flat.buffers()
    before, after = algorithm.dual(old.books), algorithm.dual(done)
    gap = x - client.anchor
    clients[k] = ClientState(
        done, carry, buffers, old.visits + 1, float(gap @ gap), (float(x @ x), float(after @ after))
    )
    sums.message = weighted_sum(sums.message, weight, message)
    sums.buffers = weighted_sum(sums.buffers, weight, {name: buffers[name] for name in problem.shared_names})
    sums.message_bytes = tensor_bytes(message)
    sums.weight += weight
    sums.evaluations += spent + algorithm.gradients * local.count
    sums.mean.add_(x, alpha=weight).sub_(old.books.model, alpha=weight)
    sums.dual.add_(after, alpha=weight).sub_(before, alpha=weight)
    return True


def _communicate(problem: TorchProblem, algorithm: Any, state: TorchState, sums: _Sums) -> tuple[Any, Any, Any]:
    """The server's step, and the plain mean of the participants' buffers."""
    with precision(problem.dtype):
        regularizer = problem.regularizer
        prox = (lambda v, scale: v) if regularizer is None else regularizer.prox
        weight = jnp.asarray(sums.weight, problem.dtype)
        server, broadcast = algorithm.aggregate(state.server, to_jax(sums.message), weight, prox)
        broadcast = tree_to_torch(broadcast, problem.flat.device)
    means = {n: (b / sums.weight).to(state.buffers[n].dtype) for n, b in sums.buffers.items()}
    return server, broadcast, state.buffers | means


def _row(
    problem: TorchProblem, algorithm: Any, old: TorchState, new: TorchState, sums: _Sums, communicated: bool,
    participants: int, p: float,
) -> dict[str, Any]:  # fmt: skip
    s = float(getattr(algorithm, "step_size", np.nan))
    gaps = np.array([client.gap for client in new.clients])
    dual = sums.dual if problem.regularizer is None else (sums.mean - old.means[0]) / s
    uplinks = participants * communicated
    downlinks = participants * old.fresh + uplinks * algorithm.answered
    buffers = sum(old.buffers[n].numel() * old.buffers[n].element_size() for n in problem.shared_names)
    return {
        "round": new.round,
        "communicated": communicated,
        "communications": int(communicated),
        "uplinks": uplinks,
        "downlinks": downlinks,
        "uplink_bytes": uplinks * (sums.message_bytes + buffers),
        "downlink_bytes": downlinks * (tensor_bytes(old.broadcast) + buffers),
        "primal_residual": float(np.sqrt(problem.weights @ gaps)),
        "dual_residual": float(torch.linalg.vector_norm(dual)),
        "s": s,
        "p": p,
        "gradient_evaluations": sums.evaluations,
    }


def _evaluation_buffers(problem: TorchProblem, state: TorchState) -> list[dict[str, Tensor]]:
    """Every client's own buffers, with the common ones in place of those that are averaged."""
    shared = {name: state.buffers[name] for name in problem.shared_names}
    return [client.buffers | shared for client in state.clients]
