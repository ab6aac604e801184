"""Stochastic oracles whose gradient noise vanishes: FedPD's Oracle II and SVRG."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedual.arrays import record, static
from fedual.local import Local, Subproblem
from fedual.oracles.first_order import linearized_step
from fedual.protocols import FirstOrder, resolve_rate

__all__ = ["SVRG", "VarianceReduced"]


@record
class VarianceReduced(FirstOrder):
    """Oracle II of FedPD: the linearized step with a recursive gradient estimate carried across rounds.

        x^{r+1} = s/(s+gamma) x^r + gamma/(s+gamma) theta_{k,0} - s gamma/(s+gamma) (g^r + lambda_k)
        g^{r+1} = g^r + mean over B samples of [grad F(x^{r+1}; xi) - grad F(x^r; xi)]

    A full local gradient replaces g at the start of every `refresh`-th round of the client's own; in between the
    estimate goes on from the end of the previous round. It belongs to the oracle's last iterate, so with
    `refresh` > 1 the algorithm has to start there: the primal-dual methods do, FedAvg, FedProx and SCAFFOLD do not
    and are refused.

    Args:
        steps: Q >= 1; one number or one per client.
        gamma: the proximity coefficient, > 0, or "auto" for 1/L_k; one number or one per client.
        batch_size: B >= 1 rows, drawn with replacement, the same at both points.
        refresh: I >= 1 rounds of the client's own between full gradients.

    Reference:
        Zhang et al., "FedPD", 2021, Algorithm 3 (Oracle II); the estimate is SARAH's, Nguyen et al., ICML 2017.

    Example:
        >>> import fedual as fd
        >>> oracle = fd.oracles.VarianceReduced(steps=20, gamma=0.1, batch_size=1, refresh=20)
    """

    carries = True
    steps: Any = static(default=20)
    gamma: Any = "auto"
    batch_size: int = static(default=1)
    refresh: Any = 1

    def init(self, local: Local, start: jax.Array) -> jax.Array:
        return 0 * start

    def wants(self, visits: Any) -> Any:
        return visits % self.refresh == 0

    def begin(self, x: Any, carry: Any, gradient: Any) -> Any:
        return gradient

    def step(self, x: Any, carry: Any, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        new = linearized_step(x, carry, self.gamma, subproblem)
        return new, carry + local.gradient(new, indices) - local.gradient(x, indices)

    def cost(self, count: Any) -> Any:
        return 2 * self.batch_size


class Snapshot(NamedTuple):
    """Where SVRG took its full gradient, and that gradient; shapes `(d,)`."""

    point: Any
    gradient: Any


@record
class SVRG(FirstOrder):
    """Gradient steps with the estimate grad F(x; xi) - grad F(snapshot; xi) + grad f_k(snapshot), a snapshot a round.

    Args:
        steps: Q >= 1; one number or one per client.
        learning_rate: eta > 0, or "auto" for 1/(4 (L_k + rho)), small enough for single samples of even size.
        batch_size: B >= 1 rows, drawn with replacement.

    Reference:
        Johnson and Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NIPS 2013,
        Figure 1.

    Example:
        >>> import fedual as fd
        >>> oracle = fd.oracles.SVRG(steps=20, learning_rate=0.05, batch_size=4)
    """

    steps: Any = static(default=20)
    learning_rate: Any = "auto"
    batch_size: int = static(default=1)

    def init(self, local: Local, start: jax.Array) -> Snapshot:
        return Snapshot(start, 0 * start)

    def wants(self, visits: Any) -> Any:
        return visits >= 0

    def begin(self, x: Any, carry: Snapshot, gradient: Any) -> Snapshot:
        return Snapshot(x, gradient)

    def step(self, x: Any, carry: Snapshot, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        estimate = local.gradient(x, indices) - local.gradient(carry.point, indices) + carry.gradient
        slope = estimate + subproblem.penalty_gradient(x)
        return x - resolve_rate(self.learning_rate, subproblem.rho) * slope, carry

    def cost(self, count: Any) -> Any:
        return 2 * self.batch_size
