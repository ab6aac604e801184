"""What the simulator's speed is measured against: plain code that anyone would write first, and a lower bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["numpy_loop", "streaming_floor"]


def numpy_loop(
    tables: Sequence[tuple[np.ndarray, np.ndarray]],
    step_size: float,
    learning_rate: float,
    steps: int,
    rounds: int,
    beta: float = 0.1,
    alpha: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """FedPD with gradient steps and uniform weights on the non-convex logistic loss, one client after the other.

    Args:
        tables: one pair per client, features `(n, d)` and labels -1 or 1 `(n,)`.
        step_size: s.
        learning_rate: of the local gradient steps.
        steps: local steps a round, Q.
        rounds: all of them communicate.
        beta, alpha: of the loss.

    Returns:
        The server's model `(d,)` and the duals `(K, d)`.
    """
    d = tables[0][0].shape[1]
    theta, thetas, duals = np.zeros(d), np.zeros((len(tables), d)), np.zeros((len(tables), d))
    for _ in range(rounds):
        total = np.zeros(d)
        for k, (a, b) in enumerate(tables):
            x, dual = thetas[k], duals[k]
            for _ in range(steps):
                slope = a.T @ (-b / (1 + np.exp(b * (a @ x)))) / len(b)
                slope += 2 * beta * alpha * x / (1 + alpha * x * x) ** 2
                x = x - learning_rate * (slope + dual + (x - theta) / step_size)
            thetas[k], duals[k] = x, dual + (x - theta) / step_size
            total += x + step_size * duals[k]
        theta = total / len(tables)
    return theta, duals


@partial(jax.jit, static_argnums=2)
def streaming_floor(features: Any, x: Any, passes: int) -> Any:
    """`passes` times the two bare products A_k x_k and A_k' v_k over all clients at once: no loss, no books.

    Args:
        features: shape `(K, n, d)`.
        x: shape `(K, d)`.
    """

    def both(_: Any, x: Any) -> Any:
        v = jnp.einsum("knd,kd->kn", features, x)
        return jnp.einsum("kn,knd->kd", v, features) / features.shape[1]

    return lax.fori_loop(0, passes, both, x)
