"""The primal-dual iteration and FedPD.

theta_k   <- Oracle_k( f_k(x) + <lambda_k, x - anchor_k> + ||x - anchor_k||^2 / (2s), started at theta_k )
lambda_k  <- lambda_k + (theta_k - anchor_k)/s
m_k       <- theta_k + s lambda_k                               # the only thing ever sent
communicate:  theta <- sum over k of w_k m_k,   anchor_k <- theta
skip:         anchor_k <- m_k                                   # FedPD only; nothing is sent
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedual.arrays import record
from fedual.local import Subproblem
from fedual.protocols import Algorithm, Auto, Work

__all__ = ["ADMM", "FedPD", "PrimalDual"]


class Server(NamedTuple):
    """theta, shape `(d,)`."""

    theta: Any


class Client(NamedTuple):
    """theta_k, lambda_k and the anchor theta_{k,0}; each of shape `(d,)`."""

    model: Any
    dual: Any
    anchor: Any


class PrimalDual(Algorithm):
    """What the methods with a penalty parameter s and a dual variable per client share."""

    oracle: Any
    step_size: Any

    composite = True
    partial = False
    why_not_partial = (
        "its server needs every client's message in a communicated round; with partial participation it is FedADMM."
    )

    def check(self) -> None:
        s = self.step_size.start if isinstance(self.step_size, Auto) else self.step_size
        if s != "auto" and (isinstance(s, bool | str) or not 0 < s < float("inf")):
            raise ValueError(f"step_size = {s!r} must be a positive finite number (the penalty parameter s) or 'auto'.")

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta), Client(theta, jnp.zeros_like(theta), theta)

    def receive(self, client: Any, broadcast: Any) -> Any:
        return client._replace(anchor=broadcast)

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(client.dual, client.anchor, 1 / self.step_size, client.model)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        dual = client.dual + (x - client.anchor) / self.step_size
        return client._replace(model=x, dual=dual), x + self.step_size * dual

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        theta = prox(total, self.step_size)
        return Server(theta), theta

    def dual(self, client: Any) -> Any:
        return client.dual


class WholeMessage(PrimalDual):
    """ADMM and FedPD: the message m_k = theta_k + s lambda_k is sent as it is."""

    def means(self, total: Any, theta: Any, dual: Any) -> tuple[Any, Any]:
        mean = (total + theta - self.step_size * dual) / 2
        return mean, (total - mean) / self.step_size


@record
class ADMM(WholeMessage):
    """The general primal-dual iteration: consensus ADMM with its blocks in the order theta, Theta, Lambda.

        theta_k  <- argmin over x of f_k(x) + <lambda_k, x - theta> + ||x - theta||^2 / (2s)
        lambda_k <- lambda_k + (theta_k - theta)/s          # against the theta the clients worked from
        theta    <- prox_{s r}( sum over k of w_k (theta_k + s lambda_k) )

    Each communicated round sends one vector of d numbers up and one down per client. With a convex problem and an exact
    oracle it converges from any start for any s > 0.

    Args:
        oracle: solves the local problem; by default exactly (`Exact` for quadratic losses, else `Newton`).
        step_size: s > 0, the inverse of ADMM's penalty rho; "auto" chooses and adapts it.

    Reference:
        Boyd, Parikh, Chu, Peleato and Eckstein, "Distributed optimization and statistical learning via ADMM", 2011,
        Section 7.1, with the blocks in the order above.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> solution = fd.solve(problem, fd.ADMM(step_size=1.0), rounds=100)
        >>> round(float(solution.theta[0]), 6)
        0.8
    """

    oracle: Any = None
    step_size: Any = "auto"

    why_not_silent = "the iteration averages in every round; FedPD is the same method with skipped rounds."

    def default_oracle(self) -> dict[str, Any]:
        return {}


@record
class FedPD(WholeMessage):
    """Federated primal-dual: any local solver, a dual step, an average that a round may skip.

    The message theta_k + s lambda_k uses the new dual and the anchor of the start of the round. In a skipped round
    nothing is sent: every client takes its own message for the global model (prox_{s r} of it with a regularizer).

    Each communicated round sends one vector of d numbers up and one down per client; a skipped one nothing. For smooth
    and possibly non-convex f_k with s = (sqrt(5)-1)/(8L) and p = 0 its stationarity falls below epsilon in O(1/epsilon)
    rounds; a constant p > 0 leaves a neighborhood whose size grows with p and with the clients' dissimilarity.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        step_size: s > 0, the penalty parameter; "auto" chooses and adapts it.

    Symbols: theta_k `client.model`, lambda_k `client.dual`, theta_{k,0} `client.anchor`, theta `server.theta`,
        s `step_size`; p belongs to the schedule.

    Reference:
        Zhang, Hong, Dhople, Yin and Liu, "FedPD: A federated learning framework with adaptivity to non-IID data",
        IEEE Transactions on Signal Processing 69, 2021, Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> oracle = fd.oracles.GradientDescent(steps=10, learning_rate=0.2)
        >>> solution = fd.solve(problem, fd.FedPD(oracle, step_size=1.0), rounds=200)
        >>> round(float(solution.theta[0]), 6)
        0.8
    """

    oracle: Any = None
    step_size: Any = "auto"

    silent = True

    def skip(self, client: Any, message: Any, prox: Any) -> Any:
        return client._replace(anchor=prox(message, self.step_size))
