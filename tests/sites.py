"""Four unequal sites and every method written out in plain NumPy; nothing here but `problem` uses the package.

All tests take data of the same shapes, so that one compiled program per method serves them all.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import fedual as fd

SIZES = (6, 20, 11, 15)
WEIGHTS = np.array(SIZES) / sum(SIZES)
FEATURES = 3
L2 = 0.1
NAMES = tuple(f"client {k}" for k in range(len(SIZES)))
#: Who takes part, stretch by stretch: everybody's first time comes at another moment, and once nobody does.
SETS = ((0, 2), (2,), (), (1, 3), (0, 1, 2), (3,), (0, 3), (1, 2))


def tables(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """One pair (X, y) per site; every site has its own true parameters."""
    rng = np.random.default_rng(seed)
    pairs = []
    for rows in SIZES:
        x = rng.normal(size=(rows, FEATURES))
        pairs.append((x, x @ rng.normal(size=FEATURES) + 0.5 * rng.normal(size=rows)))
    return pairs


@lru_cache
def problem(seed: int = 0, weights: str = "samples", **kwargs: Any) -> fd.Problem:
    """Ridge regression over the four sites."""
    return fd.Problem(fd.losses.least_squares(l2=L2), fd.data.from_arrays(tables(seed)), weights, **kwargs)


class Quadratics(NamedTuple):
    """f_k(x) = x'H_k x/2 - q_k'x + constant, and weights: H (K, d, d), q (K, d), w (K,)."""

    h: np.ndarray
    q: np.ndarray
    w: np.ndarray

    @property
    def optimum(self) -> np.ndarray:
        return np.linalg.solve(np.einsum("k,kij->ij", self.w, self.h), self.w @ self.q)

    @property
    def smoothness(self) -> float:
        return max(np.linalg.eigvalsh(h)[-1] for h in self.h)

    def gradient(self, k: int, x: np.ndarray) -> np.ndarray:
        return self.h[k] @ x - self.q[k]

    def prox(self, k: int, point: np.ndarray, s: float) -> np.ndarray:
        """argmin over x of f_k(x) + ||x - point||^2 / (2s)."""
        return np.linalg.solve(self.h[k] + np.eye(len(point)) / s, self.q[k] + point / s)

    def steps(self, k: int, x: np.ndarray, linear: np.ndarray, count: int, rate: float) -> np.ndarray:
        """`count` gradient steps on f_k(x) + <linear, x>."""
        for _ in range(count):
            x = x - rate * (self.gradient(k, x) + linear)
        return x


@lru_cache
def quadratics(seed: int = 0, weights: str = "samples") -> Quadratics:
    pairs = tables(seed)
    return Quadratics(
        np.array([x.T @ x / len(x) + L2 * np.eye(FEATURES) for x, _ in pairs]),
        np.array([x.T @ y / len(x) for x, y in pairs]),
        WEIGHTS if weights == "samples" else np.full(len(SIZES), 1 / len(SIZES)),
    )


EVERYONE = (tuple(range(len(SIZES))),) * len(SETS)


def fedadmm(f: Quadratics, s: float, sets: Sequence, silent: Sequence[bool] | None = None) -> list[np.ndarray]:
    """The server's model after every round; `sets` by round, constant over a stretch of silent rounds."""
    clients, d = f.q.shape
    theta, mean = np.zeros(d), np.zeros(d)
    dual, anchor, message = np.zeros((clients, d)), np.zeros((clients, d)), np.zeros((clients, d))
    path, fresh = [], True
    for number, chosen in enumerate(sets):
        change = np.zeros(d)
        skip = silent is not None and silent[number]
        for k in chosen:
            if fresh:
                anchor[k] = theta
            x = f.prox(k, anchor[k] - s * dual[k], s)
            dual[k] += (x - anchor[k]) / s
            new = x + s * dual[k]
            if skip:
                anchor[k] = new
            else:
                change += f.w[k] * (new - message[k])
                message[k] = new
        fresh = not skip
        mean = mean + change
        theta = mean.copy() if not skip else theta
        path.append(theta)
    return path


def feddyn(f: Quadratics, s: float, sets: Sequence) -> list[np.ndarray]:
    alpha, (clients, d) = 1 / s, f.q.shape
    theta, memory, g, path = np.zeros(d), np.zeros(d), np.zeros((clients, d)), []
    for chosen in sets:
        moved, weight = np.zeros(d), 0.0
        for k in chosen:
            x = f.prox(k, theta + s * g[k], s)
            g[k] -= alpha * (x - theta)
            moved, weight = moved + f.w[k] * (x - theta), weight + f.w[k]
        if chosen:
            memory = memory - alpha * moved
            theta = theta + moved / weight - memory / alpha
        path.append(theta)
    return path


def afedpd(f: Quadratics, s: float, sets: Sequence) -> list[np.ndarray]:
    """As in the paper, with all duals at the server."""
    clients, d = f.q.shape
    theta, dual, path = np.zeros(d), np.zeros((clients, d)), []
    for chosen in sets:
        if chosen:
            x = {k: f.prox(k, theta - s * dual[k], s) for k in chosen}
            mean = sum(f.w[k] * x[k] for k in chosen) / sum(f.w[k] for k in chosen)
            for k in range(clients):
                dual[k] += (x.get(k, mean) - theta) / s
            theta = mean + s * (f.w @ dual)
        path.append(theta)
    return path


def fedsplit(f: Quadratics, s: float, sets: Sequence) -> list[np.ndarray]:
    clients, d = f.q.shape
    theta, z, path = np.zeros(d), np.zeros((clients, d)), []
    for chosen in sets:
        for k in chosen:
            z[k] += 2 * (f.prox(k, 2 * theta - z[k], s) - theta)
        theta = f.w @ z
        path.append(theta)
    return path


def feddr(f: Quadratics, s: float, sets: Sequence, a: float) -> list[np.ndarray]:
    clients, d = f.q.shape
    theta, x, y, message, path = np.zeros(d), *np.zeros((3, clients, d)), []
    for chosen in sets:
        for k in chosen:
            y[k] += a * (theta - x[k])
            x[k] = f.prox(k, y[k], s)
            message[k] = 2 * x[k] - y[k]
        theta = f.w @ message
        path.append(theta)
    return path


def scaffold(f: Quadratics, count: int, rate: float, sets: Sequence, option: str) -> list[np.ndarray]:
    clients, d = f.q.shape
    theta, c, path = np.zeros(d), np.zeros((clients, d)), []
    for chosen in sets:
        mean, weight, old = np.zeros(d), 0.0, f.w @ c
        for k in chosen:
            x = f.steps(k, theta, old - c[k], count, rate)
            c[k] = f.gradient(k, theta) if option == "I" else c[k] - old + (theta - x) / (count * rate)
            mean, weight = mean + f.w[k] * x, weight + f.w[k]
        theta = mean / weight if chosen else theta
        path.append(theta)
    return path


def proxskip(f: Quadratics, rate: float, p: float, silent: Sequence[bool]) -> list[np.ndarray]:
    clients, d = f.q.shape
    theta, x, h, path = np.zeros(d), np.zeros((clients, d)), np.zeros((clients, d)), []
    for skip in silent:
        x = np.array([x[k] - rate * (f.gradient(k, x[k]) - h[k]) for k in range(clients)])
        if not skip:
            theta = f.w @ x
            h += (1 - p) / rate * (theta - x)
            x = np.tile(theta, (clients, 1))
        path.append(theta)
    return path


def averaging(f: Quadratics, solve: Callable, sets: Sequence) -> list[np.ndarray]:
    """FedAvg and FedProx: `solve(k, theta)` is the local work."""
    theta, path = np.zeros(f.q.shape[1]), []
    for chosen in sets:
        if chosen:
            theta = sum(f.w[k] * solve(k, theta) for k in chosen) / sum(f.w[k] for k in chosen)
        path.append(theta)
    return path


def path(problem: fd.Problem, algorithm: Any, rounds: int, **kwargs: Any) -> list[fd.Solution]:
    """The solution after every one of the first rounds."""
    solutions: list[fd.Solution] = []
    for number in range(1, rounds + 1):
        state = solutions[-1].state if solutions else None
        solutions.append(fd.solve(problem, algorithm, number, evaluate_every=1000, state=state, **kwargs))
    return solutions


def models(solutions: list[fd.Solution]) -> np.ndarray:
    """The server's models, shape (rounds, d)."""
    return np.array([solution.theta for solution in solutions])


def parts(solution: fd.Solution, field: str) -> np.ndarray:
    """A field of every client's state, in the clients' order."""
    clients = solution.state.device.clients
    return solution.problem._current().gather([getattr(client, field) for client in clients])


def rule(sets: Sequence = SETS) -> Any:
    """Exactly these sets take part, over and over; always a trace of eight stretches, for the program's sake."""
    return fd.participation.Availability([[k in sets[t % len(sets)] for t in range(8)] for k in range(len(SIZES))])
