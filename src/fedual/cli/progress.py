"""What a person sees while a run goes on. It reads solutions and changes none of their numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fedual.solution import Solution

__all__ = ["Display", "duration", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Positive values on a logarithmic scale as bars, the newest last; values that are not positive are left out.

    Example:
        >>> sparkline([1.0, 1e-2, 1e-4, 1e-6, 1e-7])
        '█▆▄▂▁'
    """
    logs = [math.log10(v) for v in values if v > 0 and math.isfinite(v)]
    if len(logs) > width:
        logs = [logs[round(i * (len(logs) - 1) / (width - 1))] for i in range(width)]
    if not logs:
        return ""
    low, spread = min(logs), max(logs) - min(logs)
    steps = len(_BARS) - 1
    return "".join(_BARS[round(steps * (v - low) / spread)] if spread else _BARS[0] for v in logs)


def duration(seconds: float) -> str:
    """Seconds for people.

    Example:
        >>> duration(4.25), duration(75), duration(7260)
        ('4.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


class Display:
    """A callback for `fedual.solve` and `fedual.runs.run`, used as a context.

    On a terminal it shows a live picture; elsewhere one plain line per call; with `quiet` nothing.

    Args:
        rounds: the last round.
        title: what is running.
        quiet: show nothing.
        console: where; standard error by default, so that output can be piped.
    """

    def __init__(self, rounds: int, title: str = "", quiet: bool = False, console: Console | None = None) -> None:
        self.rounds, self.title, self.quiet = rounds, title, quiet
        self.console = Console(stderr=True) if console is None else console
        self.live = Live(console=self.console, refresh_per_second=8) if self._lively else None
        self.before: tuple[int, float] | None = None
        self.left = math.nan

    @property
    def _lively(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def __enter__(self) -> Display:
        if self.live is not None:
            self.live.start()
            self.live.update(Text(f"{self.title}: preparing (loading, compiling) ..."))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, solution: Solution) -> None:
        if self.quiet:
            return
        self._estimate(solution)
        if self.live is not None:
            self.live.update(self._picture(solution))
        else:
            self.console.print(self._line(solution), highlight=False, soft_wrap=True)

    def _estimate(self, solution: Solution) -> None:
        """Time left until the last round, by the pace since the last call: the first chunk includes compilation."""
        done, seconds = solution.history.rounds, solution.history.last("seconds")
        if self.before is not None and done > self.before[0]:
            self.left = (seconds - self.before[1]) / (done - self.before[0]) * (self.rounds - done)
        self.before = done, seconds

    def _facts(self, solution: Solution) -> dict[str, str]:
        history = solution.history
        left = "" if math.isnan(self.left) else f", at most {duration(max(self.left, 0))} left"
        return {
            "round": f"{history.rounds} of {self.rounds}",
            "communications": f"{history.last('communications'):.0f}",
            "stationarity": f"{history.last('stationarity'):.3g}",
            "primal residual": f"{history.last('primal_residual'):.3g}",
            "dual residual": f"{history.last('dual_residual'):.3g}",
            "s": f"{history.last('s'):.4g}",
            "p": f"{history.last('p'):.3g}",
            "time": f"{duration(history.last('seconds'))}{left}",
        }

    def _line(self, solution: Solution) -> str:
        facts = self._facts(solution)
        return "  ".join(f"{name} {value}" for name, value in facts.items() if value != "nan")

    def _picture(self, solution: Solution) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for name, value in self._facts(solution).items():
            shown = Text(value if value != "nan" else "n/a")
            if name == "stationarity":
                shown.append("  " + sparkline(solution.history["stationarity"].tolist()), style="cyan")
            table.add_row(Text(name, style="bold"), shown)
        bar = ProgressBar(total=self.rounds, completed=solution.history.rounds, width=50)
        return Group(Text(self.title, style="bold"), bar, table)
