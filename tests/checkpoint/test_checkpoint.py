"""A run that was saved and continued is the run that was never interrupted; anything else is refused by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import optax
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import fedual as fd
from fedual import checkpoint
from fedual.checkpoint.identity import describe

SIZES = (5, 40, 7, 300, 1)


def _clients(seed=0):
    rng = np.random.default_rng(seed)
    pairs = [(rng.normal(size=(n, 3)), rng.integers(0, 2, n)) for n in SIZES]
    return fd.data.from_arrays(pairs, names=["e", "d", "c", "b", "a"])


CLIENTS = _clients()
LOSS = fd.losses.logistic(l2=0.1)
PROBLEM = fd.Problem(LOSS, CLIENTS)
ORACLE_II = fd.FedPD(fd.oracles.VarianceReduced(steps=4, batch_size=2, refresh=3), step_size=0.5)
ADMM = fd.ADMM(fd.oracles.GradientDescent(steps=2), step_size=1.0)
# Method, schedule, participation.
CASES = {
    "FedPD with Oracle II": (ORACLE_II, fd.schedules.Decay(8), None),
    "FedPD, all automatic": (fd.FedPD(), fd.schedules.Adaptive(1e-3), None),
    "FedPD with Adam": (fd.FedPD(fd.oracles.Optax(optax.adam(0.01), steps=3, keep=True)), fd.schedules.Skip(0.4), None),
    "ADMM": (ADMM, None, None),
    # Clients whose oracles carry states of different shapes, some of them absent.
    "FedADMM": (
        fd.FedADMM(
            fd.oracles.PerClient(
                {name: fd.oracles.VarianceReduced(steps=3, refresh=2) for name in "db"},
                default=fd.oracles.GradientDescent(steps=2),
            ),
            step_size=0.5,
        ),
        fd.schedules.Skip(0.4),
        fd.participation.Uniform(3),
    ),
}


def assert_same(a, b, exactly=True):
    """Everything but the wall clock."""
    tolerance = {"rtol": 0, "atol": 0} if exactly else {"rtol": 1e-12, "atol": 1e-12}
    for name in ("theta", "thetas", "duals"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), **tolerance)
    for column in set(a.history) - {"seconds"}:
        np.testing.assert_allclose(a.history[column], b.history[column], err_msg=column, **tolerance)
    assert len(a.history["round"]) == 10


@pytest.mark.parametrize("name", CASES)
def test_five_and_five_rounds_are_ten(name, tmp_path):
    method, *rules = CASES[name]
    whole = fd.solve(PROBLEM, method, 10, *rules, seed=3)
    checkpoint.save(tmp_path / "c", fd.solve(PROBLEM, method, 5, *rules, seed=3))
    restored = checkpoint.restore(tmp_path / "c", PROBLEM, method, *rules, seed=3)
    assert restored.same_layout
    assert "bit-identical" in restored.layout
    assert restored.solution.history.rounds == 5
    assert_same(fd.solve(PROBLEM, method, 10, *rules, seed=3, state=restored.solution.state), whole)
    if isinstance(rules[0], fd.schedules.Decay):  # T = 8 belongs to the schedule: prolonging a run does not stretch it
        np.testing.assert_allclose(whole.history["p"], np.maximum(8 - np.arange(1, 11), 0) / 8)


def test_another_layout_agrees_to_rounding_and_is_told(tmp_path):
    whole = fd.solve(PROBLEM, ORACLE_II, 10, seed=3)
    checkpoint.save(tmp_path / "c", fd.solve(PROBLEM, ORACLE_II, 5, seed=3))
    restored = checkpoint.restore(tmp_path / "c", PROBLEM, ORACLE_II, seed=3, clients_at_once=2)
    assert not restored.same_layout
    assert "not bit for bit" in restored.layout
    state = restored.solution.state
    assert_same(fd.solve(PROBLEM, ORACLE_II, 10, seed=3, state=state, clients_at_once=2), whole, exactly=False)


def check_on_two_devices(path):
    """Runs in a process of its own, because the number of devices is settled when JAX starts."""
    whole = fd.solve(PROBLEM, ORACLE_II, 10, seed=3)
    moved = checkpoint.restore(path / "one", PROBLEM, ORACLE_II, seed=3)
    assert not moved.same_layout
    assert_same(fd.solve(PROBLEM, ORACLE_II, 10, seed=3, state=moved.solution.state), whole, exactly=False)
    checkpoint.save(path / "two", fd.solve(PROBLEM, ORACLE_II, 5, seed=3))
    restored = checkpoint.restore(path / "two", PROBLEM, ORACLE_II, seed=3)
    assert restored.same_layout
    assert_same(fd.solve(PROBLEM, ORACLE_II, 10, seed=3, state=restored.solution.state), whole)


def test_another_device_count_agrees_to_rounding(tmp_path):
    """Five clients on two devices: one is filled up by a copy, which is no client and is not saved."""
    checkpoint.save(tmp_path / "one", fd.solve(PROBLEM, ORACLE_II, 5, seed=3))
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, __file__, str(tmp_path)], check=True, timeout=300, env=environment)
    assert checkpoint.saved_devices(tmp_path / "two") == 2
    restored = checkpoint.restore(tmp_path / "two", PROBLEM, ORACLE_II, seed=3)
    assert not restored.same_layout
    whole = fd.solve(PROBLEM, ORACLE_II, 10, seed=3)
    assert_same(fd.solve(PROBLEM, ORACLE_II, 10, seed=3, state=restored.solution.state), whole, exactly=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "c.safetensors"
    checkpoint.save(path, fd.solve(PROBLEM, ADMM, 3, seed=3))
    return path


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"algorithm": fd.ADMM(step_size=2.0)}, r"algorithm\.step_size was 1\.0 and is 2\.0"),
        ({"algorithm": fd.FedPD(step_size=1.0)}, r"algorithm was 'ADMM' and is 'FedPD'"),
        ({"seed": 4}, r"seed was 3 and is 4"),
        ({"problem": fd.Problem(fd.losses.logistic(l2=0.2), CLIENTS)}, r"loss\.l2 was 0\.1 and is 0\.2"),
        ({"problem": fd.Problem(LOSS, CLIENTS, weights="uniform")}, r"weights was \[.*\] and is \[0\.2, "),
        ({"problem": fd.Problem(LOSS, CLIENTS, dtype="float32")}, r"dtype was 'float64' and is 'float32'"),
        ({"problem": fd.Problem(LOSS, _clients(1))}, r"the rows of 5 of 5 clients have changed, 'e' first"),
        (
            {"problem": fd.Problem(LOSS, CLIENTS.select([4, 3, 2, 1, 0]), weights=PROBLEM.weights)},
            r"the clients come in another order",
        ),
        (
            {"problem": fd.Problem(LOSS, CLIENTS.select([0, 1, 2, 3]), weights=[1, 2, 3, 4])},
            r"clients gone: \['a'\]",
        ),
    ],
)
def test_what_does_not_belong_is_refused_with_the_difference(saved, changed, message):
    call = {"problem": PROBLEM, "algorithm": ADMM, "seed": 3} | changed
    with pytest.raises(ValueError, match=message):
        checkpoint.restore(saved, **call)


def test_one_changed_number_of_one_client_is_named(saved):
    features = list(CLIENTS.features)
    features[3] = features[3].copy()
    features[3][17, 1] += 1e-9
    changed = fd.data.from_arrays(zip(features, CLIENTS.targets, strict=True), names=CLIENTS.names)
    with pytest.raises(ValueError, match="the rows of 1 of 5 clients have changed, 'b' first"):
        checkpoint.restore(saved, fd.Problem(LOSS, changed), ADMM, seed=3)


def test_other_versions_and_damage_are_refused(saved, tmp_path):
    with safe_open(saved, "numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(file.metadata()["fedual"])
    other = tmp_path / "other"
    save_file(tensors, other, {"fedual": json.dumps(facts | {"version": "0.0.1"})})
    with pytest.raises(ValueError, match=r"written by fedual 0\.0\.1"):
        checkpoint.restore(other, PROBLEM, ADMM, seed=3)
    cut = tmp_path / "cut"
    cut.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.restore(cut, PROBLEM, ADMM, seed=3)
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        checkpoint.restore(tmp_path / "none", PROBLEM, ADMM, seed=3)


def test_states_are_stored_in_the_users_order(saved):
    """The duals of `ADMM`, by their definition, from the file alone."""
    solution = fd.solve(PROBLEM, ADMM, 3, seed=3)
    with safe_open(saved, "numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("state/clients/0.dual"), solution.duals)
        np.testing.assert_array_equal(file.get_tensor("state/clients/0.model"), solution.thetas)


def test_settings_of_plain_objects_are_seen():
    one, other = (
        describe(fd.oracles.PerClient({"a": fd.oracles.Newton(goal)}, fd.oracles.Exact()), "oracle")
        for goal in (1e-6, 1e-7)
    )
    assert [key for key in one if one[key] != other[key]] == ["oracle.oracles.a.tolerance"]


def test_settings_hidden_in_functions_are_seen():
    """Optax keeps learning rates in closures."""
    one, other = (describe(fd.oracles.Optax(optax.adam(rate), steps=3)) for rate in (0.1, 0.2))
    assert [key for key in one if one[key] != other[key]] == [".optimizer.update.update_fns.1.tx.update.step_size"]


if __name__ == "__main__":
    check_on_two_devices(Path(sys.argv[1]))
