"""Problems with a regularizer: the federated answer against scikit-learn's and SciPy's pooled one."""

from functools import lru_cache

import numpy as np
import pytest
from scipy import optimize
from sklearn.linear_model import ElasticNet, Lasso

import fedual as fd
from sites import SIZES, rule

D = 8
STRENGTH = 0.15
EXACT = fd.oracles.Exact()


@lru_cache
def tables() -> tuple:
    rng = np.random.default_rng(5)
    truth = np.where(np.arange(D) < 3, rng.normal(size=D) + 1, 0)
    pairs = []
    for rows in SIZES:
        x = rng.normal(size=(rows, D)) + 0.3 * rng.normal(size=(rows, 1))
        pairs.append((x, x @ (truth + 0.3 * rng.normal(size=D)) + 2 + rng.normal(size=rows)))
    return tuple(pairs)


def pooled() -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([x for x, _ in tables()]), np.concatenate([y for _, y in tables()])


@lru_cache
def problem(regularizer: fd.prox.Regularizer, intercept: bool = False) -> fd.Problem:
    loss = fd.losses.least_squares(intercept=intercept)
    return fd.Problem(loss, fd.data.from_arrays(tables()), regularizer=regularizer)


LASSO = fd.prox.l1(STRENGTH)
METHODS = {
    "ADMM": (fd.ADMM, None),
    "FedPD": (fd.FedPD, None),
    "FedADMM": (fd.FedADMM, None),
    "FedDR": (fd.FedDR, None),
    "FedSplit": (fd.FedSplit, None),
    "FedDyn": (fd.FedDyn, None),
    "FedADMM, absent clients": (fd.FedADMM, rule()),
    "FedDR, absent clients": (fd.FedDR, rule()),
    "FedSplit, absent clients": (fd.FedSplit, rule()),
    "FedDyn, absent clients": (fd.FedDyn, rule()),
}


@pytest.mark.parametrize("name", METHODS)
def test_lasso(name):
    method, participation = METHODS[name]
    s = 1 / float(problem(LASSO).smoothness().max())
    solution = fd.solve(problem(LASSO), method(EXACT, s), 600, participation=participation, evaluate_every=1000)
    expected = Lasso(alpha=STRENGTH, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(*pooled()).coef_
    assert 0 < (expected == 0).sum() < D
    np.testing.assert_allclose(solution.theta, expected, rtol=0, atol=1e-6)
    assert ((solution.theta == 0) == (expected == 0)).all()
    # The mean dual is minus the gradient: a subgradient of r, not 0.
    weights = problem(LASSO).weights
    np.testing.assert_allclose(weights @ solution.duals, -problem(LASSO).gradient(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "method", [fd.FedAvg(), fd.FedProx(), fd.FedOpt(), fd.SCAFFOLD(), fd.ProxSkip(), fd.AFedPD()], ids=lambda m: m.name
)
def test_others_refuse_a_regularizer(method):
    with pytest.raises(ValueError, match=rf"{method.name} does not allow a regularizer: use ADMM, FedPD"):
        fd.solve(problem(LASSO), method, 1)


def test_lasso_with_a_free_intercept():
    own = problem(fd.prox.l1(STRENGTH, intercept=True), intercept=True)
    fitted = Lasso(alpha=STRENGTH, tol=1e-14, max_iter=100_000).fit(*pooled())
    theta = own.minimum().theta
    np.testing.assert_allclose(theta, [*fitted.coef_, fitted.intercept_], rtol=0, atol=1e-8)
    solution = fd.solve(own, fd.FedPD(EXACT, 1 / float(own.smoothness().max())), 600, evaluate_every=1000)
    np.testing.assert_allclose(solution.theta, theta, rtol=0, atol=1e-6)


def test_elastic_net_reference():
    fitted = ElasticNet(alpha=0.5, l1_ratio=0.4, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(*pooled())
    minimum = problem(fd.prox.elastic_net(0.2, 0.3)).minimum()
    np.testing.assert_allclose(minimum.theta, fitted.coef_, rtol=0, atol=1e-9)
    assert minimum.stationarity < 1e-20


def test_box_reference():
    x, y = pooled()
    expected = optimize.lsq_linear(x, y, bounds=(-0.1, 0.8), tol=1e-14).x
    theta = problem(fd.prox.box(-0.1, 0.8)).minimum().theta
    np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-7)
    assert (theta >= -0.1).all()
    assert (theta <= 0.8).all()


def test_group_reference():
    """The optimality conditions: ||grad_g|| <= limit where the group is zero, grad_g = -limit theta_g/||theta_g||."""
    groups = np.array([0, 0, 0, 1, 1, 2, 2, -1])
    own = problem(fd.prox.group(groups, 0.5))
    theta = own.minimum().theta
    x, y = pooled()
    gradient = x.T @ (x @ theta - y) / len(y)
    assert abs(gradient[groups == -1]) < 1e-9
    zero = [not theta[groups == g].any() for g in range(3)]
    assert True in zero
    assert False in zero
    for g in range(3):
        v, slope, limit = theta[groups == g], gradient[groups == g], 0.5 * np.sqrt((groups == g).sum())
        if v.any():
            np.testing.assert_allclose(slope, -limit * v / np.linalg.norm(v), rtol=0, atol=1e-9)
        else:
            assert np.linalg.norm(slope) < limit


def test_nuclear_reference():
    """With an orthonormal design the answer is the matrix of the data with its singular values shrunk."""
    rng = np.random.default_rng(2)
    target = rng.normal(size=(2, 3))
    clients = fd.data.from_arrays([(np.sqrt(6) * np.eye(6), np.sqrt(6) * (target.ravel() + e)) for e in (0.1, -0.1)])
    own = fd.Problem(fd.losses.least_squares(), clients, regularizer=fd.prox.nuclear((2, 3), 0.7))
    left, values, right = np.linalg.svd(target, full_matrices=False)
    expected = left @ np.diag(np.maximum(values - 0.7, 0)) @ right
    np.testing.assert_allclose(own.minimum().theta, expected.ravel(), rtol=0, atol=1e-10)


def test_a_logistic_reference_that_is_badly_scaled():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    scales = np.logspace(-1.5, 1.5, 6)
    x = rng.normal(size=(80, 6)) * scales
    y = (x @ (1 / scales) + rng.logistic(size=80) > 0).astype(int)
    clients = fd.data.from_arrays([(x[:30], y[:30]), (x[30:], y[30:])])
    minimum = fd.Problem(fd.losses.logistic(), clients, regularizer=fd.prox.l1(0.01)).minimum()
    fitted = LogisticRegression(
        l1_ratio=1.0, C=1 / (0.01 * 80), fit_intercept=False, solver="liblinear", tol=1e-12, max_iter=100_000
    ).fit(x, y)
    np.testing.assert_allclose(minimum.theta, fitted.coef_[0], rtol=0, atol=1e-5)


def test_above_the_dense_limit_the_reference_agrees(monkeypatch):
    expected = problem(LASSO).minimum().theta
    monkeypatch.setattr("fedual.reference._DENSE", 0)
    np.testing.assert_allclose(problem(LASSO).minimum().theta, expected, rtol=0, atol=1e-10)


def test_a_regularizer_must_be_one():
    with pytest.raises(TypeError, match=r"fedual.prox.l1"):
        fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(tables()), regularizer=0.1)
