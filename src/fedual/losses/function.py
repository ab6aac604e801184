"""Any JAX function as a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedual.arrays import record, static
from fedual.local import Rows
from fedual.protocols import Loss


class _Template:
    """A parameter pytree's shape and first values; equal to another of the same content, so programs are reused."""

    def __init__(self, parameters: Any) -> None:
        for path, leaf in jax.tree_util.tree_leaves_with_path(parameters):
            if np.asarray(leaf).dtype.kind != "f":
                raise ValueError(
                    f"parameters{jax.tree_util.keystr(path)} has dtype {np.asarray(leaf).dtype}: only floating-point "
                    "parameters can be trained; close over the others in the function."
                )
        self.tree = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), parameters)
        leaves = jax.tree.leaves(self.tree)
        self.flat = np.concatenate([leaf.ravel() for leaf in leaves]) if leaves else np.zeros(0)
        self._identity = (jax.tree.structure(self.tree), tuple(leaf.shape for leaf in leaves))

    def unravel(self, theta: Any) -> Any:
        leaves, start = [], 0
        for leaf in jax.tree.leaves(self.tree):
            leaves.append(jnp.reshape(theta[start : start + leaf.size], leaf.shape))
            start += leaf.size
        return jax.tree.unflatten(jax.tree.structure(self.tree), leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Template) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


@record
class FromFunction(Loss):
    """See `from_function`."""

    function: Callable[..., Any] = static()
    template: _Template = static()
    l2: Any = 0.0

    def prepare(self, features: np.ndarray, targets: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        shapes = jax.eval_shape(self.function, self.template.tree, (features[:1], targets[:1]))
        if getattr(shapes, "shape", None) != (1,):
            raise ValueError(
                f"client {name!r}: a loss function must return one loss per row, shape (n,); for one row it gave "
                f"{jax.tree.map(lambda leaf: leaf.shape, shapes)}. Leave out the mean: weights and padding need rows."
            )
        return features, targets

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        return self.template.flat.size

    def start(self, feature_shape: tuple[int, ...]) -> np.ndarray:
        return self.template.flat

    def value(self, theta: Any, rows: Rows) -> Any:
        # Padding takes the place of the first row, whose loss is finite, so that its derivative is, too.
        valid = rows.weights > 0

        def fill(array: Any) -> Any:
            return jnp.where(jnp.reshape(valid, valid.shape + (1,) * (array.ndim - 1)), array, array[:1])

        losses = self.function(self.template.unravel(theta), (fill(rows.features), fill(rows.targets)))
        return jnp.vdot(rows.weights, losses) + self.l2 / 2 * jnp.sum(jnp.square(theta))


def ravel(parameters: Any) -> np.ndarray:
    """A parameter pytree as one vector, in the order that `FromFunction` uses."""
    return np.asarray(ravel_pytree(parameters)[0])
