"""What an oracle is: a solver of the one local subproblem."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np

from fedual.local import Local, Subproblem
from fedual.protocols.objective import Loss

__all__ = ["FirstOrder", "Oracle", "resolve_rate"]


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
