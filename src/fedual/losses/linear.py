"""Losses of a linear predictor z = <x, theta> (+ intercept): least squares and logistic."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from scipy import special

from fedual.arrays import precision, record, static
from fedual.local import Rows
from fedual.protocols import Loss


class LinearPredictor(Loss):
    """f_k(theta) = mean over rows of phi(z, y) + (l2/2) ||theta without intercept||^2, z = X theta.

    `l2` is a number, or one per parameter, the intercept's being ignored.
    A subclass has the fields `l2` and `intercept` and implements `phi`, its first derivative `slope` and second
    derivative `curvature` in z, `response`, the mean of y given z, and `bound`, the largest curvature or None.
    With an intercept the design matrix X ends in a column of ones and theta in the unpenalized intercept. With
    `offset` the features end in a further column that is added to z with coefficient 1.
    """

    bound: ClassVar[float | None] = None
    offset: bool = False
    l2: Any
    intercept: bool

    def phi(self, z: Any, y: Any) -> Any:
        raise NotImplementedError

    def slope(self, z: Any, y: Any) -> Any:
        raise NotImplementedError

    def curvature(self, z: Any, y: Any) -> Any:
        raise NotImplementedError

    def response(self, z: np.ndarray) -> np.ndarray:
        return z

    def prepare(self, features: np.ndarray, targets: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        if features.ndim != 2:
            raise ValueError(
                f"client {name!r}: {type(self).__name__} needs a table of features, shape (n, d), not {features.shape}."
            )
        if self.offset and features.shape[1] < 2 - self.intercept:
            raise ValueError(f"client {name!r}: the last column is the offset; there is no feature beside it.")
        return self._with_intercept(features), self.prepare_targets(targets, name)

    def _with_intercept(self, features: np.ndarray) -> np.ndarray:
        features = features.astype(float, copy=False)
        return np.insert(features, features.shape[1] - self.offset, 1.0, axis=1) if self.intercept else features

    def predict(self, theta: np.ndarray, features: np.ndarray) -> np.ndarray:
        with precision("float64"):
            rows = Rows(jnp.asarray(self._with_intercept(np.asarray(features))), None, None)
            return self.response(np.asarray(self.scores(jnp.asarray(theta, dtype=float), rows)))

    def prepare_targets(self, targets: np.ndarray, name: str) -> np.ndarray:
        if targets.ndim != 1:
            raise ValueError(f"client {name!r}: targets must have shape (n,), not {targets.shape}.")
        return targets.astype(float)

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        return feature_shape[0] - self.offset

    def design(self, rows: Rows) -> Any:
        """X, shape `(n, d)`."""
        return rows.features[:, :-1] if self.offset else rows.features

    def scores(self, theta: Any, rows: Rows) -> Any:
        """z = X theta (+ offset), shape `(n,)`."""
        z = self.design(rows) @ theta
        return z + rows.features[:, -1] if self.offset else z

    def mask(self, theta: Any) -> Any:
        """1 where a parameter is penalized, 0 for the intercept."""
        return jnp.ones_like(theta).at[-1].set(0) if self.intercept else jnp.ones_like(theta)

    def value(self, theta: Any, rows: Rows) -> Any:
        z = self.scores(theta, rows)
        # A row of weight zero is padding, whose phi need not be finite.
        phi = jnp.where(rows.weights > 0, self.phi(z, rows.targets), 0)
        return jnp.vdot(rows.weights, phi) + self.penalty(theta)

    def gradient(self, theta: Any, rows: Rows) -> Any:
        z = self.scores(theta, rows)
        return (rows.weights * self.slope(z, rows.targets)) @ self.design(rows) + self.penalty_gradient(theta)

    def hessian(self, theta: Any, rows: Rows) -> Any:
        z, design = self.scores(theta, rows), self.design(rows)
        scaled = (rows.weights * self.curvature(z, rows.targets))[:, None] * design
        return design.T @ scaled + jnp.diag(self.penalty_curvature(theta))

    def smoothness(self, rows: Rows) -> Any:
        if self.bound is None:
            return None
        return self.bound * _largest_eigenvalue(rows) + self.penalty_bound()

    def strengths(self, theta: Any) -> Any:
        """The ridge penalty of every parameter, shape `(d,)`; 0 for the intercept."""
        if jnp.shape(self.l2) not in ((), theta.shape):
            raise ValueError(f"l2 has shape {jnp.shape(self.l2)}; expected one number, or {theta.size}.")
        return self.l2 * self.mask(theta)

    def penalty(self, theta: Any) -> Any:
        return jnp.sum(self.strengths(theta) * jnp.square(theta)) / 2

    def penalty_gradient(self, theta: Any) -> Any:
        return self.strengths(theta) * theta

    def penalty_curvature(self, theta: Any) -> Any:
        return self.strengths(theta)

    def penalty_bound(self) -> Any:
        return jnp.max(self.l2)


def _largest_eigenvalue(rows: Rows) -> Any:
    """Of the weighted Gram matrix X' diag(w) X, through the smaller of its two forms."""
    scaled = rows.features * jnp.sqrt(rows.weights)[:, None]
    gram = scaled.T @ scaled if scaled.shape[1] <= scaled.shape[0] else scaled @ scaled.T
    return jnp.linalg.eigvalsh(gram)[-1]


@record
class LeastSquares(LinearPredictor):
    """phi(z, y) = (z - y)^2 / 2; see `least_squares`."""

    l2: Any = 0.0
    intercept: bool = static(default=False)
    bound: ClassVar[float | None] = 1.0
    task: ClassVar[str] = "regression"
    quadratic: ClassVar[bool] = True

    def phi(self, z: Any, y: Any) -> Any:
        return jnp.square(z - y) / 2

    def slope(self, z: Any, y: Any) -> Any:
        return z - y

    def curvature(self, z: Any, y: Any) -> Any:
        return jnp.ones_like(z)


@record
class Logistic(LinearPredictor):
    """phi(z, y) = log(1 + exp(-y z)), y in {-1, 1}; see `logistic`."""

    l2: Any = 0.0
    intercept: bool = static(default=False)
    bound: ClassVar[float | None] = 0.25
    task: ClassVar[str] = "binary"

    def prepare_targets(self, targets: np.ndarray, name: str) -> np.ndarray:
        targets = super().prepare_targets(targets, name)
        labels = set(np.unique(targets).tolist())
        if not (labels <= {0.0, 1.0} or labels <= {-1.0, 1.0}):
            raise ValueError(
                f"client {name!r}: labels must be 0 and 1, or -1 and 1; found {sorted(labels)[:6]}. "
                "Use losses.softmax(classes) for more than two classes."
            )
        return np.where(targets > 0, 1.0, -1.0)

    # exp may overflow to infinity below, where 1/(1 + inf) = 0 is the right limit.
    def phi(self, z: Any, y: Any) -> Any:
        # log(1 + exp(-yz)) without overflow; several times faster than logaddexp.
        return jnp.maximum(-y * z, 0) + jnp.log1p(jnp.exp(-jnp.abs(z)))

    def slope(self, z: Any, y: Any) -> Any:
        return -y / (1 + jnp.exp(y * z))

    def curvature(self, z: Any, y: Any) -> Any:
        return 1 / ((1 + jnp.exp(z)) * (1 + jnp.exp(-z)))

    def response(self, z: np.ndarray) -> np.ndarray:
        return special.expit(z)


@record
class LogisticNonconvex(Logistic):
    """Logistic loss + beta sum over j of alpha x_j^2 / (1 + alpha x_j^2); see `logistic_nonconvex`."""

    beta: Any = 0.1
    alpha: Any = 1.0

    def penalty(self, theta: Any) -> Any:
        q = self.alpha * jnp.square(theta)
        return self.beta * jnp.sum(self.mask(theta) * q / (1 + q))

    def penalty_gradient(self, theta: Any) -> Any:
        q = self.alpha * jnp.square(theta)
        return 2 * self.beta * self.alpha * self.mask(theta) * theta / jnp.square(1 + q)

    def penalty_curvature(self, theta: Any) -> Any:
        q = self.alpha * jnp.square(theta)
        return 2 * self.beta * self.alpha * self.mask(theta) * (1 - 3 * q) / (1 + q) ** 3

    def penalty_bound(self) -> Any:
        return 2 * self.alpha * self.beta
