"""What a report says is what the run did."""

import json
import re

import numpy as np
import polars as pl
import pytest

import fedual as fd
from fedual import runs
from fedual.config import Config, build

for module in ("altair", "vl_convert", "jinja2"):
    pytest.importorskip(module, reason=f"reports need {module}: install fedual[report]")

from fedual import report
from fedual.report.charts import history_rows, strip_rows
from fedual.report.facts import Facts, gather
from fedual.solution import COLUMNS, History

SITES = [([[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0]), ([[1.0, 1.0]], [6.0]), ([[2.0, 0.0]], [1.0])]
NAMES = ["<b>north & south</b>", "東", "west"]


@pytest.fixture(scope="module")
def solution():
    clients = fd.data.from_arrays(SITES, names=NAMES, columns=["age", "dose </script>"])
    problem = fd.Problem(fd.losses.least_squares(l2=0.5), clients)
    return fd.solve(problem, fd.FedPD(fd.oracles.Exact(), 0.5), 12, fd.schedules.Periodic(3), evaluate_every=2)


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def made(history, label="run"):
    """Facts that have a history alone."""
    return Facts(label, "round limit", "", history, None, None, {}, {}, "", {})


def long_history(rounds, every):
    columns = {name: np.zeros(rounds) for name in COLUMNS}
    number = np.arange(1, rounds + 1)
    columns |= {"round": number, "communicated": number % 2 == 0}
    columns["stationarity"] = np.where(number % every == 0, 1.0 / number, np.nan)
    return History(columns)


def test_the_page_holds_the_history(solution):
    rows = embedded(report.page(solution))["datasets"]["history"]
    history = solution.history
    assert [row["round"] for row in rows] == list(range(1, 13))
    assert [row["stationarity"] is None for row in rows] == [True, False] * 6
    np.testing.assert_allclose([r["primal_residual"] for r in rows], history["primal_residual"], rtol=1e-6)
    np.testing.assert_allclose(
        [r["bytes"] for r in rows], history["uplink_bytes"] + history["downlink_bytes"], rtol=1e-6
    )
    objective = history["objective"][1::2]
    np.testing.assert_allclose([r["excess"] for r in rows[1::2]], objective - objective.min(), rtol=1e-6)


def test_the_strip_shows_every_round_as_it_was(solution):
    strip = embedded(report.page(solution))["datasets"]["strip"]
    assert [cell["share"] for cell in strip] == [0, 0, 1] * 4
    assert [(cell["from"], cell["to"]) for cell in strip[:2]] == [(0.5, 1.5), (1.5, 2.5)]


def test_a_very_long_history_is_thinned_without_losing_its_ends_or_all_it_knows():
    rows = history_rows([made(long_history(50_000, 1_000))])
    assert len(rows) <= 2_000
    assert (rows[0]["round"], rows[-1]["round"]) == (1, 50_000)
    assert [r["round"] for r in rows if r["stationarity"] is not None] == list(range(1_000, 50_001, 1_000))
    strip = strip_rows([made(long_history(50_000, 1))])
    assert len(strip) == 1_000
    assert strip[0]["rounds"] == "1 to 50"
    assert {cell["share"] for cell in strip} == {0.5}


def test_the_table_of_clients_agrees_with_closed_forms_and_marks_who_is_served_worst(solution):
    clients = gather(solution).clients
    theta = solution.theta
    gradients = [np.linalg.norm(np.transpose(X) @ (np.asarray(X) @ theta - y) / len(y) + 0.5 * theta) for X, y in SITES]
    np.testing.assert_allclose(clients["gradient_norm"], gradients, rtol=1e-12)
    np.testing.assert_allclose(clients["distance"], np.linalg.norm(solution.thetas - theta, axis=1), rtol=1e-12)
    many = fd.data.from_arrays([([[1.0]], [float(k)]) for k in range(8)])
    page = report.page(fd.solve(fd.Problem(fd.losses.least_squares(), many), fd.ADMM(step_size=1.0), 3))
    marked = re.findall(r'<tr class="worst">\s*<th scope="row">(client \d)', page)
    # theta is near the mean 3.5, so the clients at the ends have the largest gradients.
    assert len(marked) == 5
    assert set(marked[:4]) == {"client 0", "client 7", "client 1", "client 6"}


def test_coefficients_are_named_and_the_spread_is_the_weighted_deviation(solution):
    table = gather(solution).coefficients
    assert table["parameter"].to_list() == ["age", "dose </script>"]
    np.testing.assert_array_equal(table["coefficient"], solution.theta)
    weights = np.array([2, 1, 1]) / 4
    np.testing.assert_allclose(table["spread"] ** 2, weights @ (solution.thetas - solution.theta) ** 2, rtol=1e-12)


def test_a_model_that_is_not_linear_has_no_table_of_coefficients():
    loss = fd.losses.from_function(lambda p, batch: (batch[0] @ p - batch[1]) ** 2, np.zeros(2))
    problem = fd.Problem(loss, fd.data.from_arrays(SITES))
    oracle = fd.oracles.GradientDescent(2, 0.05)
    assert gather(fd.solve(problem, fd.FedPD(oracle, 1.0), 2)).coefficients is None


def test_names_from_the_data_cannot_become_markup(solution):
    page = report.page({"<i>run</i>": solution}, title="</title><script>alert(1)</script>")
    assert "&lt;b&gt;north &amp; south&lt;/b&gt;" in page
    for markup in ("<b>north", "<i>run", "<script>alert"):
        assert markup not in page
    assert embedded(page)["datasets"]["history"][0]["run"] == "<i>run</i>"


def test_a_verdict_is_given_for_every_run(solution):
    problem = solution.problem
    ended = fd.solve(problem, fd.ADMM(step_size=0.5), 300, tolerance=1e-18)
    page = report.page({"silent": solution, "exact": ended})
    assert re.search(r'class="verdict converged"><b>exact</b> Converged: round \d+ reached the tolerance', page)
    assert re.search(r'class="verdict round-limit"><b>silent</b> Round limit: 12 rounds were done', page)


def test_a_folder_and_the_solution_in_memory_give_the_same_figures(tmp_path):
    for name, shift in (("north", 0.0), ("south", 1.0)):
        values = "".join(f"{x},{2 * x + shift}\n" for x in range(6))
        (tmp_path / f"{name}.csv").write_text("dose,effect\n" + values)
    config = {
        "data": {"files": [str(tmp_path / "north.csv"), str(tmp_path / "south.csv")], "target": "effect"},
        "loss": {"name": "least_squares", "intercept": True},
        "algorithm": {"name": "ADMM", "step_size": 1.0},
        "oracle": {"name": "Exact"},
        "stop": {"rounds": 8},
    }
    outcome = runs.run(build(Config.from_dict(config)), tmp_path / "out")
    memory, disk = gather(outcome.solution), gather(tmp_path / "out")
    assert disk.label == "out"
    assert disk.verdict == memory.verdict
    assert disk.clients.columns == memory.clients.columns
    np.testing.assert_allclose(disk.clients.drop("client"), memory.clients.drop("client"), rtol=1e-12)
    assert disk.coefficients.equals(memory.coefficients)
    assert disk.coefficients["parameter"].to_list() == ["dose", "intercept"]
    assert "least_squares" in disk.configuration
    assert disk.provenance["seed"] == 0
    report.write(tmp_path / "out", tmp_path / "page.html")
    assert "south" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_run_that_was_killed_is_reported_as_far_as_it_came(tmp_path):
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"x": rng.normal(size=9), "y": rng.normal(size=9), "site": ["a", "b", "c"] * 3})
    table.write_csv(tmp_path / "table.csv")
    config = {
        "data": {"files": [str(tmp_path / "table.csv")], "site": "site", "target": "y"},
        "loss": {"name": "least_squares", "l2": 0.1},
        "algorithm": {"name": "ADMM", "step_size": 1.0},
        "stop": {"rounds": 3},
    }
    runs.run(build(Config.from_dict(config)), tmp_path / "out")
    for name in ("summary.json", "clients.csv", "clients.safetensors"):
        (tmp_path / "out" / name).unlink()
    facts = gather(tmp_path / "out")
    assert facts.status == "unfinished"
    assert facts.clients is None
    assert facts.history.rounds == 3
    assert "fedual resume" in report.page(tmp_path / "out")


@pytest.mark.parametrize(
    ("runs_", "error", "message"),
    [
        ([], ValueError, "no run"),
        (3, TypeError, "not int"),
        ("nowhere", FileNotFoundError, "nowhere is not the folder of a run"),
    ],
)
def test_what_is_no_run_is_refused(runs_, error, message):
    with pytest.raises(error, match=message):
        report.page(runs_)


def test_two_runs_of_one_name_are_refused_with_the_remedy(solution):
    with pytest.raises(ValueError, match=r"share a label.*mapping of label to run"):
        report.page([solution, solution])
