"""Settings that a site does not decide alone: those that the coordinator fills in, and its part of those per client."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from fedual.engine.message import Refused
from fedual.oracles import PerClient
from fedual.protocols import Algorithm

__all__ = ["own_part", "shared_settings", "with_settings"]


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
