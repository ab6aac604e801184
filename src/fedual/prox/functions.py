"""The classes behind `fedual.prox`: r(theta) and its proximal operator as pytrees that the compiled program takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedual.arrays import record, static
from fedual.protocols import Regularizer

__all__ = ["Box", "ElasticNet", "FromFunction", "Group", "Nuclear"]


class Partial(Regularizer):
    """A regularizer of all but the last `intercept` parameters."""

    intercept: int

    def split(self, theta: Any) -> tuple[Any, Any]:
        """The entries that it acts on, and the others."""
        theta = jnp.asarray(theta)
        kept = theta.size - self.intercept
        return theta[:kept], theta[kept:]

    def check(self, dimension: int) -> None:
        if self.intercept >= dimension:
            raise ValueError(f"intercept = {self.intercept} leaves none of {dimension} parameters to regularize.")


@record
class ElasticNet(Partial):
    """See `l1` and `elastic_net`."""

    l1: Any
    l2: Any
    intercept: int = static(default=0)

    def value(self, theta: Any) -> Any:
        v, _ = self.split(theta)
        return jnp.sum(self.l1 * jnp.abs(v)) + jnp.sum(self.l2 * v**2) / 2

    def prox(self, theta: Any, scale: Any) -> Any:
        v, free = self.split(theta)
        shrunk = jnp.sign(v) * jnp.maximum(jnp.abs(v) - scale * self.l1, 0) / (1 + scale * self.l2)
        return jnp.concatenate([shrunk, free])

    def check(self, dimension: int) -> None:
        super().check(dimension)
        _check_shapes({"l1": self.l1, "l2": self.l2}, dimension - self.intercept)


@record
class Group(Regularizer):
    """See `group`."""

    strength: Any
    numbers: tuple[int, ...] = static()
    held: tuple[bool, ...] = static()

    def norms(self, theta: Any) -> tuple[Any, Any]:
        """||theta_g|| and sqrt(size of g), both spread over the parameters of g; groups left alone have size 0."""
        numbers, count = np.array(self.numbers), max(self.numbers) + 1
        squares = jnp.zeros(count, theta.dtype).at[numbers].add(theta**2)
        sizes = np.bincount(numbers, weights=self.held, minlength=count)
        # The root has no derivative at 0, but nobody asks for one here.
        return jnp.sqrt(squares)[numbers], np.sqrt(sizes)[numbers]

    def value(self, theta: Any) -> Any:
        norms, roots = self.norms(jnp.asarray(theta))
        return self.strength * jnp.sum(np.where(self.held, 1 / np.where(self.held, roots, 1), 0) * norms)

    def prox(self, theta: Any, scale: Any) -> Any:
        theta = jnp.asarray(theta)
        norms, roots = self.norms(theta)
        limit = scale * self.strength * jnp.asarray(roots, theta.dtype)
        return jnp.where(norms > limit, (1 - limit / jnp.where(norms > limit, norms, 1)) * theta, 0)

    def check(self, dimension: int) -> None:
        if len(self.numbers) != dimension:
            raise ValueError(f"groups are given for {len(self.numbers)} parameters; this problem has {dimension}.")


@record
class Box(Partial):
    """See `box`."""

    low: Any
    high: Any
    intercept: int = static(default=0)

    def value(self, theta: Any) -> Any:
        v, _ = self.split(theta)
        return jnp.where(jnp.all((v >= self.low) & (v <= self.high)), 0.0, jnp.inf)

    def prox(self, theta: Any, scale: Any) -> Any:
        v, free = self.split(theta)
        return jnp.concatenate([jnp.clip(v, self.low, self.high), free])

    def check(self, dimension: int) -> None:
        super().check(dimension)
        _check_shapes({"low": self.low, "high": self.high}, dimension - self.intercept)


@record
class Nuclear(Regularizer):
    """See `nuclear`."""

    strength: Any
    shape: tuple[int, int] = static()

    def value(self, theta: Any) -> Any:
        matrix, _ = self.split(theta)
        return self.strength * jnp.sum(jnp.linalg.svd(matrix, compute_uv=False))

    def prox(self, theta: Any, scale: Any) -> Any:
        matrix, free = self.split(theta)
        left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
        shrunk = (left * jnp.maximum(values - scale * self.strength, 0)) @ right
        return jnp.concatenate([shrunk.ravel(), free])

    def split(self, theta: Any) -> tuple[Any, Any]:
        """The matrix, and the parameters after it."""
        theta, entries = jnp.asarray(theta), math.prod(self.shape)
        return jnp.reshape(theta[:entries], self.shape), theta[entries:]

    def check(self, dimension: int) -> None:
        if math.prod(self.shape) > dimension:
            raise ValueError(f"shape = {self.shape} has more entries than this problem's {dimension} parameters.")


@record
class FromFunction(Regularizer):
    """See `from_function`."""

    function: Callable[[Any], Any] = static()
    operator: Callable[[Any, Any], Any] = static()

    def value(self, theta: Any) -> Any:
        return self.function(jnp.asarray(theta))

    def prox(self, theta: Any, scale: Any) -> Any:
        return self.operator(jnp.asarray(theta), scale)

    def check(self, dimension: int) -> None:
        theta = np.zeros(dimension, np.float32)
        for name, result, shape in (
            ("value", self.value(theta), ()),
            ("prox", self.prox(theta, 1.0), (dimension,)),
        ):
            if np.shape(result) != shape:
                raise ValueError(f"{name} returns shape {np.shape(result)} for {dimension} parameters, not {shape}.")


def _check_shapes(values: dict[str, Any], count: int) -> None:
    for name, value in values.items():
        if np.shape(value) not in ((), (count,)):
            raise ValueError(f"{name} has shape {np.shape(value)}; expected one number or {count}.")
