"""Step size, skip probability and the constants they need, from theory and from data."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedual import formulas
from fedual.arrays import precision
from fedual.blocks import map_clients
from fedual.devices import on_devices
from fedual.problem import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["dissimilarity", "local_smoothness", "plot_skip_probability", "skip_probability", "smoothness", "step_size"]

# A curvature seen at one point is no bound: this factor stands for how much larger it may be nearby.
SAFETY = 2.0
_POWER_STEPS = 40


def _positive(**values: Any) -> None:
    for name, value in values.items():
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):
            raise ValueError(f"{name} = {value!r} must be a positive finite number.")


def step_size(L: float) -> float:
    """s = (sqrt(5) - 1)/(8 L), the penalty parameter of FedPD's analysis.

    It is safe and slow: on most data a several times larger s needs fewer communications, which is why
    `step_size="auto"` only starts from it and adapts.

    Args:
        L: a bound on the Lipschitz constants of grad f and every grad f_k, > 0.

    Raises:
        ValueError: L is not positive and finite.

    Reference:
        Zhang, Hong, Dhople, Yin and Liu, "FedPD: A federated learning framework with adaptivity to non-IID data",
        IEEE Transactions on Signal Processing 69, 2021, Theorem 1 and Table III.

    Example:
        >>> round(step_size(1.0), 4)
        0.1545
    """
    _positive(L=L)
    return formulas.STEP / float(L)


def skip_probability(
    epsilon: float,
    G: float,
    L: float,
    s: float | None = None,
    form: Literal["seed", "published", "relation"] = "seed",
) -> float:
    """How often communication can be skipped: the more alike the clients, the larger p.

        p = sqrt(epsilon / (36 s G^2))            where that is below tau = (1 - 2Ls)/(1 + Ls)
        p = 1 - 2 / log(epsilon / (42 s G^2))     where that is above tau            (log is the natural logarithm)
        p = tau                                   in between
        p = 0.99                                  at most; G = 0 would ask for p = 1

    The forms differ in the constant and in how far the derivation is simplified. Behind all of them is one third of the
    error budget, C(p) = epsilon/(3 G^2), with C3(p) = (p(1+Ls) + Ls)/(1 - Ls) and roughly

        C(p) = 12 s^2 p^2  while C3 < 1 (p < tau),        C(p) = 14 s^2 C3^(2/(1-p))  from there on.

    "seed" (the default) divides by s as printed above. "published" has s^2 in both branches, as the paper's Table III;
    for s < 1 its p is larger. "relation" solves C(p) = epsilon/(3 G^2) for p, which is "published" on the first branch
    and keeps C3 on the second, where the printed rule replaces log C3 by 1: as log C3 < 1 for the usual s, its p there
    is larger. The constants 12 and 14 are rough, so p is an order of magnitude, not a guarantee. The formula carries
    units: scaling all losses changes p (`schedules.Adaptive` evaluates it where L = 1).

    Args:
        epsilon: accuracy aimed at, for ||grad f||^2, > 0.
        G: gradient dissimilarity, ||grad f_k(x) - grad f(x)|| <= G, >= 0.
        L: the smoothness constant, > 0.
        s: the penalty parameter, > 0; `step_size(L)` if not given. tau > 0 needs L s < 1/2.
        form: "seed", "published" or "relation".

    Raises:
        ValueError: an argument is out of range, NaN or infinite, L s >= 1/2, or an unknown form.

    Reference:
        Zhang et al., "FedPD", 2021, Remark 5 and Table III.

    Example:
        >>> round(skip_probability(epsilon=1e-2, G=1.0, L=1.0), 4), round(skip_probability(1e6, 1.0, 1.0), 4)
        (0.0424, 0.8326)
    """
    s = step_size(L) if s is None else s
    _positive(epsilon=epsilon, L=L, s=s)
    if G != 0:
        _positive(G=G)
    if isinstance(G, bool):
        raise ValueError(f"G = {G!r} must be a finite number >= 0.")
    if not L * s < 0.5:
        raise ValueError(f"L s = {L * s:.3g} must be below 1/2 (s = {s!r}, L = {L!r}): beyond it the rule has no p.")
    if form not in formulas.FORMS:
        raise ValueError(f"form = {form!r} must be one of {', '.join(map(repr, formulas.FORMS))}.")
    ratio = float(epsilon) / float(G) / float(G) if G > 0 else math.inf
    if ratio == math.inf:
        return formulas.MOST_SKIPPED
    return float(formulas.skip_probability(ratio, float(s), float(L) * float(s), form))


def plot_skip_probability(axes: Axes, L: float = 1.0, s: float | None = None) -> None:
    """Draw p against epsilon/G^2 for the three forms.

    Args:
        axes: Matplotlib axes to draw on.
        L, s: as for `skip_probability`.

    Example:
        >>> from matplotlib.figure import Figure
        >>> plot_skip_probability(Figure().subplots())
    """
    ratios = np.logspace(-5, 8, 400)
    for form in formulas.FORMS:
        axes.plot(ratios, [skip_probability(float(r), 1.0, L, s, form) for r in ratios], label=form)  # type: ignore[arg-type]
    axes.set(xscale="log", xlabel="epsilon / G²", ylabel="p, probability of skipping", ylim=(0, 1))
    axes.axhline(formulas.largest_first_branch(L * (step_size(L) if s is None else s)), color="0.7", lw=0.8, zorder=0)
    axes.legend(title="form")


def local_smoothness(problem: Problem, theta: Any = None) -> np.ndarray:
    """L_k of every client: what each can compute alone.

    The bound of the loss where it has one: lambda_max(X_k'X_k/n_k) for least squares, a quarter of it for logistic
    loss, half of it for softmax, plus the penalty's. Otherwise an estimate: twice the largest curvature at theta, by
    power iteration on products of the Hessian with a vector.

    Args:
        problem: the problem.
        theta: where to estimate, shape `(d,)`; by default the start of a run. A bound does not depend on it.

    Returns:
        Shape `(K,)`.

    Raises:
        ValueError: the curvature is not finite; the client is named.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[2.0]], [0.0]), ([[1.0]], [0.0])])
        >>> local_smoothness(fd.Problem(fd.losses.least_squares(), clients)).tolist()
        [4.0, 1.0]
    """
    known = problem.smoothness()
    if known is None:
        theta = problem.vector(problem.loss.start(problem.feature_shape) if theta is None else theta)
        layout = problem._current()
        with precision(problem.dtype):
            known = SAFETY * layout.gather([_curvature(layout.mesh, problem.loss, b, theta) for b in layout.buckets])
    bad = ~np.isfinite(known)
    if bad.any():
        k = int(np.argmax(bad))
        raise ValueError(
            f"client {problem.clients.names[k]!r}: the curvature of its loss is {known[k]} at this point; start "
            "elsewhere or give step_size and learning_rate as numbers."
        )
    return known


def smoothness(problem: Problem, theta: Any = None) -> float:
    """L = max over clients of L_k; see `local_smoothness` for the arguments.

    Sharing the maximum names the extreme value of one site. Where that is not wanted, sites can share the mean of
    powers (sum w_k L_k^q)^(1/q), a sum over sites that comes close to the maximum as q grows.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[2.0]], [0.0]), ([[1.0]], [0.0])])
        >>> smoothness(fd.Problem(fd.losses.least_squares(), clients))
        4.0
    """
    return float(local_smoothness(problem, theta).max())


def dissimilarity(problem: Problem, thetas: Any, kind: Literal["max", "mean_square"] = "max") -> float:
    """An estimate of G, the bound on ||grad f_k(x) - grad f(x)||, from the points given: no bound beyond them.

    Args:
        problem: the problem.
        thetas: points along a trajectory, shape `(T, d)`, or one point `(d,)`. The largest value over them counts.
        kind: over the clients either the largest norm, or (sum w_k ||grad f_k - grad f||^2)^(1/2), which sites can form
            from sums alone and which never exceeds it.

    Raises:
        ValueError: an unknown kind or points of another shape.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[1.0]], [2.0])])
        >>> dissimilarity(fd.Problem(fd.losses.least_squares(), clients), [0.0])
        1.0
    """
    if kind not in ("max", "mean_square"):
        raise ValueError(f"kind = {kind!r} must be 'max' or 'mean_square'.")
    largest = 0.0
    for theta in np.atleast_2d(np.asarray(thetas, dtype=problem.dtype)):
        gradients = problem.local_gradients(problem.vector(theta))
        squares = np.sum((gradients - problem.weights @ gradients) ** 2, axis=1)
        largest = max(largest, float(squares.max() if kind == "max" else problem.weights @ squares))
    return math.sqrt(largest)


@partial(jax.jit, static_argnums=0)
def _curvature(mesh: Any, loss: Any, bucket: Any, theta: Any) -> Any:
    """The largest |eigenvalue| of every client's Hessian at theta, from below, by power iteration."""
    start = jax.random.normal(jax.random.key(0, impl="threefry2x32"), theta.shape, theta.dtype)

    def one(entry: Any) -> Any:
        def product(v: Any) -> Any:
            return jax.jvp(lambda x: loss.gradient(x, entry.rows), (theta,), (v,))[1]

        def step(_: Any, v: Any) -> Any:
            turned = product(v)
            return turned / jnp.maximum(jnp.linalg.norm(turned), jnp.finfo(turned.dtype).tiny)

        return jnp.linalg.norm(product(lax.fori_loop(0, _POWER_STEPS, step, start / jnp.linalg.norm(start))))

    return on_devices(lambda share: map_clients(one, share), mesh)(bucket)
