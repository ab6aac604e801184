"""Every loss against its formula in NumPy, its derivatives against differentiation, its bound against eigenvalues."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import fedual as fd
import references as ref
from fedual.local import Rows

CLASSES = 3
CASES = {
    "least_squares": (fd.losses.least_squares(l2=0.3), "normal", lambda x, y: ref.least_squares(x, y, 0.3)),
    "logistic": (fd.losses.logistic(l2=0.3), "binary", lambda x, y: ref.logistic(x, y, 0.3)),
    "nonconvex": (
        fd.losses.logistic_nonconvex(beta=0.4, alpha=2.0),
        "binary",
        lambda x, y: ref.logistic_nonconvex(x, y, 0.4, 2.0),
    ),
    "poisson": (fd.losses.poisson(l2=0.3), "counts", lambda x, y: ref.poisson(x, y, 0.3)),
}
SOFTMAX = fd.losses.softmax(CLASSES, l2=0.3)


def absolute_cubes(parameters, batch):
    x, y = batch
    return abs(x @ parameters["slope"] + parameters["offset"] - y) ** 3


FUNCTION = fd.losses.from_function(absolute_cubes, {"offset": 0.5, "slope": np.array([1.0, 2.0, -1.0])}, l2=0.3)


@jax.jit
def derivatives(loss, rows, theta):
    """The loss's own gradient and Hessian, and those by differentiation."""
    own = loss.gradient(theta, rows), loss.hessian(theta, rows)
    return own, (jax.grad(loss.value)(theta, rows), jax.hessian(loss.value)(theta, rows))


def rows_of(loss, table, weights=None):
    x, y = loss.prepare(*table, "a")
    return Rows(x, y, np.full(len(x), 1 / len(x)) if weights is None else weights / weights.sum())


@pytest.mark.parametrize("name", CASES)
def test_value_gradient_and_hessian_equal_the_formulas_in_numpy(name, rng):
    loss, kind, reference = CASES[name]
    tables = ref.ragged_tables(kind)
    problem = fd.Problem(loss, fd.data.from_arrays(tables))
    functions = [reference(*table) for table in tables]
    thetas = rng.normal(size=(3, 3))
    weights = np.array(ref.SIZES) / sum(ref.SIZES)
    pairs = list(zip(functions, thetas, strict=True))
    np.testing.assert_allclose(problem.local_values(thetas), [f.value(t) for f, t in pairs], rtol=1e-13)
    np.testing.assert_allclose(problem.local_gradients(thetas), [f.gradient(t) for f, t in pairs], rtol=1e-11)
    hessian = sum(w * f.hessian(thetas[0]) for w, f in zip(weights, functions, strict=True))
    np.testing.assert_allclose(problem.hessian(thetas[0]), hessian, rtol=1e-11, atol=1e-14)


def test_softmax_equals_its_formula_in_numpy(rng):
    tables = ref.ragged_tables("classes")
    problem = fd.Problem(SOFTMAX, fd.data.from_arrays(tables))
    thetas = rng.normal(size=(3, 9))
    expected = [ref.softmax_value(*table, t, CLASSES, 0.3) for table, t in zip(tables, thetas, strict=True)]
    np.testing.assert_allclose(problem.local_values(thetas), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [*((loss, kind) for loss, kind, _ in CASES.values()), (SOFTMAX, "classes"), (FUNCTION, "normal")],
    ids=[*CASES, "softmax", "function"],
)
def test_gradient_and_hessian_are_the_derivatives_of_the_value(loss, kind, rng):
    table = ref.ragged_tables(kind)[2]
    theta = rng.normal(size=loss.dimension((3,)))
    with jax.enable_x64(True):
        own, expected = derivatives(loss, rows_of(loss, table, rng.uniform(size=12)), theta)
    for a, b in zip(own, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("loss", "kind", "curvature", "extra"),
    [
        (fd.losses.least_squares(l2=0.3), "normal", 1.0, 0.3),
        (fd.losses.logistic(l2=0.3), "binary", 0.25, 0.3),
        (fd.losses.logistic_nonconvex(beta=0.1, alpha=1.0), "binary", 0.25, 0.2),
        (SOFTMAX, "classes", 0.5, 0.3),
    ],
    ids=["least_squares", "logistic", "nonconvex", "softmax"],
)
def test_smoothness_is_the_bound_from_the_largest_eigenvalue_and_bounds_the_hessian(loss, kind, curvature, extra, rng):
    tables = ref.ragged_tables(kind, sizes=(5, 12, 2))  # the last has fewer rows than features
    bounds = fd.Problem(loss, fd.data.from_arrays(tables)).smoothness()
    largest = [np.linalg.eigvalsh(x.T @ x / len(x))[-1] for x, _ in tables]
    np.testing.assert_allclose(bounds, curvature * np.array(largest) + extra, rtol=1e-12)
    for scale in (0.0, 0.3, 3.0):
        theta = scale * rng.normal(size=loss.dimension((3,)))
        with jax.enable_x64(True):
            (_, hessian), _ = derivatives(loss, rows_of(loss, tables[1]), theta)
        assert np.abs(np.linalg.eigvalsh(hessian)).max() <= bounds[1] * (1 + 1e-12)


def test_losses_without_a_global_bound_say_so():
    tables = ref.ragged_tables("counts")
    problem = fd.Problem(fd.losses.poisson(), fd.data.from_arrays(tables))
    assert problem.smoothness() is None


@pytest.mark.parametrize("loss", [fd.losses.logistic(), fd.losses.softmax(2)], ids=["logistic", "softmax"])
def test_margins_of_ten_thousand_give_the_exact_limits(loss):
    clients = fd.data.from_arrays([([[1e4], [-1e4]], [1, 0]), ([[1e4], [-1e4]], [0, 1])])
    problem = fd.Problem(loss, clients)
    # Two classes: the margin is theta in one form and the difference of two scores in the other.
    theta = [1.0] if problem.dimension == 1 else [-0.5, 0.5]
    np.testing.assert_array_equal(problem.local_values(theta), [0.0, 1e4])
    np.testing.assert_array_equal(problem.local_gradients(theta)[:, -1], [0.0, 1e4])
    assert np.isfinite(problem.hessian(theta)).all()


def test_an_intercept_is_not_penalized_linear(rng):
    x, y = ref.ragged_tables("normal", sizes=(30,))[0]
    y = y + 7
    problem = fd.Problem(
        fd.losses.least_squares(intercept=True), fd.data.from_arrays([(x[:10], y[:10]), (x[10:], y[10:])])
    )
    reference = LinearRegression().fit(x, y)
    np.testing.assert_allclose(problem.minimum().theta, [*reference.coef_, reference.intercept_], rtol=1e-10)


def test_an_intercept_is_not_penalized_softmax():
    tables = ref.ragged_tables("classes", sizes=(40, 50))
    problem = fd.Problem(fd.losses.softmax(CLASSES, l2=0.2, intercept=True), fd.data.from_arrays(tables))
    x, y = problem.clients.pooled()
    reference = LogisticRegression(C=1 / (0.2 * len(x)), tol=1e-12, max_iter=10_000).fit(x, y)
    theta = problem.minimum().theta.reshape(-1, CLASSES)
    # Intercepts are determined up to a common constant.
    np.testing.assert_allclose(theta[:-1], reference.coef_.T, atol=1e-7)
    np.testing.assert_allclose(
        theta[-1] - theta[-1].mean(), reference.intercept_ - reference.intercept_.mean(), atol=1e-7
    )


def test_a_function_of_a_pytree_equals_its_formula(rng):
    tables = ref.ragged_tables("normal")
    problem = fd.Problem(FUNCTION, fd.data.from_arrays(tables))
    theta = rng.normal(size=4)  # leaves in the order of their keys: offset, slope
    expected = [np.mean(np.abs(x @ theta[1:] + theta[0] - y) ** 3) + 0.15 * theta @ theta for x, y in tables]
    np.testing.assert_allclose(problem.local_values(theta), expected, rtol=1e-13)
    np.testing.assert_array_equal(FUNCTION.start((3,)), [0.5, 1, 2, -1])


@pytest.mark.parametrize(
    ("loss", "targets", "message"),
    [
        (fd.losses.logistic(), [0, 2], r"client 'b': labels must be 0 and 1, or -1 and 1; found \[0.0, 2.0\]"),
        (fd.losses.logistic(), [-1, 0], r"client 'b': labels must be 0 and 1, or -1 and 1"),
        (fd.losses.softmax(2), [0, 2], r"client 'b': labels must be integers 0..1; found \[0.0, 2.0\]"),
        (fd.losses.softmax(2), [0.5, 1], r"client 'b': labels must be integers"),
        (fd.losses.poisson(), [1, -1], r"client 'b': Poisson counts must be whole numbers >= 0; found -1.0"),
        (fd.losses.from_function(lambda t, batch: batch[1].sum() * t[0], [1.0]), [1, 0], "client 'a': .* per row"),
    ],
)
def test_unsuitable_targets_are_refused_naming_the_client(loss, targets, message):
    clients = fd.data.from_arrays([([[1.0], [2.0]], [0, 1]), ([[1.0], [2.0]], targets)], names=["a", "b"])
    with pytest.raises(ValueError, match=message):
        fd.Problem(loss, clients)


def test_labels_of_zero_and_one_mean_the_same_as_minus_one_and_one():
    tables = ref.ragged_tables("binary")
    signs = [(x, 2 * y - 1) for x, y in tables]
    theta = np.array([0.3, -1.0, 0.5])
    a, b = (fd.Problem(fd.losses.logistic(), fd.data.from_arrays(t)).local_values(theta) for t in (tables, signs))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", [fd.losses.least_squares, fd.losses.logistic, fd.losses.poisson])
@pytest.mark.parametrize("l2", [-1.0, float("nan"), float("inf"), "1", True])
def test_a_bad_penalty_is_refused(make, l2):
    with pytest.raises(ValueError, match=r"l2 = .* must be a finite number >= 0"):
        make(l2=l2)
