"""Runs end with an honest verdict: stopping rules, divergence, plateaus, the best model."""

import numpy as np
import pytest

import fedual as fd
import references as ref


@pytest.fixture(scope="module")
def alike():
    """Two clients, least squares with curvature 1 and 2 everywhere."""
    root = np.sqrt(2.0) * np.eye(2)
    return fd.Problem(
        fd.losses.least_squares(), fd.data.from_arrays([(root, [1.0, 0.0]), (np.sqrt(2.0) * root, [0.0, 2.0])])
    )


@pytest.mark.parametrize("steps", [1, 10, 100])
def test_a_step_of_three_over_L_is_called_diverging_while_still_finite(alike, steps):
    oracle = fd.oracles.GradientDescent(steps=steps, learning_rate=3 / 2)
    solution = fd.solve(alike, fd.FedAvg(oracle), rounds=2000)
    assert solution.status == "diverged"
    assert np.isfinite(solution.theta).all()
    assert solution.history.rounds < 600 / steps + 30
    assert "step_size, or 'auto'" in solution.remedy
    default = fd.oracles.GradientDescent(steps=steps)
    assert fd.solve(alike, fd.FedPD(default, step_size=1.0), rounds=300, tolerance=1e-16).converged


def test_growth_is_named_with_its_figures(alike):
    oracle = fd.oracles.GradientDescent(steps=1, learning_rate=3 / 2)
    solution = fd.solve(alike, fd.FedAvg(oracle), rounds=2000)
    assert f"after round {solution.history.rounds} the stationarity is a million times" in solution.reason
    history = solution.history
    assert history["stationarity"][-1] > 1e6 * history["stationarity"][:10].max()
    assert solution.best.stationarity == history["stationarity"].min()
    assert solution.best.round == np.argmin(history["stationarity"]) + 1
    assert alike.stationarity(solution.best.theta) == pytest.approx(solution.best.stationarity)


def test_a_plateau_stops_early_with_the_round_and_the_best(regression):
    biased = fd.FedAvg(fd.oracles.GradientDescent(steps=10))
    solution = fd.solve(regression, biased, rounds=3000, tolerance=1e-16)
    assert solution.status == "stalled"
    assert not solution.converged
    assert solution.history.rounds < 400
    assert f"round {solution.history.rounds}" in solution.reason
    assert "schedules.Decay" in solution.remedy
    # Without a tolerance nothing was asked, and the run goes on as told.
    assert fd.solve(regression, biased, rounds=500).status == "round limit"


def test_noise_alone_does_not_stop_a_run(regression):
    noisy = fd.FedPD(fd.oracles.StochasticGradient(steps=2, learning_rate=0.01, batch_size=1), step_size=1.0)
    solution = fd.solve(regression, noisy, rounds=100, tolerance=1e-30)
    assert (solution.status, solution.history.rounds) == ("round limit", 100)


def test_slow_progress_is_no_plateau():
    tables = ref.ragged_tables("binary")
    problem = fd.Problem(fd.losses.logistic(l2=1e-3), fd.data.from_arrays(tables))
    slow = fd.ADMM(step_size=0.2)
    solution = fd.solve(problem, slow, rounds=400, tolerance=1e-14)
    assert solution.status == "round limit"
    assert solution.best.round == 400


def test_the_verdict_does_not_hinge_on_the_cap(regression):
    runs = [fd.solve(regression, fd.FedPD(), rounds=rounds, tolerance=1e-9) for rounds in (5, 25, 100)]
    shared = runs[0].history.rounds
    for run in runs[1:]:
        for column in ("stationarity", "s", "objective", "primal_residual"):
            np.testing.assert_array_equal(run.history[column][:shared], runs[0].history[column])
    assert [run.status for run in runs] == ["round limit", "converged", "converged"]
    assert runs[1].history.rounds == runs[2].history.rounds


def test_ill_conditioned_clients_do_not_pass_for_converged():
    root = np.diag([1.0, 1e-4])  # condition 1e8
    clients = fd.data.from_arrays([(root, [1.0, 1e-4]), (root @ [[0.8, 0.6], [-0.6, 0.8]], [0.0, 2e-4])])
    problem = fd.Problem(fd.losses.least_squares(), clients)
    solution = fd.solve(problem, fd.FedPD(), rounds=150, tolerance=1e-28)
    assert solution.status in ("round limit", "stalled")
    assert solution.best.stationarity == np.nanmin(solution.history["stationarity"])
    assert problem.value(solution.best.theta) <= problem.value(np.zeros(2))


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_the_relative_rule_knows_no_units(factor):
    def run(scale, features):
        tables = [(features * np.sqrt(scale) * x, np.sqrt(scale) * y) for x, y in ref.ragged_tables("normal")]
        problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(tables))
        return fd.solve(problem, fd.ADMM(step_size=1 / scale / features**2), rounds=200, relative_tolerance=1e-6)

    plain = run(1.0, 1.0)
    assert plain.converged
    assert run(factor, 1.0).history.rounds == plain.history.rounds
    assert run(1.0, 1e3).history.rounds == plain.history.rounds


def test_identical_clients_converge_by_the_relative_rule_too():
    x, y = ref.ragged_tables("normal")[1]
    problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays([(x, y), (x, y)]))
    solution = fd.solve(problem, fd.FedPD(), rounds=300, relative_tolerance=1e-8)
    assert solution.converged  # the duals go to 0, so their largest size so far is the scale
    np.testing.assert_allclose(solution.theta, np.linalg.lstsq(x, y, rcond=None)[0], atol=1e-6)


def test_a_tolerance_stops_with_round_and_figure(regression):
    solution = fd.solve(regression, fd.FedPD(), rounds=1000, tolerance=1e-4)
    assert solution.converged
    assert solution.history["stationarity"][-1] <= 1e-4 < solution.history["stationarity"][-2]
    assert solution.reason.startswith(f"round {solution.history.rounds} reached the tolerance")
