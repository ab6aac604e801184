"""What a coordinator learns from messages about the progress of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedual.engine.message import Reply
from fedual.solution import COLUMNS, History

__all__ = ["Figures", "Ledger"]


class Figures(NamedTuple):
    """One communication.

    Attributes:
        stretch: which one.
        replies: accepted, by site.
        weights: w_k of all sites.
        means: from sum w_k lambda_k before to sum w_k theta_k and sum w_k lambda_k after; None where not known.
        s: the penalty parameter, NaN for a method without.
        composite: whether there is a regularizer.
        orders: bytes sent down.
        seconds: since the last communication.
    """

    stretch: Any
    replies: Mapping[str, Reply]
    weights: Mapping[str, float]
    means: Callable[[Any], Any] | None
    s: float
    composite: bool
    orders: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The history so far and what it is computed from.

    Attributes:
        history: columns as in a simulation; what messages do not tell is NaN.
        scalars: of every site ||theta_k - anchor_k||^2, ||theta_k||^2 and ||lambda_k||^2 when it last replied,
            shape `(K, 3)`, in the order of `names`.
        names: the sites.
        scales: the largest (sum w_k ||theta_k||^2)^(1/2) and (sum w_k ||lambda_k||^2)^(1/2) after a communication.
        model, dual: sum w_k theta_k and sum w_k lambda_k, shape `(d,)`; NaN from where they are no longer known.
        duals: lambda_k by site, where the sites send them.
    """

    history: History
    scalars: np.ndarray
    names: tuple[str, ...]
    model: np.ndarray
    dual: np.ndarray
    scales: np.ndarray
    duals: Mapping[str, np.ndarray]

    @classmethod
    def start(cls, names: tuple[str, ...], theta: np.ndarray) -> Ledger:
        """Before round 1: every theta_k is theta^(0) and every lambda_k is 0."""
        scalars = np.tile([0.0, float(theta @ theta), 0.0], (len(names), 1))
        return cls(History(), scalars, names, theta, np.zeros_like(theta), np.zeros(2), {})

    def add(self, f: Figures) -> Ledger:
        """With the rows of one more stretch."""
        scalars, duals = self.scalars.copy(), dict(self.duals)
        for name, reply in f.replies.items():
            scalars[self.names.index(name)] = reply.gap, reply.model_square, reply.dual_square
            if reply.dual:
                duals[name] = reply.dual[""]
        unknown = np.full_like(self.dual, np.nan)
        model, dual = (unknown, unknown) if f.means is None else map(np.asarray, f.means(self.dual))
        if duals:
            dual = np.sum([f.weights[name] * duals[name] for name in duals], axis=0)
        residual = np.linalg.norm(model - self.model) / f.s if f.composite else np.linalg.norm(dual)
        weights = np.array([f.weights[name] for name in self.names])
        scales = np.maximum(self.scales, np.sqrt(weights @ scalars[:, 1:]))
        new = dataclasses.replace(self, scalars=scalars, scales=scales, model=model, dual=dual, duals=duals)
        rows = new._rows(f, float(residual))
        return dataclasses.replace(new, history=self.history.extend(rows))

    def _rows(self, f: Figures, dual: float) -> dict[str, np.ndarray]:
        old, done = self.history, self.history.rounds
        numbers = np.arange(done + 1, f.stretch.last + 1)
        at_end = numbers == f.stretch.last

        def since(column: str, at: np.ndarray, value: float) -> np.ndarray:
            return (old[column][-1] if done else 0.0) + np.cumsum(np.where(at, value, 0.0))

        weights = np.array([f.weights[name] for name in self.names])
        begun, replies = numbers == f.stretch.first, f.replies.values()
        rows: dict[str, Any] = {
            "round": numbers,
            "communicated": at_end,
            "communications": since("communications", at_end, 1),
            "uplinks": since("uplinks", at_end, len(replies)),
            "downlinks": since("downlinks", begun, len(f.stretch.active)),
            "uplink_bytes": since("uplink_bytes", at_end, sum(reply.nbytes() for reply in replies)),
            "downlink_bytes": since("downlink_bytes", begun, f.orders),
            "gradient_evaluations": since("gradient_evaluations", at_end, sum(r.evaluations for r in replies)),
            "seconds": since("seconds", at_end, f.seconds),
            "primal_residual": np.where(at_end, np.sqrt(weights @ self.scalars[:, 0]), np.nan),
            "dual_residual": np.where(at_end, dual, np.nan),
            "s": np.full(len(numbers), f.s),
            "p": np.asarray(f.stretch.p),
        }
        return {name: rows.get(name, np.full(len(numbers), np.nan)) for name in COLUMNS}

    def evaluated(self, objective: float, stationarity: float, evaluations: int) -> Ledger:
        """With figures that became known for the last round."""
        columns = {name: column.copy() for name, column in self.history.items()}
        for name, value in (("objective", objective), ("stationarity", stationarity)):
            columns[name][-1] = value
        columns["gradient_evaluations"][-1] += evaluations
        return dataclasses.replace(self, history=History(columns))

    def reached(self, tolerance: float) -> bool:
        """Whether both residuals of the last round are at most `tolerance` times their scales."""
        primal, dual = self.history["primal_residual"][-1], self.history["dual_residual"][-1]
        return bool(primal <= tolerance * self.scales[0] and dual <= tolerance * self.scales[1])
