"""A run as the server sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedual.protocols import Algorithm, Participation, Regularizer, Schedule

__all__ = ["Plan", "refuse_protection"]


@dataclass(frozen=True)
class Plan:
    """A run as the server sees it; see `server_app` for the fields."""

    algorithm: Algorithm
    sites: Sequence[str]
    folder: Path
    schedule: Schedule | None = None
    participation: Participation | None = None
    regularizer: Regularizer | None = None
    weights: Any = "samples"
    theta0: Any = None
    rounds: int = 300
    tolerance: float | None = None
    relative_tolerance: float | None = None
    seed: int = 0
    quorum: int | None = None
    timeout: float = 3600.0
    start_timeout: float = 600.0
    largest_message: int = 2_000_000_000
    transform: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None
    model_facts: Mapping[str, Any] = field(default_factory=dict)
    at: Callable[[str], Any] = field(default=lambda point: None)

    def check(self) -> None:
        """Raise ValueError where numbers of sites do not fit each other."""
        if not self.sites or len(set(self.sites)) != len(self.sites):
            raise ValueError(f"sites = {list(self.sites)!r} must name every site once.")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.sites):
            raise ValueError(f"quorum = {self.quorum} must be from 1 to {len(self.sites)}, the number of sites.")
        if self.quorum is not None and self.quorum < len(self.sites) and not self.algorithm.partial:
            raise ValueError(
                f"quorum = {self.quorum} of {len(self.sites)}: {self.algorithm.name} needs every site in every "
                f"communication: {self.algorithm.why_not_partial}"
            )
        picked = getattr(self.participation, "count", None)
        if self.quorum is not None and picked is not None and picked < self.quorum:
            raise ValueError(f"quorum = {self.quorum}, but only {picked} sites are picked for a communication.")


def refuse_protection(settings: Mapping[str, Any]) -> None:
    """Raise ValueError where settings ask for a protection that does not exist here."""
    for name in ("secure_aggregation", "differential_privacy"):
        if settings.get(name):
            raise ValueError(
                f"{name} = {settings[name]!r}: this package has no {name.replace('_', ' ')}; messages reach the "
                "coordinator as they are. The threat model in the documentation says what is protected."
            )
