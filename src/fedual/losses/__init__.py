"""Losses of one client, f_k(theta) = mean over its rows + a smooth penalty, with the smoothness bound where known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedual.losses.arguments import class_count, positive, strengths
from fedual.losses.classes import Multinomial, Softmax
from fedual.losses.counts import NegativeBinomial, Poisson
from fedual.losses.function import FromFunction, _Template
from fedual.losses.linear import LeastSquares, LinearPredictor, Logistic, LogisticNonconvex
from fedual.losses.survival import Cox
from fedual.protocols import Loss

__all__ = [
    "cox",
    "from_function",
    "least_squares",
    "logistic",
    "logistic_nonconvex",
    "multinomial",
    "negative_binomial",
    "poisson",
    "softmax",
]


def least_squares(l2: Any = 0.0, intercept: bool = False) -> Loss:
    """f_k(theta) = (1/2n_k) ||X_k theta - y_k||^2 + (l2/2) ||theta||^2.

    L_k = lambda_max(X_k'X_k / n_k) + l2. Scikit-learn's ridge `alpha` on the pooled table is n l2.

    Args:
        l2: strength of the ridge penalty, >= 0; or one number per parameter, the intercept's being ignored.
        intercept: append an unpenalized intercept as the last parameter.

    Raises:
        ValueError: `l2` is negative or not finite.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [2.0]), ([[1.0]], [4.0])])
        >>> fd.Problem(fd.losses.least_squares(), clients).value([3.0])
        0.5
    """
    return LeastSquares(strengths(l2), bool(intercept))


def logistic(l2: Any = 0.0, intercept: bool = False) -> Loss:
    """f_k(theta) = mean of log(1 + exp(-b a'theta)) + (l2/2) ||theta||^2, labels b in {0, 1} or {-1, 1}.

    L_k = lambda_max(X_k'X_k / n_k)/4 + l2. Scikit-learn's `C` on the pooled table is 1/(n l2).

    Args:
        l2: strength of the ridge penalty, >= 0; or one number per parameter, the intercept's being ignored.
        intercept: append an unpenalized intercept as the last parameter.

    Raises:
        ValueError: `l2` is negative or not finite; later, by `Problem`, labels of other values.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [1]), ([[1.0]], [0])])
        >>> round(fd.Problem(fd.losses.logistic(), clients).value([0.0]), 6)
        0.693147
    """
    return Logistic(strengths(l2), bool(intercept))


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
    return LogisticNonconvex(0.0, bool(intercept), positive("beta", beta), positive("alpha", alpha, zero=False))


def poisson(l2: Any = 0.0, intercept: bool = False, offset: bool = False) -> Loss:
    """f_k(theta) = mean of exp(z) - b z + (l2/2) ||theta||^2, z = a'theta (+ offset); log b! is left out.

    Its gradient has no global Lipschitz constant.

    Args:
        l2: strength of the ridge penalty, >= 0; or one number per parameter, the intercept's being ignored.
        intercept: append an unpenalized intercept as the last parameter.
        offset: the last column of X is added to z as it is (the logarithm of an exposure, say) and has no parameter.

    Raises:
        ValueError: `l2` is negative or not finite; later, by `Problem`, targets that are not counts.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [3])])
        >>> fd.Problem(fd.losses.poisson(), clients).value([0.0])
        1.0
    """
    return Poisson(strengths(l2), bool(intercept), bool(offset))


def negative_binomial(l2: Any = 0.0, intercept: bool = False, offset: bool = False) -> Loss:
    """The NB2 likelihood, variance mu + alpha mu^2 with mu = exp(z); theta ends in log alpha, the log dispersion.

    f_k is the mean negative log-likelihood without log b!. The dispersion is one for all clients and is estimated
    with the coefficients; neither it nor the intercept, which comes before it, is penalized. Not convex in all
    parameters together. With counts that vary no more than Poisson ones the best alpha is 0 and log alpha runs away.

    Args:
        l2: strength of the ridge penalty, >= 0; or one number per parameter, the intercept's being ignored.
        intercept: append an unpenalized intercept.
        offset: the last column of X is added to z as it is and has no parameter.

    Raises:
        ValueError: `l2` is negative or not finite; later, by `Problem`, targets that are not counts.

    Reference:
        Cameron and Trivedi, "Regression analysis of count data", 2nd edition, 2013, Section 3.3.1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0])])
        >>> round(fd.Problem(fd.losses.negative_binomial(), clients).value([0.0, 0.0]), 6)
        0.693147
    """
    return NegativeBinomial(strengths(l2), bool(intercept), bool(offset))


def cox(l2: float = 0.0) -> Loss:
    """The negative log partial likelihood of each client's own rows over n_k: Cox's model stratified by client.

    Every client has its own baseline hazard, so the likelihood separates over clients; tied times are handled by
    Efron's method. Targets are pairs (time, event), event 1 for an observed and 0 for a censored time. A client
    without an observed event contributes nothing. The loss is no mean over rows: minibatches are refused.

    Args:
        l2: strength of the ridge penalty, >= 0.

    Raises:
        ValueError: `l2` is negative or not finite; later, by `Problem`, targets of another form.

    Reference:
        Cox, "Regression models and life-tables", JRSS B 34, 1972; Efron, "The efficiency of Cox's likelihood function
        for censored data", JASA 72, 1977.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[0.0], [1.0]], [[1.0, 1], [2.0, 1]])])
        >>> round(fd.Problem(fd.losses.cox(), clients).value([0.0]), 6)  # (log 2 + log 1) / 2
        0.346574
    """
    return Cox(positive("l2", l2))


def softmax(classes: int, l2: Any = 0.0, intercept: bool = False) -> Loss:
    """Multinomial logistic loss, labels 0..classes-1; theta is a `(d, classes)` matrix in row-major order.

    L_k <= lambda_max(X_k'X_k / n_k)/2 + l2.

    Args:
        classes: number of classes over all clients, >= 2; a client need not have all of them.
        l2: strength of the ridge penalty, >= 0; or one number per parameter, the intercept's being ignored.
        intercept: an unpenalized intercept per class, the last row of theta.

    Raises:
        ValueError: `classes` < 2 or a bad `l2`; later, by `Problem`, labels outside 0..classes-1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [2])])
        >>> round(fd.Problem(fd.losses.softmax(3), clients).value([0.0, 0.0, 0.0]), 6)
        1.098612
    """
    return Softmax(l2=strengths(l2), intercept=bool(intercept), classes=class_count(classes))


def multinomial(classes: int, l2: Any = 0.0, intercept: bool = False) -> Loss:
    """Multinomial logistic loss with class 0 as the reference; theta is a `(d, classes - 1)` matrix, row-major.

    The same model as `softmax` without its redundant parameters, so that every coefficient has a standard error.

    Args:
        classes: number of classes over all clients, >= 2; a client need not have all of them.
        l2: strength of the ridge penalty, >= 0; or one number per parameter, the intercept's being ignored.
        intercept: an unpenalized intercept per class, the last row of theta.

    Raises:
        ValueError: `classes` < 2 or a bad `l2`; later, by `Problem`, labels outside 0..classes-1.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [2])])
        >>> round(fd.Problem(fd.losses.multinomial(3), clients).value([0.0, 0.0]), 6)
        1.098612
    """
    return Multinomial(l2=strengths(l2), intercept=bool(intercept), classes=class_count(classes))


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
    return FromFunction(function, _Template(parameters), positive("l2", l2))


# Names for people who write a loss of their own.
__all__ += ["LinearPredictor"]
