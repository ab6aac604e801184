"""The simulator: what may not change the numbers, when it stops, what it reports."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedual as fd
import references as ref
from fedual.arrays import record

DESCENT = fd.oracles.GradientDescent(4, 0.2)
METHOD = fd.FedPD(DESCENT, 0.7)
STOCHASTIC = fd.FedPD(fd.oracles.StochasticGradient(4, 0.2, batch_size=3), 0.7)
SKIP = fd.schedules.Skip(0.4)


def numbers(solution):
    return solution.theta, solution.thetas, solution.duals


def assert_identical(a, b):
    for x, y in zip(numbers(a), numbers(b), strict=True):
        np.testing.assert_array_equal(x, y)


def last(*args, **settings):
    *_, solution = fd.iterate(*args, **settings)
    return solution


@pytest.fixture(scope="module")
def plain(classification):
    return fd.solve(classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=5)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(classification, plain):
    assert_identical(plain, fd.solve(classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=5))
    other = fd.solve(classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=6)
    assert not np.array_equal(other.theta, plain.theta)


@pytest.mark.parametrize("chunk_rounds", [1, 5])
def test_the_chunk_length_changes_nothing(classification, plain, chunk_rounds):
    chunked = last(classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=5, chunk_rounds=chunk_rounds)
    assert_identical(plain, chunked)
    for column in plain.history:
        if column != "seconds":
            np.testing.assert_array_equal(chunked.history[column], plain.history[column])


def test_callbacks_and_the_evaluation_interval_change_nothing(classification, plain):
    seen = []
    watched = fd.solve(
        classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=5, evaluate_every=4, callbacks=[seen.append]
    )
    assert_identical(plain, watched)
    assert [solution.history.rounds for solution in seen] == [12]
    evaluated = np.arange(1, 13) % 4 == 0
    for column in ("objective", "stationarity"):
        np.testing.assert_array_equal(np.isnan(watched.history[column]), ~evaluated)
        np.testing.assert_array_equal(watched.history[column][evaluated], plain.history[column][evaluated])


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_the_block_size_changes_no_more_than_rounding(classification, plain, clients_at_once):
    blocked = fd.solve(classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=5, clients_at_once=clients_at_once)
    for x, y in zip(numbers(blocked), numbers(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)


def test_a_run_goes_on_from_its_state_bit_for_bit(classification, plain):
    part = fd.solve(classification, STOCHASTIC, rounds=5, schedule=SKIP, seed=5)
    whole = fd.solve(classification, STOCHASTIC, rounds=12, schedule=SKIP, state=part.state)
    assert_identical(plain, whole)
    np.testing.assert_array_equal(whole.history["uplink_bytes"], plain.history["uplink_bytes"])
    assert fd.solve(classification, STOCHASTIC, rounds=5, schedule=SKIP, state=part.state).history.rounds == 5


def test_a_state_survives_rebuilding_every_object_between_rounds():
    tables = [([[1.0]], [0.0]), ([[2.0]], [2.0]), ([[0.5]], [3.0])]

    def problem():
        return fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(tables))

    whole, state = fd.solve(problem(), fd.ADMM(step_size=1.0), rounds=6), None
    for number in range(1, 7):
        state = fd.solve(problem(), fd.ADMM(step_size=1.0), rounds=number, state=state).state
    rebuilt = fd.solve(problem(), fd.ADMM(step_size=1.0), rounds=6, state=state)
    assert_identical(whole, rebuilt)


@record
class TwoOfThree(fd.participation.Participation):
    """Client 1 stays away."""

    def draw(self, uniform, stretch):
        return jnp.arange(uniform.shape[0]) != 1


@record
class RandomThirds(fd.participation.Participation):
    """Everyone with probability 1/3."""

    def draw(self, uniform, stretch):
        return uniform < 1 / 3


def test_states_belong_to_clients_and_absent_ones_stay_untouched():
    tables = ref.ragged_tables("binary", sizes=(5, 9, 12, 5, 9, 12, 5, 9, 12, 4))
    problem = fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(tables))
    method = fd.FedAvg(DESCENT)
    log, before = np.zeros(10, int), np.zeros((10, 3))
    for solution in fd.iterate(problem, method, rounds=20, participation=RandomThirds(), chunk_rounds=1):
        present = np.asarray(solution.state.device.active)
        log += present
        visits = visits_of(problem, solution)
        np.testing.assert_array_equal(visits, log)
        np.testing.assert_array_equal(solution.thetas[~present], before[~present])
        assert solution.history["uplinks"][-1] == log.sum()
        before = solution.thetas
    assert log.min() > 0
    assert log.max() < 20


def visits_of(problem, solution):
    return problem.layout().gather([record.visits for record in solution.state.device.records])


def test_absent_clients_send_and_cost_nothing(classification):
    history = fd.solve(classification, fd.FedAvg(DESCENT), rounds=3, participation=TwoOfThree()).history
    np.testing.assert_array_equal(history["uplinks"], [2, 4, 6])
    np.testing.assert_array_equal(history["downlinks"], [2, 4, 6])
    np.testing.assert_array_equal(history["gradient_evaluations"], 4 * (5 + 12) * np.arange(1, 4))


def compilations(function):
    """How many programs XLA compiles during a call."""
    events = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        function()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return len(events)


def test_a_second_call_with_the_same_shapes_compiles_nothing(plain):
    def run(seed, p, s, rate):
        problem = fd.Problem(fd.losses.logistic(l2=0.2), fd.data.from_arrays(ref.ragged_tables("binary", seed=seed)))
        oracle = fd.oracles.StochasticGradient(4, rate, batch_size=3)
        schedule = fd.schedules.Skip(p)
        solution = fd.solve(problem, fd.FedPD(oracle, s), rounds=9, schedule=schedule, seed=seed, evaluate_every=2)
        return solution.theta, solution.thetas, solution.duals, solution.stationarity

    run(1, 0.4, 0.7, 0.2)
    assert compilations(lambda: run(2, 0.3, 0.9, 0.1)) == 0
    assert compilations(lambda: jax.jit(lambda x: x + 17)(1)) == 1  # the count does see compilations


@pytest.mark.parametrize("chunk_rounds", [1, 7, 50])
def test_the_tolerance_stops_at_a_round_that_the_chunks_do_not_move(regression, chunk_rounds):
    free = fd.solve(regression, METHOD, rounds=50)
    expected = 1 + np.argmax(free.history["stationarity"] <= 1e-6)
    stopped = last(regression, METHOD, rounds=50, tolerance=1e-6, chunk_rounds=chunk_rounds)
    assert stopped.converged
    assert stopped.history.rounds == expected < 50
    assert f"round {expected} reached the tolerance" in stopped.reason
    # Evaluated less often, it stops at the first evaluated round that reaches it.
    sparse = last(regression, METHOD, rounds=50, tolerance=1e-6, chunk_rounds=chunk_rounds, evaluate_every=4)
    assert sparse.history.rounds == 4 * -(-expected // 4)


def test_the_relative_tolerance_is_on_the_unit_free_residuals(regression):
    solution = fd.solve(regression, METHOD, rounds=200, relative_tolerance=1e-5)
    assert solution.converged
    w = regression.weights
    scale = np.sqrt(w @ np.sum(solution.thetas**2, axis=1)), np.sqrt(w @ np.sum(solution.duals**2, axis=1))
    history = solution.history
    assert history["primal_residual"][-1] <= 1e-5 * scale[0]
    assert history["dual_residual"][-1] <= 1e-5 * scale[1]
    assert history["primal_residual"][-2] > 1e-5 * scale[0] or history["dual_residual"][-2] > 1e-5 * scale[1]


def test_without_a_tolerance_no_run_stops_early():
    # Everything is zero from the start: residuals, models, gradients.
    problem = fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays([(np.eye(3), np.zeros(3))] * 3))
    solution = fd.solve(problem, METHOD, rounds=5)
    assert (solution.status, solution.history.rounds) == ("round limit", 5)


def test_a_round_limit_says_what_was_not_reached(regression):
    solution = fd.solve(regression, METHOD, rounds=2, tolerance=1e-20)
    assert (solution.status, solution.converged) == ("round limit", False)
    assert "2 rounds were done without reaching the tolerance" in solution.reason
    assert solution.remedy


@record
class Poisoned(fd.oracles.Oracle):
    """Gradient steps; from the client with exactly nine rows, an infinity in its third round."""

    carries = True

    def init(self, local, start):
        return jnp.zeros((), jnp.int32)

    def solve(self, local, subproblem, carry):
        x = subproblem.start
        x = x - 0.2 * (local.gradient(x) + subproblem.penalty_gradient(x))
        poison = (carry == 2) & (local.count == 9)
        return jnp.where(poison, jnp.inf, x), carry + 1, local.count


@pytest.mark.parametrize("chunk_rounds", [1, 2, 50])
def test_one_infinite_update_ends_the_run_named_and_the_last_finite_state_stays(classification, chunk_rounds):
    algorithm = fd.FedPD(Poisoned(), 0.7)
    good = last(classification, algorithm, rounds=2, chunk_rounds=chunk_rounds)
    poisoned = last(classification, algorithm, rounds=9, chunk_rounds=chunk_rounds)
    assert poisoned.status == "diverged"
    assert "in round 3 the result of client 'client 1' was not finite" in poisoned.reason
    assert poisoned.remedy
    assert_identical(poisoned, good)
    assert poisoned.history.rounds == 2
    assert np.isfinite(poisoned.objective)


def test_divergence_is_reported_at_its_round(regression):
    solution = fd.solve(regression, fd.FedPD(fd.oracles.GradientDescent(4, 1e30), 0.7), rounds=50)
    assert solution.status == "diverged"
    assert np.isfinite(solution.thetas).all()
    assert f"in round {solution.history.rounds + 1} " in solution.reason


def test_float32_problems_run_in_float32_and_leave_the_callers_flags(classification):
    problem = fd.Problem(classification.loss, classification.clients, dtype="float32")
    before = jax.config.jax_enable_x64
    single = fd.solve(problem, STOCHASTIC, rounds=12, schedule=SKIP, seed=5)
    assert single.theta.dtype == single.thetas.dtype == single.duals.dtype == np.float32
    assert single.history["uplink_bytes"][-1] == 3 * 4 * single.history["uplinks"][-1]
    double = fd.solve(classification, STOCHASTIC, rounds=12, schedule=SKIP, seed=5)
    np.testing.assert_allclose(single.history["primal_residual"], double.history["primal_residual"], rtol=1e-4)
    assert double.theta.dtype == np.float64
    assert jax.config.jax_enable_x64 is before is False
    with jax.enable_x64(True):  # nor does the caller's precision reach inside
        again = fd.solve(problem, STOCHASTIC, rounds=12, schedule=SKIP, seed=5)
    assert_identical(single, again)


TWO_DEVICES = """
    import sys
    sys.path.insert(0, sys.argv[2])
    import jax, numpy as np
    import references as ref
    import fedual as fd
    assert len(jax.devices()) == 2
    problem = fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(ref.ragged_tables("binary")))
    oracle = fd.oracles.StochasticGradient(4, 0.2, batch_size=3)
    solutions = list(fd.iterate(problem, fd.FedPD(oracle, 0.7), rounds=12, schedule=fd.schedules.Skip(0.4), seed=5,
                                chunk_rounds=6))
    solution = solutions[-1]
    np.savez(sys.argv[1], theta=solution.theta, thetas=solution.thetas, duals=solution.duals, **solution.history)
"""


def test_two_devices_give_the_same_numbers(plain, tmp_path):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(TWO_DEVICES), str(tmp_path / "two.npz")]
    command.append(str(Path(ref.__file__).parent))
    subprocess.run(command, check=True, env={**os.environ, "XLA_FLAGS": flags}, timeout=120)
    two = np.load(tmp_path / "two.npz")
    for name in ("theta", "thetas", "duals"):
        np.testing.assert_allclose(two[name], getattr(plain, name), rtol=1e-12, atol=1e-14)
    for column in plain.history:
        if column != "seconds":
            np.testing.assert_allclose(two[column], plain.history[column], rtol=1e-11, err_msg=column)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, r"rounds = 0 must be an integer >= 1"),
        ({"rounds": 2.5}, r"rounds = 2.5 must be an integer"),
        ({"evaluate_every": 0}, r"evaluate_every = 0 must be"),
        ({"tolerance": 0}, r"tolerance = 0 must be positive and finite, or None"),
        ({"tolerance": float("nan")}, r"tolerance = nan must be positive"),
        ({"relative_tolerance": -1.0}, r"relative_tolerance = -1.0 must be positive"),
        ({"clients_at_once": 0}, r"clients_at_once = 0 must be an integer >= 1 or 'auto'"),
        ({"clients_at_once": 2.5}, r"clients_at_once = 2.5 must be an integer >= 1 or 'auto'"),
        ({"seed": -1}, r"seed = -1 must be an integer between 0 and"),
        ({"seed": 1.5}, r"seed = 1.5 must be an integer"),
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused(regression, settings, message):
    with pytest.raises(ValueError, match=message):
        fd.solve(regression, METHOD, **settings)


def test_a_state_of_another_problem_is_refused(regression, plain):
    other = fd.Problem(fd.losses.logistic(), fd.data.from_arrays(ref.ragged_tables("binary", sizes=(5, 9))))
    with pytest.raises(ValueError, match=r"state does not belong to this problem and method"):
        fd.solve(other, STOCHASTIC, rounds=20, schedule=SKIP, state=plain.state)
    with pytest.raises(ValueError, match=r"state does not belong to this problem and method"):
        fd.solve(plain.problem, fd.FedAvg(STOCHASTIC.oracle), rounds=20, state=plain.state)


def test_history_is_a_table(plain):
    frame = plain.history.to_polars()
    assert frame.columns == list(plain.history)
    assert frame.height == plain.history.rounds == 12
    np.testing.assert_array_equal(frame["round"].to_numpy(), np.arange(1, 13))
    assert frame["communicated"].dtype.is_(__import__("polars").Boolean)
    with pytest.raises(KeyError, match=r"no column 'loss'; the history has round, communicated"):
        plain.history["loss"]
    assert (np.diff(plain.history["seconds"]) >= 0).all()
