"""Estimates of L and G against NumPy."""

import numpy as np
import pytest

import fedual as fd
import references as ref
from fedual import theory


def test_closed_form_smoothness_is_the_largest_eigenvalue():
    tables = ref.ragged_tables("normal")
    largest = np.array([np.linalg.eigvalsh(x.T @ x / len(x))[-1] for x, _ in tables])
    clients = fd.data.from_arrays(tables)
    np.testing.assert_allclose(
        theory.local_smoothness(fd.Problem(fd.losses.least_squares(0.1), clients)), largest + 0.1, rtol=1e-12
    )
    binary = fd.data.from_arrays(ref.ragged_tables("binary"))
    assert theory.smoothness(fd.Problem(fd.losses.logistic(), binary)) == pytest.approx(largest.max() / 4, rel=1e-12)


def test_estimated_smoothness_is_twice_the_curvature_at_the_point():
    tables = ref.ragged_tables("counts")
    problem = fd.Problem(fd.losses.poisson(l2=0.01), fd.data.from_arrays(tables))
    for theta in (np.zeros(3), np.array([0.5, -0.2, 0.1])):
        hessians = [x.T @ (np.exp(x @ theta)[:, None] * x) / len(x) + 0.01 * np.eye(3) for x, _ in tables]
        expected = [2 * np.linalg.eigvalsh(h)[-1] for h in hessians]
        np.testing.assert_allclose(theory.local_smoothness(problem, theta), expected, rtol=1e-3)


def test_curvature_without_bound_names_the_client():
    clients = fd.data.from_arrays([([[1.0]], [1]), ([[800.0]], [1])], names=["near", "far"])
    with pytest.raises(ValueError, match=r"'far'.*start elsewhere"):
        theory.smoothness(fd.Problem(fd.losses.poisson(), clients), [1.0])


def test_dissimilarity_is_the_spread_of_the_gradients():
    tables = ref.ragged_tables("normal")
    problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(tables))
    points = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]])
    weights = np.array([len(y) for _, y in tables]) / sum(len(y) for _, y in tables)
    largest, squares = [], []
    for theta in points:
        gradients = np.array([x.T @ (x @ theta - y) / len(y) for x, y in tables])
        offsets = np.linalg.norm(gradients - weights @ gradients, axis=1)
        largest.append(offsets.max())
        squares.append(np.sqrt(weights @ offsets**2))
    assert theory.dissimilarity(problem, points) == pytest.approx(max(largest), rel=1e-12)
    assert theory.dissimilarity(problem, points, kind="mean_square") == pytest.approx(max(squares), rel=1e-12)
    assert theory.dissimilarity(problem, points[0]) == pytest.approx(largest[0], rel=1e-12)
    with pytest.raises(ValueError, match="kind = 'mean'"):
        theory.dissimilarity(problem, points, kind="mean")


def test_a_loss_without_bound_runs_without_a_number_from_the_user():
    tables = ref.ragged_tables("counts", sizes=(40, 60, 50))
    problem = fd.Problem(fd.losses.poisson(l2=0.1), fd.data.from_arrays(tables))
    solution = fd.solve(problem, fd.FedPD(), rounds=200, tolerance=1e-16)
    assert solution.converged
    np.testing.assert_allclose(solution.theta, problem.minimum().theta, atol=1e-7)
