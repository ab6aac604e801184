"""Losses of one linear predictor per class: softmax and, with a reference class, multinomial."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax, softmax
from scipy import special

from fedual.arrays import record, static
from fedual.local import Rows
from fedual.losses.linear import LinearPredictor


@record
class Softmax(LinearPredictor):
    """Cross-entropy over `classes` classes; theta is a `(d, classes)` matrix in row-major order; see `softmax`."""

    classes: int = static(default=2)
    l2: Any = 0.0
    intercept: bool = static(default=False)
    task: ClassVar[str] = "multiclass"
    bound: ClassVar[float | None] = 0.5  # the largest eigenvalue of diag(p) - pp' over all p

    def prepare_targets(self, targets: np.ndarray, name: str) -> np.ndarray:
        targets = super().prepare_targets(targets, name)
        if (targets != np.round(targets)).any() or targets.min() < 0 or targets.max() >= self.classes:
            raise ValueError(
                f"client {name!r}: labels must be integers 0..{self.classes - 1}; found "
                f"{np.unique(targets)[:6].tolist()}. Code labels by one list that all clients share."
            )
        return targets.astype(np.int32)

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        return feature_shape[0] * self.classes

    def response(self, z: np.ndarray) -> np.ndarray:
        return special.softmax(z, axis=1)

    def mask(self, theta: Any) -> Any:
        ones = jnp.ones_like(theta)
        return ones.at[-self.classes :].set(0) if self.intercept else ones

    def scores(self, theta: Any, rows: Rows) -> Any:
        return rows.features @ jnp.reshape(theta, (-1, self.classes))

    def value(self, theta: Any, rows: Rows) -> Any:
        chosen = jnp.take_along_axis(log_softmax(self.scores(theta, rows)), rows.targets[:, None], axis=1)
        return -jnp.vdot(rows.weights, chosen[:, 0]) + self.penalty(theta)

    def gradient(self, theta: Any, rows: Rows) -> Any:
        excess = softmax(self.scores(theta, rows)) - jax.nn.one_hot(rows.targets, self.classes, dtype=theta.dtype)
        return (rows.features.T @ (rows.weights[:, None] * excess)).ravel() + self.penalty_gradient(theta)

    def hessian(self, theta: Any, rows: Rows) -> Any:
        p = softmax(self.scores(theta, rows))
        blocks = p[:, :, None] * (jnp.eye(self.classes, dtype=theta.dtype) - p[:, None, :])
        full = jnp.einsum("n,nab,ni,nj->iajb", rows.weights, blocks, rows.features, rows.features, optimize=True)
        return full.reshape(theta.size, theta.size) + jnp.diag(self.penalty_curvature(theta))


@record
class Multinomial(Softmax):
    """Cross-entropy with class 0 as the reference, whose scores are 0; see `multinomial`."""

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        return feature_shape[0] * (self.classes - 1)

    def mask(self, theta: Any) -> Any:
        ones = jnp.ones_like(theta)
        return ones.at[1 - self.classes :].set(0) if self.intercept else ones

    def scores(self, theta: Any, rows: Rows) -> Any:
        return jnp.pad(rows.features @ jnp.reshape(theta, (-1, self.classes - 1)), ((0, 0), (1, 0)))

    def gradient(self, theta: Any, rows: Rows) -> Any:
        return jax.grad(self.value)(theta, rows)

    def hessian(self, theta: Any, rows: Rows) -> Any:
        return jax.hessian(self.value)(theta, rows)
