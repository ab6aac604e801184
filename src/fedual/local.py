"""One client's view: its objective f_k and the one subproblem that every local step solves.

minimize over x:   f_k(x) + <linear, x> + (rho/2) ||x - center||^2,   started at `start`
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedual.arrays import record

__all__ = ["Local", "Rows", "Subproblem"]


@record
class Rows:
    """Weighted samples of one client.

    Args:
        features: shape `(n, *feature_shape)`.
        targets: shape `(n, *target_shape)`.
        weights: shape `(n,)`, summing to 1 over the rows that count; padding has weight 0.
    """

    features: Any
    targets: Any
    weights: Any

    def take(self, indices: Any) -> Rows:
        """The minibatch at `indices`, shape `(B,)`, as rows of weight 1/B."""
        weights = jnp.full(indices.shape, 1 / indices.shape[0], dtype=self.weights.dtype)
        return Rows(self.features[indices], self.targets[indices], weights)


@record
class Local:
    """The objective f_k of one client: what an oracle may ask of the data.

    Args:
        loss: the loss of the problem.
        rows: the client's samples.
        count: n_k, a scalar; rows beyond it are padding.
    """

    loss: Any
    rows: Rows
    count: Any

    def value(self, x: jax.Array) -> jax.Array:
        """f_k(x), a scalar."""
        return self.loss.value(x, self.rows)

    def gradient(self, x: jax.Array, indices: jax.Array | None = None) -> jax.Array:
        """The gradient of f_k at x, shape `(d,)`; over the minibatch `indices`, shape `(B,)`, where given."""
        return self.loss.gradient(x, self.rows if indices is None else self.rows.take(indices))

    def hessian(self, x: jax.Array) -> jax.Array:
        """The Hessian of f_k at x, shape `(d, d)`."""
        return self.loss.hessian(x, self.rows)


@record
class Subproblem:
    """minimize f_k(x) + <linear, x> + (rho/2) ||x - center||^2, started at `start`.

    All vectors have shape `(d,)`, `rho` >= 0 is a scalar (1/s for the primal-dual methods).
    """

    linear: Any
    center: Any
    rho: Any
    start: Any

    def penalty(self, x: Any) -> Any:
        """The value of the two terms beside f_k."""
        return jnp.vdot(self.linear, x) + self.rho / 2 * jnp.sum(jnp.square(x - self.center))

    def penalty_gradient(self, x: Any) -> Any:
        """Their gradient, shape `(d,)`: linear + rho (x - center). Plain arithmetic, for any array library."""
        return self.linear + self.rho * (x - self.center)
