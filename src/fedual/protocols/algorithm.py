"""What an algorithm is: the books of a federated method."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedual.arrays import record
from fedual.local import Subproblem
from fedual.protocols.oracle import Oracle
from fedual.protocols.rules import Schedule

__all__ = ["Algorithm", "Auto", "Work"]


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
