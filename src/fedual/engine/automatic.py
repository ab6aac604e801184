"""Numbers for what the user left open: step sizes, learning rates, steps; one value per client where they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from fedual import oracles as oracle_module
from fedual import theory, tuning
from fedual.arrays import record, require_record
from fedual.problem import Problem
from fedual.protocols import Algorithm, Auto, FirstOrder, Oracle

__all__ = ["InverseSmoothness", "Smoothness", "choose_oracles", "first_step_size", "is_auto", "per_client", "settle"]

_AUTO_STEPS = 10


@record
class InverseSmoothness:
    """The automatic learning rate factor/(L_k + rho)."""

    smoothness: Any
    factor: Any = 1.0

    def __call__(self, rho: Any) -> Any:
        return self.factor / (self.smoothness + rho)


class Smoothness:
    """L_k of every client, computed when first needed; where it is an estimate, at the loss's default start."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def values(self) -> np.ndarray:
        return np.maximum(theory.local_smoothness(self.problem), np.finfo(float).tiny ** 0.5)


def first_step_size(step_size: Any, smoothness: Callable[[], float]) -> float:
    """The user's start, or a multiple of the theory's s for sum w_k L_k, which `smoothness` gives."""
    if isinstance(step_size, Auto):
        return step_size.start
    return tuning.START * theory.step_size(smoothness())


def choose_oracles(problem: Problem, algorithm: Algorithm) -> tuple[list[Oracle], tuple[int, ...] | None]:
    """The distinct oracles, and which of them each client uses (None where there is one)."""
    oracle = getattr(algorithm, "oracle", None)
    if oracle is None:
        oracle = (
            (oracle_module.Exact() if problem.loss.quadratic else oracle_module.Newton(1e-12))
            if algorithm.default_oracle() == {}
            else oracle_module.GradientDescent(**algorithm.default_oracle())
        )
    if not isinstance(oracle, Oracle):
        raise TypeError(f"oracle must be an object such as fedual.oracles.GradientDescent(8, 0.1), not {oracle!r}.")
    distinct, groups = [oracle], None
    if isinstance(oracle, oracle_module.PerClient):
        distinct, groups = oracle.groups(problem.clients.names)
    for one in distinct:
        require_record(one, "oracle")
        one.check(problem.loss)
        algorithm.check_oracle(one)
        if getattr(one, "batch_size", None) is not None and not problem.loss.separable:
            raise ValueError(
                f"{type(problem.loss).__name__} is no mean over rows, so minibatches do not estimate its gradient: use "
                "GradientDescent, Newton or LBFGS."
            )
    return distinct, groups


def settle(oracle: Oracle, problem: Problem, smoothness: Smoothness, algorithm: Algorithm) -> tuple[Oracle, Any]:
    """Numbers for "auto", one static number of steps, and the steps per client where they differ."""
    changes: dict[str, Any] = {}
    if is_auto(oracle, "learning_rate"):
        factor = 0.25 if isinstance(oracle, oracle_module.SVRG) else 1.0
        changes["learning_rate"] = InverseSmoothness(smoothness.values, factor)
    if is_auto(oracle, "gamma"):
        changes["gamma"] = 1 / smoothness.values
    refresh = getattr(oracle, "refresh", 1)
    if not algorithm.starts_at_model and isinstance(refresh, int) and refresh > 1:
        raise ValueError(
            f"refresh = {refresh}: {algorithm.name} starts its local work at the global model, where the estimate "
            "carried from the last local iterate is wrong. Use refresh=1, or a primal-dual method."
        )
    limits = None
    follows_s = hasattr(algorithm, "step_size") and is_auto(oracle, "steps")
    if isinstance(oracle, FirstOrder) and not (follows_s and oracle.contracts):
        steps = _steps(oracle, problem)
        changes["steps"] = int(steps.max())
        limits = None if (steps == steps[0]).all() else steps
    for name in ("learning_rate", "gamma", "tolerance", "batch_size", "refresh", "max_steps", "memory"):
        value = getattr(oracle, name, None)
        if name in changes or value is None or callable(value):
            continue
        _check_positive(name, value, whole=name not in ("learning_rate", "gamma", "tolerance"))
        if isinstance(value, list | tuple):
            changes[name] = np.asarray(value)
    return dataclasses.replace(oracle, **changes) if changes else oracle, limits


def is_auto(owner: Any, name: str) -> bool:
    value = getattr(owner, name, None)
    return isinstance(value, str) and value == "auto"


def _steps(oracle: Any, problem: Problem) -> np.ndarray:
    sizes = problem.sizes
    epochs = getattr(oracle, "epochs", None)
    if epochs is not None:
        if oracle.steps is not None:
            raise ValueError(f"steps = {oracle.steps!r} and epochs = {epochs!r}: give one of the two.")
        _check_positive("epochs", epochs)
        return np.maximum(1, np.round(epochs * sizes / oracle.batch_size)).astype(int)
    steps = _AUTO_STEPS if is_auto(oracle, "steps") else oracle.steps
    array = np.asarray(steps)
    if array.dtype.kind not in "iu" or array.shape not in ((), sizes.shape) or (array < 1).any():
        raise ValueError(f"steps = {steps!r} must be an integer >= 1, or one per client.")
    return np.broadcast_to(array, sizes.shape)


def _check_positive(name: str, value: Any, whole: bool = False) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in ("iu" if whole else "iuf") or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} = {value!r} must be {'an integer >= 1' if whole else 'positive and finite'}.")


def per_client(problem: Problem, index: np.ndarray, leaf: Any) -> Any:
    """One value per client of a bucket, from one for all or one per client in the user's order."""
    array = np.asarray(leaf)
    array = array.astype(problem.dtype) if array.dtype.kind == "f" else array
    if array.ndim == 0:
        return np.broadcast_to(array, index.shape).copy()
    if array.shape[0] != len(problem.clients):
        raise ValueError(f"{len(array)} values of a setting for {len(problem.clients)} clients: give one, or one each.")
    return array[index]
