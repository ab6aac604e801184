"""What a run returns: the models, the duals, the history and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import polars

    from fedual.problem import Problem

__all__ = ["COLUMNS", "Best", "History", "Solution"]

COLUMNS = (
    "round",
    "communicated",
    "communications",
    "uplinks",
    "downlinks",
    "uplink_bytes",
    "downlink_bytes",
    "objective",
    "stationarity",
    "primal_residual",
    "dual_residual",
    "s",
    "p",
    "gradient_evaluations",
    "seconds",
)


class History(Mapping[str, np.ndarray]):
    """One row per round as columns; row 0 is the state after round 1, a round that was not evaluated holds NaN.

    Columns: round (1, 2, ...); communicated (bool); and, cumulative up to and including the round, communications
    (communicated rounds), uplinks and downlinks (messages), uplink_bytes and downlink_bytes, gradient_evaluations
    (gradients of single samples, over all clients) and seconds (wall clock, compilation included; within one chunk of
    rounds interpolated); objective and stationarity at the server's theta; primal_residual
    (sum w_k ||theta_k - anchor_k||^2)^(1/2); dual_residual ||sum w_k lambda_k|| (with a regularizer
    ||change of sum w_k theta_k||/s); s; p, the probability of skipping that was in force.

    Example:
        >>> history = History()
        >>> len(history["round"])
        0
    """

    def __init__(self, columns: Mapping[str, np.ndarray] | None = None) -> None:
        if columns is None:
            kinds = {"communicated": bool, "round": np.int64}
            columns = {name: np.zeros(0, kinds.get(name, np.float64)) for name in COLUMNS}
        self._columns = {name: np.asarray(columns[name]) for name in COLUMNS}

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in self._columns:
            raise KeyError(f"no column {column!r}; the history has {', '.join(COLUMNS)}.")
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rounds(self) -> int:
        """Number of rows."""
        return len(self._columns["round"])

    def extend(self, rows: Mapping[str, np.ndarray]) -> History:
        """A new history with these rows after the present ones."""
        return History({name: np.concatenate([self._columns[name], rows[name]]) for name in COLUMNS})

    def last(self, column: str) -> float:
        """The newest value that is not NaN; NaN where there is none."""
        values = self[column].astype(float)
        known = values[~np.isnan(values)]
        return float(known[-1]) if len(known) else float("nan")

    def to_polars(self) -> polars.DataFrame:
        """The history as a Polars data frame."""
        import polars

        return polars.DataFrame(dict(self._columns))


class Best(NamedTuple):
    """The best model that a run saw.

    Attributes:
        theta: shape `(d,)`.
        round: after which round.
        stationarity: there; infinity where nothing was evaluated.
    """

    theta: np.ndarray
    round: int
    stationarity: float


@dataclass(frozen=True)
class Solution:
    """A run's outcome so far.

    Attributes:
        problem: what was solved.
        state: everything needed to go on: pass it to `solve(..., state=...)`.
        status: "converged", "round limit", "diverged" or "stalled".
        reason: one sentence on the status.
        remedy: what to try, empty where nothing is wrong.
    """

    problem: Problem
    state: Any
    status: str
    reason: str
    remedy: str = ""
    _views: Any = field(default=None, repr=False, compare=False)

    @property
    def converged(self) -> bool:
        """Whether the tolerance that was asked for is reached."""
        return self.status == "converged"

    @property
    def history(self) -> History:
        """One row per round; see `History`."""
        return self.state.history

    @property
    def bound(self) -> Any:
        """The problem and method as the engine bound them, which says how `state` is laid out; for checkpoints."""
        return self._views.bound

    @cached_property
    def theta(self) -> np.ndarray:
        """The server's model, shape `(d,)`."""
        return self._views.theta()

    @cached_property
    def thetas(self) -> np.ndarray:
        """The local models theta_k, shape `(K, d)`, in the order of `problem.clients.names`."""
        return self._views.thetas()

    @cached_property
    def duals(self) -> np.ndarray:
        """The dual variables lambda_k per unit weight, shape `(K, d)`; NaN for a method without duals."""
        return self._views.duals()

    @cached_property
    def best(self) -> Best:
        """The server's model of the lowest stationarity among the evaluated rounds; theta^(0) if none was."""
        return Best(*self._views.best())

    @cached_property
    def objective(self) -> float:
        """f(theta) (+ r(theta)) at the server's model."""
        return self.problem.value(self.theta)

    @cached_property
    def stationarity(self) -> float:
        """||grad f(theta)||^2 at the server's model (its proximal form with a regularizer)."""
        return self.problem.stationarity(self.theta, self._views.step_size())

    def __repr__(self) -> str:
        return f"Solution(status={self.status!r}, rounds={self.history.rounds}, reason={self.reason!r})"
