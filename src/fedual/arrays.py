"""Small helpers on arrays and trees; the layer below everything else."""

from __future__ import annotations

import dataclasses
import hashlib
from contextlib import AbstractContextManager
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "name_words",
    "precision",
    "random_key",
    "record",
    "require_record",
    "squared_norm",
    "static",
    "to_numpy",
    "tree_bytes",
    "where",
    "wrap_key",
]

T = TypeVar("T")


def precision(dtype: Any) -> AbstractContextManager[Any]:
    """A context in which JAX computes in `dtype` ("float64" or "float32"); no global flag is touched."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def static(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A field of a `record` that is part of the program rather than of its data: a count, a flag, a function."""
    return dataclasses.field(default=default, metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are leaves of a JAX pytree, `static` ones excepted.

    Example:
        >>> @record
        ... class Scale:
        ...     factor: float
        ...     power: int = static(default=1)
        >>> jax.tree.map(lambda leaf: 2 * leaf, Scale(3.0, 2))
        Scale(factor=6.0, power=2)
    """
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


def require_record(value: Any, what: str) -> None:
    """Refuse an object that a compiled program cannot take apart: a class of a user's own without `record`.

    Raises:
        TypeError: naming the class and the remedy.
    """
    if any(leaf is value for leaf in jax.tree.leaves(value)):
        raise TypeError(
            f"{what}: the class {type(value).__name__} is no pytree; decorate it with fedual.arrays.record, which "
            "makes its fields data of the compiled program."
        )


def squared_norm(tree: Any) -> Any:
    """Sum of squares over all entries of a tree of arrays."""
    return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree))


def where(condition: Any, a: T, b: T) -> T:
    """`jnp.where` over two trees; a vector condition selects along the leading axis of every leaf."""

    def choose(x: Any, y: Any) -> Any:
        x, y = jnp.asarray(x), jnp.asarray(y)
        return jnp.where(jnp.reshape(condition, jnp.shape(condition) + (1,) * (x.ndim - jnp.ndim(condition))), x, y)

    return jax.tree.map(choose, a, b)


def tree_bytes(tree: Any) -> int:
    """Bytes that the arrays of a tree take when sent as they are."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def to_numpy(tree: T) -> T:
    """Every leaf as a NumPy array."""
    return jax.tree.map(np.asarray, tree)


def random_key(seed: int) -> jax.Array:
    """The run's key as two 32-bit words; the generator is fixed, whatever the caller's JAX defaults are."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed = {seed!r} must be an integer between 0 and 2**63 - 1.")
    return jax.random.key_data(jax.random.key(int(seed), impl="threefry2x32"))


def wrap_key(words: jax.Array) -> jax.Array:
    """The inverse of `jax.random.key_data` for keys made by `random_key`."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def name_words(name: str) -> tuple[int, int]:
    """Two 32-bit words that stand for a client's name in random draws, the same on every machine."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
