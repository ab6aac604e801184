"""Settings that a site does not decide alone: those that the coordinator fills in, and its part of those per client."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from fedual.arrays import precision
from fedual.engine.automatic import first_step_size
from fedual.engine.message import Refused
from fedual.oracles import PerClient
from fedual.protocols import Algorithm, Auto

__all__ = ["has_duals", "own_part", "settle", "shared_settings", "with_settings"]


def shared_settings(algorithm: Algorithm) -> tuple[str, ...]:
    """The settings of which there is one for the whole federation and which may be "auto"."""
    return tuple(name for name in ("step_size", "learning_rate") if hasattr(algorithm, name))


def with_settings(algorithm: Algorithm, settings: Mapping[str, float]) -> Algorithm:
    """The algorithm with these numbers for its shared settings.

    Raises:
        Refused: it has no such setting.
    """
    unknown = sorted(set(settings) - set(shared_settings(algorithm)))
    if unknown:
        raise Refused("format", f"{algorithm.name} has no settings {unknown} for a coordinator to fill in.")
    return dataclasses.replace(algorithm, **settings)


def own_part(algorithm: Algorithm, name: str, names: tuple[str, ...]) -> Algorithm:
    """The algorithm with this client's part of settings that differ between clients."""
    oracle = getattr(algorithm, "oracle", None)
    if oracle is None:
        return algorithm
    if isinstance(oracle, PerClient):
        distinct, which = oracle.groups(names)
        oracle = distinct[which[names.index(name)]]
    position = names.index(name)
    changes = {
        field.name: np.asarray(value)[position].item()
        for field in dataclasses.fields(oracle)
        if isinstance(value := getattr(oracle, field.name), np.ndarray | list | tuple)
        and not hasattr(value, "_fields")
        and np.shape(value) == (len(names),)
    }
    return dataclasses.replace(algorithm, oracle=dataclasses.replace(oracle, **changes))


def settle(algorithm: Algorithm, smoothness: Sequence[float] | None, weights: np.ndarray) -> dict[str, float]:
    """Numbers for the algorithm's shared settings at the start.

    Args:
        smoothness: L_k of every site; None if not all are known.
        weights: w_k.

    Raises:
        ValueError: a setting is "auto" and needs what is not known.
    """

    def known(name: str) -> np.ndarray:
        if smoothness is None:
            raise ValueError(
                f"{name} = 'auto' needs the smoothness constant L_k of every site, and not all of them tell it. Let "
                f"every site consent to share it, or give {name} as a number"
                + (" or as fedual.Auto(start=...)." if name == "step_size" else ".")
            )
        return np.asarray(smoothness)

    settings: dict[str, float] = {}
    for name in shared_settings(algorithm):
        value = getattr(algorithm, name)
        if name == "step_size" and (isinstance(value, Auto) or value == "auto"):
            value = first_step_size(value, lambda: float(weights @ known("step_size")))
        elif value == "auto":
            value = 1 / float(known(name).max())
        settings[name] = float(value)
    return settings


def has_duals(algorithm: Algorithm, theta: np.ndarray, dtype: str) -> bool:
    """Whether the method has dual variables."""
    with precision(dtype):
        return bool(np.isfinite(np.asarray(algorithm.dual(algorithm.init(jnp.asarray(theta))[1]))).all())
