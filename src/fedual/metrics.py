"""How good a model's predictions are: per client, pooled, and averaged in two ways that are never mixed up.

Every figure says which model made it, the global theta that clients receive or a client's own theta_k after its local
work, and which average it is: by samples (a client counts with its held-out rows) or by clients (each counts once).
What is not defined for a client, because it has no held-out row or only one class, is NaN and shown as n/a, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import rankdata

from fedual.clients import Clients
from fedual.protocols import Loss

__all__ = [
    "GLOBAL",
    "LOCAL",
    "METRICS",
    "Evaluation",
    "accuracy",
    "auc",
    "calibration_error",
    "evaluate",
    "log_loss",
    "r2",
    "rmse",
]

GLOBAL = "global theta (received)"
LOCAL = "local theta_k (after local work)"


def accuracy(y: np.ndarray, predicted: np.ndarray) -> float:
    """Share of rows whose most probable class is the true one.

    Args:
        y: shape `(n,)`: for two classes positive where the second is true, else class numbers.
        predicted: the probability of the second class, shape `(n,)`, or of every class, shape `(n, classes)`.

    Example:
        >>> accuracy(np.array([0, 1, 1, 1]), np.array([0.2, 0.9, 0.4, 0.6]))
        0.75
    """
    return float(np.mean(_hits(y, predicted)))


def _hits(y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return (predicted > 0.5) == (y > 0) if predicted.ndim == 1 else predicted.argmax(axis=1) == y


def auc(y: np.ndarray, predicted: np.ndarray) -> float:
    """Area under the receiver operating characteristic, ties counted half; NaN with one class.

    The Mann-Whitney form: the chance that a row of the second class gets a higher prediction than one of the first.

    Args:
        y: shape `(n,)`, positive where the second class is true.
        predicted: any score that rises with its probability, shape `(n,)`.

    Example:
        >>> auc(np.array([0, 1, 0, 1]), np.array([0.1, 0.9, 0.5, 0.5]))
        0.875
    """
    positive = y > 0
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if ones == 0 or zeros == 0:
        return float("nan")
    return float((rankdata(predicted)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def log_loss(y: np.ndarray, predicted: np.ndarray) -> float:
    """Mean of -log of the probability given to the true class, probabilities kept 1e-15 away from 0.

    Args:
        y, predicted: as for `accuracy`.

    Example:
        >>> round(log_loss(np.array([0, 1]), np.array([0.5, 0.5])), 6)
        0.693147
    """
    if predicted.ndim == 1:
        chosen = np.where(y > 0, predicted, 1 - predicted)
    else:
        chosen = predicted[np.arange(len(y)), y.astype(int)]
    return float(-np.mean(np.log(np.clip(chosen, 1e-15, 1))))


def calibration_error(y: np.ndarray, predicted: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: |observed share - mean prediction| over equal bins of probability, mean over rows.

    With several classes the most probable one is judged.

    Args:
        y, predicted: as for `accuracy`.
        bins: of equal width on [0, 1].

    Reference:
        Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.

    Example:
        >>> round(calibration_error(np.array([0, 1, 1, 1]), np.array([0.25, 0.25, 0.75, 0.75])), 6)
        0.25
    """
    several = predicted.ndim > 1
    outcome = _hits(y, predicted) if several else y > 0
    probability = predicted.max(axis=1) if several else predicted
    numbers = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = np.bincount(numbers, weights=outcome - probability, minlength=bins)
    return float(np.abs(gaps).sum() / len(y))


def rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    """Root of the mean squared error, in units of the target.

    Args:
        y, predicted: shape `(n,)`.

    Example:
        >>> rmse(np.array([0.0, 0.0]), np.array([3.0, 3.0]))
        3.0
    """
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def r2(y: np.ndarray, predicted: np.ndarray) -> float:
    """1 - squared error / squared deviation from the mean of these rows; NaN where all targets are equal.

    Args:
        y, predicted: shape `(n,)`.

    Example:
        >>> r2(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
        0.5
    """
    spread = np.sum((y - y.mean()) ** 2)
    return float(1 - np.sum((y - predicted) ** 2) / spread) if spread > 0 else float("nan")


METRICS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], float], ...]] = {
    "binary": (accuracy, auc, log_loss, calibration_error),
    "multiclass": (accuracy, log_loss, calibration_error),
    "regression": (rmse, r2),
}
"""Which metrics belong to a loss's `task`."""


@dataclass(frozen=True)
class Evaluation:
    """One model's figures on held-out rows.

    Attributes:
        model: which: `GLOBAL` or `LOCAL`.
        names: K clients.
        rows: their held-out rows, shape `(K,)`.
        clients: metric -> a figure per client, shape `(K,)`; NaN where it is not defined.
        pooled: metric -> its value on all held-out rows together.
    """

    model: str
    names: tuple[str, ...]
    rows: np.ndarray
    clients: dict[str, np.ndarray]
    pooled: dict[str, float]

    def average(self, metric: str, by: Literal["samples", "clients"]) -> float:
        """The mean over the clients for which the metric is defined; NaN if there is none.

        Args:
            metric: a key of `clients`.
            by: weigh a client by its held-out rows, or count each once.
        """
        if by not in ("samples", "clients"):
            raise ValueError(f"by = {by!r} must be 'samples' or 'clients'.")
        values = self.clients[metric]
        known = ~np.isnan(values)
        weights = self.rows[known] if by == "samples" else np.ones(known.sum())
        return float(values[known] @ weights / weights.sum()) if known.any() else float("nan")

    def summary(self) -> dict[str, Any]:
        """Metric -> pooled value, both averages and the number of clients averaged over, labelled; for JSON."""
        return {
            metric: {
                "pooled": self.pooled[metric],
                "mean by samples": self.average(metric, "samples"),
                "mean by clients": self.average(metric, "clients"),
                "clients": int(np.sum(~np.isnan(values))),
            }
            for metric, values in self.clients.items()
        }


def evaluate(loss: Loss, test: Clients, theta: np.ndarray, names: tuple[str, ...], model: str) -> Evaluation:
    """Predict held-out rows and judge the predictions.

    Args:
        loss: says what a prediction is and which metrics belong to it.
        test: the held-out rows; clients without any are missing.
        theta: one model for all, shape `(d,)`, or one per client in the order of `names`, shape `(K, d)`.
        names: all K clients.
        model: the label.

    Raises:
        ValueError: the loss makes no predictions, or `theta` has another shape.

    Example:
        >>> import fedual as fd
        >>> test = fd.data.from_arrays([([[1.0], [2.0]], [1.0, 2.0])], names=["a"])
        >>> result = evaluate(fd.losses.least_squares(), test, np.array([1.0]), ("a", "b"), GLOBAL)
        >>> result.clients["rmse"].tolist(), result.pooled["rmse"]
        ([0.0, nan], 0.0)
    """
    if loss.task is None:
        raise ValueError(f"{type(loss).__name__} has no `predict` and no `task`, so its predictions cannot be judged.")
    theta = np.asarray(theta)
    if theta.ndim == 2 and len(theta) != len(names):
        raise ValueError(f"theta has shape {theta.shape}; expected one row for each of {len(names)} clients.")
    position = {name: k for k, name in enumerate(names)}
    predictions = [
        loss.predict(theta if theta.ndim == 1 else theta[position[name]], x)
        for name, x in zip(test.names, test.features, strict=True)
    ]
    at = [position[name] for name in test.names]
    rows = np.zeros(len(names), int)
    rows[at] = test.sizes
    pooled = np.concatenate(test.targets), np.concatenate(predictions)
    metrics = METRICS[loss.task]
    clients = {metric.__name__: np.full(len(names), np.nan) for metric in metrics}
    for metric in metrics:
        clients[metric.__name__][at] = [metric(y, p) for y, p in zip(test.targets, predictions, strict=True)]
    return Evaluation(model, names, rows, clients, {metric.__name__: metric(*pooled) for metric in metrics})
