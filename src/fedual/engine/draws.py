"""The random draws of a run that concern everyone: the same numbers as in the simulator's program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedual.arrays import name_words, wrap_key
from fedual.engine.keys import COIN, PARTICIPATION, client_uniforms, uniform_number
from fedual.engine.server_state import Stretch
from fedual.protocols import Participation, Schedule

__all__ = ["Draws"]


@dataclass(frozen=True)
class Draws:
    """Coins and participants.

    Attributes:
        schedule, participation: bound to the sites.
        names: the sites.
        key: the run's random key, two words.
    """

    schedule: Schedule
    participation: Participation
    names: tuple[str, ...]
    key: Any

    def next(self, round: int, stretch: int, state: Any, rounds: int) -> Stretch | None:
        """The next stretch with participants after `round` rounds and `stretch` stretches.

        Args:
            state: the schedule's.
            rounds: the last round of the run.

        Returns:
            None where no further communication fits.
        """
        number, first, p = stretch + 1, round + 1, []
        for now in range(round + 1, rounds + 1):
            chance, silent = self._coin(state, now)
            p.append(chance)
            if silent:
                continue
            active = self._participants(first, number - 1)
            if active:
                return Stretch(number, first, now, active, tuple(p))
            number, first = number + 1, now + 1
        return None

    @cached_property
    def _words(self) -> Any:
        return jnp.asarray(np.array([name_words(name) for name in self.names], np.uint32))

    def _round_key(self, number: int) -> Any:
        return jax.random.fold_in(wrap_key(self.key), number)

    def _coin(self, state: Any, number: int) -> tuple[float, bool]:
        p = self.schedule.p(state, jnp.int32(number))
        if self.schedule.never_skips:
            return float(p), False
        return float(p), bool(uniform_number(jax.random.fold_in(self._round_key(number), COIN)) < p)

    def _participants(self, first: int, stretch: int) -> tuple[str, ...]:
        if self.participation.everyone:
            return self.names
        uniform = client_uniforms(jax.random.fold_in(self._round_key(first), PARTICIPATION), self._words)
        flags = np.asarray(self.participation.draw(uniform, jnp.int32(stretch)))
        return tuple(name for name, flag in zip(self.names, flags, strict=True) if flag)
