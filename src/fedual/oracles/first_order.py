"""First-order oracles without variance reduction: full and stochastic gradient steps, the linearized step, Optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedual.arrays import record, static
from fedual.local import Local, Subproblem
from fedual.protocols import FirstOrder, Loss, resolve_rate

__all__ = ["GradientDescent", "Linearized", "Optax", "StochasticGradient", "linearized_step"]


@record
class GradientDescent(FirstOrder):
    """Q = `steps` gradient steps on the subproblem, full batch: Oracle I of FedPD.

        x <- x - eta (grad f_k(x) + linear + rho (x - center))

    Args:
        steps: Q >= 1, one number or one per client (a sequence in the clients' order); "auto" for as many as leave a
            tenth of the distance to the subproblem's solution, at most 1000 (10 for a method without step_size).
        learning_rate: eta > 0, or "auto" for 1/(L_k + rho), recomputed when rho changes; one number or one per client.

    Reference:
        Zhang, Hong, Dhople, Yin and Liu, "FedPD: A federated learning framework with adaptivity to non-IID data",
        IEEE Transactions on Signal Processing 69, 2021, Algorithm 2 (Oracle I).

    Example:
        >>> import fedual as fd
        >>> oracle = fd.oracles.GradientDescent(steps=8, learning_rate=0.5)
    """

    steps: Any = static(default="auto")
    learning_rate: Any = "auto"

    contracts = True

    def step(self, x: Any, carry: Any, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        slope = local.gradient(x) + subproblem.penalty_gradient(x)
        return x - resolve_rate(self.learning_rate, subproblem.rho) * slope, carry

    def contraction(self, rho: Any) -> Any:
        return 1 - resolve_rate(self.learning_rate, rho) * rho


@record
class StochasticGradient(FirstOrder):
    """Minibatch gradient steps on the subproblem: Oracle I of FedPD, stochastic.

    Each step draws `batch_size` of the client's rows uniformly with replacement, so that any batch size suits any
    client; the draw depends on the run's seed, the round, the step and the client's name alone.

    Args:
        steps: Q >= 1; one number, or one per client. Leave it out when `epochs` is given.
        learning_rate: eta > 0, or "auto" for 1/(L_k + rho), which suits large batches.
        batch_size: B >= 1.
        epochs: instead of steps: passes over the client's rows; a client of n_k rows makes
            max(1, round(epochs n_k / B)) steps.

    Reference:
        Zhang et al., "FedPD", 2021, Algorithm 2 (Oracle I, stochastic gradients).

    Example:
        >>> import fedual as fd
        >>> oracle = fd.oracles.StochasticGradient(steps=600, learning_rate=0.01, batch_size=1)
    """

    steps: Any = static(default=None)
    learning_rate: Any = "auto"
    batch_size: int = static(default=32)
    epochs: float | None = static(default=None)

    def step(self, x: Any, carry: Any, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        slope = local.gradient(x, indices) + subproblem.penalty_gradient(x)
        return x - resolve_rate(self.learning_rate, subproblem.rho) * slope, carry


def linearized_step(x: Any, gradient: Any, gamma: Any, subproblem: Subproblem) -> Any:
    """argmin over v of <gradient + linear, v> + (rho/2) ||v - center||^2 + ||v - x||^2 / (2 gamma).

    With rho = 1/s this is s/(s+gamma) x + gamma/(s+gamma) center - s gamma/(s+gamma) (gradient + linear); written in
    rho so that rho = 0 is a plain gradient step.
    """
    pull = x + gamma * subproblem.rho * subproblem.center - gamma * (gradient + subproblem.linear)
    return pull / (1 + gamma * subproblem.rho)


@record
class Linearized(FirstOrder):
    """Steps to the closed-form minimizer of the linearized subproblem, with full gradients.

        x <- s/(s+gamma) x + gamma/(s+gamma) theta_{k,0} - s gamma/(s+gamma) (grad f_k(x) + lambda_k)

    Args:
        steps: Q >= 1, or "auto", as for `GradientDescent`; one number or one per client.
        gamma: the proximity coefficient, > 0, or "auto" for 1/L_k; one number or one per client.

    Reference:
        Zhang et al., "FedPD", 2021, Section III (Oracle II without variance reduction).

    Example:
        >>> import fedual as fd
        >>> oracle = fd.oracles.Linearized(steps=8, gamma=0.5)
    """

    steps: Any = static(default="auto")
    gamma: Any = "auto"

    contracts = True

    def step(self, x: Any, carry: Any, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        return linearized_step(x, local.gradient(x), self.gamma, subproblem), carry

    def contraction(self, rho: Any) -> Any:
        return 1 / (1 + self.gamma * rho)


@record
class Optax(FirstOrder):
    """Steps of any Optax gradient transformation on the subproblem.

    Args:
        optimizer: an `optax.GradientTransformation`.
        steps: Q >= 1; one number or one per client.
        batch_size: B >= 1 rows drawn with replacement for each step; None for full gradients.
        keep: whether the optimizer's state (momentum, second moments) is carried from round to round; by default it is
            reset at each.

    Raises:
        ValueError: the optimizer needs values or line searches beyond `(gradient, state, x)`, on first use.

    Example:
        >>> import fedual as fd, optax
        >>> oracle = fd.oracles.Optax(optax.adam(0.01), steps=20)
    """

    optimizer: optax.GradientTransformation = static()
    steps: Any = static(default=8)
    batch_size: int | None = static(default=None)
    keep: bool = static(default=False)

    @property
    def carries(self) -> bool:  # type: ignore[override]
        return self.keep

    def check(self, loss: Loss) -> None:
        if not (hasattr(self.optimizer, "init") and hasattr(self.optimizer, "update")):
            raise ValueError(f"optimizer = {self.optimizer!r} is not an Optax gradient transformation.")

    def init(self, local: Local, start: jax.Array) -> Any:
        return self.optimizer.init(start)

    def step(self, x: Any, carry: Any, subproblem: Subproblem, local: Any, indices: Any) -> tuple[Any, Any]:
        slope = local.gradient(x, None if self.batch_size is None else indices) + subproblem.penalty_gradient(x)
        change, carry = self.optimizer.update(slope, carry, x)
        return jnp.asarray(optax.apply_updates(x, change)), carry
