"""FedADMM, FedSplit and FedDR: the server keeps the mean M of what every client last sent.

Each client has a message m_k, a point that carries its multiplier; only the change since it was last sent crosses:

    participants:  x <- Oracle_k( f_k(x) + <linear, x> + ||x - center||^2 / (2s) )
                   send m_k - m_k as last sent
    server:        M <- M + sum over participants of w_k (that change),   theta <- prox_{s r}(M)

               linear     center         m_k                      before the solve
    FedADMM    lambda_k   theta          x + s lambda_k
    FedSplit   0          2 theta - z_k  z_k <- z_k + 2(x - theta)
    FedDR      0          y_k            2x - y_k                 y_k <- y_k + a(theta - x_k)

M never divides by the participants' weight and starts with m_k = theta^(0) for everybody: averaging the participants'
messages alone, or counting from m_k = 0, converges to a wrong point that looks fine. All three send one vector of d
numbers up and one down per participant and communicated round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedual.algorithms.primal_dual import PrimalDual
from fedual.arrays import record
from fedual.local import Subproblem
from fedual.protocols import Work

__all__ = ["FedADMM", "FedDR", "FedSplit"]


class Server(NamedTuple):
    """M, the mean of the messages last sent, un-proxed, and theta; each of shape `(d,)`."""

    mean: Any
    theta: Any


class RunningMean(PrimalDual):
    """The server's side, which the three share; a client's state has the field `sent`, m_k as the server knows it."""

    partial = True

    def sent(self, client: Any, message: Any) -> Any:
        return client._replace(sent=client.sent + message)

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        mean = server.mean + total
        theta = prox(mean, self.step_size)
        return Server(mean, theta), theta


class DualClient(NamedTuple):
    """theta_k, lambda_k, the anchor, and m_k as last sent; each of shape `(d,)`."""

    model: Any
    dual: Any
    anchor: Any
    sent: Any


@record
class FedADMM(RunningMean):
    """Consensus ADMM in which clients may be absent and rounds be skipped: FedPD with partial participation.

        theta_k  <- Oracle_k( f_k(x) + <lambda_k, x - anchor_k> + ||x - anchor_k||^2 / (2s), started at theta_k )
        lambda_k <- lambda_k + (theta_k - anchor_k)/s,    m_k <- theta_k + s lambda_k
        communicate:  send the change of m_k; theta as above; anchor_k <- theta when the client next takes part
        skip:         anchor_k <- prox_{s r}(m_k); nothing is sent

    Each communicated round sends d numbers up and d down per participant; a skipped one nothing. With everyone present
    it is FedPD, and ADMM where no round is skipped. For convex problems, exact oracles and no skip it converges for any
    s > 0; for smooth non-convex ones and small s its stationarity falls below epsilon in O(1/epsilon) rounds. A
    constant p > 0 leaves a neighborhood, as for FedPD.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        step_size: s > 0, the inverse of the penalty rho; "auto" chooses and adapts it.

    Symbols: theta_k `client.model`, lambda_k `client.dual`, anchor_k `client.anchor`, M `server.mean`.

    Reference:
        Gong, Li and Freris, "FedADMM: A robust federated deep learning framework with adaptivity to system
        heterogeneity", ICDE 2022, Algorithm 1 with server step |S|/K; Wang, Marella and Anderson, "FedADMM: A
        federated primal-dual algorithm allowing partial participation", CDC 2022, Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> one = fd.participation.Uniform(count=1)
        >>> solution = fd.solve(problem, fd.FedADMM(step_size=1.0), rounds=300, participation=one)
        >>> round(float(solution.theta[0]), 6)
        0.8
    """

    oracle: Any = None
    step_size: Any = "auto"

    silent = True

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta, theta), DualClient(theta, jnp.zeros_like(theta), theta, theta)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        client, message = super().update(client, x, work)
        return client, message - client.sent

    def skip(self, client: Any, message: Any, prox: Any) -> Any:
        return client._replace(anchor=prox(client.sent + message, self.step_size))


class ReflectedClient(NamedTuple):
    """x_k, the received theta, z_k, and z_k as last sent; each of shape `(d,)`."""

    model: Any
    anchor: Any
    reflected: Any
    sent: Any


@record
class FedSplit(RunningMean):
    """Peaceman-Rachford splitting: a proximal step on f_k from the reflected point, then a reflection.

        x   <- Oracle_k( f_k(x) + ||x - (2 theta - z_k)||^2 / (2s), started at the last x )
        z_k <- z_k + 2(x - theta)
        theta <- prox_{s r}( sum over k of w_k z_k )

    Each round sends d numbers up and d down per participant. For smooth strongly convex f_k with exact oracles it
    converges linearly, fastest with s = 1/sqrt(mu L); the multiplier of x_k = theta is (z_k - x_k)/s.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        step_size: s > 0, the step of the proximal operators; "auto" chooses and adapts it.

    Symbols: x_k `client.model`, z_k `client.reflected`, theta as received `client.anchor`, M `server.mean`.

    Reference:
        Pathak and Wainwright, "FedSplit: An algorithmic framework for fast federated optimization", NeurIPS 2020,
        Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> round(float(fd.solve(problem, fd.FedSplit(step_size=1.0), rounds=100).theta[0]), 6)
        0.8
    """

    oracle: Any = None
    step_size: Any = "auto"

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta, theta), ReflectedClient(theta, theta, theta, theta)

    def subproblem(self, client: Any) -> Subproblem:
        center = 2 * client.anchor - client.reflected
        return Subproblem(0 * center, center, 1 / self.step_size, client.model)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        reflected = client.reflected + 2 * (x - client.anchor)
        return client._replace(model=x, reflected=reflected), reflected - client.sent

    def dual(self, client: Any) -> Any:
        return (client.reflected - client.model) / self.step_size

    def rescale(self, client: Any, ratio: Any) -> Any:
        return client._replace(reflected=client.anchor + ratio * (client.reflected - client.anchor))


class RelaxedClient(NamedTuple):
    """x_k, the received theta, y_k, and 2x_k - y_k as last sent; each of shape `(d,)`."""

    model: Any
    anchor: Any
    point: Any
    sent: Any


@record
class FedDR(RunningMean):
    """Randomized Douglas-Rachford splitting with relaxation a.

        y_k <- y_k + a(theta - x_k)
        x_k <- Oracle_k( f_k(x) + ||x - y_k||^2 / (2s), started at the last x_k )
        theta <- prox_{s r}( sum over k of w_k (2x_k - y_k) )

    Each round sends d numbers up and d down per participant. With a = 1 it is FedADMM with y_k = theta - s lambda_k.
    For smooth non-convex f_k, convex r and small s its stationarity falls below epsilon in O(1/epsilon) rounds; the
    multiplier of x_k = theta is (x_k - y_k)/s.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        step_size: s > 0, the step of the proximal operators; "auto" chooses and adapts it.
        relaxation: a, 0 < a < 2.

    Symbols: x_k `client.model`, y_k `client.point`, theta as received `client.anchor`, M `server.mean`.

    Raises:
        ValueError: a is outside (0, 2).

    Reference:
        Tran-Dinh, Pham, Phan and Nguyen, "FedDR: Randomized Douglas-Rachford splitting algorithms for nonconvex
        federated composite optimization", NeurIPS 2021, Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> round(float(fd.solve(problem, fd.FedDR(step_size=1.0), rounds=100).theta[0]), 6)
        0.8
    """

    oracle: Any = None
    step_size: Any = "auto"
    relaxation: Any = 1.0

    def check(self) -> None:
        super().check()
        if isinstance(self.relaxation, bool | str) or not 0 < self.relaxation < 2:
            raise ValueError(f"relaxation = {self.relaxation!r} must lie strictly between 0 and 2.")

    def init(self, theta: Any) -> tuple[Any, Any]:
        return Server(theta, theta), RelaxedClient(theta, theta, theta, theta)

    def receive(self, client: Any, broadcast: Any) -> Any:
        point = client.point + self.relaxation * (broadcast - client.model)
        return client._replace(anchor=broadcast, point=point)

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(0 * client.point, client.point, 1 / self.step_size, client.model)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        return client._replace(model=x), 2 * x - client.point - client.sent

    def dual(self, client: Any) -> Any:
        return (client.model - client.point) / self.step_size

    def rescale(self, client: Any, ratio: Any) -> Any:
        return client._replace(point=client.model + ratio * (client.point - client.model))
