"""What an oracle, an algorithm, a loss, a schedule and a participation rule are. Read this second, after `problem`.

Everything here is a frozen dataclass whose numeric fields are pytree leaves (see `fedual.arrays.record`); the methods
are pure. A driver (the simulator's engine, a deployment, the PyTorch bridge) calls them.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from fedual.arrays import record
from fedual.local import Local, Rows, Subproblem

__all__ = ["Algorithm", "Auto", "FirstOrder", "Loss", "Oracle", "Participation", "Regularizer", "Schedule", "Work"]


class Loss:
    """A client's loss: f_k(theta) = weighted mean over rows of a loss per row, plus a smooth penalty.

    A subclass must implement `prepare`, `dimension` and `value`; gradient and Hessian follow by differentiation unless
    it knows better.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]  # subclasses are made dataclasses by `record`
    quadratic: ClassVar[bool] = False
    separable: ClassVar[bool] = True  # a mean over rows, so that a minibatch of them estimates it
    task: ClassVar[str | None] = None  # "binary", "multiclass" or "regression", where `predict` is implemented

    def prepare(self, features: np.ndarray, targets: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Check one client's data and bring them to the form that `value` works on.

        Raises:
            ValueError: the data do not suit the loss; the client `name` is in the message.
        """
        raise NotImplementedError

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        """d, the number of parameters, for prepared features of this shape per row."""
        raise NotImplementedError

    def start(self, feature_shape: tuple[int, ...]) -> np.ndarray:
        """The default theta^(0), shape `(d,)`."""
        return np.zeros(self.dimension(feature_shape))

    def value(self, theta: jax.Array, rows: Rows) -> jax.Array:
        """f_k(theta), a scalar."""
        raise NotImplementedError

    def gradient(self, theta: jax.Array, rows: Rows) -> jax.Array:
        """Shape `(d,)`."""
        return jax.grad(self.value)(theta, rows)

    def hessian(self, theta: jax.Array, rows: Rows) -> jax.Array:
        """Shape `(d, d)`."""
        return jax.hessian(self.value)(theta, rows)

    def predict(self, theta: np.ndarray, features: np.ndarray) -> np.ndarray:
        """The mean of the target given raw features `(n, ...)`: shape `(n,)`, or class probabilities `(n, classes)`."""
        raise NotImplementedError

    def smoothness(self, rows: Rows) -> jax.Array | None:
        """An upper bound on the Lipschitz constant of the gradient over these rows; None where none is known."""
        return None


class Regularizer:
    """A convex function r of the global model, given by its value and its proximal operator."""

    def value(self, theta: Any) -> Any:
        """r(theta), a scalar."""
        raise NotImplementedError

    def prox(self, theta: Any, scale: Any) -> Any:
        """argmin over v of r(v) + ||v - theta||^2 / (2 scale), shape `(d,)`."""
        raise NotImplementedError

    def check(self, dimension: int) -> None:
        """Raise ValueError where this function does not suit `dimension` parameters."""


class Work(NamedTuple):
    """What an algorithm may want to know of the local work that was done.

    Attributes:
        steps: local steps of a first-order oracle, Q; a scalar.
        learning_rate: the rate of those steps, eta; NaN for an oracle without one.
        gradient: the client's full gradient as a function of x.
        chance: the probability with which the participation rule picks this client for a stretch; NaN where it has
            none.
    """

    steps: Any
    learning_rate: Any
    gradient: Any
    chance: Any = np.nan


class Oracle:
    """A solver of one `Subproblem`, inexact if it likes. A subclass must implement `solve`.

    `carries` says whether `carry` survives from round to round (True) or is made anew by `init` at each (False).
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]  # subclasses are made dataclasses by `record`
    carries: ClassVar[bool] = False

    def check(self, loss: Loss) -> None:
        """Raise ValueError where this oracle cannot serve this loss."""

    def init(self, local: Local, start: jax.Array) -> Any:
        """The first `carry`, any pytree."""
        return ()

    def solve(self, local: Local, subproblem: Subproblem, carry: Any) -> tuple[jax.Array, Any, Any]:
        """Returns the approximate minimizer, shape `(d,)`, the next carry, and the sample gradients evaluated."""
        raise NotImplementedError


class FirstOrder(Oracle):
    """An oracle made of `steps` equal steps in plain arithmetic; whoever drives it owns the loop.

    Fields a subclass has: `steps`, and `batch_size` (None for full gradients) where it draws minibatches. It must
    implement `step`.
    """

    contracts: ClassVar[bool] = False
    steps: Any
    batch_size: Any = None

    def wants(self, visits: Any) -> Any:
        """Whether `begin` needs a full gradient, given the number of rounds this client has worked before."""
        return False

    def begin(self, x: Any, carry: Any, gradient: Any) -> Any:
        """The carry at the start of a round for which `wants` held; `gradient` is the full one at x."""
        return carry

    def step(self, x: Any, carry: Any, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        """One step; `local.gradient(x)` is the full gradient, `local.gradient(x, indices)` the minibatch one."""
        raise NotImplementedError

    def cost(self, count: Any) -> Any:
        """Sample gradients that one step evaluates for a client of `count` rows."""
        return count if self.batch_size is None else self.batch_size

    def contraction(self, rho: Any) -> Any:
        """What one step leaves of the distance to the subproblem's solution, for convex f_k.

        Where `contracts` is set, `steps="auto"` makes as many steps as `tuning.local_steps` asks.
        """
        raise NotImplementedError

    def rate(self, subproblem: Subproblem) -> Any:
        """The learning rate in force for this subproblem; NaN for an oracle without one."""
        return resolve_rate(getattr(self, "learning_rate", np.nan), subproblem.rho)


def resolve_rate(rate: Any, rho: Any) -> Any:
    """A number as it is; a function of rho (an automatic rate) evaluated at it."""
    return rate(rho) if callable(rate) else rate


@record
class Auto:
    """`step_size="auto"` with a start of your own: s is adapted from there, and no constant of the data is needed.

    Args:
        start: the first s, > 0.

    Example:
        >>> import fedual as fd
        >>> algorithm = fd.FedPD(step_size=fd.Auto(start=1.0))
    """

    start: Any


class Algorithm:
    """The books of a federated method: which subproblem, what is sent, how the server combines it.

    States are NamedTuples of arrays. A client's state has at least the fields `model` (theta_k, the last local iterate)
    and `anchor` (the copy of the global model that it works from). Methods work on one client and use plain arithmetic;
    `prox(v, scale)` is the proximal operator of the problem's regularizer, the identity where there is none.

    Class attributes: `silent` (whether `skip` is defined), `partial` (whether clients may be absent), `composite`
    (whether a regularizer is allowed), `answered` (whether participants are told what came of their messages, see
    `answer`), `needs_chances` (whether `update` uses `work.chance`), `gradients` (full gradients that `update` itself
    evaluates); the `why_not_...` texts explain a refusal.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]  # subclasses are made dataclasses by `record`
    silent: ClassVar[bool] = False
    partial: ClassVar[bool] = True
    composite: ClassVar[bool] = False
    answered: ClassVar[bool] = False
    needs_chances: bool = False
    gradients: int = 0
    starts_at_model: ClassVar[bool] = True
    why_not_silent: ClassVar[str] = "its updates are defined for communicated rounds only; use FedPD or FedADMM."
    why_not_partial: ClassVar[str] = ""
    why_not_composite: ClassVar[str] = "use ADMM, FedPD, FedADMM, FedDR, FedSplit or FedDyn."

    oracle: Any

    @property
    def name(self) -> str:
        """The class's name, as in tables and messages."""
        return type(self).__name__

    def default_oracle(self) -> dict[str, Any]:
        """Settings of `GradientDescent` for `oracle=None`; none at all for a solver to rounding error."""
        return {"steps": "auto", "learning_rate": "auto"}

    def schedule(self) -> Schedule | None:
        """The algorithm's own coin, where it brings one."""
        return None

    def check(self) -> None:
        """Raise ValueError where a field is out of range, naming it."""

    def check_oracle(self, oracle: Oracle) -> None:
        """Raise ValueError where the books need more of an oracle than this one offers."""

    def init(self, theta: Any) -> tuple[Any, Any]:
        """The server's and one client's first state, from theta^(0), shape `(d,)`."""
        raise NotImplementedError

    def first_broadcast(self, theta: Any) -> Any:
        """What clients receive before any message was sent."""
        return theta

    def receive(self, client: Any, broadcast: Any) -> Any:
        """A participant at the start of a stretch: the newest broadcast arrives."""
        raise NotImplementedError

    def subproblem(self, client: Any) -> Subproblem:
        """What the oracle is to solve."""
        raise NotImplementedError

    def update(self, client: Any, x: Any, work: Work) -> tuple[Any, Any]:
        """After the oracle returned x: the new state, and the message that would be sent."""
        raise NotImplementedError

    def skip(self, client: Any, message: Any, prox: Any) -> Any:
        """The round stays silent."""
        raise NotImplementedError

    def sent(self, client: Any, message: Any) -> Any:
        """The message was sent and accepted."""
        return client

    def answer(self, client: Any, broadcast: Any) -> Any:
        """After the communication, where `answered` is set: the participant hears the new broadcast at once."""
        return client

    def aggregate(self, server: Any, total: Any, weight: Any, prox: Any) -> tuple[Any, Any]:
        """The server's step from `total` = sum of w_k message_k over participants and `weight` = sum of their w_k."""
        raise NotImplementedError

    def theta(self, server: Any) -> Any:
        """The server's model, shape `(d,)`."""
        return server.theta

    def dual(self, client: Any) -> Any:
        """lambda_k, shape `(d,)`; NaN for a method without duals."""
        return np.nan * client.model

    def means(self, total: Any, theta: Any, dual: Any) -> tuple[Any, Any] | None:
        """sum of w_k theta_k and of w_k lambda_k after a round in which everyone communicated, from the messages.

        Args:
            total: the sum of w_k message_k.
            theta: the model that the clients worked from.
            dual: the sum of w_k lambda_k before the round.

        Returns:
            Both, each of shape `(d,)`; None where the messages do not tell.
        """
        return None

    def rescale(self, client: Any, ratio: Any) -> Any:
        """The client's state after s was multiplied by `ratio` since the client last took part."""
        return client


class Schedule:
    """Whether a round skips the communication. One coin for the whole federation."""

    never_skips: ClassVar[bool] = False
    observes: ClassVar[bool] = False

    def check(self) -> None:
        """Raise ValueError where a field is out of range, naming it."""

    def init(self) -> Any:
        """The schedule's first state, any pytree."""
        return ()

    def observe(self, state: Any, gradient: Any, square: Any) -> Any:
        """Where `observes` is set, at the beginning of every stretch: the weighted means over all clients of grad f_k
        and of ||grad f_k||^2 at the model that they received. They add both to their next message.
        """
        return state

    def communicated(self, state: Any) -> Any:
        """That message arrived: what was observed may be used from now on."""
        return state

    def p(self, state: Any, round: Any) -> Any:
        """p of round `round` (1, 2, ...): the probability of skipping."""
        raise NotImplementedError


class Participation:
    """Who takes part; drawn once per communication, for the whole stretch of silent rounds before it."""

    everyone: ClassVar[bool] = False

    def bind(self, names: tuple[str, ...]) -> Participation:
        """The rule for these clients, its fields as arrays in their order.

        Raises:
            ValueError: a field does not suit these clients.
        """
        return self

    def chances(self, count: int) -> Any:
        """Every client's probability of being picked for a stretch, shape `(K,)`; NaN where there is none."""
        return np.full(count, np.nan)

    def draw(self, uniform: Any, stretch: Any) -> Any:
        """Flags of shape `(K,)`, from one uniform number per client and the number of the stretch (0, 1, ...)."""
        raise NotImplementedError
