"""Methods side by side: the same data, start and coins, or a refusal."""

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import fedual as fd
from fedual.cli import app
from references import ragged_tables

SKIP = fd.schedules.Skip(0.4)


@pytest.fixture(scope="module")
def solutions(regression):
    methods = {
        "FedPD": fd.FedPD(fd.oracles.Exact(), step_size=1.0),
        "FedADMM": fd.FedADMM(fd.oracles.Exact(), step_size=1.0),
    }
    return {name: fd.solve(regression, method, rounds=40, schedule=SKIP, seed=3) for name, method in methods.items()}


def test_the_same_coins_for_all(solutions):
    table = fd.compare(solutions).table()
    assert table["run"].to_list() == ["FedPD", "FedADMM"]
    tossed = [s.history["communicated"] for s in solutions.values()]
    np.testing.assert_array_equal(tossed[0], tossed[1])
    assert table["communications"].to_list() == [tossed[0].sum()] * 2
    # three clients send three numbers of eight bytes in every communicated round
    assert table["uplink_bytes"].to_list() == [tossed[0].sum() * 3 * 3 * 8] * 2


def test_cost_to_reach_a_target_is_read_off_the_first_round_that_reaches_it(regression):
    solution = fd.solve(regression, fd.ADMM(step_size=1.0), rounds=40)
    level = float(solution.history["stationarity"][9])
    row = fd.compare([solution]).table(targets=[level, 1e-300]).row(0, named=True)
    assert row[f"communications to {level:g}"] == 10
    assert row["communications to 1e-300"] is None


def test_runs_without_labels_are_called_by_their_algorithm(solutions):
    pair = [solutions["FedPD"], solutions["FedADMM"], solutions["FedPD"]]
    assert list(fd.compare(pair).solutions) == ["FedPD 1", "FedADMM", "FedPD 2"]


def test_what_would_mislead_is_refused(regression, solutions):
    first = solutions["FedPD"]
    method = fd.FedPD(fd.oracles.Exact(), step_size=1.0)
    other_seed = fd.solve(regression, method, rounds=2, schedule=SKIP, seed=4)
    other_start = fd.solve(regression, method, rounds=2, schedule=SKIP, seed=3, theta0=[1.0, 0.0, 0.0])
    pairs = ragged_tables("normal")
    same = fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays(pairs))
    other_loss = fd.Problem(fd.losses.least_squares(l2=0.2), fd.data.from_arrays(pairs))
    pairs[1] = (pairs[1][0], pairs[1][1] + 1)
    other_data = fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays(pairs))
    for problem, what in ((other_loss, "loss"), (other_data, "data")):
        with pytest.raises(ValueError, match=rf"runs 'a' and 'b' differ in their {what}"):
            fd.compare({"a": first, "b": fd.solve(problem, method, rounds=2, schedule=SKIP, seed=3)})
    for solution, what in ((other_seed, "seed"), (other_start, "starting point")):
        with pytest.raises(ValueError, match=rf"runs 'a' and 'b' differ in their {what}"):
            fd.compare({"a": first, "b": solution})
    assert fd.compare({"a": first, "b": fd.solve(same, method, rounds=2, schedule=SKIP, seed=3)})
    with pytest.raises(ValueError, match="nothing to compare"):
        fd.compare([])


def test_the_picture_has_a_panel_for_every_cost_and_measure(solutions, tmp_path):
    figure = fd.compare(solutions).plot()
    assert len(figure.axes) == 10
    assert all(len(axes.lines) == 2 for axes in figure.axes)
    stationarity = figure.axes[-1].lines[0].get_ydata()
    np.testing.assert_array_equal(stationarity, solutions["FedPD"].history["stationarity"])


def test_the_command_writes_a_table_a_picture_and_the_runs(tmp_path):
    for name in ("FedPD", "FedAvg"):
        text = f"""
            [data]
            source = "flights"
            [loss]
            name = "logistic"
            l2 = 0.01
            [algorithm]
            name = "{name}"
            [oracle]
            name = "GradientDescent"
            steps = 2
            [stop]
            rounds = 3
        """
        (tmp_path / f"{name}.toml").write_text(text)
    files = [str(tmp_path / f"{name}.toml") for name in ("FedPD", "FedAvg")]
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["compare", *files, "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "FedAvg" in result.output
    table = pl.read_csv(out / "comparison.csv")
    assert table["run"].to_list() == ["FedPD", "FedAvg"]
    # 37 numbers a message; the rule for an automatic step size adds two to FedPD's
    assert table["uplink_bytes"].to_list() == [3 * 90 * (37 + 2) * 8, 3 * 90 * 37 * 8]
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert fd.load(out / "FedAvg").history.rounds == 3
