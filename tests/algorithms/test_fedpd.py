"""FedPD, the primal-dual iteration and FedAvg against their pseudo-code in NumPy, and against pooled solutions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import fedual as fd
import references as ref

S = 0.7
SKIPS = [True, False, True, True, False, False, True, False]
UNEVEN = [0.5, 0.2, 0.3]


def iterates(problem, algorithm, rounds, **settings):
    return list(fd.iterate(problem, algorithm, rounds, chunk_rounds=1, **settings))


def functions(problem, make):
    return [make(x, y, 0.1) for x, y in zip(problem.clients.features, problem.clients.targets, strict=True)]


def assert_same(solutions, expected):
    for solution, (theta, thetas, duals, anchors) in zip(solutions, expected, strict=True):
        np.testing.assert_allclose(solution.theta, theta, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(solution.thetas, thetas, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(solution.duals, duals, rtol=1e-12, atol=1e-13)
        # Anchors of communicated rounds arrive with the next broadcast; the silent ones are the clients' own.
        if not solution.history["communicated"][-1]:
            np.testing.assert_allclose(solution.state.device.clients[0].anchor, anchors, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weights", ["samples", UNEVEN])
def test_admm_and_fedpd_with_an_exact_oracle_are_the_iteration_written_out(regression, weights):
    problem = fd.Problem(regression.loss, regression.clients, weights=weights)
    start = np.array([1.0, -2.0, 0.5])
    expected = ref.consensus_admm(
        ref.exact_solver(functions(problem, ref.least_squares)), problem.weights, start, S, rounds=8
    )
    assert_same(iterates(problem, fd.ADMM(step_size=S), 8, theta0=start), expected)
    assert_same(iterates(problem, fd.FedPD(fd.oracles.Exact(), S), 8, theta0=start), expected)


@pytest.mark.parametrize("skips", [[False] * 8, SKIPS], ids=["always", "skips"])
def test_fedpd_is_its_pseudo_code_round_by_round(classification, skips):
    problem = fd.Problem(classification.loss, classification.clients, weights=UNEVEN)
    solver = ref.gradient_solver(functions(problem, ref.logistic), 4, 0.2)
    expected = ref.fedpd(solver, problem.weights, np.zeros(3), S, skips)
    algorithm = fd.FedPD(fd.oracles.GradientDescent(4, 0.2), S)
    schedule = fd.schedules.Explicit(skips)
    solutions = iterates(problem, algorithm, len(skips), schedule=schedule)
    assert_same(solutions, expected)
    history = solutions[-1].history
    np.testing.assert_array_equal(history["communicated"], ~np.array(skips))
    for row, (theta, thetas, duals, _) in enumerate(expected):
        previous = expected[row - 1].anchors if row else np.zeros((3, 3))
        primal = np.sqrt(problem.weights @ np.sum((thetas - previous) ** 2, axis=1))
        assert history["primal_residual"][row] == pytest.approx(primal, rel=1e-12)
        assert history["dual_residual"][row] == pytest.approx(np.linalg.norm(problem.weights @ duals), rel=1e-11)
        pooled = sum(
            w * f.gradient(theta) for w, f in zip(problem.weights, functions(problem, ref.logistic), strict=True)
        )
        assert history["stationarity"][row] == pytest.approx(pooled @ pooled, rel=1e-11)
        assert history["objective"][row] == pytest.approx(problem.value(theta), rel=1e-13)


def test_the_exact_oracle_reaches_numpys_pooled_least_squares(regression):
    x, y = regression.clients.pooled()
    pooled = np.linalg.solve(x.T @ x / len(x) + 0.1 * np.eye(3), x.T @ y / len(x))
    solution = fd.solve(regression, fd.ADMM(step_size=S), rounds=300)
    np.testing.assert_allclose(solution.theta, pooled, rtol=1e-10)
    np.testing.assert_allclose(solution.thetas, np.tile(pooled, (3, 1)), rtol=1e-10)
    # At the fixed point the duals are minus the clients' gradients.
    gradients = [f.gradient(pooled) for f in functions(regression, ref.least_squares)]
    np.testing.assert_allclose(solution.duals, -np.array(gradients), rtol=1e-9, atol=1e-12)


def test_l2_logistic_reaches_scikit_learns_pooled_solution(classification):
    x, y = classification.clients.pooled()
    pooled = LogisticRegression(C=1 / (0.1 * len(x)), fit_intercept=False, tol=1e-12, max_iter=10_000).fit(x, y)
    algorithm = fd.FedPD(fd.oracles.GradientDescent(4, 0.2), S)
    solution = fd.solve(classification, algorithm, rounds=400)
    np.testing.assert_allclose(solution.theta, pooled.coef_[0], rtol=1e-6)


def test_one_client_with_all_the_data_is_central_training():
    table = ref.ragged_tables("normal", sizes=(26,))[0]
    problem = fd.Problem(fd.losses.least_squares(l2=0.1), fd.data.from_arrays([table]))
    central, theta = ref.least_squares(*table, 0.1), np.zeros(3)
    for _ in range(5 * 4):
        theta = theta - 0.2 * central.gradient(theta)
    solution = fd.solve(problem, fd.FedAvg(fd.oracles.GradientDescent(4, 0.2)), rounds=5)
    np.testing.assert_allclose(solution.theta, theta, rtol=1e-12)


def test_fedavg_with_one_step_is_gradient_descent_on_the_pooled_objective(regression):
    pooled, theta = ref.least_squares(*regression.clients.pooled(), 0.1), np.zeros(3)
    for _ in range(6):
        theta = theta - 0.2 * pooled.gradient(theta)
    solution = fd.solve(regression, fd.FedAvg(fd.oracles.GradientDescent(1, 0.2)), rounds=6)
    np.testing.assert_allclose(solution.theta, theta, rtol=1e-12)
    assert np.isnan(solution.duals).all()


def test_fedavg_with_several_steps_keeps_a_bias_and_fedpd_does_not(regression):
    optimum = regression.minimum().theta
    oracle = fd.oracles.GradientDescent(4, 0.2)
    drifted = fd.solve(regression, fd.FedAvg(oracle), rounds=300)
    exact = fd.solve(regression, fd.FedPD(oracle, S), rounds=300)
    assert np.linalg.norm(drifted.theta - optimum) > 1e-3
    assert np.linalg.norm(exact.theta - optimum) < 1e-10
    # Settled: what is left is bias, not slowness.
    assert np.ptp(drifted.history["stationarity"][-50:]) < 1e-12


def test_every_client_starts_from_the_one_initial_model(regression):
    with pytest.raises(ValueError, match=r"theta0 has shape \(3, 3\); this problem has 3 parameters"):
        fd.solve(regression, fd.FedPD(step_size=S), theta0=np.arange(9.0).reshape(3, 3))
    with pytest.raises(ValueError, match=r"theta0 holds inf at 1"):
        fd.solve(regression, fd.FedPD(step_size=S), theta0=[0, float("inf"), 0])


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(3)))
def test_permuting_clients_permutes_states_and_leaves_theta(seed, order):
    tables = ref.ragged_tables("binary", seed=seed)
    names = ["a", "b", "c"]
    oracle = fd.oracles.StochasticGradient(4, 0.2, batch_size=3)
    plain = fd.data.from_arrays(tables, names=names)
    solutions = [
        fd.solve(
            fd.Problem(fd.losses.logistic(l2=0.1), clients),
            fd.FedPD(oracle, S),
            rounds=8,
            schedule=fd.schedules.Skip(0.4),
            seed=seed,
        )
        for clients in (plain, plain.select(list(order)))
    ]
    np.testing.assert_allclose(solutions[1].theta, solutions[0].theta, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(solutions[1].thetas, solutions[0].thetas[list(order)], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(solutions[1].duals, solutions[0].duals[list(order)], rtol=1e-11, atol=1e-13)


@pytest.fixture(scope="module")
def hyperplanes():
    """The strongly non-iid experiment of the FedPD paper, one problem per data seed."""
    loss = fd.losses.logistic_nonconvex(beta=0.1, alpha=1.0)
    return [fd.Problem(loss, fd.data.from_arrays(ref.strongly_non_iid(seed))) for seed in range(5)]


def paper_method(problem):
    L = problem.smoothness().max()
    s = fd.theory.step_size(L)
    return fd.FedPD(fd.oracles.GradientDescent(8, 1 / (L + 1 / s)), s)


def test_fedpd_converges_linearly_on_strongly_non_iid_data(hyperplanes):
    for problem in hyperplanes:
        solution = fd.solve(problem, paper_method(problem), rounds=300, tolerance=1e-20)
        assert solution.converged
        assert solution.stationarity <= 1e-20


def test_constant_skipping_and_averaging_stall_on_strongly_non_iid_data(hyperplanes):
    problem = hyperplanes[0]
    skipping = fd.solve(problem, paper_method(problem), rounds=600, schedule=fd.schedules.Skip(0.5))
    averaging = fd.solve(problem, fd.FedAvg(fd.oracles.GradientDescent(8, 0.1)), rounds=600)
    for solution in (skipping, averaging):
        assert np.median(solution.history["stationarity"][-100:]) >= 1e-12


@pytest.mark.parametrize("algorithm", [fd.FedPD, fd.ADMM])
@pytest.mark.parametrize("s", [0, -1.0, float("nan"), float("inf"), True, "large"])
def test_a_step_size_that_is_not_positive_is_refused(regression, algorithm, s):
    with pytest.raises(ValueError, match=r"step_size = .* must be a positive finite number .* or 'auto'"):
        fd.solve(regression, algorithm(step_size=s))


def test_methods_refuse_what_they_do_not_define(regression):
    with pytest.raises(ValueError, match=r"ADMM cannot skip rounds: .* FedPD is the same method"):
        fd.solve(regression, fd.ADMM(step_size=S), schedule=fd.schedules.Skip(0.5))
    with pytest.raises(ValueError, match=r"FedAvg cannot skip rounds"):
        fd.solve(regression, fd.FedAvg(), schedule=fd.schedules.Skip(0.5))
    with pytest.raises(TypeError, match=r"algorithm must be an object such as fedual.FedPD"):
        fd.solve(regression, fd.FedPD)
    with pytest.raises(TypeError, match=r"oracle must be an object such as fedual.oracles"):
        fd.solve(regression, fd.FedPD(oracle="exact", step_size=S))
