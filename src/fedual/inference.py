"""Standard errors and confidence intervals from one extra exchange: the information matrix of every client.

information   I = sum over k of n_k  Hessian of f_k at theta                     model-based:  I^-1
scores        u_k = n_k grad f_k at theta                                        by site:      I^-1 (sum u_k u_k') I^-1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats

from fedual.losses.counts import NegativeBinomial
from fedual.losses.linear import LeastSquares
from fedual.losses.survival import Cox
from fedual.problem import Problem

if TYPE_CHECKING:
    import polars

    from fedual.tables import Transform

__all__ = ["Inference", "infer"]


@dataclass(frozen=True)
class Inference:
    """A coefficient table.

    Attributes:
        names: of the d parameters.
        coefficients: shape `(d,)`.
        covariance: of the coefficients, shape `(d, d)`.
        degrees_of_freedom: of the t distribution behind p-values and intervals; infinity for the normal one.
        kind: "model" or "site".
        uplink_bytes: what the exchange sent: a symmetric d x d matrix per client, and with site-clustered errors one
            vector of d, in the problem's precision.
    """

    names: tuple[str, ...]
    coefficients: np.ndarray
    covariance: np.ndarray
    degrees_of_freedom: float
    kind: str
    uplink_bytes: int

    @property
    def standard_errors(self) -> np.ndarray:
        """Shape `(d,)`."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def z(self) -> np.ndarray:
        """Coefficients in standard errors, shape `(d,)`."""
        return self.coefficients / self.standard_errors

    @property
    def p_values(self) -> np.ndarray:
        """Two-sided, of the hypothesis that a coefficient is 0; shape `(d,)`."""
        return 2 * stats.t.sf(np.abs(self.z), self.degrees_of_freedom)

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """Confidence intervals, shape `(d, 2)`.

        Raises:
            ValueError: `level` is not in (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(f"level = {level} must lie strictly between 0 and 1.")
        half = stats.t.ppf((1 + level) / 2, self.degrees_of_freedom) * self.standard_errors
        return np.column_stack([self.coefficients - half, self.coefficients + half])

    def to_polars(self, level: float = 0.95) -> polars.DataFrame:
        """One row per parameter: name, coefficient, standard error, z, p-value, interval."""
        import polars

        low, high = self.intervals(level).T
        columns = {"parameter": list(self.names), "coefficient": self.coefficients}
        columns |= {"standard_error": self.standard_errors, "z": self.z, "p_value": self.p_values}
        return polars.DataFrame(columns | {"low": low, "high": high})


def infer(
    problem: Problem, theta: Any, errors: Literal["model", "site"] = "model", transform: Transform | None = None
) -> Inference:
    """Standard errors of an unpenalized model at its solution.

    One extra exchange: every client sends n_k times its Hessian at theta and, for "site", n_k times its gradient. The
    Hessian of a small client can reveal its rows; a deployment does this only where a site has consented.

    Args:
        problem: with a likelihood as its loss (least squares, logistic, multinomial, Poisson, negative binomial, Cox),
            weights "samples", no penalty and no regularizer.
        theta: its solution, shape `(d,)`.
        errors: "model" for the inverse information; "site" for the sandwich clustered by client, with the usual factor
            K/(K-1) (n-1)/(n-d) for few clusters.
        transform: of the tables that the clients were made of: the result is then per unit of their own columns, not
            of the standardized ones: coefficients and covariance through the linear map between the two.

    Returns:
        An `Inference`. Least squares has the residual variance RSS/(n - d) and the t distribution with n - d degrees
        of freedom ("site": K - 1), other models the normal one. The last parameter of the negative binomial is the
        dispersion alpha itself, by the delta method.

    Raises:
        ValueError: a penalty, other weights, theta is no solution, the information matrix is singular (redundant
            parameters: use multinomial for softmax), fewer than two clients for "site", or a transform that is not
            that of these clients or that has centered a model without intercept.

    Reference:
        White, "Maximum likelihood estimation of misspecified models", Econometrica 50, 1982; Liang and Zeger,
        "Longitudinal data analysis using generalized linear models", Biometrika 73, 1986.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0], [1.0]], [0.0, 2.0]), ([[1.0], [1.0]], [1.0, 3.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> round(float(fd.infer(problem, [1.5]).standard_errors[0]), 6)  # the standard error of the mean
        0.645497
    """
    theta = problem.vector(theta)
    _check(problem, theta, errors)
    sizes, n, d, count = problem.sizes, int(problem.sizes.sum()), problem.dimension, len(problem.clients)
    information = n * problem.hessian(theta)
    try:
        np.linalg.cholesky(information)
        condition = np.linalg.cond(information / np.sqrt(np.outer(np.diag(information), np.diag(information))))
    except np.linalg.LinAlgError:
        condition = np.inf
    if condition > 1e12:
        raise ValueError(
            "the information matrix is singular, so some parameters are not identified: remove constant or collinear "
            "columns, and use losses.multinomial in place of softmax."
        )
    covariance = np.linalg.inv(information)
    linear = isinstance(problem.loss, LeastSquares)
    sent = d * (d + 1) // 2
    if errors == "site":
        scores = sizes[:, None] * problem.local_gradients(theta)
        factor = count / (count - 1) * (n - 1) / (n - d)
        covariance = factor * covariance @ (scores.T @ scores) @ covariance
        sent += d
    elif linear:
        covariance = covariance * 2 * n * problem.value(theta) / (n - d)
    freedom = (count - 1 if errors == "site" else n - d) if linear else np.inf
    if isinstance(problem.loss, NegativeBinomial):
        theta, covariance = _dispersion(theta, covariance)
    sent_bytes = count * sent * np.dtype(problem.dtype).itemsize
    if transform is None:
        return Inference(parameter_names(problem), theta, covariance, float(freedom), errors, sent_bytes)
    linear_map = _to_original_scale(problem, transform)
    names, covariance = parameter_names(problem, transform.classes), linear_map @ covariance @ linear_map.T
    return Inference(names, linear_map @ theta, covariance, float(freedom), errors, sent_bytes)


def _check(problem: Problem, theta: np.ndarray, errors: str) -> None:
    if errors not in ("model", "site"):
        raise ValueError(f"errors = {errors!r} must be 'model' or 'site'.")
    if errors == "site" and len(problem.clients) < 2:
        raise ValueError("errors = 'site' needs at least two clients; use errors='model'.")
    if problem.regularizer is not None or np.any(getattr(problem.loss, "l2", 0.0)) or hasattr(problem.loss, "beta"):
        raise ValueError("standard errors are for unpenalized models: set l2 = 0 and regularizer = None.")
    if not np.allclose(problem.weights, problem.sizes / problem.sizes.sum(), rtol=1e-12):
        raise ValueError("standard errors need weights='samples': other weights do not give the pooled likelihood.")
    if problem.sizes.sum() <= problem.dimension:
        raise ValueError(f"{problem.sizes.sum()} rows do not identify {problem.dimension} parameters.")
    slope = problem.stationarity(theta)
    scale = float(problem.weights @ np.sum(problem.local_gradients(theta) ** 2, axis=1))
    if slope > max(1e-8 * scale, 1e-14):
        raise ValueError(
            f"theta is no solution: ||grad f||^2 = {slope:.3g} where the clients' own gradients have {scale:.3g}. Run "
            "further, for example to tolerance=1e-14."
        )


def _dispersion(theta: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From log alpha to alpha, the last parameter."""
    alpha = np.exp(theta[-1])
    scale = np.append(np.ones(len(theta) - 1), alpha)
    return np.append(theta[:-1], alpha), covariance * np.outer(scale, scale)


def _to_original_scale(problem: Problem, transform: Transform) -> np.ndarray:
    """The matrix from the parameters of the standardized design to those of the original columns, shape `(d, d)`."""
    loss, columns = problem.loss, problem.clients.columns or ()
    features = columns[:-1] if getattr(loss, "offset", False) else columns
    column = features[-1:] == ("intercept",)
    if features != (*transform.columns, *(("intercept",) if column else ())):
        raise ValueError(f"the clients' columns {columns} are not those of the transform, {transform.columns}.")
    center, scale = transform.scaling()
    size, constant = len(scale), column or getattr(loss, "intercept", False)
    block = np.diag(np.append(1 / scale, 1.0)) if constant else np.diag(1 / scale)
    if constant:
        block[-1, :size] = -center / scale
    elif center.any() and not isinstance(loss, Cox):
        raise ValueError(
            "the transform centered the columns and the model has no intercept, so it is not a model of the original "
            "columns: add an intercept, or set standardize = false in the schema."
        )
    tail = int(isinstance(loss, NegativeBinomial))
    outputs = (problem.dimension - tail) // len(block)
    full = np.eye(problem.dimension)
    full[: problem.dimension - tail, : problem.dimension - tail] = np.kron(block, np.eye(outputs))
    return full


def parameter_names(problem: Problem, classes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Names of the d parameters: columns, intercept, classes (by their labels, if given) and dispersion."""
    columns = problem.clients.columns or tuple(f"x{j}" for j in range(problem.clients.features[0].shape[1]))
    return names_of(problem.loss, columns, problem.dimension, classes)


def names_of(loss: Any, columns: tuple[str, ...], dimension: int, classes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """As `parameter_names`, from the features' names and d."""
    names = [*columns]
    if getattr(loss, "offset", False):
        names.pop()
    if getattr(loss, "intercept", False):
        names.append("intercept")
    per_name = (dimension - isinstance(loss, NegativeBinomial)) // len(names)
    if per_name > 1 or hasattr(loss, "classes"):
        first = loss.classes - per_name
        labels = classes or tuple(map(str, range(loss.classes)))
        names = [f"{name}, class {label}" for name in names for label in labels[first:]]
    if isinstance(loss, NegativeBinomial):
        names.append("dispersion")
    return tuple(names)
