"""Metrics against scikit-learn; every figure knows its model and its average; what is not defined is never 0."""

import numpy as np
import pytest
from sklearn import calibration, linear_model
from sklearn import metrics as reference

import fedual as fd
from fedual import metrics

RNG = np.random.default_rng(5)
LABELS = RNG.integers(0, 2, 200)
CHANCES = np.round(np.clip(0.3 * LABELS + 0.7 * RNG.random(200), 0, 1), 2)  # rounded: there are ties


def test_two_classes_agree_with_scikit_learn():
    assert metrics.accuracy(LABELS, CHANCES) == reference.accuracy_score(LABELS, CHANCES > 0.5)
    assert metrics.auc(LABELS, CHANCES) == pytest.approx(reference.roc_auc_score(LABELS, CHANCES), abs=1e-14)
    assert metrics.log_loss(LABELS, CHANCES) == pytest.approx(
        reference.log_loss(LABELS, np.clip(CHANCES, 1e-15, 1 - 1e-15)), rel=1e-9
    )


def test_labels_of_minus_one_count_as_the_first_class():
    signs = 2 * LABELS - 1
    for metric in (metrics.accuracy, metrics.auc, metrics.log_loss, metrics.calibration_error):
        assert metric(signs, CHANCES) == metric(LABELS, CHANCES)


def test_calibration_error_is_the_weighted_gap_of_scikit_learns_curve():
    chances = RNG.random(500)
    labels = (RNG.random(500) < chances**2).astype(int)
    observed, mean = calibration.calibration_curve(labels, chances, n_bins=10)
    counts = np.histogram(chances, bins=10, range=(0, 1))[0]
    expected = np.abs(observed - mean) @ counts[counts > 0] / 500
    assert metrics.calibration_error(labels, chances) == pytest.approx(expected, abs=1e-12)


def test_several_classes_agree_with_scikit_learn():
    chances = RNG.dirichlet(np.ones(3), 100)
    labels = RNG.integers(0, 3, 100)
    assert metrics.accuracy(labels, chances) == reference.accuracy_score(labels, chances.argmax(axis=1))
    assert metrics.log_loss(labels, chances) == pytest.approx(reference.log_loss(labels, chances), rel=1e-12)


def test_regression_agrees_with_scikit_learn():
    y, predicted = RNG.normal(size=50), RNG.normal(size=50)
    assert metrics.rmse(y, predicted) == pytest.approx(reference.root_mean_squared_error(y, predicted), rel=1e-14)
    assert metrics.r2(y, predicted) == pytest.approx(reference.r2_score(y, predicted), rel=1e-14)


def test_certain_and_wrong_is_finite():
    assert metrics.log_loss(np.array([1, 0]), np.array([0.0, 1.0])) == pytest.approx(-np.log(1e-15))


def test_both_averages_are_told_and_labelled():
    """Clients of 10 and 990 rows with accuracies 0.5 and 0.9."""

    def rows(count, right):
        return np.ones((count, 1)), np.arange(count) < right

    test = fd.data.from_arrays([rows(10, 5), rows(990, 891)], names=["small", "large"])
    theta = np.array([3.0])  # predicts the second class everywhere
    result = metrics.evaluate(fd.losses.logistic(), test, theta, test.names, metrics.GLOBAL)
    assert result.clients["accuracy"].tolist() == [0.5, 0.9]
    summary = result.summary()["accuracy"]
    assert summary["mean by clients"] == pytest.approx(0.70)
    assert summary["mean by samples"] == summary["pooled"] == pytest.approx(0.896)
    with pytest.raises(ValueError, match="'samples' or 'clients'"):
        result.average("accuracy", "rows")


def test_a_client_without_test_rows_or_with_one_class_is_not_a_number():
    test = fd.data.from_arrays([([[0.0], [1.0]], [1, 1]), ([[0.0], [1.0]], [0, 1])], names=["one", "both"])
    result = metrics.evaluate(fd.losses.logistic(), test, np.array([1.0]), ("one", "none", "both"), metrics.GLOBAL)
    np.testing.assert_array_equal(result.clients["auc"], [np.nan, np.nan, 1.0])
    np.testing.assert_array_equal(result.rows, [2, 0, 2])
    assert np.isnan(result.clients["accuracy"][1])
    assert result.average("auc", "samples") == 1.0
    assert result.summary()["auc"]["clients"] == 1
    constant = fd.data.from_arrays([([[0.0], [1.0]], [2.0, 2.0])], names=["a"])
    result = metrics.evaluate(fd.losses.least_squares(), constant, np.array([1.0]), ("a",), metrics.GLOBAL)
    assert np.isnan(result.clients["r2"][0])
    assert np.isnan(result.average("r2", "clients"))


def test_local_models_judge_their_own_clients_rows():
    """The received model is right on half the rows, the model after local work on nine tenths."""
    x = np.array([[-1.0]] * 5 + [[1.0]] * 5)
    test = fd.data.from_arrays([(x, [0, 1, 1, 1, 1, 1, 0, 0, 0, 0]), (x, [0] * 5 + [1] * 5)], names=["a", "b"])
    loss, names = fd.losses.logistic(), test.names
    received = metrics.evaluate(loss, test, np.array([1.0]), names, metrics.GLOBAL)
    after = metrics.evaluate(loss, test, np.array([[-1.0], [1.0]]), names, metrics.LOCAL)
    assert received.clients["accuracy"].tolist() == [0.2, 1.0]
    assert after.clients["accuracy"].tolist() == [0.8, 1.0]
    assert "received" in received.model
    assert "after local work" in after.model
    with pytest.raises(ValueError, match=r"theta has shape \(3, 1\); expected one row for each of 2"):
        metrics.evaluate(loss, test, np.ones((3, 1)), names, metrics.LOCAL)


@pytest.mark.parametrize(
    ("loss", "model"),
    [
        (fd.losses.logistic(l2=0.1, intercept=True), linear_model.LogisticRegression(C=1 / 6, tol=1e-10)),
        (fd.losses.least_squares(l2=0.1, intercept=True), linear_model.Ridge(alpha=6.0)),
        (fd.losses.poisson(l2=0.1, intercept=True), linear_model.PoissonRegressor(alpha=0.1, tol=1e-10)),
        (fd.losses.softmax(3, l2=0.1, intercept=True), linear_model.LogisticRegression(C=1 / 6, tol=1e-10)),
    ],
    ids=["logistic", "least squares", "poisson", "softmax"],
)
def test_predictions_are_scikit_learns_at_the_same_parameters(loss, model):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2))
    y = rng.integers(0, 3 if "Softmax" in type(loss).__name__ else 2, 60)
    model.fit(x, y)
    coef = np.atleast_2d(model.coef_)
    theta = np.concatenate([coef.T, np.atleast_2d(model.intercept_)]).ravel()
    expected = model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)
    if loss.task == "binary":
        expected = expected[:, 1]
    np.testing.assert_allclose(loss.predict(theta, x), expected, rtol=1e-10)


def test_a_loss_without_predictions_is_refused():
    loss = fd.losses.from_function(lambda parameters, batch: batch[1], np.zeros(1))
    test = fd.data.from_arrays([([[1.0]], [1.0])])
    with pytest.raises(ValueError, match="FromFunction has no `predict`"):
        metrics.evaluate(loss, test, np.zeros(1), test.names, metrics.GLOBAL)
