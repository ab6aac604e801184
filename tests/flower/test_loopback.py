"""Three SuperNodes as processes on loopback, with TLS and keys, and what happens when processes are killed.

One run after the other, as starting Flower takes longer than anything that is computed. The deadlines guard against
hanging only.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from safetensors.numpy import load_file

import fedual as fd
from fedual import flower
from fedual.config import Config, build
from fedual.flower.loopback import Loopback
from fedual.flower.store import SiteFolder

APP = Path(__file__).parent / "app"
sys.path.insert(0, str(APP))
import trial

DEADLINE = 900.0


@pytest.fixture
def federation(tmp_path, monkeypatch):
    """A federation whose apps find this package, and the folder in which tests ask them to die."""
    monkeypatch.setenv("FEDUAL_TRIAL", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(fd.__file__).parents[1]))
    nodes = {site: {"state": str(tmp_path / "state" / site)} for site in trial.SITES}
    with Loopback(tmp_path / "processes", nodes) as running:
        yield running


def expected(rounds: int) -> fd.Solution:
    clients = fd.data.from_arrays([trial.data(site) for site in trial.SITES], names=trial.SITES)
    return fd.solve(fd.Problem(trial.loss(), clients), trial.algorithm(), **{**trial.SETTINGS, "rounds": rounds})


def compare(folder: Path) -> None:
    """theta, theta_k and lambda_k are those of the simulation."""
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["status"] == "round limit"
    solution = expected(summary["round"])
    np.testing.assert_allclose(load_file(folder / "run" / "model.safetensors")["theta"], solution.theta, atol=1e-10)
    for k, site in enumerate(trial.SITES):
        kept = SiteFolder(folder / "state" / site).models(summary["run"])
        np.testing.assert_allclose(kept[".client.model"][0], solution.thetas[k], atol=1e-10)
        np.testing.assert_allclose(kept[".client.dual"][0], solution.duals[k], atol=1e-10)


def communications(folder: Path) -> int:
    log = folder / "run" / "run.log"
    return log.read_text().count("sites replied") if log.exists() else 0


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)


def compiled(folder: Path, site: str) -> int:
    return len(list((folder / "state" / site / "compiled").glob("*-cache")))


def test_kills_of_client_and_node_change_nothing_and_nothing_compiles_twice(tmp_path, federation):
    for point in ("before save", "after save"):
        (tmp_path / f"kill client {point}").touch()
    run = federation.run(APP)
    wait_for(lambda: communications(tmp_path) >= 1, "the first communication")
    after_first = {site: compiled(tmp_path, site) for site in trial.SITES}
    federation.kill("south")
    federation.start_node("south")
    assert federation.wait(run, DEADLINE) == "finished:completed"
    assert not list(tmp_path.glob("kill *"))
    compare(tmp_path)
    assert {site: compiled(tmp_path, site) for site in trial.SITES} == after_first


def test_a_killed_server_resumes_from_its_last_communication(tmp_path, federation):
    (tmp_path / "kill server before save").touch()
    run = federation.run(APP)
    assert federation.wait(run, DEADLINE) != "finished:completed"
    (tmp_path / "kill server received").touch()
    assert federation.wait(federation.run(APP, resume=True), DEADLINE) != "finished:completed"
    federation.kill("link")
    federation.start_link()
    assert federation.wait(federation.run(APP, resume=True), DEADLINE) == "finished:completed"
    compare(tmp_path)


def test_one_toml_gives_the_same_in_simulation_and_on_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(fd.__file__).parents[1]))
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        rows = "".join(f"{x:.3f},{x + e:.3f}\n" for x, e in rng.normal(size=(10, 2)))
        (tmp_path / f"{name}.csv").write_text("x,y\n" + rows)
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        '[data]\nfiles = ["a.csv", "b.csv"]\ntarget = "y"\n[loss]\nname = "least_squares"\nintercept = true\n'
        '[algorithm]\nname = "FedPD"\nstep_size = 1.0\n[stop]\nrounds = 3\n'
    )
    simulated = build(Config.load(experiment))
    solution = fd.solve(simulated.problem, simulated.algorithm, rounds=3)
    results = flower.local(experiment, [tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "out", DEADLINE)
    np.testing.assert_allclose(load_file(results / "model.safetensors")["theta"], solution.theta, atol=1e-10)
