"""The Cox partial likelihood within each client: the proportional-hazards model stratified by site."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedual.arrays import record
from fedual.local import Rows
from fedual.protocols import Loss


@record
class Cox(Loss):
    """See `cox`. Prepared targets have the columns event, Efron's fraction, and the first row of the tie."""

    l2: Any = 0.0
    separable: ClassVar[bool] = False

    def prepare(self, features: np.ndarray, targets: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        if features.ndim != 2:
            raise ValueError(f"client {name!r}: cox needs a table of features, shape (n, d), not {features.shape}.")
        if targets.ndim != 2 or targets.shape[1] != 2:
            raise ValueError(
                f"client {name!r}: targets must be pairs (time, event), shape (n, 2), not {targets.shape}."
            )
        time, event = targets.T
        if not set(np.unique(event).tolist()) <= {0, 1}:
            raise ValueError(
                f"client {name!r}: events must be 0 (censored) or 1; found {np.unique(event)[:6].tolist()}."
            )
        if (time < 0).any():
            raise ValueError(f"client {name!r}: times must be >= 0; found {time.min()}.")
        # By time; within a tie the events first, so that the j-th of m events is the j-th row of the tie.
        order = np.lexsort((1 - event, time))
        time, event = time[order], event[order].astype(float)
        _, first, tie = np.unique(time, return_index=True, return_inverse=True)
        deaths = np.bincount(tie, weights=event)
        rank = np.arange(len(time)) - first[tie]
        fraction = np.where(event > 0, rank / np.maximum(deaths[tie], 1), 0.0)
        return features[order].astype(float), np.column_stack([event, fraction, first[tie]])

    def dimension(self, feature_shape: tuple[int, ...]) -> int:
        return feature_shape[0]

    def value(self, theta: Any, rows: Rows) -> Any:
        event, fraction, first = rows.targets.T
        real = rows.weights > 0
        z = rows.features @ theta
        top = jax.lax.stop_gradient(jnp.max(jnp.where(real, z, -jnp.inf)))
        risk = jnp.where(real, jnp.exp(jnp.where(real, z - top, 0.0)), 0.0)
        tie = first.astype(jnp.int32)
        at_risk = jnp.cumsum(risk[::-1])[::-1][tie]
        dying = jax.ops.segment_sum(event * risk, tie, num_segments=len(risk))[tie]
        left = jnp.where(event > 0, at_risk - fraction * dying, 1.0)
        terms = event * (z - top - jnp.log(left))
        return -jnp.vdot(rows.weights, terms) + self.l2 / 2 * jnp.sum(jnp.square(theta))
