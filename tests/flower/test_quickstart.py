"""What it takes to turn a Flower app into a FedPD one."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

import fedual as fd
from wires import Wires

EXAMPLES = Path(__file__).parents[2] / "examples" / "flower"
NAMES = ("north", "south", "west")


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fewer_than_twenty_lines_are_new():
    before, after = ((EXAMPLES / f"{name}.py").read_text().splitlines() for name in ("before", "after"))
    new = [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and line.strip("+ ")]
    assert len(new) < 20


def test_the_changed_app_runs_and_gives_the_simulation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = load("after")
    net = Wires(dict.fromkeys(NAMES, app.client), {name: {"site": name} for name in NAMES})
    app.server(net, Context(1, 0, {}, RecordDict(), {}))
    pairs = [app.load_data(name) for name in NAMES]
    problem = fd.Problem(app.loss, fd.data.from_arrays(pairs, names=NAMES))
    solution = fd.solve(problem, app.algorithm, rounds=30, schedule=fd.schedules.Skip(0.5))
    np.testing.assert_allclose(load_file("fedual-run/model.safetensors")["theta"], solution.theta, atol=1e-10)


def test_the_app_before_is_an_app_of_flower():
    before = load("before")
    assert before.load_data("north")[0].shape == (40, 5)
    assert callable(before.client)
    assert callable(before.server)
