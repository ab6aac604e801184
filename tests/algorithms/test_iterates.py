"""Every method against its recursion in plain NumPy, iterate by iterate, with unequal weights and absent clients."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedual as fd
import sites
from fedual.arrays import record
from sites import EVERYONE, SETS, models, path, problem, quadratics, rule

F = quadratics()
S = 1 / F.smoothness
RATE = 0.3 / F.smoothness
EXACT = fd.oracles.Exact()
STEPS = fd.oracles.GradientDescent(steps=4, learning_rate=RATE)

ROWS = {
    "FedADMM": (fd.FedADMM(EXACT, S), lambda sets: sites.fedadmm(F, S, sets)),
    "FedDyn": (fd.FedDyn(EXACT, S), lambda sets: sites.feddyn(F, S, sets)),
    "AFedPD": (fd.AFedPD(EXACT, S), lambda sets: sites.afedpd(F, S, sets)),
    "FedSplit": (fd.FedSplit(EXACT, S), lambda sets: sites.fedsplit(F, S, sets)),
    "FedDR, a = 1": (fd.FedDR(EXACT, S), lambda sets: sites.feddr(F, S, sets, 1.0)),
    "FedDR, a = 1.6": (fd.FedDR(EXACT, S, relaxation=1.6), lambda sets: sites.feddr(F, S, sets, 1.6)),
    "SCAFFOLD, option I": (fd.SCAFFOLD(STEPS, "I"), lambda sets: sites.scaffold(F, 4, RATE, sets, "I")),
    "SCAFFOLD, option II": (fd.SCAFFOLD(STEPS, "II"), lambda sets: sites.scaffold(F, 4, RATE, sets, "II")),
    "FedAvg": (
        fd.FedAvg(STEPS),
        lambda sets: sites.averaging(F, lambda k, theta: F.steps(k, theta, 0, 4, RATE), sets),
    ),
    "FedProx": (
        fd.FedProx(EXACT, mu=0.7),
        lambda sets: sites.averaging(F, lambda k, theta: F.prox(k, theta, 1 / 0.7), sets),
    ),
    "FedOpt": (
        fd.FedOpt(STEPS),
        lambda sets: sites.averaging(F, lambda k, theta: F.steps(k, theta, 0, 4, RATE), sets),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_absent_clients(name):
    algorithm, reference = ROWS[name]
    solutions = path(problem(), algorithm, len(SETS), participation=rule(SETS))
    np.testing.assert_allclose(models(solutions), reference(SETS), rtol=0, atol=1e-13)
    assert solutions[-1].history["communicated"].tolist() == [len(chosen) > 0 for chosen in SETS]
    assert np.diff(solutions[-1].history["uplinks"], prepend=0).tolist() == [len(chosen) for chosen in SETS]


SAME = {
    "ADMM": fd.ADMM(EXACT, S),
    "FedPD": fd.FedPD(EXACT, S),
    "FedADMM": fd.FedADMM(EXACT, S),
    "FedDyn": fd.FedDyn(EXACT, S),
    "AFedPD": fd.AFedPD(EXACT, S),
    "FedDR, a = 1": fd.FedDR(EXACT, S),
}


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("name", SAME)
def test_with_everyone_and_exact_solves_these_are_one_method(name, weights):
    """Server's model, local models and duals agree; the reference is the recursion in NumPy."""
    solutions = path(problem(weights=weights), SAME[name], 8)
    f = quadratics(weights=weights)
    np.testing.assert_allclose(models(solutions), sites.fedadmm(f, S, EVERYONE), rtol=0, atol=1e-13)
    last = solutions[-1]
    gradients = np.array([f.gradient(k, x) for k, x in enumerate(last.thetas)])
    np.testing.assert_allclose(last.duals, -gradients, rtol=0, atol=1e-12)  # each x minimizes its subproblem
    anchor = solutions[-2].theta
    expected = [f.prox(k, anchor - S * d, S) for k, d in enumerate(solutions[-2].duals)]
    np.testing.assert_allclose(last.thetas, expected, rtol=0, atol=1e-12)


def test_fedsplit_with_everyone():
    np.testing.assert_allclose(
        models(path(problem(), fd.FedSplit(EXACT, S), 8)), sites.fedsplit(F, S, EVERYONE), rtol=0, atol=1e-13
    )


def test_fedadmm_skips_by_the_coin_and_holds_participants_for_the_stretch():
    skips = [True, True, False, True, False, False, True, False]
    stretches = [(0, 2), (1, 2, 3), (3,), (0, 1)]
    by_round, number = [], 0
    for skip in skips:
        by_round.append(stretches[number])
        number += not skip
    solutions = path(
        problem(), fd.FedADMM(EXACT, S), 8, participation=rule(stretches), schedule=fd.schedules.Explicit(skips)
    )
    np.testing.assert_allclose(models(solutions), sites.fedadmm(F, S, by_round, skips), rtol=0, atol=1e-13)
    assert solutions[-1].history["downlinks"][-1] == sum(map(len, stretches))


def test_fedpd_skips_as_fedadmm_does():
    skips = [True, False, True, True, False, False, True, False]
    for algorithm in (fd.FedPD(EXACT, S), fd.FedADMM(EXACT, S)):
        got = models(path(problem(), algorithm, 8, schedule=fd.schedules.Explicit(skips)))
        np.testing.assert_allclose(got, sites.fedadmm(F, S, EVERYONE, skips), rtol=0, atol=1e-13)


def test_proxskip_follows_its_own_coin():
    solutions = path(problem(), fd.ProxSkip(learning_rate=RATE, skip_probability=0.4), 40, seed=3)
    silent = ~solutions[-1].history["communicated"]
    # Only a skip between communications shows what h_k is: without one its mean, which is 0, is all that acts.
    assert np.sum(silent[1:-1] & ~silent[:-2]) >= 3
    np.testing.assert_allclose(models(solutions), sites.proxskip(F, RATE, 0.4, silent), rtol=0, atol=1e-13)
    for solution in solutions:
        np.testing.assert_allclose(F.w @ sites.parts(solution, "control"), 0, atol=1e-14)


def test_proxskip_settles_its_rate_for_all_clients():
    f, algorithm = quadratics(), fd.ProxSkip(skip_probability=0.4)
    solutions = path(problem(), algorithm, 20, seed=3)
    silent = ~solutions[-1].history["communicated"]
    expected = sites.proxskip(f, 1 / f.smoothness, 0.4, silent)
    np.testing.assert_allclose(models(solutions), expected, rtol=0, atol=1e-12)


ONE = fd.oracles.GradientDescent(steps=1, learning_rate=RATE)


@pytest.mark.parametrize(
    "algorithm",
    [fd.FedAvg(ONE), fd.SCAFFOLD(ONE), fd.SCAFFOLD(ONE, "I"), fd.ProxSkip(RATE, 0.0), fd.FedOpt(ONE)],
    ids=["FedAvg", "SCAFFOLD II", "SCAFFOLD I", "ProxSkip", "FedOpt"],
)
def test_with_one_local_step_these_are_gradient_descent(algorithm):
    theta, expected = np.zeros(3), []
    for _ in range(8):
        theta = theta - RATE * sum(w * F.gradient(k, theta) for k, w in enumerate(F.w))
        expected.append(theta)
    np.testing.assert_allclose(models(path(problem(), algorithm, 8)), expected, rtol=0, atol=1e-13)


@record
class Frozen(fd.FedPD):
    """FedPD whose duals stay at 0."""

    def update(self, client, x, work):
        client, _ = super().update(client, x, work)
        return client._replace(dual=jnp.zeros_like(x)), x


def test_fedpd_without_duals_is_fedprox():
    mu = 0.7
    frozen, prox = path(problem(), Frozen(EXACT, 1 / mu), 8), path(problem(), fd.FedProx(EXACT, mu=mu), 8)
    np.testing.assert_allclose(models(frozen), models(prox), rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        models(prox),
        sites.averaging(F, lambda k, theta: F.prox(k, theta, 1 / mu), EVERYONE),
        rtol=0,
        atol=1e-13,
    )


def test_fedprox_without_mu_is_fedavg_bit_for_bit_and_with_a_huge_one_stays():
    averaged = fd.solve(problem(), fd.FedAvg(STEPS), 20, evaluate_every=1000)
    proximal = fd.solve(problem(), fd.FedProx(STEPS, mu=0.0), 20, evaluate_every=1000)
    assert proximal.theta.tobytes() == averaged.theta.tobytes()
    start = np.array([1.0, -2.0, 3.0])
    held = fd.solve(problem(), fd.FedProx(EXACT, mu=1e8), 1, theta0=start, evaluate_every=1000)
    np.testing.assert_allclose(held.thetas, np.tile(start, (4, 1)), atol=1e-6)
    assert not np.array_equal(held.theta, start)
