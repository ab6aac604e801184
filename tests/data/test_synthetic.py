"""The constants that the generators report, against numerical differentiation and SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from fedual.data import synthetic


def least_squares_gradients(clients, x):
    return np.stack([a.T @ (a @ x - y) / len(y) for a, y in zip(clients.features, clients.targets, strict=True)])


def logistic_gradients(clients, x):
    return np.stack(
        [-a.T @ (b * expit(-b * (a @ x))) / len(b) for a, b in zip(clients.features, clients.targets, strict=True)]
    )


def farthest(gradients):
    return np.linalg.norm(gradients - gradients.mean(axis=0), axis=1).max()


def largest_curvature(gradients, points, dimension, step=1e-5):
    """The largest eigenvalue of any client's Hessian at any of the points, by central differences."""
    worst = 0.0
    for x in points:
        columns = [(gradients(x + step * e) - gradients(x - step * e)) / (2 * step) for e in np.eye(dimension)]
        hessians = np.stack(columns, axis=-1)
        worst = max(worst, max(np.abs(np.linalg.eigvalsh((h + h.T) / 2)).max() for h in hessians))
    return worst


POINTS = [np.zeros(5), *np.random.default_rng(0).normal(size=(4, 5))]


@pytest.mark.parametrize("dial", [0.0, 0.3, 1.0])
def test_least_squares_constants_hold_at_every_point(dial):
    problem = synthetic.least_squares(dial, clients=6, condition=20.0)
    for x in POINTS:
        assert farthest(least_squares_gradients(problem.clients, x)) == pytest.approx(problem.dissimilarity, abs=1e-12)
    curvature = largest_curvature(lambda x: least_squares_gradients(problem.clients, x), POINTS, 5)
    assert curvature == pytest.approx(problem.smoothness, rel=1e-8)
    assert np.linalg.norm(least_squares_gradients(problem.clients, problem.minimizer).mean(axis=0)) < 1e-13
    a, _ = problem.clients.pooled()
    assert np.linalg.cond(a.T @ a) == pytest.approx(20.0)


@pytest.mark.parametrize("dial", [0.0, 0.3, 1.0])
def test_logistic_constants_hold_at_every_point(dial):
    problem = synthetic.logistic(dial, clients=6)
    for x in POINTS:
        assert farthest(logistic_gradients(problem.clients, x)) == pytest.approx(problem.dissimilarity, abs=1e-12)
    curvature = largest_curvature(lambda x: logistic_gradients(problem.clients, x), POINTS, 5)
    assert curvature == pytest.approx(problem.smoothness, rel=1e-8)  # attained at 0, the first point


@pytest.mark.parametrize("make", [synthetic.least_squares, synthetic.logistic])
def test_the_dial_goes_from_identical_to_opposed(make):
    measured = [make(dial).dissimilarity for dial in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert measured[0] == 0
    assert measured[-1] > 0.05
    same = make(0.0).clients
    assert all(np.array_equal(same.targets[0], y) for y in same.targets)
    if make is synthetic.least_squares:
        np.testing.assert_allclose(measured, np.linspace(0, 1, 5) * measured[-1], atol=1e-12)
    else:
        opposed = make(1.0).clients
        np.testing.assert_array_equal(opposed.targets[1], -opposed.targets[0])


@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_quadratics_have_the_chosen_conditioning_and_minimizer(condition):
    problem = synthetic.quadratics(clients=4, dimension=6, condition=condition, spread=3.0)
    for a in problem.clients.features:
        eigenvalues = np.linalg.eigvalsh(a.T @ a / len(a))
        assert eigenvalues[-1] == pytest.approx(problem.smoothness)
        assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(condition)
    gradients = least_squares_gradients(problem.clients, problem.minimizer)
    assert np.linalg.norm(gradients.mean(axis=0)) < 1e-12
    assert farthest(gradients) == pytest.approx(problem.dissimilarity)
    x, y = problem.clients.pooled()
    np.testing.assert_allclose(problem.minimizer, np.linalg.lstsq(x, y, rcond=None)[0], rtol=1e-9)


@pytest.mark.parametrize("strong", [True, False])
def test_the_reference_experiment(strong):
    problem = synthetic.reference(strong, clients=5, seed=3)
    clients = problem.clients
    assert clients.sizes.tolist() == [400] * 5
    a, b = clients.pooled()
    assert a.shape == (2000, 20)
    np.testing.assert_array_equal(a[:, -1], 1)
    assert abs(a[:, :-1].mean()) < 0.03
    assert a[:, :-1].std() == pytest.approx(1, abs=0.02)
    assert set(b.tolist()) == {-1.0, 1.0}

    def gradients(x):
        return logistic_gradients(clients, x) + 0.1 * 2 * x / (1 + x**2) ** 2

    assert farthest(gradients(np.zeros(20))) == pytest.approx(problem.dissimilarity)
    bound = largest_curvature(gradients, [np.zeros(20), np.full(20, 0.1)], 20)
    assert 0.5 * problem.smoothness < bound <= problem.smoothness
    # Strongly non-iid clients can be fitted well by a model each, weakly non-iid ones cannot be fitted at all.
    own = minimize(lambda x: np.logaddexp(0, -b[:400] * (a[:400] @ x)).mean(), np.zeros(20)).fun
    assert (own < 0.2) if strong else (own > 0.6)


def test_a_client_of_the_reference_experiment_does_not_depend_on_the_others():
    few, many = (synthetic.reference(clients=count, rows=10).clients for count in (2, 4))
    np.testing.assert_array_equal(few.features[1], many.features[1])
    np.testing.assert_array_equal(few.targets[1], many.targets[1])
    assert not np.array_equal(few.targets[1], synthetic.reference(clients=2, rows=10, seed=1).clients.targets[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: synthetic.least_squares(1.1), "dial = 1.1 must lie between 0"),
        (lambda: synthetic.logistic(rows=3, dimension=5), "rows = 3 must be at least dimension = 5"),
        (lambda: synthetic.quadratics(condition=0.5), "condition = 0.5 must be at least 1"),
        (lambda: synthetic.quadratics(dimension=1), "and 1 where dimension is 1"),
        (lambda: synthetic.reference(clients=0), "clients = 0 must be at least 1"),
    ],
)
def test_impossible_requests_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
