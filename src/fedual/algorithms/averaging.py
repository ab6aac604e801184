"""Federated averaging: the comparison that drifts on clients that differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedual.arrays import record
from fedual.local import Subproblem
from fedual.protocols import Algorithm, Work

__all__ = ["FedAvg"]


class Server(NamedTuple):
    """theta, shape `(d,)`."""

    theta: Any


class Client(NamedTuple):
    """theta_k and the received theta; each of shape `(d,)`."""

    model: Any
    anchor: Any


@record
class FedAvg(Algorithm):
    """Federated averaging: local steps on f_k from the global model, then the mean of the results.

        theta_k <- Oracle_k(f_k, started at theta)
        theta   <- sum over participants of w_k theta_k / sum of their w_k

    Each round sends one vector of d numbers up and one down per participant. With more than one local step it keeps a
    bias on clients that differ; with one full gradient step it is gradient descent.

    Args:
        oracle: minimizes f_k from theta; by default gradient steps with automatic rate and number.

    Reference:
        McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-efficient learning of deep networks from
        decentralized data", AISTATS 2017, Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.FedAvg(oracle=fd.oracles.GradientDescent(steps=8, learning_rate=0.1))
    """

    oracle: Any = None

    starts_at_model = False

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta), Client(theta, theta)

    def receive(self, client: Any, broadcast: Any) -> Any:
        return client._replace(anchor=broadcast)

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(jnp.zeros_like(client.anchor), client.anchor, 0.0, client.anchor)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        return client._replace(model=x), x

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        theta = total / weight
        return Server(theta), theta
