"""The state of a run on a PyTorch module, and what is read out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor, nn

from fedual.arrays import precision
from fedual.solution import History, Solution
from fedual.torch.bridge import to_jax, tree_to_torch
from fedual.torch.modules import Buffers
from fedual.torch.problem import TorchProblem

__all__ = ["ClientState", "TorchSolution", "TorchState", "Views", "start_state", "tensor_bytes"]


class ClientState(NamedTuple):
    """One client between rounds.

    Attributes:
        books: the algorithm's state of a client, tensors of shape `(d,)`.
        carry: the oracle's.
        buffers: the module's buffers as this client has them.
        visits: rounds of work done.
        gap: ||theta_k - anchor_k||^2 of the last of them.
        squares: ||theta_k||^2 and ||lambda_k||^2.
    """

    books: Any
    carry: Any
    buffers: Buffers
    visits: int
    gap: float
    squares: tuple[float, float]


@dataclass(frozen=True)
class TorchState:
    """Everything needed to go on with a run; no later round changes it.

    Attributes:
        round, stretch, fresh, active: rounds done, stretches begun, whether the next round begins one, who takes part.
        server: the server's state, JAX arrays; `broadcast` what it last sent, as tensors.
        buffers: the common buffers.
        clients: K states.
        schedule: the schedule's state.
        means: sum of w_k theta_k and sum of w_k lambda_k, each of shape `(d,)`.
        history, seed: as in a simulation.
    """

    round: int
    stretch: int
    fresh: bool
    active: np.ndarray
    server: Any
    broadcast: Any
    buffers: Buffers
    clients: tuple[ClientState, ...]
    schedule: Any
    means: tuple[Tensor, Tensor]
    history: History
    seed: int


def start_state(problem: TorchProblem, algorithm: Any, schedule: Any, theta: Tensor, seed: int) -> TorchState:
    """The state before round 1; what clients have in common exists once until they change it."""
    with precision(problem.dtype):
        server, client = algorithm.init(to_jax(theta))
        books = tree_to_torch(client, theta.device)
        broadcast = tree_to_torch(algorithm.first_broadcast(to_jax(theta)), theta.device)
        first = schedule.init()
    dual = algorithm.dual(books)
    one = ClientState(books, (), problem.first_buffers, 0, 0.0, (float(theta @ theta), float(dual @ dual)))
    count = len(problem.names)
    return TorchState(
        0, 0, True, np.ones(count, bool), server, broadcast, problem.first_buffers, (one,) * count, first,
        (theta.clone(), dual.clone()), History(), seed,
    )  # fmt: skip


def tensor_bytes(tree: Any) -> int:
    """Bytes that the tensors of a tree take when sent as they are."""
    return sum(tensor.numel() * tensor.element_size() for tensor in jax.tree.leaves(tree))


@dataclass(frozen=True)
class Views:
    """Reads a solution's vectors out of the run's state."""

    problem: TorchProblem
    algorithm: Any
    state: TorchState

    def theta(self) -> np.ndarray:
        return np.array(self.algorithm.theta(self.state.server))

    def thetas(self) -> np.ndarray:
        return torch.stack([client.books.model for client in self.state.clients]).cpu().numpy()

    def duals(self) -> np.ndarray:
        return torch.stack([self.algorithm.dual(client.books) for client in self.state.clients]).cpu().numpy()

    def step_size(self) -> float:
        return float(getattr(self.algorithm, "step_size", 1.0))


class TorchSolution(Solution):
    """A `fedual.Solution` whose models can be had as modules.

    `problem.value` and the properties `objective` and `stationarity` use the buffers of the module as it was given;
    the history's columns use those of the run.
    """

    problem: Any  # a TorchProblem

    def module(self, client: str | None = None) -> nn.Module:
        """A trained copy of the problem's module: the server's model, or one client's.

        Args:
            client: a client's name, for its local model theta_k with its own buffers. With `buffers="local"` the
                server's model has no running statistics of its own; `module(client)` then carries the server's
                parameters and the client's buffers.

        Raises:
            ValueError: an unknown client, or none where floating-point buffers are local.
        """
        problem: Any = self.problem  # a TorchProblem
        state = self.state
        server = problem.vector(self.theta)
        if client is None:
            if problem.policy == "local" and any(b.is_floating_point() for b in problem.first_buffers.values()):
                raise ValueError(
                    "with buffers='local' no buffers belong to the server's model: name the client whose buffers to "
                    f"use, solution.module({problem.names[0]!r}), or average them (buffers='average')."
                )
            return problem.flat.build(server, state.buffers)
        if client not in problem.names:
            raise ValueError(f"no client {client!r}; there are {list(problem.names)}.")
        own = state.clients[problem.names.index(client)]
        return problem.flat.build(server if problem.policy == "local" else own.books.model, own.buffers)
