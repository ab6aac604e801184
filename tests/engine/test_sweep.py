"""A sweep is the same runs as one at a time, and picks the best setting."""

import dataclasses

import numpy as np
import pytest

import fedual as fd


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (5, 9, 7)]
    return fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays(pairs))


ALGORITHM = fd.FedPD(fd.oracles.StochasticGradient(steps=3, learning_rate=0.1, batch_size=2), step_size=1.0)
GRID = {"step_size": [0.3, 3.0], "oracle.learning_rate": [0.01, 0.1], "schedule.probability": [0.0, 0.5]}


@pytest.fixture(scope="module")
def swept(problem):
    return fd.sweep(problem, ALGORITHM, GRID, rounds=8, schedule=fd.schedules.Skip(0.1), seeds=(0, 7))


def test_every_grid_point_is_the_run_that_solve_makes(problem, swept):
    assert len(swept.solutions) == 16
    for setting, found in list(zip(swept.settings, swept.solutions, strict=True))[::5]:
        oracle = dataclasses.replace(ALGORITHM.oracle, learning_rate=setting["oracle.learning_rate"])
        algorithm = fd.FedPD(oracle, step_size=setting["step_size"])
        schedule = fd.schedules.Skip(setting["schedule.probability"])
        alone = fd.solve(problem, algorithm, rounds=8, schedule=schedule, seed=setting["seed"])
        np.testing.assert_allclose(found.thetas, alone.thetas, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(found.history["communicated"], alone.history["communicated"])
        np.testing.assert_allclose(found.history["stationarity"], alone.history["stationarity"], rtol=1e-10)


def test_results_do_not_depend_on_how_the_grid_is_cut(problem, swept):
    cut = fd.sweep(problem, ALGORITHM, GRID, rounds=8, schedule=fd.schedules.Skip(0.1), seeds=(0, 7), at_once=5)
    assert cut.settings == swept.settings
    np.testing.assert_allclose(cut.scores(), swept.scores(), rtol=1e-10)
    assert cut.best() == swept.best()


def test_best_is_the_setting_whose_worst_seed_is_best(swept):
    scores = {}
    for setting, solution in zip(swept.settings, swept.solutions, strict=True):
        key = tuple(v for name, v in setting.items() if name != "seed")
        scores[key] = max(scores.get(key, 0.0), solution.history["stationarity"][-1])
    assert tuple(swept.best().values()) == min(scores, key=scores.get)
    assert swept.to_polars().shape == (16, 10)


def test_a_diverging_setting_stops_alone_and_is_never_best(problem):
    oracle = fd.oracles.GradientDescent(steps=40, learning_rate=0.1)
    swept = fd.sweep(problem, fd.FedAvg(oracle), {"oracle.learning_rate": [50.0, 0.1]}, rounds=30)
    assert [s.status for s in swept.solutions] == ["diverged", "round limit"]
    assert swept.best() == {"oracle.learning_rate": 0.1}
    assert np.isfinite(swept.solutions[0].theta).all()
    with pytest.raises(RuntimeError, match="every setting of the sweep diverged"):
        fd.sweep(problem, fd.FedAvg(oracle), {"oracle.learning_rate": [50.0]}, rounds=30).best()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"stepsize": [1.0]}, r"unknown setting 'stepsize' in the grid; there are .*step_size"),
        ({"oracle.steps": [1, 2]}, "'oracle.steps' is part of the compiled program"),
        ({"step_size": [-1.0]}, r"step_size = -1.0 must be a positive finite number"),
        ({"step_size": []}, "the grid is empty"),
        ({"schedule.probability": [0.5]}, "unknown setting 'schedule.probability'"),
    ],
)
def test_bad_grids_are_refused(problem, grid, message):
    with pytest.raises(ValueError, match=message):
        fd.sweep(problem, ALGORITHM, grid, rounds=2)
