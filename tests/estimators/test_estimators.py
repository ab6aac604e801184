"""The estimators against scikit-learn's own on the pooled table, and inside scikit-learn's tools."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")

import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import fedual as fd
from fedual.sklearn import (
    FederatedElasticNet,
    FederatedLasso,
    FederatedLinearRegression,
    FederatedLogisticRegression,
)

ESTIMATORS = (FederatedElasticNet, FederatedLasso, FederatedLinearRegression, FederatedLogisticRegression)


def own_checks():
    """scikit-learn's checks of every estimator; without `groups`, which they do not know, all rows are one site's."""
    for estimator in ESTIMATORS:
        for instance, check in estimator_checks_generator(estimator(), mark="skip"):
            # NumPy arrays in, NumPy arrays out: other array namespaces are not promised, and the check only skips.
            if check.func.__name__ != "check_array_api_input":
                yield pytest.param(instance, check, id=f"{estimator.__name__}-{check.func.__name__}")


@pytest.mark.parametrize(("estimator", "check"), list(own_checks()))
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


TIGHT = {"tol": 1e-14, "max_iter": 100_000}
NEWTON = {"solver": "newton-cholesky", "tol": 1e-10, "max_iter": 1000}
SITES = np.repeat(["north", "south", "west", "hut"], [60, 45, 34, 1])


@pytest.fixture(scope="module")
def table():
    """Sites with different feature means, columns of different scales and centers, one site of one row."""
    rng = np.random.default_rng(5)
    n = len(SITES)
    shift = np.unique(SITES, return_inverse=True)[1][:, None] / 2
    z = rng.normal(size=(n, 4)) + shift
    x = np.column_stack([60 + 12 * z[:, 0], 40 + 10 * z[:, 1], z[:, 2], 0.1 * z[:, 3]])
    score = z @ [0.8, -0.5, 0.3, 0.0]
    odds = np.exp(np.column_stack([0 * score, score, -score]))
    return {
        "x": x,
        "number": 250 + 30 * score + rng.normal(0, 20, n),
        "label": np.where(score + rng.logistic(size=n) > 0.3, "ill", "well"),
        "stage": np.array([rng.choice(["I", "II", "III"], p=p) for p in odds / odds.sum(axis=1, keepdims=True)]),
    }


def assert_same(ours, theirs, x, tolerance=1e-6):
    """Coefficients in units that make their columns' deviations 1, and the intercept at the columns' means."""
    scale = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    unit = max(1.0, float(np.abs(theirs.coef_ * scale).max()))
    np.testing.assert_allclose(ours.coef_ * scale, theirs.coef_ * scale, rtol=0, atol=tolerance * unit)
    at_mean = [m.intercept_ + m.coef_ @ x.mean(axis=0) for m in (ours, theirs)]
    np.testing.assert_allclose(*at_mean, rtol=0, atol=tolerance * unit)
    assert ours.coef_.shape == theirs.coef_.shape
    assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
    assert ours.n_features_in_ == theirs.n_features_in_


@pytest.mark.parametrize("target", ["label", "stage"])
@pytest.mark.parametrize("settings", [{"C": 1.0}, {"C": 0.02}, {"C": np.inf}, {"C": 0.5, "fit_intercept": False}])
def test_logistic_regression_is_that_of_the_pooled_table(table, target, settings):
    x, y = table["x"], table[target]
    if not settings.get("fit_intercept", True):
        x = StandardScaler().fit_transform(x)
    ours = FederatedLogisticRegression(**settings).fit(x, y, groups=SITES)
    theirs = LogisticRegression(**settings, **NEWTON).fit(x, y)
    assert ours.solution_.problem.clients.names == ("hut", "north", "south", "west")
    assert ours.solution_.converged
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    if target == "stage" and settings["C"] == np.inf:  # scores may all be moved together: compare what they predict
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-6)
        return
    assert_same(ours, theirs, x)
    np.testing.assert_allclose(ours.predict_log_proba(x), theirs.predict_log_proba(x), atol=1e-5)
    np.testing.assert_allclose(ours.decision_function(x), theirs.decision_function(x), atol=1e-5)
    assert ours.predict(x).tolist() == theirs.predict(x).tolist()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (FederatedLinearRegression(), LinearRegression()),
        (FederatedLasso(alpha=4.0), Lasso(alpha=4.0, **TIGHT)),
        (
            FederatedElasticNet(alpha=0.7, l1_ratio=0.3),
            ElasticNet(alpha=0.7, l1_ratio=0.3, **TIGHT),
        ),
        (
            FederatedElasticNet(alpha=0.7, l1_ratio=0.0),
            ElasticNet(alpha=0.7, l1_ratio=0.0, **TIGHT),
        ),
    ],
    ids=["linear", "lasso", "elastic net", "ridge"],
)
# scikit-learn advises against l1_ratio = 0 in coordinate descent, which converges here all the same
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_regressions_are_those_of_the_pooled_table(table, ours, theirs, fit_intercept):
    x, y = table["x"], table["number"]
    if not fit_intercept:
        x = StandardScaler().fit_transform(x)
    ours = clone(ours).set_params(fit_intercept=fit_intercept).fit(x, y, groups=SITES)
    theirs = theirs.set_params(fit_intercept=fit_intercept).fit(x, y)
    assert ours.solution_.converged
    assert_same(ours, theirs, x)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-6, atol=1e-5)
    if isinstance(theirs, Lasso):
        assert ((ours.coef_ == 0) == (theirs.coef_ == 0)).all()


def test_a_constant_column_has_coefficient_0(table):
    x = np.column_stack([table["x"], np.full(len(SITES), 3.0)])
    model = FederatedLinearRegression().fit(x, table["number"], groups=SITES)
    assert model.coef_[-1] == 0
    np.testing.assert_allclose(model.coef_[:-1], LinearRegression().fit(table["x"], table["number"]).coef_, rtol=1e-6)


def test_a_site_may_lack_classes_and_the_sites_do_not_change_the_answer(table):
    x, y = table["x"][:, :2], np.array(["a", "b", "c"])[np.arange(len(SITES)) % 3]
    by_class = y.copy()  # every site has one class only
    apart = FederatedLogisticRegression().fit(x, y, groups=by_class)
    together = FederatedLogisticRegression().fit(x, y)
    assert len(apart.solution_.problem.clients) == 3
    assert len(together.solution_.problem.clients) == 1
    np.testing.assert_allclose(apart.predict_proba(x), together.predict_proba(x), atol=1e-6)


def test_any_method_of_the_library_serves(table):
    x, y = StandardScaler().fit_transform(table["x"]), table["label"]
    oracle = fd.oracles.GradientDescent(steps=20, learning_rate=0.3)
    ours = FederatedLogisticRegression(algorithm=fd.FedPD(oracle, step_size=5.0), rounds=3000).fit(x, y, groups=SITES)
    theirs = LogisticRegression(**NEWTON).fit(x, y)
    assert_same(ours, theirs, x)
    with pytest.raises(ValueError, match="FedAvg does not allow a regularizer"):
        FederatedLasso(algorithm=fd.FedAvg()).fit(x, table["number"], groups=SITES)


def test_a_run_that_ends_early_says_so(table):
    with pytest.warns(ConvergenceWarning, match="without reaching the tolerance"):
        model = FederatedLogisticRegression(rounds=5).fit(table["x"], table["label"], groups=SITES)
    assert model.n_iter_.tolist() == [5]
    assert not model.solution_.converged


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (FederatedLogisticRegression(C=0), "C = 0 must be > 0"),
        (FederatedLasso(alpha=-1.0), r"alpha = -1\.0 must be >= 0"),
        (FederatedElasticNet(l1_ratio=1.5), r"l1_ratio = 1\.5 must be >= 0 and at most 1"),
        (FederatedLasso(alpha=float("nan")), "alpha = nan"),
    ],
)
def test_impossible_settings_are_refused(table, estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(table["x"], np.arange(len(SITES)) % 2, groups=SITES)


def test_every_row_needs_a_site(table):
    x, y = table["x"], table["label"]
    with pytest.raises(ValueError, match="rows have no site"):
        FederatedLogisticRegression().fit(x, y, groups=[None, *SITES[1:]])
    with pytest.raises(ValueError, match="there are 139 sites"):
        FederatedLogisticRegression().fit(x, y, groups=SITES[1:])
    with pytest.raises(TypeError, match="one entry per row"):
        FederatedLogisticRegression().fit(x, y, groups="north")


def test_sites_are_routed_through_pipelines_searches_and_cross_validation(table):
    """Cross-validation by site, the sites reaching both the splitter and the fit."""
    x, y, sites = table["x"][:, :3], table["number"], np.arange(len(SITES)) % 6
    grid = {"federatedlasso__alpha": [0.5, 20.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        ours = make_pipeline(StandardScaler(), FederatedLasso().set_fit_request(groups=True))
        search = GridSearchCV(ours, grid, cv=GroupKFold(3)).fit(x, y, groups=sites)
        scores = cross_val_score(search.best_estimator_, x, y, cv=LeaveOneGroupOut(), params={"groups": sites})
    names = search.best_estimator_[-1].solution_.problem.clients.names
    assert names == ("0", "1", "2", "3", "4", "5")
    pooled = make_pipeline(StandardScaler(), Lasso(tol=1e-12, max_iter=100_000))
    reference = GridSearchCV(pooled, {"lasso__alpha": [0.5, 20.0]}, cv=GroupKFold(3)).fit(x, y, groups=sites)
    assert search.best_params_["federatedlasso__alpha"] == reference.best_params_["lasso__alpha"]
    for key in ("mean_test_score", "std_test_score"):
        np.testing.assert_allclose(search.cv_results_[key], reference.cv_results_[key], atol=1e-6)
    expected = cross_val_score(reference.best_estimator_, x, y, cv=LeaveOneGroupOut(), groups=sites)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_sites_reach_a_pipeline_without_routing(table):
    x, y = table["x"], table["label"]
    model = make_pipeline(StandardScaler(), FederatedLogisticRegression())
    model.fit(x, y, federatedlogisticregression__groups=SITES)
    assert len(model[-1].solution_.problem.clients) == 4
    reference = make_pipeline(StandardScaler(), LogisticRegression(**NEWTON)).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(x), reference.predict_proba(x), atol=1e-6)
