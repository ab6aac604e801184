"""Event files that TensorBoard reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedual.solution import Solution
from fedual.trackers.tracker import Tracker, settings

__all__ = ["TensorBoard"]


class TensorBoard(Tracker):
    """Write the history into event files; look at them with `tensorboard --logdir FOLDER`.

    Args:
        folder: made if it does not exist.
        skip: rounds that are in the folder already.

    Raises:
        ImportError: the extra `trackers` is not installed.

    Example:
        >>> import fedual as fd
        >>> from fedual.trackers import TensorBoard
        >>> with TensorBoard("runs/tensorboard") as tracker:  # doctest: +SKIP
        ...     fd.solve(problem, fd.FedPD(), callbacks=[tracker])
    """

    def __init__(self, folder: str | Path, skip: int = 0) -> None:
        super().__init__(skip)
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError('TensorBoard files need tensorboardX: pip install "fedual[trackers]".') from error
        self._writer = SummaryWriter(str(folder))

    def begin(self, solution: Solution) -> None:
        self._writer.add_text("settings", f"```\n{json.dumps(settings(solution), indent=2)}\n```", 0)

    def log(self, round: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)

    def close(self) -> None:
        self._writer.close()
