"""Different oracles for different clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedual.protocols import Oracle

__all__ = ["PerClient"]


class PerClient(Oracle):
    """An oracle for each client by name, and a default for the others.

    Clients with different oracles run in different programs, side by side in one round; so group clients that can
    share an oracle. Settings that merely differ in number (steps, learning rates) are cheaper as sequences.

    Args:
        oracles: from a client's name to its oracle.
        default: for every client that is not named; None where all are.

    Raises:
        ValueError: a name is unknown, or a client is left without an oracle, when the run starts.

    Example:
        >>> import fedual as fd
        >>> poor = fd.oracles.GradientDescent(steps=1, learning_rate=0.1)
        >>> oracle = fd.oracles.PerClient({"client 3": poor}, default=fd.oracles.Exact())
    """

    def __init__(self, oracles: Mapping[str, Oracle], default: Oracle | None = None) -> None:
        self.oracles = dict(oracles)
        self.default = default

    def groups(self, names: tuple[str, ...]) -> tuple[list[Oracle], tuple[int, ...]]:
        """The distinct oracles, and which of them each of the clients `names` uses."""
        unknown = sorted(set(self.oracles) - set(names))
        if unknown:
            raise ValueError(f"oracles are given for {unknown}, which are not among the clients {list(names)}.")
        chosen = [self.oracles.get(name, self.default) for name in names]
        distinct: list[Any] = []
        for name, oracle in zip(names, chosen, strict=True):
            if not isinstance(oracle, Oracle) or isinstance(oracle, PerClient):
                raise ValueError(f"client {name!r} has {oracle!r} for its oracle; name one for it, or give a default.")
            if not any(oracle is known for known in distinct):
                distinct.append(oracle)
        return distinct, tuple(next(i for i, d in enumerate(distinct) if d is oracle) for oracle in chosen)

    def __repr__(self) -> str:
        return f"PerClient({self.oracles!r}, default={self.default!r})"
