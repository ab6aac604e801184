"""The four estimators. They differ in loss, penalty and what a prediction is; everything else is `federated_fit`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import special
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedual import losses
from fedual.protocols import Algorithm
from fedual.sklearn.fit import federated_fit

__all__ = ["FederatedElasticNet", "FederatedLasso", "FederatedLinearRegression", "FederatedLogisticRegression"]


class _Regression(RegressorMixin, BaseEstimator):
    """Least squares with the penalty that `_penalty` gives as (l1, l2)."""

    def _penalty(self) -> tuple[float, float]:
        return 0.0, 0.0

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the model.

        Args:
            X: shape `(n, d)`.
            y: shape `(n,)`.
            groups: the site of each row, text or whole numbers, shape `(n,)`; None: all rows are one site's.

        Raises:
            ValueError: rows without a site, or data that scikit-learn's own estimators refuse.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        unit = float(y.std()) or 1.0  # so that `tol` means the same whatever y is measured in
        l1, l2 = self._penalty()
        loss = losses.least_squares(intercept=self.fit_intercept)
        fitted = federated_fit(loss, X, y / unit, groups, l1 / unit, l2, self.algorithm, self.rounds, self.tol)
        self.coef_, self.intercept_ = unit * fitted.coef[0], float(unit * fitted.intercept[0])
        self.solution_, self.n_iter_ = fitted.solution, fitted.solution.history.rounds
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, shape `(n,)`, of rows `(n, d)`."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_ + self.intercept_


class FederatedLinearRegression(_Regression):
    """Ordinary least squares over sites: scikit-learn's `LinearRegression` on the pooled table.

    minimize over coef, intercept:  ||y - X coef - intercept||^2 / (2n)

    Args:
        fit_intercept: whether there is an intercept.
        algorithm: any method of `fedual`; None for `fedual.ADMM()`, which solves every site's problem exactly, follows
            its step size by itself and has nothing to tune.
        rounds: at most this many rounds of communication.
        tol: the gradient norm at which to stop, with the columns standardized and y in units of its deviation.

    Attributes:
        coef_: shape `(d,)`.
        intercept_: a float.
        n_iter_: rounds done.
        n_features_in_: d.
        solution_: the `fedual.Solution`, in standardized columns.

    Where several models fit equally well (more columns than rows, say) this is one of them, not always the one of
    scikit-learn.

    Example:
        >>> from fedual.sklearn import FederatedLinearRegression
        >>> X, y, hospital = [[0.0], [1.0], [2.0], [4.0]], [1.0, 3.0, 5.0, 9.0], ["A", "A", "B", "B"]
        >>> model = FederatedLinearRegression().fit(X, y, groups=hospital)
        >>> model.coef_.round(6).tolist(), round(model.intercept_, 6)
        ([2.0], 1.0)
    """

    def __init__(
        self, *, fit_intercept: bool = True, algorithm: Algorithm | None = None, rounds: int = 2000, tol: float = 1e-8
    ) -> None:
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.rounds = rounds
        self.tol = tol


class FederatedElasticNet(_Regression):
    """Least squares with l1 and l2 penalty over sites: scikit-learn's `ElasticNet` on the pooled table.

    minimize  ||y - X coef - intercept||^2 / (2n) + alpha l1_ratio ||coef||_1 + alpha (1 - l1_ratio) ||coef||^2 / 2

    so that in the words of `fedual` the strengths are l1 = alpha l1_ratio and l2 = alpha (1 - l1_ratio). The penalty is
    one on the coefficients of the columns as given; the intercept is free.

    Args:
        alpha: strength of the penalty, >= 0.
        l1_ratio: the share of the l1 penalty, in [0, 1].
        fit_intercept, rounds, tol: as for `FederatedLinearRegression`.
        algorithm: a method of `fedual` that allows a regularizer; None for `fedual.ADMM()`.

    Attributes: those of `FederatedLinearRegression`.

    Example:
        >>> from fedual.sklearn import FederatedElasticNet
        >>> X, y, hospital = [[0.0], [1.0], [2.0], [4.0]], [1.0, 3.0, 5.0, 9.0], ["A", "A", "B", "B"]
        >>> FederatedElasticNet(alpha=1.0, l1_ratio=0.5).fit(X, y, groups=hospital).coef_.round(6).tolist()
        [1.44186]
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        algorithm: Algorithm | None = None,
        rounds: int = 2000,
        tol: float = 1e-8,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.rounds = rounds
        self.tol = tol

    def _penalty(self) -> tuple[float, float]:
        _check_range("alpha", self.alpha, 0, np.inf)
        _check_range("l1_ratio", self.l1_ratio, 0, 1)
        return self.alpha * self.l1_ratio, self.alpha * (1 - self.l1_ratio)


class FederatedLasso(_Regression):
    """Least squares with l1 penalty over sites: scikit-learn's `Lasso` on the pooled table.

    minimize  ||y - X coef - intercept||^2 / (2n) + alpha ||coef||_1

    Args:
        alpha: strength of the penalty, >= 0.
        fit_intercept, algorithm, rounds, tol: as for `FederatedElasticNet`.

    Attributes: those of `FederatedLinearRegression`.

    Example:
        >>> from fedual.sklearn import FederatedLasso
        >>> X, y, hospital = [[0.0], [1.0], [2.0], [4.0]], [1.0, 3.0, 5.0, 9.0], ["A", "A", "B", "B"]
        >>> FederatedLasso(alpha=1.0).fit(X, y, groups=hospital).coef_.round(6).tolist()
        [1.542857]
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        algorithm: Algorithm | None = None,
        rounds: int = 2000,
        tol: float = 1e-8,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.rounds = rounds
        self.tol = tol

    def _penalty(self) -> tuple[float, float]:
        _check_range("alpha", self.alpha, 0, np.inf)
        return self.alpha, 0.0


class FederatedLogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression over sites: scikit-learn's `LogisticRegression` on the pooled table, for two or more classes.

    minimize  C sum over rows of -log P(y | x) + ||coef||^2 / 2

    which divided by C n is the mean loss with `fedual`'s strength l2 = 1/(C n), n being the rows of all sites. The
    intercept is free. With more than two classes P is the softmax of one score per class. The classes are those of all
    sites together; a site need not have all of them.

    Args:
        C: the inverse of the penalty's strength, > 0; infinity for none.
        fit_intercept, algorithm, rounds: as for `FederatedLinearRegression`.
        tol: the gradient norm at which to stop, with the columns standardized.

    Attributes:
        classes_: the labels, sorted.
        coef_: shape `(1, d)`, or `(classes, d)` for more than two.
        intercept_: shape `(1,)` or `(classes,)`.
        n_iter_: rounds done, shape `(1,)`.
        n_features_in_: d.
        solution_: the `fedual.Solution`, in standardized columns.

    Example:
        >>> from fedual.sklearn import FederatedLogisticRegression
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], ["no", "no", "yes", "no", "yes", "yes"]
        >>> model = FederatedLogisticRegression().fit(X, y, groups=["A", "B", "A", "B", "A", "B"])
        >>> model.predict([[0.5], [4.5]]).tolist()
        ['no', 'yes']
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        algorithm: Algorithm | None = None,
        rounds: int = 2000,
        tol: float = 1e-8,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.rounds = rounds
        self.tol = tol

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the model.

        Args:
            X: shape `(n, d)`.
            y: labels, shape `(n,)`.
            groups: the site of each row, text or whole numbers, shape `(n,)`; None: all rows are one site's.

        Raises:
            ValueError: rows without a site, fewer than two classes, C that is not positive, or data that scikit-learn's
                own estimators refuse.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        _check_range("C", self.C, 0, np.inf, strict=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"all {len(y)} rows are of one class, {self.classes_.tolist()}; two or more are needed.")
        loss = losses.softmax(count, intercept=self.fit_intercept)
        if count == 2:
            loss = losses.logistic(intercept=self.fit_intercept)
        l2 = 1 / (self.C * len(y))
        fitted = federated_fit(loss, X, codes, groups, 0.0, l2, self.algorithm, self.rounds, self.tol)
        self.coef_, self.intercept_, self.solution_ = fitted
        self.n_iter_ = np.array([fitted.solution.history.rounds])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of rows `(n, d)`: shape `(n,)`, positive for the second class; `(n, classes)` for more than two."""
        check_is_fitted(self)
        scores = validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, shape `(n, classes)`, of rows `(n, d)`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([special.expit(-scores), special.expit(scores)])
        return special.softmax(scores, axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each of the rows `(n, d)`, shape `(n,)`."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


def _check_range(name: str, value: Any, low: float, high: float, strict: bool = False) -> None:
    if isinstance(value, bool | str) or not low <= value <= high or (strict and value == low):
        raise ValueError(f"{name} = {value!r} must be {'>' if strict else '>='} {low} and at most {high}.")
