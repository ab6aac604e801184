"""Every oracle solves the one subproblem: against closed forms, SciPy, and its recursion written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize

import fedual as fd
import references as ref
from fedual.arrays import name_words, random_key, record, static, wrap_key
from fedual.engine.local_work import draw_indices
from fedual.local import Local, Rows, Subproblem
from fedual.oracles.first_order import linearized_step

LINEAR, CENTER, START = np.array([0.3, -0.2, 0.1]), np.array([1.0, 0.5, -1.0]), np.array([0.2, 0.1, -0.3])
S, RATE, STEPS = 0.7, 0.2, 4
PERSONAL = (1, 3, 6)


def local_of(loss, table):
    x, y = loss.prepare(*table, "a")
    return Local(loss, Rows(x, y, np.full(len(x), 1 / len(x))), len(x))


def solve_once(oracle, loss, table, rho=1 / S, start=START):
    """The oracle's answer to one subproblem and the sample gradients it says it evaluated."""
    with jax.enable_x64(True):
        local, start = local_of(loss, table), jnp.asarray(start)
        subproblem = Subproblem(jnp.asarray(LINEAR), jnp.asarray(CENTER), rho, start)
        x, _, evaluated = jax.jit(lambda o, f, p: o.solve(f, p, o.init(f, p.start)))(oracle, local, subproblem)
        return np.asarray(x), int(evaluated)


def minimizer(function, rho=1 / S, start=START):
    """SciPy's stationary point of the same convex subproblem, with two more Newton steps to the last digits."""

    def slope(x):
        return function.gradient(x) + LINEAR + rho * (x - CENTER)

    def curvature(x):
        return function.hessian(x) + rho * np.eye(3)

    x = optimize.root(slope, start, jac=curvature, tol=1e-12).x
    for _ in range(2):
        x = x - np.linalg.solve(curvature(x), slope(x))
    return x


@pytest.mark.parametrize(
    ("oracle", "loss", "kind", "reference", "tolerance"),
    [
        (fd.oracles.Exact(), fd.losses.least_squares(l2=0.1), "normal", ref.least_squares, 1e-13),
        (fd.oracles.Newton(1e-12), fd.losses.logistic(l2=0.1), "binary", ref.logistic, 1e-11),
        (fd.oracles.Newton(1e-12), fd.losses.poisson(l2=0.1), "counts", ref.poisson, 1e-11),
        (fd.oracles.LBFGS(1e-10), fd.losses.logistic(l2=0.1), "binary", ref.logistic, 1e-8),
        (fd.oracles.LBFGS(1e-10), fd.losses.poisson(l2=0.1), "counts", ref.poisson, 1e-8),
    ],
    ids=["exact", "newton-logistic", "newton-poisson", "lbfgs-logistic", "lbfgs-poisson"],
)
def test_solvers_find_scipys_minimizer(oracle, loss, kind, reference, tolerance):
    table = ref.ragged_tables(kind)[2]
    x, evaluated = solve_once(oracle, loss, table)
    np.testing.assert_allclose(x, minimizer(reference(*table, 0.1)), rtol=tolerance, atol=tolerance)
    assert evaluated >= 12
    assert evaluated % 12 == 0


def test_exact_takes_the_nearest_of_many_minimizers():
    x, y = np.array([[1.0, 0.0, 0.0]]), np.array([2.0])
    loss = fd.losses.least_squares()
    with jax.enable_x64(True):
        local = local_of(loss, (x, y))
        oracle, start = fd.oracles.Exact(), jnp.asarray([5.0, 6.0, 7.0])
        nothing = Subproblem(jnp.zeros(3), jnp.zeros(3), 0.0, start)
        found = oracle.solve(local, nothing, oracle.init(local, start))[0]
    np.testing.assert_allclose(found, [2.0, 6.0, 7.0], rtol=1e-14)


def test_exact_refuses_what_is_not_quadratic(classification):
    with pytest.raises(ValueError, match=r"Exact needs a quadratic loss; Logistic is not. Use oracles.Newton"):
        fd.solve(classification, fd.ADMM(fd.oracles.Exact(), 1.0), rounds=1)


@pytest.mark.parametrize("oracle", [fd.oracles.Newton(1e-10), fd.oracles.LBFGS(1e-10)], ids=["newton", "lbfgs"])
@pytest.mark.parametrize("start", [50.0, -50.0])
def test_line_searches_back_off_from_an_overflowing_poisson_start(oracle, start):
    table = (np.array([[1.0, 0, 0], [1, 1, 0], [1, 0, 1], [-1, 0, 0]]), np.array([3, 1, 2, 1]))
    x, _ = solve_once(oracle, fd.losses.poisson(), table, start=np.full(3, start))
    np.testing.assert_allclose(x, minimizer(ref.poisson(*table), start=np.zeros(3)), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("oracle", [fd.oracles.Newton(1e-10), fd.oracles.LBFGS(1e-10)], ids=["newton", "lbfgs"])
def test_a_start_without_a_finite_value_is_flagged_and_not_returned_as_the_answer(oracle):
    table = (np.array([[100.0, 0, 0], [1, 1, 0]]), np.array([3, 1]))
    problem = fd.Problem(fd.losses.poisson(), fd.data.from_arrays([table, table], names=["fine", "also"]))
    solution = fd.solve(problem, fd.FedPD(oracle, 1.0), rounds=3, theta0=[50.0, 0.0, 0.0])
    assert solution.status == "diverged"
    assert "round 1" in solution.reason
    assert "client 'fine'" in solution.reason


def test_the_linearized_step_minimizes_its_quadratic(rng):
    x, gradient, linear, center = rng.normal(size=(4, 5))
    gamma, s = 0.3, 0.7

    def quadratic(v):
        linearized = jnp.vdot(gradient + linear, v)
        return linearized + jnp.sum((v - center) ** 2) / (2 * s) + jnp.sum((v - x) ** 2) / (2 * gamma)

    with jax.enable_x64(True):
        step = linearized_step(x, gradient, gamma, Subproblem(linear, center, 1 / s, x))
        slope = jax.grad(quadratic)(jnp.asarray(step))
    np.testing.assert_allclose(slope, 0, atol=1e-14)  # convex, so that this is the minimizer
    closed = s / (s + gamma) * x + gamma / (s + gamma) * center - s * gamma / (s + gamma) * (gradient + linear)
    np.testing.assert_allclose(step, closed, rtol=1e-13, atol=1e-15)
    plain = linearized_step(x, gradient, gamma, Subproblem(0.0, center, 0.0, x))
    np.testing.assert_allclose(plain, x - gamma * gradient, rtol=1e-14)


def minibatches(problem, seed, round_number, steps, batch):
    """The rows that the run of this seed draws: `(steps, batch)` per client."""
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(wrap_key(random_key(seed)), round_number), 2)
        drawn = []
        for name, rows in zip(problem.clients.names, problem.sizes, strict=True):
            client_key = key
            for word in name_words(name):
                client_key = jax.random.fold_in(client_key, word)
            drawn.append(np.asarray(draw_indices(client_key, steps, batch, int(rows))))
        return drawn


def run_written_out(problem, rounds, batch, steps, one_client):
    """FedPD whose oracle is `one_client(k, number, x, linear, center, carry, rows) -> (x, carry)`."""
    clients = len(problem.sizes)
    thetas, duals, theta = np.zeros((clients, 3)), np.zeros((clients, 3)), np.zeros(3)
    carries = [np.zeros(3)] * clients
    for number in range(1, rounds + 1):
        drawn = minibatches(problem, 0, number, steps, batch)
        for k in range(clients):
            thetas[k], carries[k] = one_client(k, number, thetas[k], duals[k], theta, carries[k], drawn[k])
            duals[k] += (thetas[k] - theta) / S
        theta = problem.weights @ (thetas + S * duals)
    return theta, thetas, duals


def minibatch_gradient(problem, k, rows, theta):
    return ref.logistic(problem.clients.features[k][rows], problem.clients.targets[k][rows], 0.1).gradient(theta)


def full_gradient(problem, k, theta):
    return ref.logistic(problem.clients.features[k], problem.clients.targets[k], 0.1).gradient(theta)


def stochastic_gradient(problem):
    def one_client(k, number, x, linear, center, carry, rows):
        for batch in rows:
            x = x - RATE * (minibatch_gradient(problem, k, batch, x) + linear + (x - center) / S)
        return x, carry

    return one_client


def variance_reduced(problem, refresh=2, gamma=RATE):
    def one_client(k, number, x, linear, center, estimate, rows):
        if (number - 1) % refresh == 0:
            estimate = full_gradient(problem, k, x)
        for batch in rows:
            new = s_gamma(x, center, estimate + linear, gamma)
            change = minibatch_gradient(problem, k, batch, new) - minibatch_gradient(problem, k, batch, x)
            x, estimate = new, estimate + change
        return x, estimate

    return one_client


def s_gamma(x, center, slope, gamma):
    return S / (S + gamma) * x + gamma / (S + gamma) * center - S * gamma / (S + gamma) * slope


def svrg(problem):
    def one_client(k, number, x, linear, center, carry, rows):
        snapshot, full = x, full_gradient(problem, k, x)
        for batch in rows:
            estimate = minibatch_gradient(problem, k, batch, x) - minibatch_gradient(problem, k, batch, snapshot) + full
            x = x - RATE * (estimate + linear + (x - center) / S)
        return x, carry

    return one_client


@pytest.mark.parametrize(
    ("oracle", "reference", "evaluations"),
    [
        (fd.oracles.StochasticGradient(STEPS, RATE, batch_size=3), stochastic_gradient, 3 * STEPS * 3 * 5),
        (
            fd.oracles.VarianceReduced(STEPS, RATE, batch_size=3, refresh=2),
            variance_reduced,
            3 * STEPS * 2 * 3 * 5 + 3 * 26,
        ),
        (fd.oracles.SVRG(STEPS, RATE, batch_size=3), svrg, 3 * STEPS * 2 * 3 * 5 + 5 * 26),
    ],
    ids=["sgd", "oracle-ii", "svrg"],
)
def test_stochastic_oracles_equal_their_recursion_written_out(classification, oracle, reference, evaluations):
    rounds = 5
    solution = fd.solve(classification, fd.FedPD(oracle, S), rounds=rounds)
    theta, thetas, duals = run_written_out(classification, rounds, 3, STEPS, reference(classification))
    np.testing.assert_allclose(solution.theta, theta, rtol=1e-12)
    np.testing.assert_allclose(solution.thetas, thetas, rtol=1e-12)
    np.testing.assert_allclose(solution.duals, duals, rtol=1e-11, atol=1e-14)
    assert solution.history["gradient_evaluations"][-1] == evaluations


def test_the_carried_estimate_is_the_recursions(classification):
    oracle = fd.oracles.VarianceReduced(STEPS, RATE, batch_size=3, refresh=2)
    solution = fd.solve(classification, fd.FedPD(oracle, S), rounds=2)
    estimates = {}

    def remember(k, number, *args):
        x, estimates[k] = variance_reduced(classification)(k, number, *args)
        return x, estimates[k]

    run_written_out(classification, 2, 3, STEPS, remember)
    np.testing.assert_allclose(solution.state.device.carries[0], [estimates[k] for k in range(3)], rtol=1e-12)


def test_minibatches_are_the_clients_own_rows_uniformly_drawn():
    drawn = np.asarray(draw_indices(jax.random.key(0, impl="threefry2x32"), 2000, 5, 7))
    counts = np.bincount(drawn.ravel(), minlength=7)
    assert len(counts) == 7
    assert np.sum((counts - 10_000 / 7) ** 2 / (10_000 / 7)) < 22.46  # chi-square, 6 degrees of freedom, 1 in 1000


def test_a_full_batch_optax_descent_is_gradient_descent(classification):
    ours = fd.solve(classification, fd.FedPD(fd.oracles.GradientDescent(STEPS, RATE), S), rounds=6)
    theirs = fd.solve(classification, fd.FedPD(fd.oracles.Optax(optax.sgd(RATE), STEPS), S), rounds=6)
    np.testing.assert_allclose(theirs.thetas, ours.thetas, rtol=1e-13)


@pytest.mark.parametrize("keep", [True, False])
def test_optax_momentum_is_carried_or_reset_as_asked(classification, keep):
    oracle = fd.oracles.Optax(optax.sgd(RATE, momentum=0.9), STEPS, keep=keep)
    solution = fd.solve(classification, fd.FedPD(oracle, S), rounds=4)

    def one_client(k, number, x, linear, center, momentum, rows):
        momentum = momentum if keep else np.zeros(3)
        for _ in range(STEPS):
            momentum = 0.9 * momentum + full_gradient(classification, k, x) + linear + (x - center) / S
            x = x - RATE * momentum
        return x, momentum

    _, thetas, _ = run_written_out(classification, 4, 1, STEPS, one_client)
    np.testing.assert_allclose(solution.thetas, thetas, rtol=1e-12)


def test_steps_and_learning_rates_may_differ_between_clients(classification):
    rates = np.array([0.1, 0.2, 0.3])
    oracle = fd.oracles.GradientDescent(PERSONAL, rates)
    solution = fd.solve(classification, fd.FedPD(oracle, S), rounds=4)

    def one_client(k, number, x, linear, center, carry, rows):
        for _ in range(PERSONAL[k]):
            x = x - rates[k] * (full_gradient(classification, k, x) + linear + (x - center) / S)
        return x, carry

    _, thetas, _ = run_written_out(classification, 4, 1, 1, one_client)
    np.testing.assert_allclose(solution.thetas, thetas, rtol=1e-12)
    evaluations = 4 * sum(q * n for q, n in zip(PERSONAL, ref.SIZES, strict=True))
    assert solution.history["gradient_evaluations"][-1] == evaluations


def test_automatic_learning_rates_are_one_over_smoothness_plus_rho(classification):
    automatic = fd.solve(classification, fd.FedPD(fd.oracles.GradientDescent(STEPS), S), rounds=4)
    largest = [np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 4 + 0.1 for x in classification.clients.features]
    rates = 1 / (np.array(largest) + 1 / S)
    explicit = fd.solve(classification, fd.FedPD(fd.oracles.GradientDescent(STEPS, rates), S), rounds=4)
    np.testing.assert_allclose(automatic.thetas, explicit.thetas, rtol=1e-12)


def test_epochs_are_passes_and_every_client_makes_a_step():
    tables = ref.ragged_tables("binary", sizes=(1, 3, 200))
    problem = fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(tables))
    oracle = fd.oracles.StochasticGradient(epochs=1, learning_rate=0.1, batch_size=32)
    solution = fd.solve(problem, fd.FedAvg(oracle), rounds=1)
    # 1 and 3 rows: one batch of 32 draws each; 200 rows: 6.25, so 6 batches.
    assert solution.history["gradient_evaluations"][0] == 32 * (1 + 1 + 6)
    assert (np.abs(solution.thetas).sum(axis=1) > 0).all()


def test_steps_and_fractional_epochs_count_what_they_say():
    table = ref.ragged_tables("binary", sizes=(80,))
    problem = fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(table))
    for oracle, steps in (
        (fd.oracles.StochasticGradient(steps=5, learning_rate=0.1, batch_size=10), 5),
        (fd.oracles.StochasticGradient(epochs=0.25, learning_rate=0.1, batch_size=10), 2),
    ):
        solution = fd.solve(problem, fd.FedAvg(oracle), rounds=3)
        np.testing.assert_array_equal(solution.history["gradient_evaluations"], 10 * steps * np.arange(1, 4))


@record
class HeavyBall(fd.oracles.FirstOrder):
    """Gradient steps with momentum, as a user might write them."""

    steps: int = static(default=4)
    learning_rate: float = 0.2
    momentum: float = 0.5

    def init(self, local, start):
        return jnp.zeros_like(start)

    def step(self, x, velocity, subproblem, local, indices):
        slope = local.gradient(x) + subproblem.penalty_gradient(x)
        velocity = self.momentum * velocity - self.learning_rate * slope
        return x + velocity, velocity


def test_a_users_first_order_oracle_works(classification):
    ours = fd.solve(classification, fd.FedPD(HeavyBall(), S), rounds=4)
    theirs = fd.oracles.Optax(optax.sgd(RATE, momentum=0.5), STEPS)
    np.testing.assert_allclose(ours.thetas, fd.solve(classification, fd.FedPD(theirs, S), 4).thetas, rtol=1e-12)


@record
class DampedExact(fd.oracles.Oracle):
    """A user's own solver: half the way to the exact minimizer of a quadratic subproblem."""

    def solve(self, local, subproblem, carry):
        x = subproblem.start
        slope = local.gradient(x) + subproblem.penalty_gradient(x)
        step = jnp.linalg.solve(local.hessian(x) + subproblem.rho * jnp.eye(x.size), slope)
        return x - step / 2, carry, local.count


def test_a_users_solver_works(regression):
    functions = [
        ref.least_squares(x, y, 0.1)
        for x, y in zip(regression.clients.features, regression.clients.targets, strict=True)
    ]
    exact = ref.exact_solver(functions)
    expected = ref.fedpd(
        lambda k, *args: (args[-1] + exact(k, *args)) / 2, regression.weights, np.zeros(3), S, [False] * 4
    )
    solution = fd.solve(regression, fd.FedPD(DampedExact(), S), rounds=4)
    np.testing.assert_allclose(solution.thetas, expected[-1].thetas, rtol=1e-12)
    np.testing.assert_array_equal(solution.history["gradient_evaluations"], 26 * np.arange(1, 5))


@pytest.mark.parametrize(
    ("oracle", "message"),
    [
        (fd.oracles.GradientDescent(0, 0.1), r"steps = 0 must be an integer >= 1"),
        (fd.oracles.GradientDescent(2.5, 0.1), r"steps = 2.5 must be an integer >= 1"),
        (fd.oracles.GradientDescent((1, 2), 0.1), r"steps = \(1, 2\) must be an integer >= 1, or one per client"),
        (fd.oracles.GradientDescent(1, 0.0), r"learning_rate = 0.0 must be positive and finite"),
        (fd.oracles.GradientDescent(1, float("nan")), r"learning_rate = nan must be positive"),
        (fd.oracles.GradientDescent(1, np.ones(2)), r"2 values of a setting for 3 clients"),
        (fd.oracles.StochasticGradient(1, 0.1, batch_size=0), r"batch_size = 0 must be"),
        (fd.oracles.StochasticGradient(1, 0.1, batch_size=2.5), r"batch_size = 2.5 must be an integer"),
        (fd.oracles.StochasticGradient(1, 0.1, epochs=1.0), r"steps = 1 and epochs = 1.0: give one of the two"),
        (fd.oracles.StochasticGradient(learning_rate=0.1, epochs=-1.0), r"epochs = -1.0 must be positive"),
        (fd.oracles.StochasticGradient(learning_rate=0.1), r"steps = None must be an integer"),
        (fd.oracles.Linearized(1, -0.5), r"gamma = -0.5 must be positive"),
        (fd.oracles.VarianceReduced(1, 0.5, refresh=0), r"refresh = 0 must be an integer >= 1"),
        (fd.oracles.VarianceReduced(1, 0.5, refresh=1.5), r"refresh = 1.5 must be an integer"),
        (fd.oracles.Newton(-1.0), r"tolerance = -1.0 must be positive"),
        (fd.oracles.Optax("adam"), r"optimizer = 'adam' is not an Optax gradient transformation"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(classification, oracle, message):
    with pytest.raises(ValueError, match=message):
        fd.solve(classification, fd.FedPD(oracle, 1.0), rounds=1)


def test_a_carried_estimate_is_refused_where_the_work_starts_elsewhere(classification):
    oracle = fd.oracles.VarianceReduced(4, 0.1, refresh=2)
    with pytest.raises(ValueError, match=r"refresh = 2: FedAvg starts its local work at the global model.*refresh=1"):
        fd.solve(classification, fd.FedAvg(oracle), rounds=1)
