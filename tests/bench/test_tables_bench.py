"""The comparison behind the page on tables with natural sites, on a small table of our own."""

import dataclasses

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import fedual as fd
from fedual.bench.tables import coefficients, prediction
from fedual.data import Dataset, describe


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(8)
    pairs = []
    for n in (40, 30, 25, 12):
        x = rng.normal(rng.normal(), 1, size=(n, 2))
        pairs.append((x, (rng.random(n) < 1 / (1 + np.exp(-x @ [1.0, -0.5]))).astype(int)))
    pairs[-1] = (pairs[-1][0], np.ones(12, int))  # a site of one class
    return fd.data.from_arrays(pairs, columns=("a", "b"))


def test_the_three_ways_are_judged_on_the_same_rows(clients):
    dataset = Dataset(dataclasses.replace(describe("flights"), name="small"), clients)
    found = prediction(dataset)
    train, test = clients.split(0.3, seed=0)
    (x, y), (new, truth) = train.pooled(), test.pooled()
    pooled = LogisticRegression(C=1.0, tol=1e-10, solver="newton-cholesky").fit(x, y).predict_proba(new)
    for figures in (found.federated, found.pooled):
        assert figures["auc"] == pytest.approx(roc_auc_score(truth, pooled[:, 1]), abs=1e-9)
        assert figures["log_loss"] == pytest.approx(log_loss(truth, pooled), rel=1e-6)
    alone = []
    for name, rows in zip(test.names, test.features, strict=True):
        k = train.names.index(name)
        if name == "client 3":  # 8 training rows of one class and a pseudo-row per class
            alone.append(np.tile([1 / 10, 9 / 10], (len(rows), 1)))
        else:
            alone.append(
                LogisticRegression(C=1.0, tol=1e-10).fit(train.features[k], train.targets[k]).predict_proba(rows)
            )
    assert found.alone["log_loss"] == pytest.approx(log_loss(truth, np.concatenate(alone)), rel=1e-5)
    own = [log_loss(t, p, labels=[0, 1]) for t, p in zip(test.targets, alone, strict=True)]
    shared = np.split(pooled, np.cumsum(test.sizes)[:-1])
    theirs = [log_loss(t, p, labels=[0, 1]) for t, p in zip(test.targets, shared, strict=True)]
    assert (found.gaining, found.compared) == (int(np.sum(np.less(theirs, own))), 4)
    assert found.rows == len(truth)
    assert found.difference < 1e-7
    assert found.bytes == found.rounds * 4 * (3 + 2) * 8  # the model, and the two numbers by which s is adapted


def test_the_coefficients_are_those_of_the_joined_table(clients):
    found = coefficients(clients, "binary")
    x, y = clients.pooled()
    reference = sm.Logit(y, sm.add_constant(x, prepend=False)).fit(method="newton", tol=1e-14, disp=0)
    np.testing.assert_allclose(found.federated.coefficients, reference.params, atol=1e-6)
    np.testing.assert_allclose(found.federated.standard_errors, reference.bse, rtol=1e-5)
    np.testing.assert_allclose(found.by_site.standard_errors, found.pooled[2], rtol=1e-5)
    assert found.federated.names == ("a", "b", "intercept")
    assert np.isnan(found.alone[3]).all()
    assert np.isfinite(found.alone[:3]).all()
