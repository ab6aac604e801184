"""FedAvg, FedProx and FedOpt: the comparisons that drift on clients that differ.

    participants:  theta_k <- Oracle_k( f_k(x) + (mu/2) ||x - theta||^2, started at theta ),   send theta_k
    server:        theta <- mean of the theta_k (FedOpt: an optimizer's step along theta - mean)

How the mean is taken when clients are absent is a choice, `averaging`, that uses the weights w_k exactly once:

* "participants": sum of w_k theta_k / sum of w_k over participants. It never leaves the hull of what was sent, but its
  expectation is the full mean only where all w_k are equal.
* "unbiased": theta + sum of (w_k / pi_k)(theta_k - theta), pi_k the client's chance of being picked. Its expectation
  is the full mean for every rule that has chances: sampling uniformly leaves the weights to the mean, sampling in
  proportion to them (`Bernoulli` with one probability each) takes them out of it. The price is variance: a heavy
  client that is seldom picked moves theta a long way.

With everyone present both are sum of w_k theta_k. Each round sends one vector of d numbers up and one down per
participant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import optax

from fedual.arrays import record, static
from fedual.local import Subproblem
from fedual.protocols import Algorithm, Work

__all__ = ["FedAvg", "FedOpt", "FedProx"]


_PLAIN = optax.sgd(1.0)


class Server(NamedTuple):
    """theta, shape `(d,)`, and the state of the server's optimizer, a pytree; `()` without one."""

    theta: Any
    optimizer: Any = ()


class Client(NamedTuple):
    """theta_k and the received theta; each of shape `(d,)`."""

    model: Any
    anchor: Any


class Averaging(Algorithm):
    """Local work from the global model, then a mean; the field `averaging` is explained in this module's docstring."""

    averaging: str
    starts_at_model = False

    @property
    def needs_chances(self) -> bool:  # type: ignore[override]
        return self.averaging == "unbiased"

    def check(self) -> None:
        if self.averaging not in ("participants", "unbiased"):
            raise ValueError(f"averaging = {self.averaging!r} must be 'participants' or 'unbiased'.")

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta), Client(theta, theta)

    def receive(self, client: Any, broadcast: Any) -> Any:
        return client._replace(anchor=broadcast)

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(0 * client.anchor, client.anchor, 0.0, client.anchor)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        message = client.anchor + (x - client.anchor) / work.chance if self.needs_chances else x
        return client._replace(model=x), message

    def mean(self, server: Any, total: Any, weight: Any) -> Any:
        """The participants' mean theta_k, shape `(d,)`, by the chosen rule."""
        return server.theta + (total - weight * server.theta) if self.needs_chances else total / weight

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        theta = self.mean(server, total, weight)
        return Server(theta), theta


@record
class FedAvg(Averaging):
    """Federated averaging: local steps on f_k from the global model, then the mean of the results.

        theta_k <- Oracle_k(f_k, started at theta)
        theta   <- mean of theta_k

    Each round sends d numbers up and d down per participant. With more than one local step it keeps a bias on clients
    that differ; with one full gradient step it is gradient descent.

    Args:
        oracle: minimizes f_k from theta; by default gradient steps with automatic rate and number.
        averaging: "participants" or "unbiased".

    Symbols: theta_k `client.model`, theta as received `client.anchor`.

    Reference:
        McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-efficient learning of deep networks from
        decentralized data", AISTATS 2017, Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.FedAvg(oracle=fd.oracles.GradientDescent(steps=8, learning_rate=0.1))
    """

    oracle: Any = None
    averaging: str = static(default="participants")


@record
class FedProx(Averaging):
    """FedAvg with a proximal term that holds the local model near the global one.

        theta_k <- Oracle_k( f_k(x) + (mu/2) ||x - theta||^2, started at theta )
        theta   <- mean of theta_k

    Each round sends d numbers up and d down per participant. It has no dual, so that on clients that differ it keeps a
    bias for every mu > 0; the paper proves that it reaches a neighborhood of a stationary point under bounded
    dissimilarity. With mu = 0 it is FedAvg.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        mu: >= 0, the strength of the proximal term.
        averaging: "participants" or "unbiased".

    Raises:
        ValueError: mu is negative or not finite.

    Symbols: theta_k `client.model`, theta as received `client.anchor`.

    Reference:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated optimization in heterogeneous networks", MLSys 2020,
        Algorithm 2.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.FedProx(oracle=fd.oracles.GradientDescent(steps=8, learning_rate=0.1), mu=0.1)
    """

    oracle: Any = None
    mu: Any = 1.0
    averaging: str = static(default="participants")

    def check(self) -> None:
        super().check()
        if isinstance(self.mu, bool | str) or not 0 <= self.mu < float("inf"):
            raise ValueError(f"mu = {self.mu!r} must be a finite number >= 0.")

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(0 * client.anchor, client.anchor, self.mu, client.anchor)


@record
class FedOpt(Averaging):
    """FedAvg with an optimizer at the server, which takes theta - mean of theta_k for its gradient.

        theta_k <- Oracle_k(f_k, started at theta)
        theta   <- Optimizer(theta, gradient = theta - mean of theta_k)

    Each round sends d numbers up and d down per participant. FedAdam, FedYogi, FedAdagrad and server momentum are
    `optax.adam`, `optax.yogi`, `optax.adagrad` and `optax.sgd(rate, momentum)`; `optax.sgd(1.0)` is FedAvg. The bias of
    FedAvg stays: the pseudo-gradient vanishes where FedAvg's does.

    Args:
        oracle: minimizes f_k from theta; by default gradient steps with automatic rate and number.
        optimizer: any `optax.GradientTransformation` that needs no values; None for `optax.sgd(1.0)`.
        averaging: "participants" or "unbiased".

    Raises:
        ValueError: `optimizer` is no Optax gradient transformation.

    Symbols: theta_k `client.model`, theta as received `client.anchor`, the moments `server.optimizer`.

    Reference:
        Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive federated optimization", ICLR
        2021, Algorithm 1.

    Example:
        >>> import fedual as fd, optax
        >>> algorithm = fd.FedOpt(oracle=fd.oracles.GradientDescent(8, 0.1), optimizer=optax.adam(0.01))
    """

    oracle: Any = None
    optimizer: Any = static(default=None)
    averaging: str = static(default="participants")

    def __post_init__(self) -> None:
        if self.optimizer is None:
            object.__setattr__(self, "optimizer", _PLAIN)

    def check(self) -> None:
        super().check()
        if not (hasattr(self.optimizer, "init") and hasattr(self.optimizer, "update")):
            raise ValueError(f"optimizer = {self.optimizer!r} is not an Optax gradient transformation.")

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta, self.optimizer.init(theta)), Client(theta, theta)

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        gradient = server.theta - self.mean(server, total, weight)
        change, memory = self.optimizer.update(gradient, server.optimizer, server.theta)
        theta = optax.apply_updates(server.theta, change)
        return Server(theta, memory), theta
