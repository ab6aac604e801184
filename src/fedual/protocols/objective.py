"""What a loss and a regularizer are."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np

from fedual.local import Rows

__all__ = ["Loss", "Regularizer"]


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
