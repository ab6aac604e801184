"""What all trackers share: every round of a run is handed over once."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from fedual.solution import COLUMNS, Solution

__all__ = ["Tracker"]


class Tracker:
    """A callback that hands every new round of the history over to `log`, once and in order.

    It is a context manager; at its end `close` is called. Rounds that a resumed run had done before are handed over
    too, unless `skip` says how many the tracker knows already.

    Args:
        skip: rounds that are not handed over again.

    Example:
        >>> import fedual as fd
        >>> from fedual.trackers import Tracker
        >>> class Collect(Tracker):
        ...     rounds = []
        ...     def log(self, round, figures):
        ...         self.rounds.append((round, figures["communications"]))
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem = fd.Problem(fd.losses.least_squares(), clients)
        >>> with Collect() as tracker:
        ...     solution = fd.solve(problem, fd.ADMM(step_size=1.0), rounds=2, callbacks=[tracker])
        >>> tracker.rounds
        [(1, 1.0), (2, 2.0)]
    """

    def __init__(self, skip: int = 0) -> None:
        self._known = skip

    def __call__(self, solution: Solution) -> None:
        """Hand over the rounds since the last call."""
        history = solution.history
        if self._known == 0:
            self.begin(solution)
        for row in range(self._known, history.rounds):
            figures = {name: float(history[name][row]) for name in COLUMNS if name != "round"}
            self.log(int(history["round"][row]), {name: v for name, v in figures.items() if np.isfinite(v)})
        self._known = history.rounds

    def begin(self, solution: Solution) -> None:
        """Called once, before the first round is handed over."""

    def log(self, round: int, figures: Mapping[str, float]) -> None:
        """One round: the columns of the history that are known for it."""
        raise NotImplementedError

    def close(self) -> None:
        """Called at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def settings(solution: Solution) -> dict[str, Any]:
    """What the run was made of, by dotted names."""
    from fedual.checkpoint.identity import describe_method

    return describe_method(solution.bound, solution.state.seed)
