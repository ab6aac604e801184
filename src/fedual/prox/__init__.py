"""Convex regularizers r of the global model, each with its proximal operator.

prox_{t r}(v) = argmin over u of r(u) + ||u - v||^2 / (2t)

The problem is sum over k of w_k f_k + r. `intercept` is the number of trailing parameters that r leaves alone: True (1)
for a loss with an intercept, the number of classes for softmax with one.

Reference: Parikh and Boyd, "Proximal algorithms", 2014, Section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedual.protocols import Regularizer
from fedual.prox.functions import Box, ElasticNet, FromFunction, Group, Nuclear

__all__ = ["Regularizer", "box", "elastic_net", "from_function", "group", "l1", "nuclear"]


def l1(strength: Any, intercept: bool | int = False) -> Regularizer:
    """r(theta) = strength ||theta||_1: the lasso. Its prox moves every entry towards 0 by t strength, and stops there.

    Args:
        strength: >= 0; one number, or one per parameter that is not left alone.
        intercept: trailing parameters that are left alone.

    Raises:
        ValueError: a negative strength.

    Example:
        >>> import fedual as fd
        >>> fd.prox.l1(1.0).prox([3.0, -0.5], 1.0).tolist()
        [2.0, -0.0]
    """
    return elastic_net(strength, 0.0, intercept)


def elastic_net(l1: Any, l2: Any, intercept: bool | int = False) -> Regularizer:
    """r(theta) = l1 ||theta||_1 + (l2/2) ||theta||^2.

    Args:
        l1, l2: >= 0; one number, or one per parameter that is not left alone. Where l2 is meant to be part of the
            local problems, give it to the loss instead.
        intercept: trailing parameters that are left alone.

    Raises:
        ValueError: a negative strength.

    Reference:
        Zou and Hastie, "Regularization and variable selection via the elastic net", 2005, in its naive form.

    Example:
        >>> import fedual as fd
        >>> fd.prox.elastic_net(1.0, 1.0).prox([3.0, -0.5], 1.0).tolist()
        [1.0, -0.0]
    """
    return ElasticNet(_strengths("l1", l1), _strengths("l2", l2), _count(intercept))


def group(groups: Sequence[int], strength: float) -> Regularizer:
    """r(theta) = strength sum over groups g of sqrt(size of g) ||theta_g||: whole groups become zero together.

    Args:
        groups: one integer per parameter; parameters of the same number form a group, -1 marks one that is left alone.
        strength: >= 0.

    Raises:
        ValueError: a negative strength, groups that are not integers >= -1, or not one per parameter.

    Reference:
        Yuan and Lin, "Model selection and estimation in regression with grouped variables", 2006.

    Example:
        >>> import fedual as fd
        >>> fd.prox.group([0, 0, 0, 0, 1, -1], 1.0).prox([3.0, 4.0, 0.0, 0.0, 1.0, 7.0], 1.25).tolist()
        [1.5, 2.0, 0.0, 0.0, 0.0, 7.0]
    """
    labels = np.asarray(groups)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels < -1).any():
        raise ValueError(f"groups = {groups!r} must be integers >= -1, one per parameter.")
    _, numbers = np.unique(labels, return_inverse=True)
    return Group(_strength("strength", strength), tuple(numbers.tolist()), tuple((labels >= 0).tolist()))


def box(low: float, high: float, intercept: bool | int = False) -> Regularizer:
    """r(theta) = 0 where low <= theta <= high in every entry, infinite elsewhere. Its prox is the projection.

    Args:
        low, high: bounds, low <= high; either may be infinite, or one number per parameter.
        intercept: trailing parameters that are left alone.

    Raises:
        ValueError: low > high, or a bound is not a number.

    Example:
        >>> import fedual as fd
        >>> fd.prox.box(0.0, float("inf")).prox([3.0, -0.5], 1.0).tolist()
        [3.0, 0.0]
    """
    if not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"low = {low!r} must be at most high = {high!r}.")
    least, most = (float(b) if np.ndim(b) == 0 else np.asarray(b, float) for b in (low, high))
    return Box(least, most, _count(intercept))


def nuclear(shape: tuple[int, int], strength: float) -> Regularizer:
    """r(theta) = strength times the sum of the singular values of theta as a matrix: low rank.

    Args:
        shape: of the matrix, whose rows theta lists one after the other; parameters after it are left alone.
        strength: >= 0.

    Raises:
        ValueError: a negative strength, or a matrix with more entries than there are parameters.

    Reference:
        Cai, Candes and Shen, "A singular value thresholding algorithm for matrix completion", 2010, Theorem 2.1.

    Example:
        >>> import fedual as fd
        >>> abs(fd.prox.nuclear((2, 2), 1.0).prox([3.0, 0.0, 0.0, 0.5], 1.0)).round(6).tolist()
        [2.0, 0.0, 0.0, 0.0]
    """
    rows, columns = shape
    if any(isinstance(n, bool) or int(n) != n or n < 1 for n in shape):
        raise ValueError(f"shape = {shape!r} must be two integers >= 1.")
    return Nuclear(_strength("strength", strength), (int(rows), int(columns)))


def from_function(value: Callable[[Any], Any], prox: Callable[[Any, Any], Any]) -> Regularizer:
    """A regularizer of one's own, by two functions that JAX can trace.

    Args:
        value: `value(theta)` is r(theta), a scalar, for theta of shape `(d,)`.
        prox: `prox(theta, t)` is argmin over u of r(u) + ||u - theta||^2 / (2t), shape `(d,)`.

    Raises:
        ValueError: `value` or `prox` returns another shape for the problem's parameters.

    Example:
        >>> import fedual as fd
        >>> ridge = fd.prox.from_function(lambda v: (v @ v) / 2, lambda v, t: v / (1 + t))
    """
    return FromFunction(value, prox)


def _strength(name: str, value: float) -> float:
    if isinstance(value, bool) or not (np.ndim(value) == 0 and 0 <= value < float("inf")):
        raise ValueError(f"{name} = {value!r} must be a finite number >= 0.")
    return float(value)


def _strengths(name: str, value: Any) -> Any:
    if np.ndim(value) == 0:
        return _strength(name, value)
    array = np.asarray(value, dtype=float)
    if array.ndim != 1 or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{name} = {value!r} must be finite numbers >= 0.")
    return array


def _count(intercept: bool | int) -> int:
    if int(intercept) != intercept or intercept < 0:
        raise ValueError(f"intercept = {intercept!r} must be True, False or a number of trailing parameters >= 0.")
    return int(intercept)
