"""Federated against pooled against every site alone, on tables whose rows belong to sites by nature.

    fedual bench tables docs/evidence

needs scikit-learn and statsmodels for the pooled and the local models, and the tables (`fedual datasets` says how to
obtain those that are not part of the package).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedual import losses, metrics
from fedual.algorithms import ADMM
from fedual.clients import Clients
from fedual.data import Dataset, load
from fedual.engine import solve
from fedual.inference import Inference, infer
from fedual.problem import Problem
from fedual.protocols import Loss

__all__ = ["TABLES", "Coefficients", "Prediction", "coefficients", "page", "prediction"]

TABLES = ("flights", "chem97-by-authority", "contraception", "lending-club")
_METRICS = {"binary": ("auc", "log_loss"), "regression": ("r2",)}
_ROUNDS, _TOLERANCE = 5000, 1e-22


@dataclass(frozen=True)
class Prediction:
    """Three ways to train a model, judged on the same held-out rows.

    Attributes:
        rows: held-out rows.
        federated, pooled, alone: metric -> value on all held-out rows together.
        gaining, compared: sites whose held-out loss is smaller with the federated model than alone, of so many.
        difference: largest difference between a federated and a pooled coefficient.
        rounds: communications of the federated run.
        bytes: what all sites together sent in it.
    """

    rows: int
    federated: dict[str, float]
    pooled: dict[str, float]
    alone: dict[str, float]
    gaining: int
    compared: int
    difference: float
    rounds: int
    bytes: float


def prediction(dataset: Dataset, held_out: float = 0.3, seed: int = 0) -> Prediction:
    """Train on a part of every site's rows, with scikit-learn's default penalty: C = 1, or alpha = 1 for ridge.

    In the federated run that is l2 = 1/n for n training rows of all sites. A site alone has the same C or alpha; with
    one class only it predicts that class's frequency with one pseudo-row per class.

    Args:
        dataset: binary or a regression.
        held_out: share of every site's rows to judge on.
        seed: of the split.
    """
    train, test = dataset.clients.split(held_out, seed)
    task = dataset.entry.task
    x, y = train.pooled()
    loss = _loss(task, 1 / len(x))
    problem = Problem(loss, train)
    solution = solve(problem, ADMM(), _ROUNDS, tolerance=_TOLERANCE, evaluate_every=5)
    if not solution.converged:
        raise RuntimeError(f"{dataset.entry.name}: {solution.reason} {solution.remedy}")
    pooled_theta = _alone(task, x, y)
    own = {name: _alone(task, *pair) for name, *pair in zip(train.names, train.features, train.targets, strict=True)}
    predicted: dict[str, list[np.ndarray]] = {"federated": [], "pooled": [], "alone": []}
    for name, features in zip(test.names, test.features, strict=True):
        for way, theta in (("federated", solution.theta), ("pooled", pooled_theta), ("alone", own[name])):
            predicted[way].append(loss.predict(theta, features))
    truth = np.concatenate(test.targets)
    figures = {
        way: {metric: getattr(metrics, metric)(truth, np.concatenate(parts)) for metric in _METRICS[task]}
        for way, parts in predicted.items()
    }
    judge = metrics.log_loss if task == "binary" else metrics.rmse
    gains = [
        judge(y, federated) < judge(y, alone)
        for y, federated, alone in zip(test.targets, predicted["federated"], predicted["alone"], strict=True)
    ]
    return Prediction(
        rows=len(truth), **figures, gaining=sum(gains), compared=len(gains),
        difference=float(np.abs(solution.theta - pooled_theta).max()),
        rounds=int(solution.history.last("communications")), bytes=solution.history.last("uplink_bytes"),
    )  # fmt: skip


def _loss(task: str, l2: float) -> Loss:
    return losses.logistic(l2, intercept=True) if task == "binary" else losses.least_squares(l2, intercept=True)


def _alone(task: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """scikit-learn's coefficients and intercept, shape `(d + 1,)`."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if task == "regression":
        model = Ridge(alpha=1.0).fit(x, y)
        return np.append(model.coef_, model.intercept_)
    positive = float(np.sum(y > 0))
    if positive in (0, len(y)):
        chance = (positive + 1) / (len(y) + 2)
        return np.append(np.zeros(x.shape[1]), np.log(chance / (1 - chance)))
    model = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10, max_iter=1000).fit(x, y)
    return np.append(model.coef_, model.intercept_)


@dataclass(frozen=True)
class Coefficients:
    """The unpenalized model of all rows, federated and pooled.

    Attributes:
        federated, by_site: coefficient tables with model-based and with site-clustered standard errors.
        pooled: coefficients `(d,)` and standard errors `(d,)`, twice, of statsmodels on the joined table.
        alone: coefficients of every site that has enough rows and both classes, shape `(sites, d)`; NaN elsewhere.
        rounds: communications of the federated run.
    """

    federated: Inference
    by_site: Inference
    pooled: tuple[np.ndarray, np.ndarray, np.ndarray]
    alone: np.ndarray
    rounds: int


def coefficients(clients: Clients, task: str) -> Coefficients:
    """Fit all rows without a penalty, and exchange the information matrices for standard errors.

    Args:
        clients: sites with named columns.
        task: "binary" or "regression".
    """
    problem = Problem(_loss(task, 0.0), clients)
    solution = solve(problem, ADMM(), _ROUNDS, tolerance=_TOLERANCE, evaluate_every=5)
    sites = np.repeat(np.arange(len(clients)), clients.sizes)
    x, y = clients.pooled()
    model, clustered = (_statsmodels(task, x, y, errors) for errors in ({}, _clusters(sites)))
    alone = [_fit_or_nan(task, x, y) for x, y in zip(clients.features, clients.targets, strict=True)]
    return Coefficients(
        infer(problem, solution.theta),
        infer(problem, solution.theta, "site"),
        (model.params, model.bse, clustered.bse),
        np.array(alone),
        int(solution.history.last("communications")),
    )


def _clusters(sites: np.ndarray) -> dict[str, Any]:
    return {"cov_type": "cluster", "cov_kwds": {"groups": sites}}


def _statsmodels(task: str, x: np.ndarray, y: np.ndarray, errors: dict[str, Any]) -> Any:
    import statsmodels.api as sm

    design = np.column_stack([x, np.ones(len(x))])
    if task == "regression":
        return sm.OLS(y, design).fit(**errors)
    return sm.Logit(y, design).fit(method="newton", tol=1e-14, maxiter=200, disp=0, **errors)


def _fit_or_nan(task: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A site's own least squares; its own logistic regression with the default penalty, because many separate."""
    if len(x) <= x.shape[1] + 1 or (task == "binary" and len(np.unique(y)) < 2):
        return np.full(x.shape[1] + 1, np.nan)
    return _alone(task, x, y)


def page(names: tuple[str, ...] = TABLES) -> str:
    """The documentation's page, in Markdown."""
    datasets = [load(name) for name in names]
    lines = [_HEAD.strip(), "", "## Prediction", "", *_PREDICTION.strip().splitlines(), ""]
    lines += _header("table", "sites", "held-out rows", "metric", "federated", "pooled", "alone", "sites that gain")
    costs = _header("table", "largest difference of a coefficient", "communications", "sent by all sites")
    for dataset in datasets:
        found, entry = prediction(dataset), dataset.entry
        for metric in _METRICS[entry.task]:
            lines.append(
                f"| {entry.name} | {entry.silos} | {found.rows} | {metric} | "
                f"{found.federated[metric]:.4f} | {found.pooled[metric]:.4f} | {found.alone[metric]:.4f} | "
                f"{found.gaining} of {found.compared} |"
            )
        costs.append(f"| {entry.name} | {found.difference:.1e} | {found.rounds} | {found.bytes / 1e6:.2f} MB |")
    lines += ["", *costs, "", "## Coefficients and standard errors", "", *_COEFFICIENTS.strip().splitlines(), ""]
    lines += _header("table", "coefficient", "model-based error", "site-clustered error", "communications")
    details = []
    for dataset in datasets:
        table = coefficients(dataset.clients, dataset.entry.task)
        params, model, clustered = table.pooled
        gaps = (
            np.abs(table.federated.coefficients - params) / model,
            np.abs(table.federated.standard_errors / model - 1),
            np.abs(table.by_site.standard_errors / clustered - 1),
        )
        shown = " | ".join(f"{gap.max():.1e}" for gap in gaps)
        lines.append(f"| {dataset.entry.name} | {shown} | {table.rounds} |")
        if len(params) <= 10:
            details += ["", f"### {dataset.entry.name}", "", *_coefficient_rows(table)]
    return "\n".join([*lines, *details]) + "\n"


def _header(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def _coefficient_rows(table: Coefficients) -> list[str]:
    alone = "alone: quartiles over sites"
    rows = _header("parameter", "federated", "pooled", "error", "clustered", "95 % interval", alone)
    low, high = table.by_site.intervals().T
    quartiles = np.nanpercentile(table.alone, (25, 50, 75), axis=0).T
    for j, name in enumerate(table.federated.names):
        own = ", ".join(f"{value:.3f}" for value in quartiles[j])
        rows.append(
            f"| {name} | {table.federated.coefficients[j]:.6f} | {table.pooled[0][j]:.6f} | "
            f"{table.federated.standard_errors[j]:.4f} | {table.by_site.standard_errors[j]:.4f} | "
            f"{low[j]:.3f} to {high[j]:.3f} | {own} |"
        )
    return rows


_HEAD = """
# Tables with natural sites

Four public tables whose rows belong to sites by nature. Written by `fedual bench tables`, which computes
every figure below. The federated runs are `fedual.ADMM()` with its defaults, in float64, to a squared gradient norm of
1e-22, which is far more than a prediction needs. How to obtain the tables, and their terms: `fedual datasets`.
"""
_PREDICTION = """
30 % of every site's rows are held out (seed 0). *Federated*: one model, the rows stay with their sites. *Pooled*:
scikit-learn on all training rows in one place. *Alone*: scikit-learn on each site's own rows. All have scikit-learn's
default penalty (C = 1, alpha = 1). Metrics are those of all held-out rows together; a site gains if the federated
model's log-loss (or error) on its own held-out rows is smaller than that of its own model.
"""
_COEFFICIENTS = """
The unpenalized model of all rows: `fedual.infer` at the federated solution against statsmodels on the joined table. The
first column is the largest difference of a coefficient in standard errors, the next two the largest relative difference
of a standard error. In the tables below the interval goes with the site-clustered error, and the logistic models of
sites alone have scikit-learn's default penalty, because in many small sites the classes separate.
"""
