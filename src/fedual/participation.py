"""Who takes part. Drawn once per communication; the choice holds for the whole stretch of silent rounds before it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fedual.arrays import record
from fedual.protocols import Participation

__all__ = ["Full", "Participation"]


@record
class Full(Participation):
    """Every client takes part in every round.

    Example:
        >>> import fedual as fd
        >>> rule = fd.participation.Full()
    """

    everyone = True

    def draw(self, uniform: Any, stretch: Any) -> Any:
        return jnp.ones(uniform.shape, bool)
