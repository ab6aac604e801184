"""How many devices JAX has; it must be said before JAX starts."""

from __future__ import annotations

import os
import re

__all__ = ["start_jax"]

_FLAG = "--xla_force_host_platform_device_count"


def start_jax(devices: str | int | None) -> None:
    """Make JAX start with this many CPU devices, over which a run shares out its clients.

    Args:
        devices: a number, "auto" for one per processor core, or None to leave it as the environment has it.

    Raises:
        ValueError: not a number >= 1, or JAX has started with another number in this process.
    """
    if devices is None:
        return
    if devices == "auto":
        # Where the system tells, only the cores that this process may use.
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    else:
        count = int(devices) if str(devices).isdigit() else 0
        if count < 1:
            raise ValueError(f"--devices {devices} must be a number >= 1, or auto.")
    others = re.sub(rf"{_FLAG}=\d+", "", os.environ.get("XLA_FLAGS", ""))
    os.environ["XLA_FLAGS"] = f"{others} {_FLAG}={count}".strip()
    import jax

    if jax.default_backend() == "cpu" and jax.local_device_count() != count:
        raise ValueError(
            f"--devices {count}: JAX has started with {jax.local_device_count()} in this process, which is final."
        )
