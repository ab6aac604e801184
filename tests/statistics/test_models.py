"""Coefficients and standard errors against statsmodels on the pooled table."""

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.duration.hazard_regression import PHReg

import fedual as fd

SIZES = (60, 25, 90, 1)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(7)
    n = sum(SIZES)
    x = np.column_stack([rng.normal(size=(n, 2)), rng.integers(0, 2, n)])
    z = x @ [0.5, -0.3, 0.4] + 0.2
    exposure = rng.uniform(-0.5, 0.5, n)
    return {
        "x": x,
        "site": np.repeat(np.arange(len(SIZES)), SIZES),
        "exposure": exposure,
        "linear": z + rng.normal(size=n),
        "logistic": (rng.uniform(size=n) < 1 / (1 + np.exp(-z))).astype(int),
        "counts": rng.poisson(np.exp(z + exposure)),
        "overdispersed": rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(z + exposure))),
        "classes": np.array([rng.choice(3, p=np.exp([0, v, -v]) / np.exp([0, v, -v]).sum()) for v in z]),
        # few distinct times, so that there are many ties, some censored
        "time": np.ceil(6 * rng.exponential(np.exp(-z))),
        "event": (rng.uniform(size=n) < 0.7).astype(int),
    }


def split(table, x, y):
    return fd.data.from_arrays([(x[table["site"] == k], y[table["site"] == k]) for k in range(len(SIZES))])


def solve(loss, clients):
    problem = fd.Problem(loss, clients)
    theta = problem.minimum().theta
    return problem, theta


def cases(table):
    x, with_exposure = table["x"], np.column_stack([table["x"], table["exposure"]])
    design = sm.add_constant(x, prepend=False)
    tight = {"disp": 0, "maxiter": 500}
    yield (
        fd.losses.least_squares(intercept=True),
        x,
        table["linear"],
        lambda **k: sm.OLS(table["linear"], design).fit(**k),
    )
    yield (
        fd.losses.logistic(intercept=True),
        x,
        table["logistic"],
        lambda **k: sm.Logit(table["logistic"], design).fit(method="newton", tol=1e-14, **tight, **k),
    )
    yield (
        fd.losses.poisson(intercept=True, offset=True),
        with_exposure,
        table["counts"],
        lambda **k: sm.Poisson(table["counts"], design, offset=table["exposure"]).fit(
            method="newton", tol=1e-14, **tight, **k
        ),
    )
    yield (
        fd.losses.negative_binomial(intercept=True, offset=True),
        with_exposure,
        table["overdispersed"],
        lambda **k: sm.NegativeBinomial(table["overdispersed"], design, offset=table["exposure"]).fit(
            method="bfgs", gtol=1e-6, **tight, **k
        ),
    )


@pytest.mark.parametrize("number", range(4), ids=["linear", "logistic", "poisson", "negative binomial"])
@pytest.mark.parametrize("errors", ["model", "site"])
def test_equal_to_statsmodels_on_the_pooled_table(table, number, errors):
    loss, x, y, fit = list(cases(table))[number]
    by_site = {"cov_type": "cluster", "cov_kwds": {"groups": table["site"]}, "use_t": number == 0}
    reference = fit() if errors == "model" else fit(**by_site)
    problem, theta = solve(loss, split(table, x, y))
    found = fd.infer(problem, theta, errors)
    np.testing.assert_allclose(found.coefficients, reference.params, atol=1e-6)
    np.testing.assert_allclose(found.standard_errors, reference.bse, rtol=1e-5)
    np.testing.assert_allclose(found.z, reference.tvalues, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.p_values, reference.pvalues, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.intervals(0.9), reference.conf_int(0.1), atol=2e-5)


def test_multinomial_equals_statsmodels(table):
    reference = sm.MNLogit(table["classes"], sm.add_constant(table["x"], prepend=False)).fit(
        method="newton", tol=1e-14, disp=0
    )
    problem, theta = solve(fd.losses.multinomial(3, intercept=True), split(table, table["x"], table["classes"]))
    found = fd.infer(problem, theta)
    np.testing.assert_allclose(found.coefficients, np.ravel(reference.params), atol=1e-6)
    np.testing.assert_allclose(found.standard_errors, np.ravel(reference.bse), rtol=1e-5)
    assert found.names[:2] == ("x0, class 1", "x0, class 2")


def test_cox_with_ties_stratified_by_site_equals_statsmodels(table):
    reference = PHReg(
        table["time"], table["x"], status=table["event"], strata=table["site"], ties="efron"
    ).fit(method="newton", tol=1e-12, disp=0)  # fmt: skip
    y = np.column_stack([table["time"], table["event"]])
    problem, theta = solve(fd.losses.cox(), split(table, table["x"], y))
    found = fd.infer(problem, theta)
    np.testing.assert_allclose(found.coefficients, reference.params, atol=1e-6)
    np.testing.assert_allclose(found.standard_errors, reference.bse, rtol=1e-5)
    # the log partial likelihood itself, where PHReg sums over strata
    assert -problem.value(theta) * sum(SIZES) == pytest.approx(reference.llf, rel=1e-10)


def test_a_federated_fit_gives_the_same_table(table):
    x, y = table["x"], table["logistic"]
    problem = fd.Problem(fd.losses.logistic(intercept=True), split(table, x, y))
    solution = fd.solve(
        problem, fd.FedPD(fd.oracles.Newton(), step_size=5.0), rounds=500, tolerance=1e-20, evaluate_every=5
    )
    assert solution.converged
    found, reference = fd.infer(problem, solution.theta), fd.infer(problem, problem.minimum().theta)
    np.testing.assert_allclose(found.coefficients, reference.coefficients, atol=1e-6)
    np.testing.assert_allclose(found.standard_errors, reference.standard_errors, rtol=1e-6)
    assert found.uplink_bytes == 4 * 10 * 8
    assert found.to_polars()["parameter"].to_list() == ["x0", "x1", "x2", "intercept"]


def test_what_has_no_standard_errors_is_refused(table):
    clients = split(table, table["x"], table["logistic"])
    problem, theta = solve(fd.losses.logistic(intercept=True), clients)
    with pytest.raises(ValueError, match="theta is no solution"):
        fd.infer(problem, theta + 0.1)
    with pytest.raises(ValueError, match="unpenalized"):
        fd.infer(*solve(fd.losses.logistic(l2=0.1), clients))
    with pytest.raises(ValueError, match="weights='samples'"):
        fd.infer(fd.Problem(fd.losses.logistic(), clients, weights="uniform"), np.zeros(3))
    with pytest.raises(ValueError, match=r"information matrix is singular.*multinomial"):
        fd.infer(*solve(fd.losses.softmax(3), split(table, table["x"], table["classes"])))
    with pytest.raises(ValueError, match="errors = 'robust'"):
        fd.infer(problem, theta, "robust")


def test_cox_refuses_minibatches_and_bad_targets(table):
    y = np.column_stack([table["time"], table["event"]])
    problem = fd.Problem(fd.losses.cox(), split(table, table["x"], y))
    oracle = fd.oracles.StochasticGradient(steps=2, learning_rate=0.1, batch_size=4)
    with pytest.raises(ValueError, match="Cox is no mean over rows"):
        fd.solve(problem, fd.FedPD(oracle, step_size=1.0), rounds=1)
    for bad, message in ((y[:, 0], "pairs"), (y * [1, 2], "events must be 0"), (y - [100, 0], "times must be >= 0")):
        with pytest.raises(ValueError, match=rf"client 'client 0'.*{message}"):
            fd.Problem(fd.losses.cox(), split(table, table["x"], bad))
