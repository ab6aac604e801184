"""FedDyn and A-FedPD: the server averages the participants and adds the mean of the duals, which it remembers.

    participants:  x <- Oracle_k( f_k(x) + <lambda_k, x - theta> + ||x - theta||^2 / (2s) )
                   lambda_k <- lambda_k + (x - theta)/s;  send x
    server:        D = sum over participants of w_k (x_k - theta),  W = their weight
                   theta <- theta + D/W + s lambda_bar

                 lambda_bar (before theta moves)     lambda_k of a client that is absent
    FedDyn       lambda_bar + D/s                    stays
    A-FedPD      lambda_bar + D/(W s)                moves by D/(W s), as if it had found the participants' mean

With everyone present, W = 1 and both are ADMM.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedual.algorithms.primal_dual import Client, PrimalDual
from fedual.arrays import record
from fedual.protocols import Work

__all__ = ["AFedPD", "FedDyn"]


class DynServer(NamedTuple):
    """theta and h, the negative mean of the duals; each of shape `(d,)`."""

    theta: Any
    memory: Any


@record
class FedDyn(PrimalDual):
    """Dynamic regularization: each client's linear term makes the local minimizers agree with the global one.

        x   <- Oracle_k( f_k(x) - <g_k, x> + (alpha/2) ||x - theta||^2, started at the last x )
        g_k <- g_k - alpha (x - theta)
        h     <- h - alpha D
        theta <- prox_{r/alpha}( theta + D/W - h/alpha )

    Each round sends one vector of d numbers up and one down per participant. With exact oracles its stationarity falls
    below epsilon in O(1/epsilon) rounds for smooth f_k, convex or not, under uniform sampling; linearly where they are
    strongly convex.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        step_size: s = 1/alpha > 0; "auto" chooses and adapts it.

    Symbols: x_k `client.model`, g_k = -lambda_k `-client.dual`, theta as received `client.anchor`, h `server.memory`.

    Reference:
        Acar, Zhao, Matas, Mattina, Whatmough and Saligrama, "Federated learning based on dynamic regularization",
        ICLR 2021, Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> round(float(fd.solve(problem, fd.FedDyn(step_size=1.0), rounds=100).theta[0]), 6)
        0.8
    """

    oracle: Any = None
    step_size: Any = "auto"

    partial = True

    def init(self, theta: Any) -> tuple[Any, Any]:
        zero = jnp.zeros_like(theta)
        return DynServer(theta, zero), Client(theta, zero, theta)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        return super().update(client, x, work)[0], x

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        moved = total - weight * server.theta  # D
        memory = server.memory - moved / self.step_size
        theta = prox(server.theta + moved / weight - self.step_size * memory, self.step_size)
        return DynServer(theta, memory), theta


class AlignedServer(NamedTuple):
    """theta and the mean of the duals; each of shape `(d,)`. It is also what is broadcast."""

    theta: Any
    dual: Any


class AlignedClient(NamedTuple):
    """theta_k, lambda_k, the received theta, and the mean dual that lambda_k is aligned with; each of shape `(d,)`."""

    model: Any
    dual: Any
    anchor: Any
    aligned: Any


@record
class AFedPD(PrimalDual):
    """FedPD with aligned duals: whoever was long away returns with a dual that followed the others.

        theta_k  <- Oracle_k( f_k(x) + <lambda_k, x - theta> + ||x - theta||^2 / (2s), started at theta_k )
        lambda_k <- lambda_k + (theta_k - theta)/s                  participants
        lambda_k <- lambda_k + (theta_bar - theta)/s                everyone else, virtually
        theta    <- theta_bar + s lambda_bar,     theta_bar = sum over participants of w_k theta_k / sum of their w_k

    The paper keeps all duals at the server. Here every client keeps its own and makes up for its absence on return:
    the virtual steps of others sum to the change of lambda_bar, which the server broadcasts beside theta. Each round
    sends d numbers up and 2d down per participant, and 2d down once more, so that participants know lambda_bar as it
    is after the round that they took part in.

    For smooth non-convex f_k the paper proves O(1/epsilon) rounds to stationarity epsilon. At least two participants a
    round are needed: with a single one all duals move alike and never come to differ, which leaves a bias.

    Args:
        oracle: solves the local problem; by default gradient steps with automatic rate and number.
        step_size: s > 0, the inverse of the penalty rho; "auto" chooses and adapts it.

    Symbols: theta_k `client.model`, lambda_k `client.dual`, theta as received `client.anchor`, lambda_bar
        `server.dual`, and as of the client's last round `client.aligned`.

    Reference:
        Sun, Shen and Tao, "A-FedPD: Aligning dual-drift is all federated primal-dual learning needs", NeurIPS 2024,
        Algorithm 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0]), ([[1.0]], [1.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> two = fd.participation.Uniform(count=2)
        >>> solution = fd.solve(problem, fd.AFedPD(step_size=1.0), rounds=300, participation=two)
        >>> round(float(solution.theta[0]), 6)
        0.833333
    """

    oracle: Any = None
    step_size: Any = "auto"

    partial = True
    composite = False
    answered = True

    def init(self, theta: Any) -> tuple[Any, Any]:
        zero = jnp.zeros_like(theta)
        return AlignedServer(theta, zero), AlignedClient(theta, zero, theta, zero)

    def first_broadcast(self, theta: Any) -> Any:
        return AlignedServer(theta, jnp.zeros_like(theta))

    def receive(self, client: Any, broadcast: Any) -> Any:
        dual = client.dual + (broadcast.dual - client.aligned)
        return client._replace(anchor=broadcast.theta, dual=dual, aligned=broadcast.dual)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        return super().update(client, x, work)[0], x

    def answer(self, client: Any, broadcast: Any) -> Any:
        return client._replace(aligned=broadcast.dual)

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        mean = total / weight
        dual = server.dual + (mean - server.theta) / self.step_size
        server = AlignedServer(mean + self.step_size * dual, dual)
        return server, server
