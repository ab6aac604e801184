"""References written out in plain NumPy, one client after the other; nothing here uses the package."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

SIZES = (5, 9, 12)
FEATURES = 3


def ragged_tables(kind: str, sizes: Sequence[int] = SIZES, features: int = FEATURES, seed: int = 0) -> list:
    """One pair (X, y) per client; every client has its own true parameters, so that the clients differ."""
    rng = np.random.default_rng([seed, len(sizes)])
    tables = []
    for rows in sizes:
        x = rng.normal(size=(rows, features))
        score = x @ rng.normal(size=features)
        y = {
            "normal": lambda score=score: score + rng.normal(size=len(score)),
            "binary": lambda score=score: (score + rng.logistic(size=len(score)) > 0).astype(int),
            "counts": lambda score=score: rng.poisson(np.exp(0.5 * score)),
            "classes": lambda score=score: np.digitize(score + rng.normal(size=len(score)), [-0.5, 0.5]),
        }[kind]()
        tables.append((x, y))
    return tables


def strongly_non_iid(seed: int, clients: int = 100, rows: int = 400, features: int = 20) -> list:
    """The numerical section of the FedPD paper: every client has its own random hyperplane."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(clients):
        x = rng.normal(size=(rows, features))
        x[:, -1] = 1
        plane = rng.uniform(-10, 10, size=features)
        tables.append((x, np.where(x @ plane + rng.normal(size=rows) > 0, 1, -1)))
    return tables


class Function(NamedTuple):
    """f_k of one table, as functions of the parameters."""

    value: Callable
    gradient: Callable
    hessian: Callable


def least_squares(x: np.ndarray, y: np.ndarray, l2: float = 0.0) -> Function:
    n, d = x.shape
    return Function(
        lambda t: np.sum((x @ t - y) ** 2) / (2 * n) + l2 / 2 * t @ t,
        lambda t: x.T @ (x @ t - y) / n + l2 * t,
        lambda t: x.T @ x / n + l2 * np.eye(d),
    )


def logistic(x: np.ndarray, y: np.ndarray, l2: float = 0.0) -> Function:
    n, d = x.shape
    b = np.where(y > 0, 1, -1)
    return Function(
        lambda t: np.mean(np.logaddexp(0, -b * (x @ t))) + l2 / 2 * t @ t,
        lambda t: -x.T @ (b * expit(-b * (x @ t))) / n + l2 * t,
        lambda t: x.T @ ((expit(x @ t) * expit(-(x @ t)))[:, None] * x) / n + l2 * np.eye(d),
    )


def poisson(x: np.ndarray, y: np.ndarray, l2: float = 0.0) -> Function:
    n, d = x.shape
    return Function(
        lambda t: np.mean(np.exp(x @ t) - y * (x @ t)) + l2 / 2 * t @ t,
        lambda t: x.T @ (np.exp(x @ t) - y) / n + l2 * t,
        lambda t: x.T @ (np.exp(x @ t)[:, None] * x) / n + l2 * np.eye(d),
    )


def logistic_nonconvex(x: np.ndarray, y: np.ndarray, beta: float, alpha: float) -> Function:
    plain = logistic(x, y)
    return Function(
        lambda t: plain.value(t) + beta * np.sum(alpha * t**2 / (1 + alpha * t**2)),
        lambda t: plain.gradient(t) + 2 * beta * alpha * t / (1 + alpha * t**2) ** 2,
        lambda t: plain.hessian(t) + np.diag(2 * beta * alpha * (1 - 3 * alpha * t**2) / (1 + alpha * t**2) ** 3),
    )


def softmax_value(x: np.ndarray, y: np.ndarray, theta: np.ndarray, classes: int, l2: float = 0.0) -> float:
    scores = x @ theta.reshape(-1, classes)
    return np.mean(logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]) + l2 / 2 * theta @ theta


def exact_solver(functions: Sequence[Function]) -> Callable:
    """Client k's exact minimizer of a quadratic f_k + <linear, x> + ||x - center||^2 / (2s), whatever the start."""

    def solve(k: int, linear: np.ndarray, center: np.ndarray, s: float, start: np.ndarray) -> np.ndarray:
        zero = np.zeros_like(center)
        matrix = functions[k].hessian(zero) + np.eye(len(center)) / s
        return np.linalg.solve(matrix, center / s - linear - functions[k].gradient(zero))

    return solve


def gradient_solver(functions: Sequence[Function], steps: int, rate: float) -> Callable:
    """`steps` gradient steps on the same subproblem."""

    def solve(k: int, linear: np.ndarray, center: np.ndarray, s: float, start: np.ndarray) -> np.ndarray:
        x = start
        for _ in range(steps):
            x = x - rate * (functions[k].gradient(x) + linear + (x - center) / s)
        return x

    return solve


class Iterate(NamedTuple):
    """The server's model (d,), the local models (K, d), the duals (K, d), the anchors (K, d)."""

    theta: np.ndarray
    thetas: np.ndarray
    duals: np.ndarray
    anchors: np.ndarray


def fedpd(solve: Callable, weights: np.ndarray, theta: np.ndarray, s: float, skips: Sequence[bool]) -> list[Iterate]:
    """FedPD as its pseudo-code has it, one entry of `skips` per round; returns the state after every round."""
    clients = len(weights)
    thetas = np.tile(theta, (clients, 1))
    anchors, duals = thetas.copy(), np.zeros_like(thetas)
    iterates = []
    for skip in skips:
        messages = np.zeros_like(thetas)
        for k in range(clients):
            thetas[k] = solve(k, duals[k], anchors[k], s, thetas[k])
            duals[k] = duals[k] + (thetas[k] - anchors[k]) / s
            messages[k] = thetas[k] + s * duals[k]
        if skip:
            anchors = messages.copy()
        else:
            theta = weights @ messages
            anchors = np.tile(theta, (clients, 1))
        iterates.append(Iterate(theta.copy(), thetas.copy(), duals.copy(), anchors.copy()))
    return iterates


def consensus_admm(solve: Callable, weights: np.ndarray, theta: np.ndarray, s: float, rounds: int) -> list[Iterate]:
    """The general primal-dual iteration: all minimizers, then all duals, then the server; no anchors of their own."""
    thetas = np.tile(theta, (len(weights), 1))
    duals = np.zeros_like(thetas)
    iterates = []
    for _ in range(rounds):
        thetas = np.stack([solve(k, duals[k], theta, s, thetas[k]) for k in range(len(weights))])
        duals = duals + (thetas - theta) / s
        theta = weights @ (thetas + s * duals)
        iterates.append(Iterate(theta, thetas, duals, np.tile(theta, (len(weights), 1))))
    return iterates
