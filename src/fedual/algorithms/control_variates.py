"""SCAFFOLD and ProxSkip: plain gradient steps whose client drift a control variate takes away.

SCAFFOLD estimates grad f_k by c_k and steps along grad f_k + c - c_k, a fixed number of steps per round; ProxSkip
steps along grad f_k - h_k and tosses a coin after every single step. At the optimum c_k and h_k are grad f_k(theta*),
so they are duals with the opposite sign, and their weighted means vanish.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedual.arrays import record, static
from fedual.local import Subproblem
from fedual.protocols import Algorithm, FirstOrder, Oracle, Schedule, Work

__all__ = ["SCAFFOLD", "ProxSkip"]


class Controlled(NamedTuple):
    """A model and a control variate, each of shape `(d,)`: the server's state, a broadcast, or a message of changes."""

    theta: Any
    control: Any


class ScaffoldClient(NamedTuple):
    """theta_k, c_k, and the received theta and c; each of shape `(d,)`."""

    model: Any
    control: Any
    anchor: Any
    mean_control: Any


@record
class SCAFFOLD(Algorithm):
    """Stochastic controlled averaging: gradient steps corrected by the difference of two control variates.

        theta_k <- Q steps of rate eta along grad f_k(x) + c - c_k, started at theta
        c_k'    <- grad f_k(theta)  (option I)   or   c_k - c + (theta - theta_k)/(Q eta)  (option II)
        send theta_k - theta and c_k' - c_k
        theta   <- theta + sum over participants of w_k (theta_k - theta) / sum of their w_k
        c       <- c + sum over participants of w_k (c_k' - c_k)          # a change of the mean over ALL clients

    Each round sends 2d numbers up and 2d down per participant. For smooth f_k, convex or not, and rates of at most
    order 1/(Q L) it reaches the optimum (a stationary point) whatever the clients' dissimilarity, under uniform
    sampling too. Clients may differ in Q and eta: each divides by its own.

    Args:
        oracle: steps with a known rate: `GradientDescent`, `StochasticGradient` or `SVRG`; by default gradient steps
            with automatic rate and number.
        option: "I" or "II". Option I evaluates one more full gradient per participant and round.

    Raises:
        ValueError: another option, or an oracle without a number of steps and a learning rate.

    Symbols: theta_k `client.model`, c_k `client.control`, theta and c as received `client.anchor` and
        `client.mean_control`, c `server.control`. `solution.duals` are -c_k.

    Reference:
        Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic controlled averaging for federated
        learning", ICML 2020, Algorithm 1 with global step 1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> oracle = fd.oracles.GradientDescent(steps=5, learning_rate=0.1)
        >>> round(float(fd.solve(problem, fd.SCAFFOLD(oracle), rounds=200).theta[0]), 6)
        0.8
    """

    oracle: Any = None
    option: str = static(default="II")

    starts_at_model = False

    @property
    def gradients(self) -> int:  # type: ignore[override]
        return 1 if self.option == "I" else 0

    def check(self) -> None:
        if self.option not in ("I", "II"):
            raise ValueError(f"option = {self.option!r} must be 'I' or 'II'.")

    def check_oracle(self, oracle: Oracle) -> None:
        if not (isinstance(oracle, FirstOrder) and hasattr(oracle, "learning_rate")):
            raise ValueError(
                f"SCAFFOLD needs gradient steps of known number and rate; {type(oracle).__name__} has none. Use "
                "oracles.GradientDescent, StochasticGradient or SVRG."
            )

    def init(self, theta: Any) -> tuple[Any, Any]:
        zero = jnp.zeros_like(theta)
        return Controlled(theta, zero), ScaffoldClient(theta, zero, theta, zero)

    def first_broadcast(self, theta: Any) -> Any:
        return Controlled(theta, jnp.zeros_like(theta))

    def receive(self, client: Any, broadcast: Any) -> Any:
        return client._replace(anchor=broadcast.theta, mean_control=broadcast.control)

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(client.mean_control - client.control, client.anchor, 0.0, client.anchor)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        if self.option == "I":
            control = work.gradient(client.anchor)
        else:
            control = client.control - client.mean_control + (client.anchor - x) / (work.steps * work.learning_rate)
        message = Controlled(x - client.anchor, control - client.control)
        return client._replace(model=x, control=control), message

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        server = Controlled(server.theta + total.theta / weight, server.control + total.control)
        return server, server

    def dual(self, client: Any) -> Any:
        return -client.control


class SkipServer(NamedTuple):
    """theta, shape `(d,)`."""

    theta: Any


class SkipClient(NamedTuple):
    """x_k (as sent, at a communication), h_k, and the received theta; each of shape `(d,)`."""

    model: Any
    control: Any
    anchor: Any


@record
class Coin(Schedule):
    """ProxSkip's own: every round is skipped with the same probability."""

    probability: Any

    def p(self, state: Any, round: Any) -> Any:
        return self.probability


@record
class ProxSkip(Algorithm):
    """One gradient step a round; the average, the costly step, is skipped most of the time.

        x_k <- x_k - gamma (grad f_k(x_k) - h_k)
        communicate, with probability 1 - p:
            theta <- sum over k of w_k x_k
            h_k   <- h_k + ((1 - p)/gamma)(theta - x_k),   x_k <- theta        # when theta arrives

    Each communicated round sends one vector of d numbers up and one down per client; a skipped one nothing. For
    smooth strongly convex f_k with condition number kappa, gamma = 1/L and p = 1 - 1/sqrt(kappa) it needs
    O(sqrt(kappa) log(1/epsilon)) communications to the optimum. With p = 0 it is gradient descent.

    Args:
        learning_rate: gamma > 0, one number for all clients; "auto" for 1/L, L the largest of the L_k.
        skip_probability: p, 0 <= p < 1: the probability of SKIPPING, one minus the paper's p.

    Raises:
        ValueError: a field is out of range; partial participation, which its theory does not cover.

    Symbols: x_k `client.model`, h_k `client.control`, theta as received `client.anchor`. `solution.duals` are -h_k.

    Reference:
        Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: Yes! Local gradient steps provably lead to
        communication acceleration! Finally!", ICML 2022, Algorithm 2 (Scaffnew).

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> round(float(fd.solve(problem, fd.ProxSkip(skip_probability=0.5), rounds=300).theta[0]), 6)
        0.8
    """

    learning_rate: Any = "auto"
    skip_probability: Any = 0.5

    silent = True
    partial = False
    why_not_partial = "its theory covers rounds in which all clients step and average together; use FedADMM or FedDR."

    def check(self) -> None:
        rate, p = self.learning_rate, self.skip_probability
        if rate != "auto" and (isinstance(rate, bool | str) or not 0 < rate < float("inf")):
            raise ValueError(f"learning_rate = {rate!r} must be a positive finite number (gamma) or 'auto'.")
        if isinstance(p, bool | str) or not 0 <= p < 1:
            raise ValueError(f"skip_probability = {p!r} must lie in [0, 1): it is the probability of skipping a round.")

    def schedule(self) -> Schedule:
        return Coin(self.skip_probability)

    def default_oracle(self) -> dict[str, Any]:
        return {"steps": 1, "learning_rate": self.learning_rate}

    def init(self, theta: Any) -> tuple[Any, Any]:
        return SkipServer(theta), SkipClient(theta, jnp.zeros_like(theta), theta)

    def receive(self, client: Any, broadcast: Any) -> Any:
        control = client.control + (1 - self.skip_probability) / self.learning_rate * (broadcast - client.model)
        return SkipClient(broadcast, control, broadcast)

    def subproblem(self, client: Any) -> Subproblem:
        return Subproblem(-client.control, client.anchor, 0.0, client.model)

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        return client._replace(model=x), x

    def skip(self, client: Any, message: Any, prox: Any) -> Any:
        return client

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        return SkipServer(total), total

    def dual(self, client: Any) -> Any:
        return -client.control
