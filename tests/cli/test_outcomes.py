"""From one CSV file per hospital to a Poisson model with exposure and a Cox model, by commands alone."""

import sys

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from statsmodels.duration.hazard_regression import PHReg

from fedual.cli import main
from fedual.runs import load_model
from fedual.tables import Transform


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """Writes `A.csv`, `B.csv`, `C.csv` into an empty current folder; returns all rows."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    parts = []
    for site, n in (("A", 50), ("B", 40), ("C", 25)):
        age, years = rng.normal(60, 10, n), rng.uniform(0.3, 3, n)
        rate = np.exp(0.03 * (age - 60))
        frame = {"age": age, "years": years, "falls": rng.poisson(rate * years)}
        frame |= {"days": np.ceil(50 * rng.exponential(1 / rate)), "dead": rng.choice(["no", "yes"], n)}
        parts.append(pl.DataFrame(frame).with_columns(site=pl.lit(site)))
        parts[-1].drop("site").write_csv(f"{site}.csv")
    return pl.concat(parts)


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["fedual", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code


EXACT = ("--set", "loss.l2=0", "--set", "data.test_fraction=0", "--set", "stop.tolerance=1e-22")
FILES = ("A.csv", "B.csv", "C.csv")


def test_counts_with_an_exposure(hospitals, monkeypatch):
    command(monkeypatch, "new", *FILES, "--target", "falls", "--exposure", "years", "--out", "e.toml")
    command(monkeypatch, "run", "e.toml", "--out", "run", *EXACT)
    command(monkeypatch, "predict", "run", *FILES, "--out", "predicted.csv")
    # every other column of the files was proposed as a feature
    x = np.column_stack([hospitals["age"], hospitals["days"], hospitals["dead"] == "yes"]).astype(float)
    design = sm.add_constant(x)
    reference = sm.Poisson(hospitals["falls"].to_numpy(), design, exposure=hospitals["years"].to_numpy())
    means = reference.fit(method="newton", tol=1e-14, disp=0).predict()
    np.testing.assert_allclose(pl.read_csv("predicted.csv")["prediction"], means, rtol=1e-6)


def test_times_to_an_event(hospitals, monkeypatch):
    command(monkeypatch, "new", *FILES, "--target", "days", "--event", "dead", "--out", "e.toml")
    command(monkeypatch, "run", "e.toml", "--out", "run", *EXACT)
    model = load_model("run/model.safetensors")
    _, scale = Transform.from_dict(model.transform).scaling()
    x = hospitals.select("age", "years", "falls").to_numpy().astype(float)
    status = (hospitals["dead"] == "yes").to_numpy().astype(float)
    reference = PHReg(hospitals["days"].to_numpy(), x, status=status, strata=hospitals["site"].to_numpy(), ties="efron")
    expected = reference.fit(method="newton", tol=1e-12, disp=0).params
    np.testing.assert_allclose(model.theta / scale, expected, rtol=1e-6, atol=1e-8)
