"""Losses for counts: Poisson, and the negative binomial with its dispersion estimated."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from fedual.arrays import record, static
from fedual.local import Rows
from fedual.losses.linear import LinearPredictor


def _check_counts(targets: np.ndarray, name: str, what: str) -> np.ndarray:
    if (targets < 0).any() or (targets != np.round(targets)).any():
        odd = targets[(targets < 0) | (targets != np.round(targets))][0]
        raise ValueError(f"client {name!r}: {what} counts must be whole numbers >= 0; found {odd}.")
    return targets


@record
class Poisson(LinearPredictor):
    """phi(z, y) = exp(z) - y z; see `poisson`."""

    l2: Any = 0.0
    intercept: bool = static(default=False)
    offset: bool = static(default=False)
    task: ClassVar[str] = "regression"

    def prepare_targets(self, targets: np.ndarray, name: str) -> np.ndarray:
        return _check_counts(super().prepare_targets(targets, name), name, "Poisson")

    def phi(self, z: Any, y: Any) -> Any:
        return jnp.exp(z) - y * z

    def slope(self, z: Any, y: Any) -> Any:
        return jnp.exp(z) - y

    def curvature(self, z: Any, y: Any) -> Any:
        return jnp.exp(z)

    def response(self, z: np.ndarray) -> np.ndarray:
        return np.exp(z)


@record
class NegativeBinomial(LinearPredictor):
    """NB2; theta ends in the logarithm of the dispersion; see `negative_binomial`."""

    l2: Any = 0.0
    intercept: bool = static(default=False)
    offset: bool = static(default=False)
    task: ClassVar[str] = "regression"

    def prepare_targets(self, targets: np.ndarray, name: str) -> np.ndarray:
        return _check_counts(super().prepare_targets(targets, name), name, "negative binomial")

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        return super().dimension(feature_shape) + 1

    def scores(self, theta: Any, rows: Rows) -> Any:
        return super().scores(theta[:-1], rows)

    def response(self, z: np.ndarray) -> np.ndarray:
        return np.exp(z)

    def mask(self, theta: Any) -> Any:
        ones = jnp.ones_like(theta)
        return ones.at[-1 - self.intercept :].set(0)

    def value(self, theta: Any, rows: Rows) -> Any:
        y, z = rows.targets, self.scores(theta, rows)
        size = jnp.exp(-theta[-1])  # 1/alpha
        # log(1 + alpha mu) in the exponents, so that neither a large mu nor a small alpha overflows.
        spread = jnp.logaddexp(0.0, theta[-1] + z)
        likelihood = gammaln(y + size) - gammaln(size) + y * (theta[-1] + z - spread) - size * spread
        return -jnp.vdot(rows.weights, jnp.where(rows.weights > 0, likelihood, 0)) + self.penalty(theta)

    def gradient(self, theta: Any, rows: Rows) -> Any:
        return jax.grad(self.value)(theta, rows)

    def hessian(self, theta: Any, rows: Rows) -> Any:
        return jax.hessian(self.value)(theta, rows)
