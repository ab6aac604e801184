"""Measuring in a fresh process, whose memory and devices nothing else has touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

__all__ = ["measure_apart"]

_FLAG = "--xla_force_host_platform_device_count"


def measure_apart(module: str, devices: int | None = None, **sizes: Any) -> dict[str, Any]:
    """`fedual.bench.<module>.measure(**sizes)` in a process of its own, with so many CPU devices if given.

    Raises:
        RuntimeError: the measurement failed; what it printed is in the message.
    """
    environment = dict(os.environ)
    if devices is not None:
        others = [flag for flag in environment.get("XLA_FLAGS", "").split() if _FLAG not in flag]
        environment["XLA_FLAGS"] = " ".join([*others, f"{_FLAG}={devices}"])
    code = (
        f"import json, sys\nfrom fedual.bench.{module} import measure\n"
        "print(json.dumps(measure(**json.load(sys.stdin))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(sizes),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the measurement of {module} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
