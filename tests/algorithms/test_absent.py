"""Partial participation: absent is not silent, the server's books cover everybody, and two traps."""

from dataclasses import replace
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

import fedual as fd
from fedual.arrays import record
from fedual.protocols import Participation
from sites import NAMES, SETS, WEIGHTS, parts, path, problem, quadratics, rule

F = quadratics()
S = 1 / F.smoothness
EXACT = fd.oracles.Exact()
STEPS = fd.oracles.GradientDescent(steps=4, learning_rate=0.3 / F.smoothness)
PARTIAL = [
    fd.FedADMM(EXACT, S), fd.FedDyn(EXACT, S), fd.AFedPD(EXACT, S), fd.FedSplit(EXACT, S), fd.FedDR(EXACT, S),
    fd.SCAFFOLD(STEPS), fd.FedAvg(STEPS), fd.FedProx(EXACT, mu=0.7), fd.FedOpt(STEPS),
]  # fmt: skip


def client_leaves(solution: fd.Solution, k: int) -> list[np.ndarray]:
    """Everything that is kept for client k."""
    device = solution.state.device
    return [np.asarray(leaf)[k] for leaf in jax.tree.leaves((device.clients, device.carries, device.records))]


@pytest.mark.parametrize("algorithm", PARTIAL, ids=lambda a: a.name)
def test_an_absent_client_keeps_its_state(algorithm):
    assert len(problem().layout().buckets) == 1  # so that positions in the state are the clients'
    solutions = path(problem(), algorithm, len(SETS), participation=rule())
    for before, after, chosen in zip(solutions, solutions[1:], SETS[1:], strict=False):
        for k in range(len(WEIGHTS)):
            pairs = zip(client_leaves(before, k), client_leaves(after, k), strict=True)
            same = all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
            assert same == (k not in chosen)
        if not chosen:
            assert np.array_equal(before.theta, after.theta)


@pytest.mark.parametrize("algorithm", PARTIAL, ids=lambda a: a.name)
def test_what_an_absent_client_holds_does_not_reach_the_server(algorithm):
    """The local models of clients that are absent in round 4 are set to 1e9 before it."""
    before = path(problem(), algorithm, 3, participation=rule())[-1]
    device = before.state.device
    absent = np.isin(np.arange(4), SETS[3], invert=True)[:, None]
    spoilt = tuple(c._replace(model=np.where(absent, 1e9, c.model)) for c in device.clients)
    outcomes = []
    for clients in (device.clients, spoilt):
        state = replace(before.state, device=replace(device, clients=clients))
        outcomes.append(fd.solve(problem(), algorithm, 4, participation=rule(), evaluate_every=1000, state=state).theta)
    assert outcomes[0].tobytes() == outcomes[1].tobytes()


def test_a_silent_client_works_where_an_absent_one_rests():
    skips = fd.schedules.Explicit([False, True, True, False])
    sets = ((0, 1, 2, 3), (0, 2))
    solutions = path(problem(), fd.FedADMM(EXACT, S), 4, participation=rule(sets), schedule=skips)
    for before, after, silent in zip(solutions, solutions[1:], (True, True, False), strict=False):
        assert np.array_equal(before.theta, after.theta) == silent
        for k in range(4):
            moved = any(
                not np.array_equal(a, b) for a, b in zip(client_leaves(before, k), client_leaves(after, k), strict=True)
            )
            assert moved == (k in (0, 2))
    history = solutions[-1].history
    assert history["uplinks"].tolist() == [4, 4, 4, 6]
    assert history["downlinks"].tolist() == [4, 6, 6, 6]  # the broadcast of round 2 serves the whole stretch


def test_the_servers_memory_is_the_mean_over_all_clients():
    """After each round, whoever took part, and clients seen for the first time late."""
    for solution in path(problem(), fd.SCAFFOLD(STEPS), 8, participation=rule()):
        np.testing.assert_allclose(solution.state.device.server.control, F.w @ parts(solution, "control"), atol=1e-13)
    for solution in path(problem(), fd.FedDyn(EXACT, S), 8, participation=rule()):
        np.testing.assert_allclose(solution.state.device.server.memory, -F.w @ parts(solution, "dual"), atol=1e-13)
    for algorithm in (fd.FedADMM(EXACT, S), fd.FedSplit(EXACT, S), fd.FedDR(EXACT, S)):
        for solution in path(problem(), algorithm, 8, participation=rule()):
            np.testing.assert_allclose(solution.state.device.server.mean, F.w @ parts(solution, "sent"), atol=1e-13)
    for solution in path(problem(), fd.AFedPD(EXACT, S), 8, participation=rule()):
        mean = np.asarray(solution.state.device.server.dual)
        present = parts(solution, "dual") + mean - parts(solution, "aligned")  # as each would return
        np.testing.assert_allclose(mean, F.w @ present, atol=1e-13)


@record
class OfParticipantsOnly(fd.FedADMM):
    """The first trap: the mean of the messages of those who happen to be there."""

    def update(self, client, x, work):
        client, change = super().update(client, x, work)
        return client, change + client.sent

    def sent(self, client, message):
        return client._replace(sent=message)

    def aggregate(self, server, total, weight, prox):
        return server._replace(theta=total / weight), total / weight


@record
class FromZero(fd.FedADMM):
    """The second trap: messages count as 0 before the first one, though theta starts elsewhere."""

    def init(self, theta):
        server, client = super().init(theta)
        return server, client._replace(sent=0 * client.sent)


@pytest.mark.parametrize("trap", [OfParticipantsOnly, FromZero])
def test_two_traps_end_in_a_wrong_point_that_looks_fine(trap):
    start = np.array([1.0, -1.0, 2.0])
    options = {"participation": rule(), "theta0": start, "evaluate_every": 1000}
    right = fd.solve(problem(), fd.FedADMM(EXACT, S), 500, **options)
    wrong = fd.solve(problem(), trap(EXACT, S), 500, **options)
    np.testing.assert_allclose(right.theta, F.optimum, atol=1e-9)
    assert np.isfinite(wrong.theta).all()
    assert np.linalg.norm(wrong.theta - F.optimum) > 1e-2


@pytest.mark.parametrize("method", [fd.ADMM, fd.FedPD, fd.ProxSkip])
def test_partial_participation_is_refused_where_the_mathematics_needs_everyone(method):
    with pytest.raises(ValueError, match=rf"{method.__name__} does not allow partial participation: .*FedADMM"):
        fd.solve(problem(), method(), 1, participation=fd.participation.Uniform(count=2))


@pytest.mark.parametrize(
    "algorithm", [a for a in PARTIAL if a.name != "FedADMM"] + [fd.ADMM()], ids=lambda a: a.name
)  # fmt: skip
def test_a_skipping_schedule_is_refused_by_name(algorithm):
    with pytest.raises(ValueError, match=rf"{algorithm.name} cannot skip rounds: .*FedPD"):
        fd.solve(problem(), algorithm, 1, schedule=fd.schedules.Skip(0.5))


def test_proxskip_refuses_a_second_coin():
    with pytest.raises(ValueError, match="ProxSkip brings its own coin"):
        fd.solve(problem(), fd.ProxSkip(), 1, schedule=fd.schedules.Skip(0.5))


def test_aligned_duals_need_two_participants():
    """With one a round all duals move alike, so that they cannot come to differ."""
    one = fd.solve(problem(), fd.AFedPD(EXACT, S), 500, participation=rule(((0,), (1,), (2,), (3,))))
    assert np.linalg.norm(one.theta - F.optimum) > 1e-2
    present = parts(one, "dual") - parts(one, "aligned")
    np.testing.assert_allclose(present - present[0], 0, atol=1e-12)


def outcomes(algorithm, participation, seeds):
    """The server's model after one round, by who took part."""
    found = {}
    for seed in range(seeds):
        solution = fd.solve(problem(), algorithm, 1, participation=participation, seed=seed, evaluate_every=1000)
        who = tuple(np.flatnonzero(np.asarray(solution.state.device.active)).tolist())
        found.setdefault(who, solution.theta)
    return found


def full_update(algorithm):
    return fd.solve(problem(), algorithm, 1, evaluate_every=1000).theta


UNBIASED = fd.FedAvg(STEPS, averaging="unbiased")


def test_uniform_sampling_leaves_the_weights_to_the_mean():
    found = outcomes(UNBIASED, fd.participation.Uniform(count=1), 40)
    assert set(found) == {(0,), (1,), (2,), (3,)}  # equally likely, which the tests of the rule check
    np.testing.assert_allclose(np.mean(list(found.values()), axis=0), full_update(fd.FedAvg(STEPS)), atol=1e-14)
    biased = outcomes(fd.FedAvg(STEPS), fd.participation.Uniform(count=1), 40)
    assert np.linalg.norm(np.mean(list(biased.values()), axis=0) - full_update(fd.FedAvg(STEPS))) > 1e-2


@record
class Outcome(Participation):
    """One outcome of an independent draw with the given chances."""

    flags: Any
    odds: Any

    def chances(self, count: int) -> Any:
        return self.odds

    def draw(self, uniform: Any, stretch: Any) -> Any:
        return self.flags


@pytest.mark.parametrize("chances", [np.full(4, 0.5), 0.9 * WEIGHTS / WEIGHTS.max()], ids=["equal", "by size"])
def test_sampling_by_size_takes_the_weights_out_of_the_mean(chances):
    """Every one of the 16 outcomes with its probability; a round without anybody leaves theta where it was."""
    expected = np.zeros(3)
    for flags in product([False, True], repeat=4):
        outcome = Outcome(np.array(flags), chances)
        found = fd.solve(problem(), UNBIASED, 1, participation=outcome, evaluate_every=1000).theta
        expected += np.prod(np.where(flags, chances, 1 - chances)) * found
    np.testing.assert_array_equal(fd.participation.Bernoulli(chances).bind(NAMES).chances(4), chances)
    np.testing.assert_allclose(expected, full_update(fd.FedAvg(STEPS)), atol=1e-13)


def test_with_equal_weights_the_participants_mean_is_unbiased_too():
    own = problem(weights="uniform")
    found = {}
    for seed in range(40):
        solution = fd.solve(
            own, fd.FedAvg(STEPS), 1, participation=fd.participation.Uniform(count=1), seed=seed, evaluate_every=1000
        )
        found[int(np.argmax(solution.state.device.active))] = solution.theta
    full = fd.solve(own, fd.FedAvg(STEPS), 1, evaluate_every=1000).theta
    np.testing.assert_allclose(np.mean(list(found.values()), axis=0), full, atol=1e-14)


def test_unbiased_averaging_needs_chances():
    with pytest.raises(ValueError, match=r"FedAvg with these settings divides by .* Availability has none"):
        fd.solve(problem(), UNBIASED, 1, participation=rule())


def test_clients_may_have_oracles_of_their_own_and_one_solves_poorly():
    poor = fd.oracles.GradientDescent(steps=1, learning_rate=0.2 / F.smoothness)
    mixed = fd.oracles.PerClient({NAMES[1]: poor, NAMES[3]: fd.oracles.Newton(1e-12)}, default=EXACT)
    solution = fd.solve(problem(), fd.FedADMM(mixed, S), 500, participation=rule(), evaluate_every=1000)
    np.testing.assert_allclose(solution.theta, F.optimum, rtol=0, atol=1e-8)
    one = fd.solve(problem(), fd.FedADMM(mixed, S), 1, participation=rule(), evaluate_every=1000)
    np.testing.assert_allclose(one.thetas[0], F.prox(0, np.zeros(3), S), atol=1e-13)
    first = fd.solve(problem(), fd.FedPD(mixed, S), 1, evaluate_every=1000)
    expected = [F.prox(k, np.zeros(3), S) for k in range(4)]
    expected[1] = 0.2 / F.smoothness * F.q[1]  # one gradient step from 0
    np.testing.assert_allclose(first.thetas, expected, rtol=0, atol=1e-12)


def test_clients_may_differ_in_steps_and_rates():
    """Each divides by its own Q and eta."""
    rates = np.array([0.1, 0.4, 0.2, 0.3]) / F.smoothness
    oracle = fd.oracles.GradientDescent(steps=(1, 6, 3, 2), learning_rate=rates)
    for algorithm in (fd.SCAFFOLD(oracle), fd.FedADMM(oracle, S)):
        solution = fd.solve(problem(), algorithm, 500, participation=rule(), evaluate_every=1000)
        np.testing.assert_allclose(solution.theta, F.optimum, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("oracle", "message"),
    [
        (fd.oracles.PerClient({"nobody": EXACT}, default=EXACT), r"oracles are given for \['nobody'\]"),
        (fd.oracles.PerClient({NAMES[0]: EXACT}), "client 'client 1' has None for its oracle"),
        (fd.oracles.PerClient({NAMES[0]: 3}, default=EXACT), "client 'client 0' has 3 for its oracle"),
    ],
)
def test_per_client_oracles_are_checked(oracle, message):
    with pytest.raises(ValueError, match=message):
        fd.solve(problem(), fd.FedPD(oracle, S), 1)
