"""The server's side as a Flower ServerApp."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedual.flower.conduct import conduct
from fedual.flower.plan import Plan, refuse_protection
from fedual.protocols import Algorithm

__all__ = ["conducted", "server_app"]

_log = logging.getLogger("fedual")


def server_app(
    algorithm: Algorithm, sites: Sequence[str], folder: str | Path = "fedual-run", **settings: Any
) -> ServerApp:
    """A Flower ServerApp that conducts a run with the sites of `client_app`.

    It waits for all sites, compares what they are about to work with, and then runs communication by communication: a
    skipped round sends nothing. After every communication its state is on disk; `flwr run` with the run configuration
    `resume=true` goes on from there.

    Args:
        algorithm: as in a simulation; the same as the sites'.
        sites: their names, in a fixed order.
        folder: for the server's state and the results: `server.safetensors`, `history.csv`, `model.safetensors`,
            `summary.json`, `run.log`.
        **settings: `schedule`, `participation`, `rounds`, `tolerance`, `relative_tolerance`, `seed`, `theta0` as for
            `fedual.solve`; `regularizer`, `weights` as for `fedual.Problem`;
            `quorum`: how many replies suffice to close a communication when the time is over (all by default);
            `timeout`: seconds to wait for replies, 3600 by default; `start_timeout`: for all sites to come, 600;
            `largest_message`: bytes that one message may take.

    Raises:
        TypeError: an unknown setting.
        ValueError: numbers of sites that do not fit each other.

    Example:
        >>> import fedual as fd
        >>> app = server_app(fd.FedPD(step_size=1.0), ["north", "south"], rounds=100)
    """
    refuse_protection(settings)
    plan = Plan(algorithm, tuple(sites), Path(folder), **settings)
    plan.check()
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        conducted(plan, grid, context)

    return app


def conducted(plan: Plan, grid: Grid, context: Context) -> None:
    """`conduct` as the body of a ServerApp: with a log, and with `folder` and `resume` from the run configuration.

    Raises:
        RuntimeError: the run diverged, so that Flower counts it as failed.
    """
    folder = Path(str(context.run_config.get("folder", "") or plan.folder))
    with _told(folder / "run.log"):
        state = conduct(replace(plan, folder=folder), grid, bool(context.run_config.get("resume", False)))
    if state.status == "diverged":
        raise RuntimeError(f"the run diverged: {state.reason}")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What happens goes to a file and to standard output, which `flwr log` shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout), logging.FileHandler(path, encoding="utf-8")]
    level = _log.level
    _log.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _log.addHandler(handler)
    try:
        yield
    except Exception as error:
        _log.error("the run stops: %s", error)
        raise
    finally:
        _log.setLevel(level)
        for handler in handlers:
            _log.removeHandler(handler)
            handler.flush()
        handlers[1].close()
