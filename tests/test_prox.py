"""Proximal operators against a general minimizer, and closed forms."""

import numpy as np
import pytest
from scipy import optimize

import fedual as fd
from fedual.arrays import precision

V = np.array([1.5, -0.2, 0.7, -2.0, 0.05, 0.9])
CASES = {
    "l1": fd.prox.l1(0.4),
    "l1, free intercept": fd.prox.l1(0.4, intercept=True),
    "elastic net": fd.prox.elastic_net(0.4, 0.5),
    "group": fd.prox.group([3, 0, 3, 0, 5, -1], 0.6),
    "nuclear": fd.prox.nuclear((2, 3), 0.8),
    "nuclear, free entries": fd.prox.nuclear((2, 2), 0.8),
    "own": fd.prox.from_function(lambda v: (v @ v) / 2, lambda v, t: v / (1 + t)),
}


def evaluate(function, *args):
    with precision("float64"):
        return np.asarray(function(*args))


@pytest.mark.parametrize("name", CASES)
def test_prox_minimizes(name):
    """No point found by a derivative-free search from the answer or from v is better."""
    r, t = CASES[name], 0.7
    answer = evaluate(r.prox, V, t)

    def objective(u):
        return float(evaluate(r.value, u)) + np.sum((u - V) ** 2) / (2 * t)

    best = objective(answer)
    rng = np.random.default_rng(0)
    nearby = [answer + h * rng.normal(size=6) for h in (1e-3, 1e-2, 0.1, 1.0) for _ in range(100)]
    assert min(map(objective, nearby)) > best
    found = optimize.minimize(objective, V, method="Powell", options={"xtol": 1e-9, "ftol": 1e-13})
    assert best <= found.fun + 1e-9
    if name in ("l1", "elastic net", "own"):
        np.testing.assert_allclose(found.x, answer, atol=1e-4)


def test_values():
    assert evaluate(fd.prox.l1(2.0, intercept=2).value, V) == pytest.approx(2 * np.abs(V[:4]).sum())
    group = fd.prox.group([1, 1, 1, 1, 7, -1], 2.0)
    assert evaluate(group.value, V) == pytest.approx(2 * (2 * np.linalg.norm(V[:4]) + 0.05))
    nuclear = fd.prox.nuclear((2, 3), 2.0)
    assert evaluate(nuclear.value, V) == pytest.approx(2 * np.linalg.norm(V.reshape(2, 3), "nuc"))


def test_box_projects():
    box = fd.prox.box(-0.5, [1.0, 1.0, 0.1, 1.0, 1.0], intercept=True)
    assert evaluate(box.prox, V, 9.0).tolist() == [1.0, -0.2, 0.1, -0.5, 0.05, 0.9]
    assert evaluate(box.value, V) == np.inf
    assert evaluate(box.value, evaluate(box.prox, V, 1.0)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fd.prox.l1(-1.0), r"l1 = -1.0 must be a finite number >= 0"),
        (lambda: fd.prox.elastic_net(1.0, float("nan")), r"l2 = nan"),
        (lambda: fd.prox.l1(1.0, intercept=-1), r"intercept = -1"),
        (lambda: fd.prox.group([0.5, 1.0], 1.0), r"groups = \[0.5, 1.0\] must be integers"),
        (lambda: fd.prox.box(1.0, 0.0), r"low = 1.0 must be at most high = 0.0"),
        (lambda: fd.prox.nuclear((0, 3), 1.0), r"shape = \(0, 3\)"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("regularizer", "message"),
    [
        (fd.prox.group([0, 0], 1.0), "groups are given for 2 parameters; this problem has 3"),
        (fd.prox.nuclear((2, 2), 1.0), r"shape = \(2, 2\) has more entries than this problem's 3"),
        (fd.prox.box([0.0, 0.0], 1.0), r"low has shape \(2,\); expected one number or 3"),
        (fd.prox.l1(1.0, intercept=3), "leaves none of 3 parameters"),
        (fd.prox.from_function(lambda v: v, lambda v, t: v), r"value returns shape \(3,\)"),
        (fd.prox.from_function(lambda v: v[0], lambda v, t: v[:2]), r"prox returns shape \(2,\)"),
    ],
)
def test_a_problem_refuses_what_does_not_fit(regularizer, message):
    clients = fd.data.from_arrays([(np.eye(3), np.ones(3))])
    with pytest.raises(ValueError, match=message):
        fd.Problem(fd.losses.least_squares(), clients, regularizer=regularizer)
