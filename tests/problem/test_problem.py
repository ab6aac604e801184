"""The consensus problem against NumPy, SciPy and scikit-learn on the pooled data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.linear_model import LogisticRegression

import fedual as fd
import references as ref
from fedual.arrays import record
from fedual.protocols import Regularizer

S = 0.7


def functions(problem, make, l2=0.1):
    return [make(x, y, l2) for x, y in zip(problem.clients.features, problem.clients.targets, strict=True)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("samples", np.array(ref.SIZES) / 26), ("uniform", np.full(3, 1 / 3)), ([2, 1, 1], np.array([0.5, 0.25, 0.25]))],
)
def test_weights_enter_as_a_mean_over_clients(regression, rng, weights, expected):
    problem = fd.Problem(regression.loss, regression.clients, weights=weights)
    theta = rng.normal(size=3)
    clients = functions(problem, ref.least_squares)
    np.testing.assert_allclose(
        problem.value(theta), sum(w * f.value(theta) for w, f in zip(expected, clients, strict=True))
    )
    np.testing.assert_allclose(
        problem.gradient(theta), sum(w * f.gradient(theta) for w, f in zip(expected, clients, strict=True))
    )
    assert problem.stationarity(theta) == pytest.approx(np.sum(problem.gradient(theta) ** 2), rel=1e-14)


def test_sample_weights_make_the_pooled_empirical_risk(regression, rng):
    theta = rng.normal(size=3)
    pooled = ref.least_squares(*regression.clients.pooled(), 0.1)
    assert regression.value(theta) == pytest.approx(pooled.value(theta), rel=1e-13)


def test_per_sample_and_per_site_weights_have_their_own_optimum():
    sizes, means = [1, 10, 100], np.array([0.0, 1.0, 5.0])
    clients = fd.data.from_arrays([(np.ones((n, 1)), np.full(n, m)) for n, m in zip(sizes, means, strict=True)])
    for weights, optimum in (("samples", (10 + 500) / 111), ("uniform", means.mean())):
        problem = fd.Problem(fd.losses.least_squares(), clients, weights=weights)
        assert problem.minimum().theta[0] == pytest.approx(optimum, rel=1e-12)
        assert fd.solve(problem, fd.ADMM(step_size=1.0), 200).theta[0] == pytest.approx(optimum, rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, -5], r"client 'client 2' has weight -5; weights must be positive and finite"),
        ([1, float("nan"), 1], r"client 'client 1' has weight nan"),
        ([0, 1, 1], r"client 'client 0' has weight 0"),
        ([1, 2], r"weights must be 3 numbers"),
        ([True, True, True], r"weights must be 3 numbers, one per client; got bool"),
        (["120", "1", "1"], r"weights must be 3 numbers"),
        ([None, 1, 1], r"weights must be 3 numbers, one per client; got object"),
        ("sizes", r"weights = 'sizes' must be 'samples', 'uniform' or"),
    ],
)
def test_bad_weights_are_refused_and_never_replaced(regression, weights, message):
    with pytest.raises(ValueError, match=message):
        fd.Problem(regression.loss, regression.clients, weights=weights)


def test_augmented_lagrangian_and_residuals_are_their_formulas(regression, rng):
    theta, thetas, duals = rng.normal(size=3), rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    w = regression.weights
    terms = [
        f.value(x) + v @ (x - theta) + np.sum((x - theta) ** 2) / (2 * S)
        for f, x, v in zip(functions(regression, ref.least_squares), thetas, duals, strict=True)
    ]
    assert regression.augmented_lagrangian(theta, thetas, duals, S) == pytest.approx(w @ terms, rel=1e-13)
    gaps = np.sum((thetas - theta) ** 2, axis=1)
    assert regression.primal_residual(thetas, theta) == pytest.approx(np.sqrt(w @ gaps), rel=1e-13)
    assert regression.dual_residual(duals) == pytest.approx(np.linalg.norm(w @ duals), rel=1e-13)
    with pytest.raises(ValueError, match=r"s = 0 must be positive"):
        regression.augmented_lagrangian(theta, thetas, duals, 0)


def test_the_dual_function_is_the_joint_infimum(regression, rng):
    duals = rng.normal(size=(3, 3))
    duals -= regression.weights @ duals  # else the infimum is minus infinity for flat losses; here it need not be
    duals += 0.1
    clients = functions(regression, ref.least_squares)

    def lagrangian(flat):
        theta, thetas = flat[:3], flat[3:].reshape(3, 3)
        gaps = thetas - theta
        values = [f.value(x) + v @ g + g @ g / (2 * S) for f, x, v, g in zip(clients, thetas, duals, gaps, strict=True)]
        slopes = np.stack([f.gradient(x) + v + g / S for f, x, v, g in zip(clients, thetas, duals, gaps, strict=True)])
        server = -regression.weights @ (duals + gaps / S)
        return regression.weights @ values, np.concatenate([server, (regression.weights[:, None] * slopes).ravel()])

    found = optimize.minimize(lagrangian, np.zeros(12), jac=True, method="BFGS", options={"gtol": 1e-10})
    assert regression.dual_function(duals, S) == pytest.approx(found.fun, rel=1e-9)


def test_the_dual_function_is_largest_at_the_multipliers(regression, rng):
    optimum = regression.minimum()
    best = -regression.local_gradients(optimum.theta)
    assert regression.dual_function(best, S) == pytest.approx(optimum.value, rel=1e-12)
    for _ in range(5):
        assert regression.dual_function(best + rng.normal(size=(3, 3)), S) < optimum.value


def test_the_dual_function_is_refused_where_it_is_not_computable(classification):
    with pytest.raises(ValueError, match=r"Logistic has none. It is computable for losses.least_squares"):
        classification.dual_function(np.zeros((3, 3)), S)


def test_minimum_is_numpys_for_least_squares(regression):
    x, y = regression.clients.pooled()
    expected = np.linalg.solve(x.T @ x / 26 + 0.1 * np.eye(3), x.T @ y / 26)
    np.testing.assert_allclose(regression.minimum().theta, expected, rtol=1e-12)


def test_minimum_is_scikit_learns_for_logistic(classification):
    x, y = classification.clients.pooled()
    reference = LogisticRegression(C=1 / (0.1 * 26), fit_intercept=False, tol=1e-12, max_iter=10_000).fit(x, y)
    np.testing.assert_allclose(classification.minimum().theta, reference.coef_[0], rtol=1e-7)


def test_minimum_is_scipys_for_poisson():
    problem = fd.Problem(fd.losses.poisson(l2=0.1), fd.data.from_arrays(ref.ragged_tables("counts")))
    pooled = ref.poisson(*problem.clients.pooled(), 0.1)
    found = optimize.minimize(pooled.value, np.zeros(3), jac=pooled.gradient, hess=pooled.hessian, method="trust-exact",
                              options={"gtol": 1e-12})  # fmt: skip
    np.testing.assert_allclose(problem.minimum().theta, found.x, rtol=1e-9)


def test_a_problem_without_a_minimum_is_reported():
    linear = fd.losses.from_function(lambda theta, batch: batch[0] @ theta, jnp.zeros(1))
    problem = fd.Problem(linear, fd.data.from_arrays([([[1.0], [2.0]], [1, 0])]))
    with pytest.raises(
        RuntimeError, match=r"no minimum found: the stationarity is 2.25 where 1e-24 was asked.*unbounded"
    ):
        problem.minimum()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([13, 40]))
def test_padding_is_inert(seed, padded):
    tables = ref.ragged_tables("binary", seed=seed)
    theta = np.random.default_rng(seed).normal(size=(3, 3))
    plain, padding = (fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(tables)) for _ in range(2))
    padding.layout(rows=padded)
    assert padding._current().padded_rows == 3 * padded
    for what in ("local_values", "local_gradients"):
        np.testing.assert_allclose(getattr(padding, what)(theta), getattr(plain, what)(theta), rtol=1e-12)
    np.testing.assert_allclose(padding.smoothness(), plain.smoothness(), rtol=1e-12)
    np.testing.assert_allclose(padding.hessian(theta[0]), plain.hessian(theta[0]), rtol=1e-12)


@pytest.mark.parametrize("loss", ["poisson", "softmax", "function"])
def test_padding_is_inert_where_padded_rows_would_not_be_finite(loss):
    def reciprocal(theta, batch):
        x, y = batch
        return 1 / (x @ theta) + y  # a row of zeros divides by zero

    kind, loss, theta = {
        "poisson": ("counts", fd.losses.poisson(), np.array([900.0, 0.1, 0.1])),  # exp overflows on real rows only
        "softmax": ("classes", fd.losses.softmax(3), np.arange(9.0)),
        "function": ("normal", fd.losses.from_function(reciprocal, jnp.ones(3)), np.ones(3)),
    }[loss]
    tables = ref.ragged_tables(kind)
    if kind == "counts":
        tables = [(np.column_stack([-np.abs(x[:, 0]), x[:, 1:]]), y) for x, y in tables]
    plain, padding = (fd.Problem(loss, fd.data.from_arrays(tables)) for _ in range(2))
    padding.layout(rows=40)
    for what in ("local_values", "local_gradients"):
        expected = getattr(plain, what)(theta)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(getattr(padding, what)(theta), expected, rtol=1e-12)


def test_one_row_beside_a_hundred_thousand_takes_no_more_than_twice_the_memory():
    rng = np.random.default_rng(0)
    sizes = [1, 1, 3, 100_000]
    tables = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in sizes]
    problem = fd.Problem(fd.losses.least_squares(l2=1.0), fd.data.from_arrays(tables))
    layout = problem.layout()
    assert layout.padded_rows <= 2 * sum(sizes)
    assert sorted(np.concatenate(layout.members).tolist()) == [0, 1, 2, 3]
    theta = np.array([0.5, -1.0])
    expected = [ref.least_squares(*table, 1.0).gradient(theta) for table in tables]
    np.testing.assert_allclose(problem.local_gradients(theta), expected, rtol=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=60))
def test_buckets_partition_the_clients_within_twice_the_rows_and_their_price(sizes):
    from fedual.layout import split_by_size

    sizes = np.array(sizes)
    buckets = split_by_size(np.arange(len(sizes)), sizes)
    assert sorted(np.concatenate(buckets).tolist()) == list(range(len(sizes)))
    padded = sum(len(bucket) * sizes[bucket].max() for bucket in buckets)
    assert padded <= 2 * sizes.sum() + 25_000 * len(buckets)


def test_gather_and_scatter_keep_the_users_order():
    sizes = [20_000, 1, 20_001, 2]
    tables = [(np.full((n, 1), float(k)), np.zeros(n)) for k, n in enumerate(sizes)]
    layout = fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(tables)).layout(devices=3)
    assert len(layout.buckets) == 2
    assert all(len(bucket.count) % 3 == 0 for bucket in layout.buckets)
    assert sum(np.asarray(bucket.weight).sum() for bucket in layout.buckets) == pytest.approx(1, abs=1e-15)
    first = [np.asarray(bucket.rows.features)[:, 0, 0] for bucket in layout.buckets]
    np.testing.assert_array_equal(layout.gather(first), [0, 1, 2, 3])
    values = np.array([5.0, 6.0, 7.0, 8.0])
    np.testing.assert_array_equal(layout.gather(layout.scatter(values)), values)


def test_one_row_and_one_class_clients_count_like_any_other():
    x, y = ref.ragged_tables("binary", sizes=(12,))[0]
    tables = [(x[:1], y[:1]), (x[y == 1][1:], y[y == 1][1:]), (x[1:][y[1:] == 0], y[1:][y[1:] == 0])]
    tables = [table for table in tables if len(table[0])]
    problem = fd.Problem(fd.losses.logistic(l2=0.5), fd.data.from_arrays(tables))
    pooled = ref.logistic(*problem.clients.pooled(), 0.5)
    found = optimize.minimize(pooled.value, np.zeros(3), jac=pooled.gradient, hess=pooled.hessian, method="trust-exact",
                              options={"gtol": 1e-12})  # fmt: skip
    solution = fd.solve(problem, fd.ADMM(step_size=2.0), rounds=300, tolerance=1e-24)
    assert solution.converged
    np.testing.assert_allclose(solution.theta, found.x, rtol=1e-9)


def test_precision_belongs_to_the_problem_and_the_callers_flags_stay(regression):
    assert jax.config.jax_enable_x64 is False
    assert regression.local_gradients(np.zeros(3)).dtype == np.float64
    single = fd.Problem(regression.loss, regression.clients, dtype="float32")
    assert single.local_gradients(np.zeros(3)).dtype == np.float32
    np.testing.assert_allclose(single.local_gradients(np.ones(3)), regression.local_gradients(np.ones(3)), rtol=2e-5)
    assert jnp.ones(1).dtype == np.float32
    assert jax.config.jax_enable_x64 is False
    with jax.enable_x64(True):  # a caller who works in float64 keeps it, too
        assert single.local_gradients(np.zeros(3)).dtype == np.float32
        assert jnp.ones(1).dtype == np.float64
    with pytest.raises(ValueError, match=r"dtype = 'float16' must be 'float64' or 'float32'"):
        fd.Problem(regression.loss, regression.clients, dtype="float16")


@record
class Ridge(Regularizer):
    """r(theta) = ||theta||^2."""

    def value(self, theta):
        return jnp.sum(theta**2)

    def prox(self, theta, scale):
        return theta / (1 + 2 * scale)


def test_a_regularizer_enters_value_stationarity_and_minimum(regression, rng):
    problem = fd.Problem(regression.loss, regression.clients, regularizer=Ridge())
    theta = rng.normal(size=3)
    assert problem.value(theta) == pytest.approx(regression.value(theta) + theta @ theta, rel=1e-14)
    stronger = fd.Problem(fd.losses.least_squares(l2=2.1), regression.clients)
    np.testing.assert_allclose(problem.minimum().theta, stronger.minimum().theta, rtol=1e-9)
    step = (theta - (theta - S * regression.gradient(theta)) / (1 + 2 * S)) / S
    assert problem.stationarity(theta, S) == pytest.approx(step @ step, rel=1e-12)


@pytest.mark.parametrize(
    ("theta", "message"),
    [(np.zeros(2), r"theta has shape \(2,\); this problem has 3"), ([0, float("nan"), 0], r"theta holds nan at 1")],
)
def test_a_point_that_does_not_fit_is_refused(regression, theta, message):
    with pytest.raises(ValueError, match=message):
        regression.value(theta)


def test_points_of_a_wrong_shape_are_refused(regression):
    with pytest.raises(ValueError, match=r"parameters have shape \(2, 3\); expected \(3,\) or \(3, 3\)"):
        regression.local_gradients(np.zeros((2, 3)))
    with pytest.raises(TypeError, match=r"clients must be made by fedual.data.from_arrays"):
        fd.Problem(regression.loss, [(np.ones((1, 1)), [1])])
