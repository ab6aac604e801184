"""The app of the loopback tests: a problem that the test makes as well."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

import fedual as fd
from fedual.flower import client_app, server_app

SITES = ("north", "south", "west")
SETTINGS = {"schedule": fd.schedules.Skip(0.4), "rounds": 8, "seed": 5}


def data(site: str):
    rng = np.random.default_rng(SITES.index(site))
    return rng.normal(size=(6, 3)), rng.normal(size=6)


def loss():
    return fd.losses.least_squares(l2=0.1)


def algorithm():
    return fd.FedPD(fd.oracles.StochasticGradient(steps=5, learning_rate=0.1, batch_size=2), step_size=1.0)


def dies(folder: str, who: str):
    """A hook that kills the process at a point once, if a file asks for it."""

    def at(point: str) -> None:
        asked = Path(folder) / f"kill {who} {point}"
        if asked.exists():
            asked.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    return at


FOLDER = os.environ.get("FEDUAL_TRIAL", ".")
client = client_app(
    lambda context: data(str(context.node_config["site"])), algorithm(), loss(), at=dies(FOLDER, "client")
)
server = server_app(
    algorithm(),
    SITES,
    folder=Path(FOLDER) / "run",
    timeout=240,
    start_timeout=240,
    at=dies(FOLDER, "server"),
    **SETTINGS,
)
