"""Losses of one client, f_k(theta) = mean over its rows + a smooth penalty, with the smoothness bound where known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedual.losses.function import FromFunction, _Template
from fedual.losses.linear import LeastSquares, LinearPredictor, Logistic, LogisticNonconvex, Poisson, Softmax
from fedual.protocols import Loss

__all__ = [
    "from_function",
    "least_squares",
    "logistic",
    "logistic_nonconvex",
    "poisson",
    "softmax",
]


def _positive(name: str, value: float, zero: bool = True) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < float("inf")):
        raise ValueError(f"{name} = {value!r} must be a finite number >= 0.")
    if value == 0 and not zero:
        raise ValueError(f"{name} = {value!r} must be > 0.")
    return float(value)


def least_squares(l2: float = 0.0, intercept: bool = False) -> Loss:
    """f_k(theta) = (1/2n_k) ||X_k theta - y_k||^2 + (l2/2) ||theta||^2.

    L_k = lambda_max(X_k'X_k / n_k) + l2. Scikit-learn's ridge `alpha` on the pooled table is n l2.

    Args:
        l2: strength of the ridge penalty, >= 0.
        intercept: append an unpenalized intercept as the last parameter.

    Raises:
        ValueError: `l2` is negative or not finite.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [2.0]), ([[1.0]], [4.0])])
        >>> fd.Problem(fd.losses.least_squares(), clients).value([3.0])
        0.5
    """
    return LeastSquares(_positive("l2", l2), bool(intercept))


def logistic(l2: float = 0.0, intercept: bool = False) -> Loss:
    """f_k(theta) = mean of log(1 + exp(-b a'theta)) + (l2/2) ||theta||^2, labels b in {0, 1} or {-1, 1}.

    L_k = lambda_max(X_k'X_k / n_k)/4 + l2. Scikit-learn's `C` on the pooled table is 1/(n l2).

    Args:
        l2: strength of the ridge penalty, >= 0.
        intercept: append an unpenalized intercept as the last parameter.

    Raises:
        ValueError: `l2` is negative or not finite; later, by `Problem`, labels of other values.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [1]), ([[1.0]], [0])])
        >>> round(fd.Problem(fd.losses.logistic(), clients).value([0.0]), 6)
        0.693147
    """
    return Logistic(_positive("l2", l2), bool(intercept))


def logistic_nonconvex(beta: float = 0.1, alpha: float = 1.0, intercept: bool = False) -> Loss:
    """f_k(theta) = mean of log(1 + exp(-b a'theta)) + beta sum over j of alpha theta_j^2 / (1 + alpha theta_j^2).

    The penalty is smooth and not convex; L_k <= lambda_max(X_k'X_k / n_k)/4 + 2 alpha beta. It is the loss of the
    numerical section of Zhang, Hong, Dhople, Yin and Liu, "FedPD: A federated learning framework with adaptivity to
    non-IID data", IEEE Transactions on Signal Processing 69, 2021.

    Raises:
        ValueError: `beta` is negative or `alpha` is not positive.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[0.0]], [1])])
        >>> value = fd.Problem(fd.losses.logistic_nonconvex(beta=2.0), clients).value([1.0])
        >>> round(value - 0.693147, 6)
        1.0
    """
    return LogisticNonconvex(0.0, bool(intercept), _positive("beta", beta), _positive("alpha", alpha, zero=False))


def poisson(l2: float = 0.0, intercept: bool = False) -> Loss:
    """f_k(theta) = mean of exp(a'theta) - b a'theta + (l2/2) ||theta||^2, counts b >= 0; log b! is left out.

    Its gradient has no global Lipschitz constant.

    Raises:
        ValueError: `l2` is negative or not finite; later, by `Problem`, negative counts.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [3])])
        >>> fd.Problem(fd.losses.poisson(), clients).value([0.0])
        1.0
    """
    return Poisson(_positive("l2", l2), bool(intercept))


def softmax(classes: int, l2: float = 0.0, intercept: bool = False) -> Loss:
    """Multinomial logistic loss, labels 0..classes-1; theta is a `(d, classes)` matrix in row-major order.

    L_k <= lambda_max(X_k'X_k / n_k)/2 + l2.

    Args:
        classes: number of classes over all clients, >= 2; a client need not have all of them.
        l2: strength of the ridge penalty, >= 0.
        intercept: an unpenalized intercept per class, the last row of theta.

    Raises:
        ValueError: `classes` < 2 or a bad `l2`; later, by `Problem`, labels outside 0..classes-1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [2])])
        >>> round(fd.Problem(fd.losses.softmax(3), clients).value([0.0, 0.0, 0.0]), 6)
        1.098612
    """
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ValueError(f"classes = {classes!r} must be an integer >= 2.")
    return Softmax(l2=_positive("l2", l2), intercept=bool(intercept), classes=classes)


def from_function(function: Callable[[Any, tuple[Any, Any]], Any], parameters: Any, l2: float = 0.0) -> Loss:
    """A loss from any JAX function of a parameter pytree and a batch.

    Args:
        function: `function(parameters, (X, y))` returns one loss per row, shape `(n,)`.
        parameters: a pytree of floating-point arrays: the shapes, and the default starting point. As vectors, theta and
            the rest list its entries in the order of `jax.tree.leaves`.
        l2: strength of a ridge penalty on all parameters, >= 0.

    Raises:
        ValueError: a parameter is not floating-point; later, by `Problem`, a result of another shape.

    Example:
        >>> import fedual as fd
        >>> import numpy as np
        >>> def absolute(parameters, batch):
        ...     X, y = batch
        ...     return abs(X @ parameters["slope"] - y)
        >>> loss = fd.losses.from_function(absolute, {"slope": np.zeros(1)})
        >>> fd.Problem(loss, fd.data.from_arrays([([[1.0], [1.0]], [3.0, 5.0])])).value([1.0])
        3.0
    """
    return FromFunction(function, _Template(parameters), _positive("l2", l2))


# Names for people who write a loss of their own.
__all__ += ["LinearPredictor"]
