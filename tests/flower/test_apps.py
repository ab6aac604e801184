"""The Flower apps of both sides, wired together in one process."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array
from safetensors.numpy import load_file

import fedual as fd
from fedual.engine.message import Refused
from fedual.flower import client_app, server_app
from fedual.flower.conduct import conduct
from fedual.flower.plan import Plan
from fedual.flower.records import from_records, to_records
from fedual.flower.store import SiteFolder, read_arrays, write_arrays
from wires import Wires

NAMES = ("north", "south", "west")
LOSS = fd.losses.least_squares(l2=0.5)
GD = fd.oracles.GradientDescent(steps=4, learning_rate=0.15)
FEDPD, FEDADMM = fd.FedPD(GD, step_size=1.0), fd.FedADMM(GD, step_size=1.0)


def data(site: str, columns: int = 3):
    rng = np.random.default_rng(NAMES.index(site))
    return rng.normal(size=(6, columns)), rng.normal(size=6)


def problem() -> fd.Problem:
    return fd.Problem(LOSS, fd.data.from_arrays([data(name) for name in NAMES], names=NAMES))


def wires(folder: Path, algorithm=FEDPD, named=True, tamper=lambda site, reply: [reply], **per_site) -> Wires:
    apps, configs = {}, {}
    for name in NAMES:
        options = {"load_client": lambda context, name=name: data(name), "algorithm": algorithm, "loss": LOSS}
        apps[name] = client_app(**(options | per_site.get(name, {})))
        configs[name] = {"site": name, "state": str(folder / "state" / name)}
    return Wires(apps, configs, tamper, named)


def plan(folder: Path, algorithm=FEDPD, **settings) -> Plan:
    settings = {"rounds": 6, "timeout": 60.0, "start_timeout": 60.0} | settings
    made = Plan(algorithm, NAMES, folder / "run", **settings)
    made.check()
    return made


def theta(folder: Path) -> np.ndarray:
    return load_file(folder / "run" / "model.safetensors")["theta"]


@pytest.mark.parametrize("named", [True, False])
def test_a_run_over_flower_gives_the_simulation(tmp_path, named):
    schedule = fd.schedules.Explicit([False, True, True, False, True, False])
    net = wires(tmp_path, named=named)
    state = conduct(plan(tmp_path, schedule=schedule), net)
    expected = fd.solve(problem(), FEDPD, rounds=6, schedule=schedule)
    assert (state.status, state.round) == ("round limit", 6)
    np.testing.assert_allclose(theta(tmp_path), expected.theta, atol=1e-12)
    for k, name in enumerate(NAMES):
        kept = SiteFolder(tmp_path / "state" / name).models(state.run)
        np.testing.assert_allclose(kept[".client.model"][0], expected.thetas[k], atol=1e-12)
        np.testing.assert_allclose(kept[".client.dual"][0], expected.duals[k], atol=1e-12)
    orders = [site for site, message in net.sent if from_records(message.content)[0] == "order"]
    assert len(orders) == 3 * (3 + 1)  # silent rounds send nothing; one farewell each


def test_automatic_settings_by_consent(tmp_path):
    told = {name: {"share": ["smoothness"]} for name in NAMES}
    automatic = fd.FedPD()
    net = wires(tmp_path, automatic, **told)
    conduct(plan(tmp_path, automatic), net)
    np.testing.assert_allclose(theta(tmp_path), fd.solve(problem(), automatic, rounds=6).theta, atol=1e-12)
    with pytest.raises(ValueError, match="not all of them tell it"):
        conduct(plan(tmp_path / "b", automatic), wires(tmp_path / "b", automatic, **(told | {"west": {}})))


def test_sites_that_differ_are_refused_with_the_differences_side_by_side(tmp_path):
    other = {"load_client": lambda context: data("south", 4), "algorithm": fd.FedPD(GD, step_size=2.0)}
    with pytest.raises(Refused) as refusal:
        conduct(plan(tmp_path), wires(tmp_path, south=other))
    lines = [line.split() for line in str(refusal.value).splitlines()]
    assert ["coordinator", "north", "south", "west"] in lines
    assert ["dimension", "3", "4", "3"] in lines
    assert ["method.algorithm.step_size", "1.0", "1.0", "2.0", "1.0"] in lines


def test_a_site_that_fails_once_is_asked_again_and_fedpd_gives_the_same(tmp_path):
    died = []

    def load(context):
        if not died:
            died.append(1)
            raise MemoryError("out of memory")
        return data("south")

    conduct(plan(tmp_path), wires(tmp_path, south={"load_client": load}))
    np.testing.assert_allclose(theta(tmp_path), fd.solve(problem(), FEDPD, rounds=6).theta, atol=1e-12)


def failing(rounds, calls):
    """South does not deliver in the given stretches."""

    def tamper(site, reply):
        kind, facts, _ = from_records(reply.content)
        if site == "south" and kind == "reply" and json.loads(facts)["number"] in rounds:
            calls.append(json.loads(facts)["number"])
            return []
        return [reply]

    return tamper


def test_fedadmm_goes_on_without_an_absent_site_and_takes_it_back(tmp_path):
    lost = []
    net = wires(tmp_path, FEDADMM, tamper=failing({2, 3}, lost))
    state = conduct(plan(tmp_path, FEDADMM, quorum=2, timeout=1.0), net)
    absent = fd.participation.Explicit([NAMES, ("north", "west"), ("north", "west")])
    expected = fd.solve(problem(), FEDADMM, rounds=6, participation=absent)
    assert lost == [2, 3]
    np.testing.assert_allclose(theta(tmp_path), expected.theta, atol=1e-12)
    np.testing.assert_array_equal(state.ledger.history["uplinks"], expected.history["uplinks"])


def test_a_straggler_does_not_hold_up_a_round_that_has_its_quorum(tmp_path):
    net = wires(tmp_path, FEDADMM, tamper=failing({1}, []))
    begun = time.monotonic()
    conduct(plan(tmp_path, FEDADMM, quorum=2, timeout=3.0, rounds=1), net)
    assert time.monotonic() - begun < 60  # a guard against hanging, not a measurement


def test_without_its_quorum_a_run_stops_by_name_and_resumes(tmp_path):
    net = wires(tmp_path, tamper=failing({3}, []))
    with pytest.raises(TimeoutError, match=r"2 of 3 sites replied, 3 are needed. site 'south' did not answer"):
        conduct(plan(tmp_path, timeout=1.0), net)
    with pytest.raises(FileExistsError, match="holds a run: resume it"):
        conduct(plan(tmp_path), wires(tmp_path))
    state = conduct(plan(tmp_path), wires(tmp_path), resume=True)
    assert state.round == 6
    np.testing.assert_allclose(theta(tmp_path), fd.solve(problem(), FEDPD, rounds=6).theta, atol=1e-12)


def test_a_resumed_run_waits_for_its_quorum_only(tmp_path):
    net = wires(tmp_path, FEDADMM, tamper=failing({3}, []))
    with pytest.raises(TimeoutError):
        conduct(plan(tmp_path, FEDADMM, timeout=1.0), net)
    net = wires(tmp_path, FEDADMM)
    net.offline = {"south"}
    conduct(plan(tmp_path, FEDADMM, quorum=2, timeout=1.0, start_timeout=1.0), net, resume=True)
    absent = fd.participation.Explicit([NAMES, NAMES, *[("north", "west")] * 4])
    expected = fd.solve(problem(), FEDADMM, rounds=6, participation=absent)
    np.testing.assert_allclose(theta(tmp_path), expected.theta, atol=1e-12)


@pytest.mark.parametrize("algorithm", [FEDPD, FEDADMM])
def test_a_site_leaves_where_the_server_remembers_nothing_of_it(tmp_path, algorithm):
    conduct(plan(tmp_path, algorithm, rounds=2), wires(tmp_path, algorithm))
    path = tmp_path / "run" / "server.safetensors"
    facts, arrays = read_arrays(path)
    write_arrays(path, facts.replace("round limit", "running"), arrays)  # as if it had been interrupted
    two = Plan(algorithm, ("north", "west"), tmp_path / "run", rounds=60, timeout=60.0, start_timeout=60.0)
    net = wires(tmp_path, algorithm)
    if algorithm is FEDADMM:
        with pytest.raises(Refused, match=r"sites \['south'\] cannot leave this run"):
            conduct(two, net, resume=True)
        return
    conduct(two, net, resume=True)
    pairs = [data(name) for name in ("north", "west")]
    best = fd.Problem(LOSS, fd.data.from_arrays(pairs)).minimum().theta
    np.testing.assert_allclose(theta(tmp_path), best, atol=1e-8)


@pytest.mark.parametrize("name", ["secure_aggregation", "differential_privacy"])
def test_protection_that_does_not_exist_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} = True: this package has no {name.replace('_', ' ')}"):
        server_app(FEDPD, NAMES, **{name: True})


def test_sites_that_never_come_end_the_run_in_time(tmp_path):
    net = wires(tmp_path)
    net.offline = {"south", "west"}
    with pytest.raises(TimeoutError, match="site 'south' is not connected within 1 s; site 'west' is not connected"):
        conduct(plan(tmp_path, start_timeout=1.0), net)


def test_a_late_reply_is_dropped(tmp_path):
    kept = []

    def tamper(site, reply):
        if site == "south" and from_records(reply.content)[0] == "reply":
            number = json.loads(from_records(reply.content)[1])["number"]
            if number == 2:
                kept.append(reply.content)
            if number == 3:
                late = type(reply)(kept[0], reply_to=reply)
                late.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
                return [late, reply]
        return [reply]

    conduct(plan(tmp_path), wires(tmp_path, tamper=tamper))
    np.testing.assert_allclose(theta(tmp_path), fd.solve(problem(), FEDPD, rounds=6).theta, atol=1e-12)


def test_one_site_cannot_poison_the_model(tmp_path):
    def tamper(site, reply):
        kind, facts, arrays = from_records(reply.content)
        if site == "south" and kind == "reply" and json.loads(facts)["number"] > 1:
            reply.content = to_records(kind, facts, {name: array * np.nan for name, array in arrays.items()})
        return [reply]

    net = wires(tmp_path, FEDADMM, tamper=tamper)
    conduct(plan(tmp_path, FEDADMM, quorum=2), net)
    absent = fd.participation.Explicit([NAMES, *[("north", "west")] * 5])
    expected = fd.solve(problem(), FEDADMM, rounds=6, participation=absent)
    np.testing.assert_allclose(theta(tmp_path), expected.theta, atol=1e-12)


def test_a_site_cannot_speak_for_another(tmp_path):
    net = wires(tmp_path)
    net.configs["west"]["site"] = "north"
    with pytest.raises(TimeoutError, match="the node of site 'west' says that it is site 'north'"):
        conduct(plan(tmp_path, start_timeout=5.0), net)


def test_a_site_with_too_few_rows_stays_out(tmp_path):
    with pytest.raises(TimeoutError, match="site 'west' has 6 rows, fewer than its minimum of 10"):
        conduct(plan(tmp_path, start_timeout=5.0), wires(tmp_path, west={"minimum_rows": 10}))


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (FEDPD, {"quorum": 2}, "quorum = 2 of 3: FedPD needs every site in every communication"),
        (FEDADMM, {"quorum": 4}, "quorum = 4 must be from 1 to 3"),
        (FEDADMM, {"quorum": 3, "participation": fd.participation.Uniform(count=2)}, "only 2 sites are picked"),
    ],
)
def test_numbers_of_sites_that_do_not_fit_are_refused_at_the_start(algorithm, settings, message):
    with pytest.raises(ValueError, match=message):
        server_app(algorithm, NAMES, **settings)


def test_more_sites_than_there_are_cannot_be_picked(tmp_path):
    six = fd.participation.Uniform(count=6)
    with pytest.raises(ValueError, match="count = 6 must be an integer from 1 to 3"):
        conduct(plan(tmp_path, FEDADMM, participation=six), wires(tmp_path, FEDADMM))


def test_messages_that_are_too_large_are_refused_at_the_start_with_their_sizes(tmp_path):
    scaffold = fd.SCAFFOLD(GD)
    assert conduct(plan(tmp_path / "a", fd.FedAvg(GD), largest_message=80), wires(tmp_path / "a", fd.FedAvg(GD))).round
    with pytest.raises(Refused, match="one order of SCAFFOLD with 3 parameters takes 96 bytes, more than"):
        conduct(plan(tmp_path / "b", scaffold, largest_message=80), wires(tmp_path / "b", scaffold))


def test_arrays_in_any_other_form_are_refused():
    records = to_records("reply", "{}", {"a": np.arange(3.0)})
    kind, facts, arrays = from_records(records)
    assert (kind, facts, arrays["a"].tolist()) == ("reply", "{}", [0.0, 1.0, 2.0])
    for array in (
        Array(np.zeros(3)),
        Array("float64", (4,), "fedual.bytes", bytes(24)),
        Array("object", (1,), "fedual.bytes", bytes(8)),
    ):
        records["arrays"]["array a"] = array
        with pytest.raises(Refused, match="'array a'"):
            from_records(records)
