"""Artificial clients whose constants are known: smoothness L, gradient dissimilarity G, sometimes the minimizer.

`least_squares` and `logistic` have one dial, from identical clients (0) to opposed ones (1). There all clients share
one matrix of features and differ in their targets alone, so the difference of their gradients does not depend on the
point: G is exact everywhere, not an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedual.clients import Clients

__all__ = ["Synthetic", "least_squares", "logistic", "quadratics", "reference"]


@dataclass(frozen=True)
class Synthetic:
    """Artificial clients with the constants of their losses f_k and of their mean f, all clients weighted equally.

    Args:
        clients: K clients with n rows each.
        smoothness: L, a Lipschitz constant of the gradients of f and of every f_k; the smallest one, except for
            `reference`, where it is an upper bound.
        dissimilarity: G = max_k ||grad f_k(x) - grad f(x)||; for which x, each generator says.
        minimizer: of f, shape `(d,)`, where it has a closed form.
    """

    clients: Clients
    smoothness: float
    dissimilarity: float
    minimizer: np.ndarray | None = None


def reference(
    strong: bool = True,
    clients: int = 100,
    rows: int = 400,
    dimension: int = 20,
    beta: float = 0.1,
    alpha: float = 1.0,
    seed: int = 0,
) -> Synthetic:
    """The non-convex classification problem of the FedPD paper's numerical section, made exact.

    Features a are standard normal, but for the last one, which is 1; labels b are -1 or 1. Weakly non-iid: labels are
    random. Strongly non-iid: client k draws x_k uniformly from [-10, 10]^d, and b = sign(a'x_k + e) with standard
    normal e. For the loss `logistic_nonconvex(beta, alpha)`:

        f_k(x) = mean of log(1 + exp(-b a'x)) + beta sum_j alpha x_j^2 / (1 + alpha x_j^2)

    Args:
        strong: strongly or weakly non-iid.
        clients: number of clients, K.
        rows: rows of each client, n.
        dimension: number of features, d, with the constant one.
        beta: strength of the penalty.
        alpha: its steepness.
        seed: of everything; client k's data depend on the seed and k alone.

    Returns:
        Clients; L = max_k lambda_max(A_k'A_k / n)/4 + 2 alpha beta, an upper bound; G at x = 0, where runs start.

    Example:
        >>> problem = reference(strong=False, clients=3)
        >>> problem.clients.features[0].shape, sorted(set(problem.clients.targets[0].tolist()))
        ((400, 20), [-1.0, 1.0])

    Reference:
        Zhang, Hong, Dhople, Yin and Liu (2021), FedPD: a federated learning framework with adaptivity to non-iid data,
        IEEE Transactions on Signal Processing 69, the numerical section.
    """
    _check(clients=clients, rows=rows, dimension=dimension)
    pairs = []
    for k in range(clients):
        rng = np.random.default_rng([seed, k])
        a = np.column_stack([rng.standard_normal((rows, dimension - 1)), np.ones(rows)])
        if strong:
            b = np.sign(a @ rng.uniform(-10, 10, dimension) + rng.standard_normal(rows))
        else:
            b = rng.choice([-1.0, 1.0], rows)
        pairs.append((a, b))
    smoothness = max(np.linalg.eigvalsh(a.T @ a / rows)[-1] for a, _ in pairs) / 4 + 2 * alpha * beta
    # At 0 the penalty's gradient is 0 and that of the logistic part is -mean(b a)/2.
    gradients = np.stack([-a.T @ b / (2 * rows) for a, b in pairs])
    return Synthetic(Clients.build(pairs), float(smoothness), _farthest(gradients))


def quadratics(
    clients: int = 10, dimension: int = 5, condition: float = 10.0, spread: float = 1.0, seed: int = 0
) -> Synthetic:
    """Strongly convex quadratics f_k(x) = (x - c_k)'H_k(x - c_k)/2 of chosen conditioning, as least squares.

    Every H_k has eigenvalues spaced evenly in logarithm from 1/`condition` to 1 in a random basis of its own; the
    centers c_k are `spread` times standard normal. Client k's d rows are `sqrt(d) H_k^(1/2)` with targets
    `sqrt(d) H_k^(1/2) c_k`, so that f_k is the loss `least_squares()`, mean of (a'x - y)^2/2.

    Args:
        clients: number of clients, K.
        dimension: number of features and of rows of each client, d >= 2 unless `condition` is 1.
        condition: largest eigenvalue over the smallest, of every H_k, >= 1.
        spread: how far the clients' own minimizers c_k are apart; 0 makes 0 the minimizer of all.
        seed: of bases and centers.

    Returns:
        Clients; L = 1, exact for every f_k; G at the minimizer of f; that minimizer.

    Example:
        >>> problem = quadratics(condition=100.0)
        >>> problem.smoothness, problem.minimizer.shape
        (1.0, (5,))
    """
    _check(clients=clients, dimension=dimension)
    if not 1 <= condition < np.inf or (dimension == 1 and condition > 1):
        raise ValueError(f"condition = {condition} must be at least 1, and 1 where dimension is 1.")
    eigenvalues = np.geomspace(1 / condition, 1, dimension)
    hessians, centers, pairs = [], [], []
    for k in range(clients):
        rng = np.random.default_rng([seed, k])
        basis, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
        root = np.sqrt(dimension) * np.sqrt(eigenvalues)[:, None] * basis.T
        center = spread * rng.standard_normal(dimension)
        hessians.append((basis * eigenvalues) @ basis.T)
        centers.append(center)
        pairs.append((root, root @ center))
    minimizer = np.linalg.solve(sum(hessians), sum(h @ c for h, c in zip(hessians, centers, strict=True)))
    gradients = np.stack([h @ (minimizer - c) for h, c in zip(hessians, centers, strict=True)])
    return Synthetic(Clients.build(pairs), 1.0, _farthest(gradients), minimizer)


def least_squares(
    dial: float = 0.5,
    clients: int = 10,
    rows: int = 50,
    dimension: int = 5,
    condition: float = 10.0,
    noise: float = 0.1,
    seed: int = 0,
) -> Synthetic:
    """Linear regression from identical to opposed clients, for the loss `least_squares()`, mean of (a'x - y)^2/2.

    All clients share the features A and the noise e; even ones have the targets A w + e, odd ones
    (1 - 2 dial) A w + e: the same at dial 0, opposed but for the noise at dial 1. A has independent, random directions
    and A'A/n has eigenvalues spaced evenly in logarithm from 1/`condition` to 1.

    Args:
        dial: from 0, identical, to 1, opposed.
        clients: number of clients, K.
        rows: rows of each client, n >= d.
        dimension: number of features, d.
        condition: largest eigenvalue of A'A/n over the smallest, >= 1.
        noise: standard deviation of e.
        seed: of features, noise and w.

    Returns:
        Clients; L = 1, exact; G, the same at every x and proportional to the dial; the minimizer of f.

    Example:
        >>> [round(least_squares(dial).dissimilarity / least_squares(1.0).dissimilarity, 3) for dial in (0.0, 0.5)]
        [0.0, 0.5]
    """
    a, rng = _shared_features(dial, clients, rows, dimension, condition, seed)
    signal, error = a @ rng.standard_normal(dimension), noise * rng.standard_normal(rows)
    targets = [(1 - 2 * dial * (k % 2)) * signal + error for k in range(clients)]
    gradients = np.stack([-a.T @ y / rows for y in targets])  # at 0; the rest of the gradient is shared
    minimizer = np.linalg.lstsq(a, np.mean(targets, axis=0), rcond=None)[0]
    return Synthetic(Clients.build([(a, y) for y in targets]), 1.0, _farthest(gradients), minimizer)


def logistic(
    dial: float = 0.5, clients: int = 10, rows: int = 50, dimension: int = 5, condition: float = 10.0, seed: int = 0
) -> Synthetic:
    """Logistic regression from identical to opposed clients, for the loss `logistic()` without penalty.

    All clients share the features A, as in `least_squares` but scaled to lambda_max(A'A/n) = 4. Even clients share the
    labels b = sign(a'w + e), -1 or 1, with logistic e; for odd ones the first `round(dial * n)` labels change their
    sign. Because log(1 + exp(-bz)) = log(2 cosh(z/2)) - bz/2, labels enter the gradient as a constant.

    Args:
        dial: from 0, identical, to 1, opposed.
        clients: number of clients, K.
        rows: rows of each client, n >= d.
        dimension: number of features, d.
        condition: largest eigenvalue of A'A/n over the smallest, >= 1.
        seed: of features, labels and w.

    Returns:
        Clients; L = 1, exact (the curvature at x = 0; a penalty l2 adds l2); G, the same at every x.

    Example:
        >>> logistic(0.0).dissimilarity, logistic(0.2).dissimilarity < logistic(1.0).dissimilarity
        (0.0, True)
    """
    a, rng = _shared_features(dial, clients, rows, dimension, condition, seed)
    a = 2 * a
    b = np.sign(a @ rng.standard_normal(dimension) + rng.logistic(size=rows))
    flipped = np.where(np.arange(rows) < round(dial * rows), -b, b)
    targets = [flipped if k % 2 else b for k in range(clients)]
    gradients = np.stack([-a.T @ y / (2 * rows) for y in targets])
    return Synthetic(Clients.build([(a, y) for y in targets]), 1.0, _farthest(gradients))


def _shared_features(
    dial: float, clients: int, rows: int, dimension: int, condition: float, seed: int
) -> tuple[np.ndarray, np.random.Generator]:
    """A with `rows` rows and eigenvalues of A'A/n from 1/condition to 1, and the generator to go on with."""
    _check(clients=clients, rows=rows, dimension=dimension)
    if not 0 <= dial <= 1:
        raise ValueError(f"dial = {dial} must lie between 0 (identical clients) and 1 (opposed clients).")
    if rows < dimension:
        raise ValueError(f"rows = {rows} must be at least dimension = {dimension}.")
    if not 1 <= condition < np.inf or (dimension == 1 and condition > 1):
        raise ValueError(f"condition = {condition} must be at least 1, and 1 where dimension is 1.")
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((rows, dimension)))
    right, _ = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    return np.sqrt(rows) * (left * np.sqrt(np.geomspace(1 / condition, 1, dimension))) @ right.T, rng


def _farthest(gradients: np.ndarray) -> float:
    """max_k ||g_k - mean||, measured from the first client so that identical ones give exactly 0."""
    offsets = gradients - gradients[0]
    return float(np.linalg.norm(offsets - offsets.mean(axis=0), axis=1).max())


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} = {value} must be at least 1.")
