"""States of clients on disk: the same numbers bit for bit, refusals with figures, nothing left of a killed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import optax
import pytest

import fedual as fd
from fedual import checkpoint
from fedual.solution import COLUMNS

BATCHES = fd.oracles.StochasticGradient(steps=3, learning_rate=0.2, batch_size=3)
FOUR = {"participation": fd.participation.Uniform(count=4)}
BUDGET = 2500  # bytes: below what 30 clients take, above what four do
METHODS = {
    "FedADMM with skips": (fd.FedADMM(fd.oracles.VarianceReduced(3, 0.1, 2, 3), 1.0),
                           FOUR | {"schedule": fd.schedules.Skip(0.4)}),
    "FedDyn, numbers vary": (fd.FedDyn(fd.oracles.GradientDescent(3, 0.1), 1.0),
                             {"participation": fd.participation.Bernoulli(0.3)}),
    "AFedPD, answered": (fd.AFedPD(BATCHES, 1.0), FOUR),
    "carried optimizer": (fd.FedDR(fd.oracles.Optax(optax.adam(0.05), 3, 4, keep=True), 1.0), FOUR),
}  # fmt: skip


def make_problem():
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 60, size=30)
    pairs = [(rng.normal(size=(n, 4)), (rng.random(n) < 0.5).astype(float)) for n in sizes]
    return fd.Problem(fd.losses.logistic(l2=0.1), fd.data.from_arrays(pairs))


@pytest.fixture(scope="module")
def problem():
    return make_problem()


@pytest.mark.parametrize("name", METHODS)
def test_the_numbers_are_those_of_a_run_in_memory_bit_for_bit(problem, name):
    algorithm, rules = METHODS[name]
    memory, disk = (fd.solve(problem, algorithm, rounds=12, state_memory=m, **rules) for m in (None, BUDGET))
    assert disk.state.device.clients == ()
    for what in ("theta", "thetas", "duals"):
        np.testing.assert_array_equal(getattr(disk, what), getattr(memory, what), err_msg=what)
    for column in set(COLUMNS) - {"seconds"}:
        np.testing.assert_array_equal(disk.history[column], memory.history[column], err_msg=column)


def test_a_run_moves_between_memory_and_disk(problem):
    algorithm, rules = METHODS["FedADMM with skips"]
    run = partial(fd.solve, problem, algorithm, **rules)
    whole = run(rounds=12).thetas
    half = run(rounds=5, state_memory=BUDGET)
    assert run(rounds=12, state=half.state).thetas.tolist() == whole.tolist()
    assert run(rounds=12, state=half.state, state_memory=BUDGET).thetas.tolist() == whole.tolist()
    with pytest.raises(RuntimeError, match="later rounds have changed the clients' states on disk"):
        _ = half.thetas
    from_memory = run(rounds=5)
    assert run(rounds=12, state=from_memory.state, state_memory=BUDGET).thetas.tolist() == whole.tolist()


def test_a_checkpoint_holds_everything(problem, tmp_path):
    algorithm, rules = METHODS["FedADMM with skips"]
    half = fd.solve(problem, algorithm, rounds=5, state_memory=BUDGET, **rules)
    checkpoint.save(tmp_path / "half.safetensors", half)
    restored = checkpoint.restore(tmp_path / "half.safetensors", problem, algorithm, **rules)
    again = fd.solve(problem, algorithm, rounds=12, state=restored.solution.state, state_memory=BUDGET, **rules)
    assert again.thetas.tolist() == fd.solve(problem, algorithm, rounds=12, **rules).thetas.tolist()


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[3])
import fedual as fd
from fedual import checkpoint
from test_stored import BUDGET, METHODS, make_problem
algorithm, rules = METHODS["FedADMM with skips"]
for solution in fd.iterate(make_problem(), algorithm, rounds=12, chunk_rounds=3, state_memory=BUDGET, **rules):
    if solution.history.rounds == 9:
        os.kill(os.getpid(), 9)
    checkpoint.save(sys.argv[1], solution)
"""


def test_a_killed_run_goes_on_from_its_checkpoint_and_leaves_no_file(problem, tmp_path):
    scratch, path = tmp_path / "scratch", tmp_path / "run.safetensors"
    scratch.mkdir()
    here = os.path.dirname(__file__)
    code = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), "", here], env=os.environ | {"TMPDIR": str(scratch)}, check=False
    ).returncode
    assert code == -signal.SIGKILL
    assert list(scratch.iterdir()) == []
    algorithm, rules = METHODS["FedADMM with skips"]
    restored = checkpoint.restore(path, problem, algorithm, **rules)
    assert restored.solution.history.rounds == 6
    again = fd.solve(problem, algorithm, rounds=12, state=restored.solution.state, state_memory=BUDGET, **rules)
    assert again.thetas.tolist() == fd.solve(problem, algorithm, rounds=12, **rules).thetas.tolist()


def test_what_cannot_fit_is_refused_with_figures(problem):
    algorithm, rules = METHODS["FedADMM with skips"]
    with pytest.raises(
        ValueError, match=r"take [\d,]+ bytes, more than state_memory = 2,500, and all of them take part"
    ):
        fd.solve(problem, algorithm, rounds=1, state_memory=BUDGET)
    with pytest.raises(ValueError, match=r"states of 4 participants take [\d,]+ bytes, more than state_memory = 100"):
        fd.solve(problem, algorithm, rounds=1, state_memory=100, **rules)
    with pytest.raises(ValueError, match="state_memory = 0 must be a number of bytes"):
        fd.solve(problem, algorithm, rounds=1, state_memory=0, **rules)
    assert fd.solve(problem, algorithm, rounds=1, state_memory=10**6, **rules).state.stored is None
