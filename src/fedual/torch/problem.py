"""The consensus problem over a PyTorch module's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedual.arrays import precision
from fedual.clients import Clients
from fedual.problem import client_weights
from fedual.protocols import Regularizer
from fedual.torch.bridge import to_jax, to_torch
from fedual.torch.data import Rows, client_rows
from fedual.torch.modules import Buffers, FlatModule

__all__ = ["TorchLocal", "TorchProblem"]

_SLICE = 2048  # rows that are evaluated at once


class TorchLocal:
    """The objective f_k of one client as oracles see it: what `fedual.local.Local` is for JAX functions."""

    def __init__(self, flat: FlatModule, loss: Callable[[Any, Any], Tensor], rows: Rows, l2: float) -> None:
        self.flat, self.loss, self.rows, self.l2 = flat, loss, rows, l2
        self.count = rows.count

    def mean(self, indices: Tensor | range) -> Tensor:
        """The mean loss over the rows at `indices` at the module's present parameters, without the penalty."""
        x, y = self.rows.take(indices)
        value = self.loss(self.flat.module(x), y)
        if value.ndim:
            raise ValueError(
                f"the loss gave shape {tuple(value.shape)}; it must be the mean over the batch, a scalar tensor."
            )
        return value

    def gradient(self, x: Tensor, indices: Tensor | None = None) -> Tensor:
        """The gradient at x, shape `(d,)`, in training mode; over the minibatch `indices`, shape `(B,)`, if given."""
        self.flat.write(x)
        value = self.mean(range(self.count) if indices is None else indices)
        parts = torch.autograd.grad(value, self.flat.parameters, allow_unused=True, materialize_grads=True)
        gradient = self.flat.flatten(parts)
        return gradient.add_(x, alpha=self.l2) if self.l2 else gradient

    def evaluate(self, x: Tensor, buffers: Mapping[str, Tensor]) -> tuple[float, Tensor]:
        """f_k and its gradient at x, shape `(d,)`, in evaluation mode with the given buffers, in slices of the rows."""
        total, gradient = 0.0, torch.zeros_like(x)
        with self.flat.evaluation(x, buffers):
            for first in range(0, self.count, _SLICE):
                rows = range(first, min(first + _SLICE, self.count))
                share = len(rows) / self.count
                value = self.mean(rows)
                parts = torch.autograd.grad(value, self.flat.parameters, allow_unused=True, materialize_grads=True)
                total += share * value.item()
                gradient.add_(self.flat.flatten(parts), alpha=share)
        return total + self.l2 / 2 * float(x @ x), gradient.add_(x, alpha=self.l2)


class TorchProblem:
    """f(theta) = sum over k of w_k f_k(theta) (+ r(theta)), theta a module's trainable parameters as one vector.

    Args:
        module: its present parameters are theta^(0). It is copied, never changed. Parts that are in evaluation mode
            stay so in local work. Frozen and integer parameters keep their values.
        loss: (the module's output, targets) -> the mean over the batch, such as `torch.nn.functional.cross_entropy`.
        clients: `fedual.data` clients, or per client a pair (X, y) or a map-style data set of such pairs: as a mapping
            by name, or a sequence (names `client 0`, `client 1`, ...). Floating-point inputs and targets are cast to
            the parameters' type.
        weights: "samples" (w_k = n_k/n), "uniform" or K positive numbers.
        regularizer: from `fedual.prox`, applied to the global model.
        l2: adds l2/2 ||theta||^2 to every f_k.
        buffers: what becomes of floating-point buffers such as batch normalization's running statistics. "average": a
            participant starts from the common ones, and their weighted mean over the participants is the new
            common value; it is a plain mean, which no server step extrapolates. "local": every client keeps its own.
            Integer and boolean buffers are never sent; every client keeps its own.

    Attributes:
        dimension: d.
        dtype: "float64" where a parameter is, else "float32": of vectors, duals and sums.

    Raises:
        ValueError: data, weights or a policy that do not fit; the client is named.

    Example:
        >>> import torch, fedual, fedual.torch
        >>> data = [(torch.tensor([[1.0]]), torch.tensor([[0.0]])), (torch.tensor([[2.0]]), torch.tensor([[2.0]]))]
        >>> module = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
        >>> problem = fedual.torch.TorchProblem(module, torch.nn.functional.mse_loss, data)
        >>> oracle = fedual.oracles.GradientDescent(steps=10, learning_rate=0.1)
        >>> solution = fedual.torch.solve(problem, fedual.FedPD(oracle, step_size=0.5), rounds=100, theta0=[0.0])
        >>> round(solution.module().weight.item(), 6)
        0.8
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Any, Any], Tensor],
        clients: Clients | Mapping[str, Any] | Sequence[Any],
        weights: Literal["samples", "uniform"] | Any = "samples",
        regularizer: Regularizer | None = None,
        l2: float = 0.0,
        buffers: Literal["average", "local"] = "average",
    ) -> None:
        if buffers not in ("average", "local"):
            raise ValueError(f"buffers = {buffers!r} must be 'average' or 'local'.")
        self.flat = FlatModule(module)
        self.names, rows = client_rows(clients, self.flat.input_dtype, self.flat.device)
        self.sizes = np.array([r.count for r in rows], dtype=np.int64)
        self.weights = client_weights(weights, self.sizes, self.names)
        self.locals = [TorchLocal(self.flat, loss, r, l2) for r in rows]
        self.dimension = self.flat.dimension
        self.dtype = "float64" if self.flat.dtype == torch.float64 else "float32"
        self.policy = buffers
        self.first_buffers: Buffers = self.flat.buffers()
        self.shared_names = [
            name for name, b in self.first_buffers.items() if buffers == "average" and b.is_floating_point()
        ]
        self.start = self.flat.read()
        self.regularizer = regularizer
        if regularizer is not None:
            regularizer.check(self.dimension)

    def vector(self, theta: Any, name: str = "theta") -> Tensor:
        """theta as a tensor of shape `(d,)`, from a vector or from arrays by parameter name.

        Raises:
            ValueError: another shape, a parameter missing, or entries that are not finite.
        """
        if isinstance(theta, Mapping):
            vector = self.flat.from_mapping(theta, name)
        else:
            vector = torch.as_tensor(theta, dtype=self.flat.dtype, device=self.flat.device)
            if vector.shape != (self.dimension,):
                raise ValueError(
                    f"{name} has shape {tuple(vector.shape)}; this problem has {self.dimension} parameters."
                )
        if not torch.isfinite(vector).all():
            raise ValueError(f"{name} holds numbers that are not finite.")
        return vector

    def prox(self, v: Tensor, scale: float) -> Tensor:
        """The regularizer's proximal operator on a tensor, the identity without one."""
        if self.regularizer is None:
            return v
        with precision(self.dtype):
            return to_torch(self.regularizer.prox(to_jax(v), scale), v.device)

    def evaluate(self, theta: Any, s: float = 1.0, buffers: Sequence[Buffers] | None = None) -> tuple[float, float]:
        """The objective f + r and the stationarity at theta, in evaluation mode.

        Args:
            theta: shape `(d,)`.
            s: of the proximal form of the stationarity, with a regularizer.
            buffers: per client; the module's own if not given.
        """
        x = self.vector(theta)
        value, gradient = 0.0, torch.zeros_like(x)
        for k, local in enumerate(self.locals):
            one, slope = local.evaluate(x, self.first_buffers if buffers is None else buffers[k])
            value += self.weights[k] * one
            gradient.add_(slope, alpha=self.weights[k])
        if self.regularizer is not None:
            gradient = (x - self.prox(x - s * gradient, s)) / s
            with precision(self.dtype):
                value += float(self.regularizer.value(to_jax(x)))
        return value, float(gradient @ gradient)

    def value(self, theta: Any) -> float:
        """f(theta) + r(theta), theta of shape `(d,)`, with the module's own buffers."""
        return self.evaluate(theta)[0]

    def stationarity(self, theta: Any, s: float = 1.0) -> float:
        """||grad f(theta)||^2 (its proximal form with a regularizer), with the module's own buffers."""
        return self.evaluate(theta, s)[1]
