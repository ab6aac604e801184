"""What a reply must look like; everything else is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedual.engine.message import Refused, Reply, check_arrays, shapes
from fedual.engine.server_state import Stretch

__all__ = ["Expected"]


@dataclass(frozen=True)
class Expected:
    """The form of replies in a run.

    Attributes:
        rows: every site's number of rows.
        message: the method's message, as shapes and types.
        theta: theta^(0), for the shape and type of vectors.
        gradient, dual, observed, moved: which of these parts a reply has.
    """

    rows: Mapping[str, int]
    message: Any
    theta: np.ndarray
    gradient: bool
    dual: bool
    observed: bool
    moved: bool

    def check(self, run: str, stretch: Stretch, reply: Reply) -> None:
        """Refuse a reply that does not answer this stretch of this run in this form.

        Raises:
            Refused: the site and what is wrong with it are named.
        """
        who = f"reply of site {reply.site!r}"
        if reply.site not in stretch.active:
            raise Refused("site", f"{who}: that site does not take part in stretch {stretch.number}.")
        if reply.run != run:
            raise Refused("run", f"{who}: for run {reply.run}; this is run {run}.")
        if (reply.number, reply.first, reply.last) != stretch[:3]:
            raise Refused("old", f"{who}: for stretch {reply.number}; stretch {stretch.number} is due. Dropped.")
        if reply.rows != self.rows[reply.site]:
            raise Refused("rows", f"{who}: counts {reply.rows} rows; it declared {self.rows[reply.site]}.")
        for name in ("evaluations", "gap", "model_square", "dual_square"):
            if not 0 <= getattr(reply, name) < np.inf:
                raise Refused("number", f"{who}: {name} = {getattr(reply, name)}.")
        if len(reply.moved) != 2 * self.moved or not all(0 <= square < np.inf for square in reply.moved):
            raise Refused("number", f"{who}: moved = {reply.moved}.")
        vector = jax.ShapeDtypeStruct(self.theta.shape, self.theta.dtype)
        observed = {"gradient": vector, "square": jax.ShapeDtypeStruct((), self.theta.dtype)}
        for part, form in (
            ("message", shapes(self.message)),
            ("gradient", {"": vector} if self.gradient else {}),
            ("dual", {"": vector} if self.dual else {}),
            ("observed", observed if self.observed else {}),
        ):
            check_arrays(form, getattr(reply, part), f"{who}, {part}")
