"""Messages that come twice, late, out of order or damaged, crashes around the save, clients that stay away."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fedual as fd
from deployed import Federation, over_the_wire
from fedual.engine.message import Refused
from fedual.flower.store import SiteFolder

NAMES = ("north", "south", "west")


def problem(regularizer=None) -> fd.Problem:
    rng = np.random.default_rng(3)
    pairs = [(rng.normal(size=(6, 3)) + k, rng.normal(size=6) - k) for k in range(3)]
    loss = fd.losses.least_squares(l2=0.5)
    return fd.Problem(loss, fd.data.from_arrays(pairs, names=NAMES), regularizer=regularizer)


fedpd = fd.FedPD(fd.oracles.GradientDescent(steps=8, learning_rate=0.15), step_size=1.0)
fedadmm = fd.FedADMM(fd.oracles.GradientDescent(steps=8, learning_rate=0.15), step_size=1.0)
SKIP = {"schedule": fd.schedules.Skip(0.4), "rounds": 12, "seed": 5}


class Crash(Exception):
    pass


def final(federation: Federation):
    *_, state = federation.run()
    return state, federation.coordinator.theta(state)


@pytest.fixture(scope="module")
def undisturbed():
    return final(Federation(problem(), fedpd, SKIP))


def crashing_run(tmp_path, point: str, number: int):
    """A run whose site "south" dies once, at a point of a stretch, and comes back with what its folder holds."""
    federation = Federation(problem(), fedpd, SKIP)
    died = []

    def at(where: str) -> None:
        if where == point and not died and current == number:
            died.append(where)
            raise Crash

    coordinator = federation.coordinator
    state = coordinator.start("run-1")
    while (stretch := coordinator.plan(state)) is not None:
        current, replies = stretch.number, {}
        for name in stretch.active:
            order = over_the_wire(coordinator.order(state, stretch, name))
            while name not in replies:
                # Every attempt is a fresh process: nothing survives but the folder.
                folder = SiteFolder(tmp_path / name, at)
                site = type(federation.sites[name])(federation.sites[name].problem, fedpd, NAMES)
                try:
                    reply = over_the_wire(folder.serve(site, order))
                    if name == "south":
                        at("after reply")
                    replies[name] = reply
                except Crash:
                    continue
            coordinator.check(state, stretch, replies[name])
        state = coordinator.close(state, stretch, replies)
    assert died == [point]
    return coordinator.theta(state)


@pytest.mark.parametrize("point", ["before save", "after save", "after reply"])
def test_a_site_that_dies_at_any_point_changes_nothing(tmp_path, undisturbed, point):
    np.testing.assert_array_equal(crashing_run(tmp_path, point, 3), undisturbed[1])


def stretches(federation: Federation, count: int):
    """The server's state after `count` communications, and the orders and replies of the last one."""
    coordinator, state = federation.coordinator, federation.coordinator.start("test")
    for _ in range(count):
        stretch = coordinator.plan(state)
        before, orders, replies = state, {}, {}
        for name in stretch.active:
            orders[name] = coordinator.order(state, stretch, name)
            federation.kept[name], replies[name] = federation.sites[name].work(federation.kept[name], orders[name])
        state = coordinator.close(state, stretch, replies)
    return before, stretch, orders, replies, state


def test_the_same_order_again_is_answered_by_the_stored_reply():
    federation = Federation(problem(), fedpd, SKIP)
    _, _, orders, replies, _ = stretches(federation, 2)
    kept = federation.kept["north"]
    again, reply = federation.sites["north"].work(kept, over_the_wire(orders["north"]))
    assert again is kept
    assert reply.digest() == replies["north"].digest()


def test_an_old_order_is_dropped_and_a_gap_is_refused():
    federation = Federation(problem(), fedpd, SKIP)
    _, _, old, _, _ = stretches(federation, 1)
    federation.kept = dict.fromkeys(NAMES)
    *_, state = stretches(federation, 3)
    north, kept = federation.sites["north"], federation.kept["north"]
    with pytest.raises(Refused, match="'north' is at stretch 3; an order for stretch 1 is dropped") as refusal:
        north.work(kept, old["north"])
    assert refusal.value.kind == "old"
    following = federation.coordinator.order(state, federation.coordinator.plan(state), "north")
    with pytest.raises(Refused, match="has no state of run test, but its reply 3 was accepted"):
        north.work(None, following)
    older = dataclasses.replace(kept, number=2, accepted=1)
    with pytest.raises(Refused, match="holds stretch 2, and 1 before it; the coordinator accepted its reply 3"):
        north.work(older, following)


def test_a_late_reply_is_dropped():
    federation = Federation(problem(), fedpd, SKIP)
    _, _, _, replies, state = stretches(federation, 2)
    with pytest.raises(Refused, match="for stretch 2; stretch 3 is due") as refusal:
        federation.coordinator.check(state, federation.coordinator.plan(state), replies["west"])
    assert refusal.value.kind == "old"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"message": {"": np.zeros(4)}}, r"'west', message: array '' is float64 \(4,\); expected float64 \(3,\)"),
        ({"message": {"": np.zeros(3, np.float32)}}, r"is float32 \(3,\); expected float64 \(3,\)"),
        ({"message": {"": np.array([0, np.nan, 0])}}, r"array '' holds nan at \(1,\)"),
        ({"message": {"x": np.zeros(3)}}, r"arrays missing: \[''\]; not expected: \['x'\]"),
        ({"gradient": {"": np.zeros(3)}}, "gradient: arrays missing"),
        ({"rows": 7}, "counts 7 rows; it declared 6"),
        ({"run": "other"}, "for run other; this is run test"),
        ({"site": "east"}, "'east': that site does not take part"),
        ({"gap": float("inf")}, "gap = inf"),
    ],
)
def test_a_wrong_reply_is_refused_by_name(change, message):
    federation = Federation(problem(), fedpd, SKIP)
    before, stretch, _, replies, _ = stretches(federation, 1)
    with pytest.raises(Refused, match=message):
        federation.coordinator.check(before, stretch, dataclasses.replace(replies["west"], **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"site": "south"}, "site 'north' got an order for site 'south'"),
        ({"rows": 9}, "site 'north' has 6 rows; the coordinator counts 9"),
        ({"broadcast": {"": np.full(3, np.inf)}}, "order for site 'north', broadcast: array '' holds inf"),
        ({"broadcast": {"": np.zeros(2)}}, r"is float64 \(2,\); expected float64 \(3,\)"),
        ({"settings": {"code": 1.0}}, r"FedPD has no settings \['code'\]"),
    ],
)
def test_a_wrong_order_is_refused_by_name(change, message):
    federation = Federation(problem(), fedpd, SKIP)
    _, _, orders, _, _ = stretches(federation, 1)
    with pytest.raises(Refused, match=message):
        federation.sites["north"].work(None, dataclasses.replace(orders["north"], **change))


def test_a_folder_of_another_site_is_refused():
    federation = Federation(problem(), fedpd, SKIP)
    *_, state = stretches(federation, 1)
    order = federation.coordinator.order(state, federation.coordinator.plan(state), "north")
    with pytest.raises(Refused, match="'north': its folder holds the state of site 'south'"):
        federation.sites["north"].work(federation.kept["south"], order)


def test_data_that_changed_during_a_run_are_refused():
    federation = Federation(problem(), fedpd, SKIP)
    *_, state = stretches(federation, 1)
    order = federation.coordinator.order(state, federation.coordinator.plan(state), "north")
    kept = dataclasses.replace(federation.kept["north"], data="other")
    with pytest.raises(Refused, match="'north': the data have changed since the run began"):
        federation.sites["north"].work(kept, order)


def test_what_is_not_a_message_is_refused():
    from fedual.engine.message import Order

    for facts in ("", "[]", '{"run": 1}', "NaN"):
        with pytest.raises(Refused, match="a message"):
            Order.from_parts(facts, {})


def test_a_site_whose_replies_are_lost_counts_as_absent_and_returns():
    """FedADMM with "south" unheard in stretches 2 and 3 is FedADMM with south absent then, duals included."""
    p = problem()
    absent = fd.participation.Explicit([NAMES, ("north", "west"), ("north", "west")])
    settings = {"schedule": fd.schedules.Periodic(2), "rounds": 12}
    expected = fd.solve(p, fedadmm, participation=absent, **settings)
    federation = Federation(p, fedadmm, settings, absent={2: ("south",), 3: ("south",)})
    _, theta = final(federation)
    np.testing.assert_allclose(theta, expected.theta, atol=1e-12)
    thetas, duals = federation.local()
    np.testing.assert_allclose(thetas, expected.thetas, atol=1e-12)
    np.testing.assert_allclose(duals, expected.duals, atol=1e-12)


def test_fedpd_does_not_close_a_stretch_without_everyone():
    federation = Federation(problem(), fedpd, SKIP, absent={2: ("south",)})
    with pytest.raises(ValueError, match=r"FedPD cannot close stretch 2 without \['south'\]"):
        final(federation)


def test_the_tolerance_stops_where_the_simulation_stops():
    p, settings = problem(), {"rounds": 300, "tolerance": 1e-8}
    expected = fd.solve(p, fedpd, **settings)
    federation = Federation(p, fedpd, settings)
    state, theta = final(federation)
    assert (state.status, state.round) == ("converged", expected.history.rounds)
    np.testing.assert_allclose(theta, expected.theta, atol=1e-12)
    thetas, duals = federation.local()  # the stretch that brought the gradients is undone at the sites
    np.testing.assert_allclose(thetas, expected.thetas, atol=1e-12)
    np.testing.assert_allclose(duals, expected.duals, atol=1e-12)
    history = state.ledger.history
    for column in ("round", "communicated", "uplinks", "downlinks", "primal_residual", "dual_residual", "objective"):
        np.testing.assert_allclose(history[column], expected.history[column], atol=1e-10, err_msg=column)
    np.testing.assert_allclose(history["stationarity"], expected.history["stationarity"], atol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "settings", "regularizer"),
    [
        (fedpd, {}, None),
        (fedpd, {"schedule": fd.schedules.Decay(20)}, None),
        (fedadmm, {"participation": fd.participation.Uniform(count=2)}, None),
        (fedpd, {}, fd.prox.l1(0.05)),
    ],
)
def test_the_relative_tolerance_stops_where_the_simulation_stops(algorithm, settings, regularizer):
    p, settings = problem(regularizer), {"rounds": 300, "relative_tolerance": 1e-5, **settings}
    expected = fd.solve(p, algorithm, **settings)
    assert expected.converged
    state, theta = final(Federation(p, algorithm, settings))
    assert (state.status, state.round) == ("converged", expected.history.rounds)
    np.testing.assert_allclose(theta, expected.theta, atol=1e-12)


def test_automatic_settings_need_what_the_sites_tell():
    from fedual.engine.coordinator import Coordinator

    with pytest.raises(ValueError, match="step_size = 'auto' needs the smoothness constant L_k of every site"):
        Coordinator(fd.FedPD(), np.zeros(3), NAMES, [6, 6, 6])
