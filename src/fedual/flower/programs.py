"""Flower's programs: where they are, their environment, and ending all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["descendants", "end_all", "flower_environment", "program"]


def program(name: str) -> str:
    """A Flower program of this environment.

    Raises:
        FileNotFoundError: Flower is not installed here.
    """
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: pip install 'fedual[flower]' into this environment.")
    return str(path)


def flower_environment(home: str | Path | None = None) -> dict[str, str]:
    """The environment for Flower's programs: nothing is reported to anybody.

    Args:
        home: for Flower's own files; the user's by default.
    """
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    quiet |= {} if home is None else {"FLWR_HOME": str(home)}
    # This interpreter's programs first: Flower starts further ones by name.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **quiet, "PATH": path}


def end_all(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    """Send a signal to a process and to everything that it started, sessions of their own included."""
    for identity in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(identity, number)


def descendants(root: int) -> list[int]:
    """The processes that a process started, and those that they started, as far as they live."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in table.splitlines():
        identity, parent = map(int, line.split())
        children.setdefault(parent, []).append(identity)
    found, queue = [], [root]
    while queue:
        more = children.get(queue.pop(), [])
        found += more
        queue += more
    return found
