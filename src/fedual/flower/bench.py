"""`fedual bench deploy`: random kills, and what a communicated round costs beside a bare Flower app."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fedual.clients import Clients
from fedual.engine import solve
from fedual.files import write_text
from fedual.flower.loopback import Loopback
from fedual.problem import Problem

__all__ = ["kills", "overhead"]

_SITES = ("north", "south", "west")
_PROJECT = """
[project]
name = "bench"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedual"

[tool.flwr.app.components]
serverapp = "bench:server"
clientapp = "bench:client"

[tool.flwr.app.config]
folder = ""
resume = false
"""
_METHOD = """
import numpy as np
import fedual as fd
from fedual.flower import client_app, server_app

SITES = {sites!r}

def data(site):
    rng = np.random.default_rng([*site.encode()])
    return rng.normal(size=(4, {columns})), rng.normal(size=4)

loss = fd.losses.least_squares(l2=0.1)
algorithm = fd.FedPD(fd.oracles.GradientDescent(steps=2, learning_rate={rate}), step_size=1.0)
schedule = fd.schedules.Skip({skip})
client = client_app(lambda context: data(str(context.node_config["site"])), algorithm, loss, dtype="float64")
server = server_app(algorithm, SITES, {folder!r}, schedule=schedule, rounds={rounds}, seed=1, timeout=900)
"""
_BARE = """
import json, time
import numpy as np
import fedual as fd
import fedual.flower.client, fedual.flower.server
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    return Message(RecordDict({{"arrays": ArrayRecord([array + 1.0])}}), reply_to=message)

@server.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < {count}:
        time.sleep(0.2)
    array, seconds = np.zeros({columns}), []
    for _ in range({rounds}):
        begun = time.monotonic()
        records = RecordDict({{"arrays": ArrayRecord([array])}})
        waiting = list(grid.push_messages([Message(records, node, "train") for node in nodes]))
        found = []
        while len(found) < len(nodes):
            found += grid.pull_messages(waiting)
            done = {{reply.metadata.reply_to_message_id for reply in found}}
            waiting = [identity for identity in waiting if identity not in done]
            time.sleep(0.2)
        array = np.mean([reply.content["arrays"].to_numpy_ndarrays()[0] for reply in found], axis=0)
        seconds.append(time.monotonic() - begun)
    with open({result!r}, "w") as file:
        json.dump(seconds, file)
"""


def kills(
    folder: str | Path, count: int = 20, rounds: int = 60, seed: int = 0, deadline: float = 7200.0
) -> dict[str, Any]:
    """Kill clients, nodes, servers and the link at random moments of one run, and compare with the simulation.

    Returns:
        How many of each were killed, the number of resumptions, and the largest difference of theta.

    Raises:
        TimeoutError: the run did not end within `deadline` seconds.
    """
    folder, draw = Path(folder).resolve(), random.Random(seed)
    results, app = folder / "run", folder / "app"
    _write_app(app, _METHOD, columns=5, skip=0.3, rounds=rounds, folder=str(results), rate=0.1)
    done: dict[str, int] = dict.fromkeys(("client", "node", "server", "link"), 0)
    resumed, end = 0, time.monotonic() + deadline
    with _federation(folder) as federation:
        run, following = federation.run(app), time.monotonic() + draw.uniform(5, 30)
        while time.monotonic() < end:
            if (results / "summary.json").exists():
                break
            if sum(done.values()) < count and time.monotonic() > following:
                victim = draw.choice(list(done))
                done[victim] += _kill(federation, victim, draw)
                following = time.monotonic() + draw.uniform(5, 30)
            if federation.status(run).startswith("finished") and not (results / "summary.json").exists():
                started = (results / "server.safetensors").exists()
                run, resumed = federation.run(app, resume=started), resumed + 1
            time.sleep(1)
        else:
            raise TimeoutError(f"the run did not end within {deadline:.0f} s; see {folder}.")
    theta = load_file(results / "model.safetensors")["theta"]
    last = json.loads((results / "summary.json").read_text(encoding="utf-8"))["round"]
    difference = float(np.abs(theta - _simulated(app, last)).max())
    return {"kills": done, "resumed": resumed, "difference": difference}


def overhead(folder: str | Path, numbers: int, rounds: int = 10, skip: float = 0.0) -> dict[str, float]:
    """Median seconds per communicated round of a run and of a bare app that sends arrays of the same size.

    Args:
        numbers: float64 numbers per message: 128 for 1 KB, 12_500_000 for 100 MB.
        skip: probability of skipping in the run.

    Returns:
        `run` and `bare` seconds, and their ratio. The first round of each, which compiles, is left out.
    """
    folder = Path(folder).resolve()
    results, bare = folder / "run", folder / "bare.json"
    _write_app(
        folder / "app", _METHOD, columns=numbers, skip=skip, rounds=rounds, folder=str(results), rate=0.1 / numbers
    )
    _write_app(folder / "bare", _BARE, columns=numbers, count=len(_SITES), rounds=rounds, result=str(bare))
    with _federation(folder) as federation:
        for app in (folder / "bare", folder / "app"):
            status = federation.wait(federation.run(app), 7200)
            if status != "finished:completed":
                raise RuntimeError(f"{app} ended as {status}; see {folder}.")
    with open(results / "history.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["communicated"] == "true"]
    run = float(np.median(np.diff([float(row["seconds"]) for row in rows])))
    plain = float(np.median(json.loads(bare.read_text(encoding="utf-8"))[1:]))
    return {"run": run, "bare": plain, "ratio": run / plain}


def _federation(folder: Path) -> Loopback:
    # Apps run in processes of Flower, which have to find this package where it is not installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_home(), os.environ.get("PYTHONPATH", "")]))
    return Loopback(folder / "processes", {site: {"state": str(folder / "state" / site)} for site in _SITES})


def _home() -> str:
    return str(Path(__file__).parents[2])


def _write_app(folder: Path, code: str, /, **settings: Any) -> None:
    folder.mkdir(parents=True)
    write_text(folder / "pyproject.toml", _PROJECT)
    write_text(folder / "bench.py", code.format(sites=_SITES, **settings))


def _simulated(app: Path, rounds: int) -> np.ndarray:
    spec = importlib.util.spec_from_file_location("bench", app / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    clients = Clients.build([made.data(site) for site in _SITES], names=_SITES)
    problem = Problem(made.loss, clients)
    return solve(problem, made.algorithm, rounds=rounds, schedule=made.schedule, seed=1).theta


def _kill(federation: Loopback, victim: str, draw: random.Random) -> int:
    """Kill one process of a kind, and start again what does not come back by itself; how many were killed."""
    if victim == "link":
        federation.kill("link")
        federation.start_link()
        return 1
    if victim == "node":
        site = draw.choice(_SITES)
        federation.kill(site)
        federation.start_node(site)
        return 1
    wanted = {"client": "flwr-clientapp", "server": "flwr-serverapp"}[victim]
    found = [identity for identity, command in _started(federation) if wanted in command]
    if found:
        os.kill(draw.choice(found), signal.SIGKILL)
    return bool(found)


def _started(federation: Loopback) -> list[tuple[int, str]]:
    """Processes that the federation started, with their commands."""
    from fedual.flower.programs import descendants

    own = {identity for process in federation.processes.values() for identity in descendants(process.pid)}
    listed = subprocess.run(["ps", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=1) for line in listed.splitlines()]
    return [(int(pid), command) for pid, command in (line for line in lines if len(line) == 2) if int(pid) in own]
