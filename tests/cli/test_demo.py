"""The demo's claims, against scikit-learn on the same rows."""

import sys

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import fedual as fd
from fedual.cli import main


def test_the_demo_agrees_with_the_pooled_optimum(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedual", "demo"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    shown = capsys.readouterr().out
    assert "Results are in runs/demo" in shown
    run = fd.load("runs/demo")
    assert run.converged

    train, test = fd.data.load("flights").clients.split(0.3, seed=0)
    (x, y), (held_x, held_y) = train.pooled(), test.pooled()
    pooled = LogisticRegression(C=1 / (1e-3 * len(y)), tol=1e-10, max_iter=10_000).fit(x, y)
    coef = pooled.coef_[0]
    minimum = log_loss(y, pooled.predict_proba(x)) + 1e-3 / 2 * coef @ coef
    assert run.summary["objective"] == pytest.approx(minimum, rel=1e-6)
    predicted = pooled.predict_proba(held_x)[:, 1]
    held = run.summary["metrics on held-out rows"]["global theta (received)"]
    assert held["auc"]["pooled"] == pytest.approx(roc_auc_score(held_y, predicted), abs=1e-4)
    assert held["log_loss"]["pooled"] == pytest.approx(log_loss(held_y, predicted), abs=1e-4)

    table = pl.read_csv("runs/demo/comparison.csv")
    k = train.names.index("DEN")
    alone = LogisticRegression(C=1 / (1e-3 * train.sizes[k]), tol=1e-10, max_iter=10_000)
    alone.fit(train.features[k], train.targets[k])
    expected = log_loss(test.targets[k], alone.predict_proba(test.features[k]))
    assert table["log_loss alone"][k] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(table["log_loss FedPD"], table["log_loss pooled"], atol=1e-3)
