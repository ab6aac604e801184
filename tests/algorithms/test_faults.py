"""Faults that are reported of such methods elsewhere, each as a small input with a known right answer."""

import numpy as np
import optax
import pytest

import fedual as fd
import sites
from sites import quadratics, rule

F = quadratics()
EXACT = fd.oracles.Exact()


def scalars(curvatures, minimizers, **kwargs) -> fd.Problem:
    """f_k(x) = a_k (x - b_k)^2 / 2, one row per client."""
    pairs = [([[np.sqrt(a)]], [np.sqrt(a) * b]) for a, b in zip(curvatures, minimizers, strict=True)]
    return fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(pairs), **kwargs)


def test_scaffold_sums_changes_of_controls_and_divides_by_steps_times_rate():
    """A control taken for its change, or epochs for steps, ends elsewhere; FedAvg does anyway."""
    two = scalars((1, 10), (0, 5))
    oracle = fd.oracles.GradientDescent(steps=10, learning_rate=0.05)
    assert fd.solve(two, fd.SCAFFOLD(oracle), 300).theta[0] == pytest.approx(50 / 11, abs=1e-6)
    assert abs(fd.solve(two, fd.FedAvg(oracle), 300).theta[0] - 50 / 11) > 0.1


def test_scaffolds_first_round_is_fedavgs_and_a_second_run_starts_afresh():
    oracle = fd.oracles.GradientDescent(steps=4, learning_rate=0.3 / F.smoothness)
    runs = [
        fd.solve(sites.problem(weights="uniform"), method(oracle), 1, evaluate_every=1000).theta
        for method in (fd.SCAFFOLD, fd.FedAvg, fd.SCAFFOLD)
    ]
    np.testing.assert_allclose(runs[0], runs[1], rtol=0, atol=1e-12)
    assert runs[0].tobytes() == runs[2].tobytes()


def test_scaffold_stays_finite_where_sites_make_very_different_numbers_of_steps():
    rng = np.random.default_rng(0)
    pairs = []
    for rows in (10, 100, 1000):
        x = rng.normal(size=(rows, 4))
        pairs.append((x, np.argmax(x @ rng.normal(size=(4, 3)) + rng.gumbel(size=(rows, 3)), axis=1)))
    problem = fd.Problem(fd.losses.softmax(3, l2=0.01), fd.data.from_arrays(pairs))
    oracle = fd.oracles.StochasticGradient(epochs=2, batch_size=10, learning_rate=0.02)
    solution = fd.solve(problem, fd.SCAFFOLD(oracle), 100)
    gap = solution.history["objective"] - problem.minimum().value
    assert np.isfinite(solution.theta).all()
    assert gap[-20:].mean() < 0.1 * gap[0]


def test_feddyns_memory_stays_zero_for_identical_clients_at_their_optimum():
    five = scalars((2.0,) * 5, (3.0,) * 5)
    solution = fd.solve(
        five, fd.FedDyn(EXACT, 0.5), 30, participation=fd.participation.Uniform(count=2), theta0=[3.0], seed=1
    )
    assert solution.theta[0] == pytest.approx(3.0, abs=1e-12)
    assert float(solution.state.device.server.memory[0]) == pytest.approx(0.0, abs=1e-12)


def test_feddyns_memory_is_the_mean_of_the_last_seen_local_terms():
    """One site a round: h is the weighted mean over all sites of grad f_k where each was last seen."""
    one_by_one = rule(((2,), (0,), (3,), (1,)))
    for solution in sites.path(sites.problem(), fd.FedDyn(EXACT, 0.5), 8, participation=one_by_one):
        seen = {(2, 0, 3, 1)[t % 4] for t in range(solution.history.rounds)}
        expected = sum(F.w[k] * F.gradient(k, solution.thetas[k]) for k in seen)
        np.testing.assert_allclose(solution.state.device.server.memory, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "oracle",
    [
        fd.oracles.GradientDescent(steps=300),
        fd.oracles.Optax(optax.adam(optax.cosine_decay_schedule(0.1, 1000)), steps=1000),
        fd.oracles.LBFGS(1e-12),
    ],
    ids=["gradient descent", "Adam", "L-BFGS"],
)
def test_the_quadratic_term_is_part_of_the_problem_not_of_the_optimizer(oracle):
    """Weight decay in its place breaks with Adam, with L-BFGS and beside a real ridge penalty."""
    problem = fd.Problem(fd.losses.least_squares(l2=0.01), fd.data.from_arrays(sites.tables()))
    solution = fd.solve(problem, fd.FedDyn(oracle, step_size=1 / 0.1), 150, evaluate_every=1000)
    pairs = sites.tables()
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    pooled = np.linalg.solve(x.T @ x / len(y) + 0.01 * np.eye(3), x.T @ y / len(y))
    np.testing.assert_allclose(solution.theta, pooled, rtol=0, atol=1e-6)


def test_feddyn_on_a_hundred_very_different_clients_stays_finite():
    rng = np.random.default_rng(1)
    centers = 2 * rng.normal(size=(5, 4))
    pairs = []
    for _ in range(100):
        labels = rng.choice(5, size=12, p=rng.dirichlet(np.full(5, 0.1)))
        pairs.append((centers[labels] + rng.normal(size=(12, 4)), labels))
    problem = fd.Problem(fd.losses.softmax(5), fd.data.from_arrays(pairs))
    algorithm = fd.FedDyn(fd.oracles.GradientDescent(steps=5), step_size=1 / 0.1)
    solution = fd.solve(problem, algorithm, 200, participation=fd.participation.Uniform(fraction=0.1))
    assert solution.status != "diverged"
    assert np.isfinite(solution.theta).all()
    assert np.isfinite(solution.state.device.server.memory).all()
    assert solution.history["objective"][-1] < solution.history["objective"][0]


@pytest.mark.parametrize(("rho", "rounds"), [(0.01, 1000), (1.0, 1000), (100.0, 8000)])
def test_fedadmm_needs_no_decay_by_hand(rho, rounds):
    """Eight logistic sites, two a round: within 1% of the pooled objective, and no rise late in the run."""
    rng = np.random.default_rng(4)
    pairs = []
    for _ in range(8):
        x = rng.normal(size=(25, 3))
        pairs.append((x, (x @ (1 + rng.normal(size=3)) + rng.logistic(size=25) > 0).astype(int)))
    problem = fd.Problem(fd.losses.logistic(l2=0.01), fd.data.from_arrays(pairs))
    algorithm = fd.FedADMM(fd.oracles.Newton(1e-10), step_size=1 / rho)
    two = fd.participation.Uniform(count=2)
    solution = fd.solve(problem, algorithm, rounds, participation=two, evaluate_every=20)
    best, objective = problem.minimum().value, solution.history["objective"][19::20]
    assert objective[-1] <= 1.01 * best
    assert objective[len(objective) // 2 :].max() <= 1.01 * objective[len(objective) // 2]


def test_the_proximal_term_is_a_square_and_carries_its_gradient():
    """(a b + mu z)/(a + mu) from an exact solve, and from gradient steps."""
    one = scalars((3.0,), (2.0,))
    for oracle in (EXACT, fd.oracles.GradientDescent(steps=400)):
        solution = fd.solve(one, fd.FedProx(oracle, mu=1.5), 1, theta0=[-4.0])
        assert solution.theta[0] == pytest.approx((3.0 * 2.0 + 1.5 * -4.0) / (3.0 + 1.5), abs=1e-9)


def test_two_steps_of_the_servers_adam_by_hand():
    """With one local gradient step of rate eta the pseudo-gradient is eta grad f."""
    rate, b1, b2, eps, eta = 0.1, 0.9, 0.99, 1e-3, 0.2
    h, q = np.diag([1.0, 4.0]), np.array([2.0, -4.0])
    x, y = np.sqrt(2) * np.diag([1.0, 2.0]), np.sqrt(2) * np.array([2.0, -2.0])
    problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays([(x, y)]))
    theta, m, v = np.zeros(2), np.zeros(2), np.zeros(2)
    for t in (1, 2):
        g = eta * (h @ theta - q)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        theta = theta - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    algorithm = fd.FedOpt(fd.oracles.GradientDescent(steps=1, learning_rate=eta), optax.adam(rate, b1, b2, eps))
    np.testing.assert_allclose(fd.solve(problem, algorithm, 2).theta, theta, rtol=1e-12)


@pytest.mark.parametrize("keep", [False, True])
def test_momentum_is_reset_or_kept_as_asked(keep):
    """Four clients with the same rows are one: central momentum with a reset every five steps, or without any."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=9)
    problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays([(x, y)] * 4))
    oracle = fd.oracles.Optax(optax.sgd(0.05, momentum=0.9), steps=5, keep=keep)
    solution = fd.solve(problem, fd.FedAvg(oracle), 6, evaluate_every=1000)
    theta, velocity = np.zeros(3), np.zeros(3)
    for step in range(30):
        if step % 5 == 0 and not keep:
            velocity = np.zeros(3)
        velocity = 0.9 * velocity + x.T @ (x @ theta - y) / 9
        theta = theta - 0.05 * velocity
    np.testing.assert_allclose(solution.theta, theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [fd.FedAvg, lambda o: fd.FedProx(o, mu=0.0), fd.FedOpt, fd.SCAFFOLD])
def test_one_client_with_all_data_is_central_training(make):
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=9)
    problem = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays([(x, y)]))
    theta = np.zeros(3)
    for _ in range(6 * 5):
        theta = theta - 0.05 * x.T @ (x @ theta - y) / 9
    oracle = fd.oracles.GradientDescent(steps=5, learning_rate=0.05)
    np.testing.assert_allclose(fd.solve(problem, make(oracle), 6, evaluate_every=1000).theta, theta, rtol=0, atol=1e-10)


def test_scaffold_refuses_an_oracle_without_a_rate():
    for oracle in (EXACT, fd.oracles.Newton(), fd.oracles.Linearized(), fd.oracles.Optax(optax.sgd(0.1))):
        with pytest.raises(ValueError, match="SCAFFOLD needs gradient steps of known number and rate"):
            fd.solve(sites.problem(), fd.SCAFFOLD(oracle), 1)


def test_option_one_counts_the_gradient_it_takes():
    oracle = fd.oracles.GradientDescent(steps=4, learning_rate=0.3 / F.smoothness)
    for option, gradients in (("I", 5), ("II", 4)):
        solution = fd.solve(sites.problem(), fd.SCAFFOLD(oracle, option), 2, evaluate_every=1000)
        assert solution.history["gradient_evaluations"].tolist() == [gradients * 52, 2 * gradients * 52]


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (fd.FedDR(relaxation=2.0), "relaxation = 2.0 must lie strictly between 0 and 2"),
        (fd.FedProx(mu=-1.0), "mu = -1.0 must be a finite number >= 0"),
        (fd.FedAvg(averaging="all"), "averaging = 'all' must be 'participants' or 'unbiased'"),
        (fd.FedOpt(optimizer="adam"), "optimizer = 'adam' is not an Optax gradient transformation"),
        (fd.SCAFFOLD(option="III"), "option = 'III' must be 'I' or 'II'"),
        (fd.ProxSkip(skip_probability=1.0), r"skip_probability = 1.0 must lie in \[0, 1\)"),
        (fd.ProxSkip(learning_rate=0.0), "learning_rate = 0.0 must be a positive finite number"),
        (fd.FedSplit(step_size=-1.0), "step_size = -1.0 must be"),
        (fd.FedDyn(step_size=float("nan")), "step_size = nan must be"),
    ],
)
def test_fields_out_of_range(algorithm, message):
    with pytest.raises(ValueError, match=message):
        fd.solve(sites.problem(), algorithm, 1)
