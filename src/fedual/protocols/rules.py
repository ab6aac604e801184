"""What a schedule and a participation rule are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

__all__ = ["Participation", "Schedule"]


class Schedule:
    """Whether a round skips the communication. One coin for the whole federation."""

    never_skips: ClassVar[bool] = False
    observes: ClassVar[bool] = False

    def check(self) -> None:
        """Raise ValueError where a field is out of range, naming it."""

    def init(self) -> Any:
        """The schedule's first state, any pytree."""
        return ()

    def observe(self, state: Any, gradient: Any, square: Any) -> Any:
        """Where `observes` is set, at the beginning of every stretch: the weighted means over all clients of grad f_k
        and of ||grad f_k||^2 at the model that they received. They add both to their next message.
        """
        return state

    def communicated(self, state: Any) -> Any:
        """That message arrived: what was observed may be used from now on."""
        return state

    def p(self, state: Any, round: Any) -> Any:
        """p of round `round` (1, 2, ...): the probability of skipping."""
        raise NotImplementedError


class Participation:
    """Who takes part; drawn once per communication, for the whole stretch of silent rounds before it."""

    everyone: ClassVar[bool] = False

    def bind(self, names: tuple[str, ...]) -> Participation:
        """The rule for these clients, its fields as arrays in their order.

        Raises:
            ValueError: a field does not suit these clients.
        """
        return self

    def chances(self, count: int) -> Any:
        """Every client's probability of being picked for a stretch, shape `(K,)`; NaN where there is none."""
        return np.full(count, np.nan)

    def draw(self, uniform: Any, stretch: Any) -> Any:
        """Flags of shape `(K,)`, from one uniform number per client and the number of the stretch (0, 1, ...)."""
        raise NotImplementedError
