"""The consensus problem. Read this first: everything else computes with a `Problem`.

    minimize  F(Theta) = sum over k of w_k f_k(theta_k)   subject to   theta_k = theta for every k

K clients, each with a private smooth f_k, weights w_k > 0 that sum to 1, and optionally a convex regularizer r of the
global model. Weights appear only in weighted means over clients, never inside f_k.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedual.arrays import precision, require_record
from fedual.blocks import map_clients
from fedual.clients import Clients
from fedual.devices import on_devices
from fedual.layout import Layout
from fedual.local import Local
from fedual.protocols import Loss, Regularizer
from fedual.reference import Minimum, minimize

__all__ = ["Problem", "client_weights"]


class Problem:
    """f(theta) = sum over k of w_k f_k(theta) (+ r(theta)) over the clients' data.

    Args:
        loss: from `fedual.losses`: client k's f_k is its value on client k's rows.
        clients: the data, from `fedual.data`.
        weights: "samples" (w_k = n_k/n, so that f is the pooled empirical risk), "uniform" (w_k = 1/K), or K positive
            numbers, which are divided by their sum.
        regularizer: from `fedual.prox`, applied to the global model; None for none.
        dtype: "float64" or "float32": the precision of all computation on this problem.
        pad_rows: pad clients to at least this many rows, of weight zero. The numbers stay the same but for rounding,
            and problems that become equal in shape share one compiled program: for many small ones.

    Raises:
        ValueError: data that do not suit the loss (the client is named), or weights that are not K positive numbers.

    Example:
        >>> import fedual as fd
        >>> clients = fd.data.from_arrays([([[1.0], [1.0]], [0.0, 2.0]), ([[1.0]], [4.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> problem.weights.round(3).tolist(), problem.minimum().theta.round(6).tolist()
        ([0.667, 0.333], [2.0])
    """

    def __init__(
        self,
        loss: Loss,
        clients: Clients,
        weights: Literal["samples", "uniform"] | Any = "samples",
        regularizer: Regularizer | None = None,
        dtype: Literal["float64", "float32"] = "float64",
        pad_rows: int = 0,
    ) -> None:
        if str(np.dtype(dtype)) not in ("float64", "float32"):
            raise ValueError(f"dtype = {dtype!r} must be 'float64' or 'float32'; sums in less lose the answer.")
        if not isinstance(clients, Clients):
            raise TypeError(f"clients must be made by fedual.data.from_arrays or its relatives, not {type(clients)}.")
        require_record(loss, "loss")
        self.loss = loss
        self.clients = clients
        self.regularizer = regularizer
        self.pad_rows = pad_rows
        self.dtype = str(np.dtype(dtype))
        self.sizes = clients.sizes
        self.weights = client_weights(weights, self.sizes, clients.names)
        for k in range(len(clients)):
            shape = self._prepared(k)[0].shape[1:]
        self.feature_shape: tuple[int, ...] = shape
        self.dimension = loss.dimension(shape)
        if regularizer is not None:
            if not isinstance(regularizer, Regularizer):
                raise TypeError(f"regularizer must be an object such as fedual.prox.l1(0.1), not {regularizer!r}.")
            require_record(regularizer, "regularizer")
            regularizer.check(self.dimension)
        self._layout: tuple[Any, Layout] | None = None

    def _prepared(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        c = self.clients
        return self.loss.prepare(c.features[k], c.targets[k], c.names[k])

    def layout(self, groups: tuple[int, ...] | None = None, devices: int = 1, rows: int = 0) -> Layout:
        """The clients' data in buckets; the last layout asked for is kept."""
        rows = max(rows, self.pad_rows)
        key = (groups, devices, rows)
        if self._layout is None or self._layout[0] != key:
            self._layout = None  # let go of the old copy before the new one is made
            with precision(self.dtype):
                layout = Layout(
                    self._prepared, self.sizes, self.clients.names, self.weights, self.dtype, groups, devices, rows
                )
            self._layout = (key, layout)
        return self._layout[1]

    def _current(self) -> Layout:
        return self.layout() if self._layout is None else self._layout[1]

    def vector(self, theta: Any, name: str = "theta") -> np.ndarray:
        """`theta` as a vector of shape `(d,)` in the problem's precision.

        Raises:
            ValueError: another shape, or entries that are not finite.
        """
        array = np.asarray(theta, dtype=self.dtype)
        if array.shape != (self.dimension,):
            raise ValueError(f"{name} has shape {array.shape}; this problem has {self.dimension} parameters.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]} at {np.argmin(np.isfinite(array))}.")
        return array

    def _per_client(self, what: str, thetas: Any) -> np.ndarray:
        """A quantity of every client at its own point: thetas `(K, d)`, or one point `(d,)` for all."""
        thetas = np.asarray(thetas, dtype=self.dtype)
        shape = (len(self.clients), self.dimension)
        if thetas.shape not in (shape, shape[1:]):
            raise ValueError(f"parameters have shape {thetas.shape}; expected {shape[1:]} or {shape}.")
        layout = self._current()
        with precision(self.dtype):
            points = layout.scatter(np.broadcast_to(thetas, shape))
            return layout.gather(
                [_evaluate(what, layout.mesh, self.loss, b, p) for b, p in zip(layout.buckets, points, strict=True)]
            )

    def value(self, theta: Any) -> float:
        """f(theta) + r(theta), theta of shape `(d,)`."""
        theta = self.vector(theta)
        smooth = float(self.weights @ self._per_client("value", theta))
        return smooth if self.regularizer is None else smooth + self._regularize("value", theta)

    def gradient(self, theta: Any) -> np.ndarray:
        """The gradient of the smooth part f at theta, shape `(d,)`."""
        return self.weights @ self.local_gradients(self.vector(theta))

    def local_values(self, thetas: Any) -> np.ndarray:
        """f_k(theta_k) for every client, shape `(K,)`; thetas of shape `(K, d)`, or `(d,)` for one point."""
        return self._per_client("value", thetas)

    def local_gradients(self, thetas: Any) -> np.ndarray:
        """The gradient of f_k at theta_k, shape `(K, d)`; thetas of shape `(K, d)`, or `(d,)` for one point."""
        return self._per_client("gradient", thetas)

    def hessian(self, theta: Any) -> np.ndarray:
        """The Hessian of the smooth part f at theta, shape `(d, d)`."""
        theta = self.vector(theta)
        layout = self._current()
        with precision(self.dtype):
            parts = [np.asarray(_weighted_hessians(layout.mesh, self.loss, b, theta)) for b in layout.buckets]
        return np.sum([np.sum(part, axis=0) for part in parts], axis=0)

    def smoothness(self) -> np.ndarray | None:
        """The loss's own bound L_k on the Lipschitz constant of every grad f_k, shape `(K,)`; None if it has none."""
        with precision(self.dtype):
            first = jax.tree.map(lambda leaf: leaf[0], self._current().buckets[0].rows)
            if jax.eval_shape(self.loss.smoothness, first) is None:
                return None
        return self._per_client("smoothness", np.zeros(self.dimension))

    def _regularize(self, what: str, *args: Any) -> Any:
        with precision(self.dtype):
            result = np.asarray(getattr(self.regularizer, what)(*map(jnp.asarray, args)))
        return float(result) if what == "value" else result

    def stationarity(self, theta: Any, s: float = 1.0) -> float:
        """||grad f(theta)||^2; with a regularizer ||theta - prox_{s r}(theta - s grad f(theta))||^2 / s^2."""
        theta = self.vector(theta)
        step = self.gradient(theta)
        if self.regularizer is not None:
            step = (theta - self._regularize("prox", theta - s * step, s)) / s
        return float(step @ step)

    def augmented_lagrangian(self, theta: Any, thetas: Any, duals: Any, s: float) -> float:
        """sum over k of w_k [ f_k(theta_k) + <lambda_k, theta_k - theta> + ||theta_k - theta||^2 / (2s) ].

        Args:
            theta: the global model, shape `(d,)`.
            thetas: the local models, shape `(K, d)`.
            duals: lambda_k, shape `(K, d)`; the multiplier of the constraint theta_k = theta is w_k lambda_k.
            s: the penalty parameter, > 0.

        Raises:
            ValueError: s <= 0 or a wrong shape.
        """
        _check_s(s)
        gap = np.asarray(thetas) - self.vector(theta)
        terms = self.local_values(thetas) + np.sum(np.asarray(duals) * gap, 1) + np.sum(gap**2, 1) / (2 * s)
        return float(self.weights @ terms)

    def dual_function(self, duals: Any, s: float) -> float:
        """G(Lambda) = inf over theta and Theta of the augmented Lagrangian; quadratic losses only.

        Args:
            duals: lambda_k, shape `(K, d)`.
            s: the penalty parameter, > 0.

        Raises:
            ValueError: the loss is not quadratic, so that the joint minimum has no closed form, or s <= 0.
        """
        _check_s(s)
        if not self.loss.quadratic:
            raise ValueError(
                f"the dual function needs a joint minimum in closed form; {type(self.loss).__name__} has none. "
                "It is computable for losses.least_squares."
            )
        duals = np.asarray(duals, dtype=float)
        d = self.dimension
        slope = -self.local_gradients(np.zeros(d))
        thetas = np.zeros((len(self.clients), d))
        with precision(self.dtype):
            layout = self._current()
            hessians = layout.gather(
                [_evaluate("hessian", layout.mesh, self.loss, b, np.zeros((len(b.count), d))) for b in layout.buckets]
            )
        solve = [np.linalg.inv(h + np.eye(d) / s) for h in hessians]
        # Given theta every client's minimizer is affine in it; the server's condition is then one linear system.
        matrix = np.eye(d) - sum(w * a for w, a in zip(self.weights, solve, strict=True)) / s
        offset = sum(w * (a @ (b - v) + s * v) for w, a, b, v in zip(self.weights, solve, slope, duals, strict=True))
        theta = np.linalg.lstsq(matrix, offset, rcond=None)[0]
        thetas = np.stack([a @ (b - v + theta / s) for a, b, v in zip(solve, slope, duals, strict=True)])
        return self.augmented_lagrangian(theta, thetas, duals, s)

    def primal_residual(self, thetas: Any, anchors: Any) -> float:
        """(sum over k of w_k ||theta_k - anchor_k||^2)^(1/2); anchors of shape `(d,)` or `(K, d)`."""
        return float(np.sqrt(self.weights @ np.sum((np.asarray(thetas) - np.asarray(anchors)) ** 2, axis=1)))

    def dual_residual(self, duals: Any) -> float:
        """||sum over k of w_k lambda_k||, duals of shape `(K, d)`."""
        return float(np.linalg.norm(self.weights @ np.asarray(duals)))

    def minimum(self, tolerance: float = 1e-24) -> Minimum:
        """A reference solution of the pooled problem, computed centrally. For tests and reports.

        Args:
            tolerance: on the stationarity.

        Returns:
            `Minimum(theta, value, stationarity)`.

        Raises:
            RuntimeError: the tolerance was not reached and no progress is possible (no minimum, for example).
        """
        return minimize(self, tolerance)


def client_weights(weights: Any, sizes: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """w_k, shape `(K,)`, summing to 1, from what the user gave for `weights`."""
    if isinstance(weights, str):
        if weights not in ("samples", "uniform"):
            raise ValueError(f"weights = {weights!r} must be 'samples', 'uniform' or one positive number per client.")
        return sizes / sizes.sum() if weights == "samples" else np.full(len(sizes), 1 / len(sizes))
    array = np.asarray(weights)
    if array.shape != sizes.shape or array.dtype.kind not in "iuf":
        raise ValueError(f"weights must be {len(sizes)} numbers, one per client; got {array.dtype} {array.shape}.")
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        k = int(np.argmax(bad))
        raise ValueError(f"client {names[k]!r} has weight {array[k]}; weights must be positive and finite.")
    return array / array.sum()


def _check_s(s: float) -> None:
    if not (np.isfinite(s) and s > 0):
        raise ValueError(f"s = {s} must be positive and finite.")


@partial(jax.jit, static_argnums=(0, 1))
def _evaluate(what: str, mesh: Any, loss: Loss, bucket: Any, points: Any) -> Any:
    def one(entry: Any, point: Any) -> Any:
        if what == "smoothness":
            return loss.smoothness(entry.rows)
        return getattr(Local(loss, entry.rows, entry.count), what)(point)

    return on_devices(lambda share, points: map_clients(one, share, points), mesh)(bucket, points)


@partial(jax.jit, static_argnums=0)
def _weighted_hessians(mesh: Any, loss: Loss, bucket: Any, theta: Any) -> Any:
    """Every device's weighted sum over its clients, shape `(devices, d, d)`."""

    def share_of(bucket: Any) -> Any:
        def add(total: Any, entry: Any) -> tuple[Any, None]:
            return total + entry.weight * loss.hessian(theta, entry.rows), None

        return lax.scan(add, jnp.zeros((theta.size, theta.size), theta.dtype), bucket)[0][None]

    return on_devices(share_of, mesh)(bucket)
