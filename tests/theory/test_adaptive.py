"""The adaptive schedule: its estimates, its p, what it sends, and exact convergence."""

import numpy as np
import pytest

import fedual as fd
import references as ref
from fedual.theory import skip_probability

EPSILON = 1e-14


@pytest.fixture(scope="module")
def problem():
    return fd.Problem(fd.losses.least_squares(0.1), fd.data.from_arrays(alike()))


def alike():
    """Clients that differ little, so that there is something to skip."""
    x, y = ref.ragged_tables("normal", sizes=(20,))[0]
    return [(x, y + 0.01 * np.random.default_rng(k).normal(size=20)) for k in range(3)]


@pytest.fixture(scope="module")
def solution(problem):
    algorithm = fd.FedPD(fd.oracles.Exact(), step_size=1.0)
    thetas = []
    schedule = fd.schedules.Adaptive(EPSILON)
    for part in fd.iterate(problem, algorithm, rounds=60, schedule=schedule, tolerance=EPSILON, chunk_rounds=1):
        thetas.append(part.theta)
    return part, np.array(thetas)


def test_p_is_the_rule_at_the_latest_communicated_estimates(problem, solution):
    history, thetas = solution[0].history, solution[1]
    # After the n-th communication the server knows the gradients at the model of the n-1st.
    known, sent, weights = None, np.zeros(3), problem.weights
    for t in range(history.rounds):
        if known is None:
            assert history["p"][t] == 0
        else:
            gradients = problem.local_gradients(known)
            c = np.sum((weights @ gradients) ** 2)
            g = np.sqrt(weights @ np.sum(gradients**2, axis=1) - c)
            assert history["p"][t] == pytest.approx(skip_probability(c, g, 1.0) if c > EPSILON else 0.0, rel=1e-6)
        if history["communicated"][t]:
            known, sent = sent, thetas[t]


def test_it_skips_first_and_converges_exactly_in_the_end(problem, solution):
    found, _ = solution
    assert found.converged
    assert found.history["communications"][-1] < found.history.rounds
    assert found.history["p"][0] == 0
    assert found.history["p"].max() > 0.05
    np.testing.assert_allclose(found.theta, problem.minimum().theta, atol=1e-6)


def test_it_counts_what_it_sends(problem):
    schedule = fd.schedules.Adaptive(EPSILON)
    history = fd.solve(problem, fd.FedPD(fd.oracles.Exact(), step_size=1.0), rounds=1, schedule=schedule).history
    plain = fd.solve(problem, fd.FedPD(fd.oracles.Exact(), step_size=1.0), rounds=1).history
    numbers = 3 + 1  # a gradient and its square
    assert history["uplink_bytes"][0] - plain["uplink_bytes"][0] == 3 * numbers * 8
    assert history["downlink_bytes"][0] - plain["downlink_bytes"][0] == 3 * 8  # p
    assert history["gradient_evaluations"][0] - plain["gradient_evaluations"][0] == 60


def test_scaling_the_loss_changes_nothing(problem):
    parts = [(1e3 * x, 1e3 * y) for x, y in alike()]
    scaled = fd.Problem(fd.losses.least_squares(1e5), fd.data.from_arrays(parts))
    plain = fd.solve(problem, fd.FedPD(), rounds=15, schedule=fd.schedules.Adaptive(1e-30)).history
    large = fd.solve(scaled, fd.FedPD(), rounds=15, schedule=fd.schedules.Adaptive(1e-18)).history
    np.testing.assert_allclose(large["p"], plain["p"], rtol=1e-5)


def test_identical_clients_skip_as_often_as_the_cap_allows():
    x, y = ref.ragged_tables("normal", sizes=(20,))[0]
    problem = fd.Problem(fd.losses.least_squares(0.1), fd.data.from_arrays([(x, y)] * 3))
    schedule = fd.schedules.Adaptive(1e-10)
    found = fd.solve(problem, fd.FedPD(fd.oracles.Exact(), step_size=1.0), rounds=4, schedule=schedule)
    assert found.history["p"][1] == pytest.approx(0.99)


def test_it_needs_everyone(problem):
    one = fd.participation.Uniform(count=1)
    with pytest.raises(ValueError, match=r"Adaptive does not allow partial participation.*schedules\.Decay"):
        fd.solve(problem, fd.FedADMM(), rounds=1, schedule=fd.schedules.Adaptive(1e-12), participation=one)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, True, "auto"])
def test_an_impossible_accuracy_is_refused(problem, bad):
    with pytest.raises(ValueError, match="epsilon"):
        fd.solve(problem, fd.FedPD(), rounds=1, schedule=fd.schedules.Adaptive(bad))
    with pytest.raises(ValueError, match="form"):
        fd.solve(problem, fd.FedPD(), rounds=1, schedule=fd.schedules.Adaptive(1.0, form="printed"))
