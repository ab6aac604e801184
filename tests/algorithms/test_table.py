"""Methods x problems: each row says whether the method reaches the pooled optimum or keeps a bias, and is held to it.

Settings come from the smoothness constant L alone. At most 500 communications.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy import optimize

import fedual as fd
import sites
from sites import FEATURES, L2, problem, quadratics, rule, tables

EXACT = fd.oracles.Exact()
NEWTON = fd.oracles.Newton(1e-13)
OPTIMUM, BIAS = "reaches the optimum", "keeps a bias"


def steps(smoothness: float) -> fd.oracles.GradientDescent:
    return fd.oracles.GradientDescent(steps=4, learning_rate=0.3 / smoothness)


#: name: (the method for an L, with everyone, with absent clients; None where they are refused)
ROWS = {
    "ADMM": (lambda L: fd.ADMM(EXACT, 1 / L), OPTIMUM, None),
    "FedPD": (lambda L: fd.FedPD(EXACT, 1 / L), OPTIMUM, None),
    "FedADMM": (lambda L: fd.FedADMM(EXACT, 1 / L), OPTIMUM, OPTIMUM),
    "FedDyn": (lambda L: fd.FedDyn(EXACT, 1 / L), OPTIMUM, OPTIMUM),
    "AFedPD": (lambda L: fd.AFedPD(EXACT, 1 / L), OPTIMUM, OPTIMUM),
    "FedSplit": (lambda L: fd.FedSplit(EXACT, 1 / L), OPTIMUM, OPTIMUM),
    "FedDR, a = 1": (lambda L: fd.FedDR(EXACT, 1 / L), OPTIMUM, OPTIMUM),
    "FedDR, a = 1.6": (lambda L: fd.FedDR(EXACT, 1 / L, relaxation=1.6), OPTIMUM, OPTIMUM),
    "SCAFFOLD, option I": (lambda L: fd.SCAFFOLD(steps(L), "I"), OPTIMUM, OPTIMUM),
    "SCAFFOLD, option II": (lambda L: fd.SCAFFOLD(steps(L), "II"), OPTIMUM, OPTIMUM),
    "ProxSkip": (lambda L: fd.ProxSkip(1 / L, 0.4), OPTIMUM, None),
    "FedAvg": (lambda L: fd.FedAvg(steps(L)), BIAS, BIAS),
    "FedProx": (lambda L: fd.FedProx(EXACT, mu=L / 2), BIAS, BIAS),
    "FedOpt": (lambda L: fd.FedOpt(steps(L)), BIAS, BIAS),
}
CASES = [
    pytest.param(name, verdict, participation, id=f"{name}, {label}")
    for name, (_, *verdicts) in ROWS.items()
    for verdict, participation, label in zip(verdicts, (None, rule()), ("everyone", "absent clients"), strict=True)
    if verdict
]


def check(verdict: str, solution: fd.Solution, optimum: np.ndarray) -> None:
    error = np.linalg.norm(solution.theta - optimum)
    assert solution.history["communications"][-1] <= 500
    if verdict == OPTIMUM:
        assert error < 1e-8
    else:
        assert 1e-3 < error < 1


@pytest.mark.parametrize(("seed", "weights"), [(0, "samples"), (1, "uniform")])
@pytest.mark.parametrize(("name", "verdict", "participation"), CASES)
def test_ridge(name, verdict, participation, seed, weights):
    f = quadratics(seed, weights)
    algorithm = ROWS[name][0](f.smoothness)
    solution = fd.solve(problem(seed, weights), algorithm, 500, participation=participation, evaluate_every=1000)
    check(verdict, solution, f.optimum)
    if verdict == OPTIMUM and name != "SCAFFOLD, option I":
        # At the optimum every multiplier is minus its client's gradient there, and their mean vanishes.
        expected = [-f.gradient(k, f.optimum) for k in range(len(f.w))]
        np.testing.assert_allclose(solution.duals, expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(f.w @ solution.duals, 0, atol=1e-7)


@lru_cache
def logistic() -> tuple[fd.Problem, np.ndarray]:
    """The same features with labels, and the pooled optimum by SciPy."""
    pairs = [(x, (y > np.median(y)).astype(int)) for x, y in tables()]
    x = np.concatenate([x for x, _ in pairs])
    b = np.concatenate([2 * y - 1 for _, y in pairs])

    def gradient(theta: np.ndarray) -> np.ndarray:
        return -x.T @ (b / (1 + np.exp(b * (x @ theta)))) / len(b) + L2 * theta

    root = optimize.root(gradient, np.zeros(FEATURES), tol=1e-14)
    return fd.Problem(fd.losses.logistic(l2=L2), fd.data.from_arrays(pairs)), root.x


LOGISTIC = {
    "FedPD": (lambda L: fd.FedPD(fd.oracles.GradientDescent(steps=4), 3 / L), None, OPTIMUM),
    "FedADMM": (lambda L: fd.FedADMM(NEWTON, 3 / L), rule(), OPTIMUM),
    "FedDyn": (lambda L: fd.FedDyn(NEWTON, 3 / L), rule(), OPTIMUM),
    "FedDR": (lambda L: fd.FedDR(NEWTON, 3 / L), rule(), OPTIMUM),
    "SCAFFOLD": (lambda L: fd.SCAFFOLD(steps(L)), rule(), OPTIMUM),
    "FedAvg": (lambda L: fd.FedAvg(steps(L)), None, BIAS),
}


@pytest.mark.parametrize("name", LOGISTIC)
def test_logistic(name):
    method, participation, verdict = LOGISTIC[name]
    logistic_problem, optimum = logistic()
    L = float(logistic_problem.smoothness().max())
    solution = fd.solve(logistic_problem, method(L), 500, participation=participation, evaluate_every=1000)
    check(verdict, solution, optimum)


@pytest.mark.parametrize("name", ["ADMM", "FedPD", "FedADMM", "FedDyn", "AFedPD", "FedSplit", "FedDR", "SCAFFOLD"])
def test_without_any_setting(name):
    """`fd.FedPD()` alone works: everything comes from L."""
    f = quadratics()
    solution = fd.solve(problem(), getattr(fd, name)(), 500, evaluate_every=1000)
    check(OPTIMUM, solution, f.optimum)


@pytest.mark.parametrize("name", ["FedDR", "FedSplit", "FedADMM", "FedDyn", "AFedPD"])
def test_a_changing_step_size_leaves_the_optimum(name):
    """s changes at communications; a client takes it over when it next takes part."""
    f = quadratics()
    algorithm = getattr(fd, name)(EXACT, 1 / f.smoothness)
    factors = [((1.0, 3.0, 0.4)[t % 3], t + 1) for t in range(24)]
    solution = with_changing_step(algorithm, [*factors, (1.0, 400)], participation=rule())
    check(OPTIMUM, solution, f.optimum)
    assert set(np.round(solution.history["s"] * f.smoothness, 6)) == {0.4, 1.0, 3.0}


@pytest.mark.parametrize("name", ["FedDR", "FedSplit"])
def test_rescaling_keeps_the_multipliers(name):
    """At the optimum another s moves nothing: the duals carried by y_k and z_k stay what they are."""
    f = quadratics()
    algorithm = getattr(fd, name)(EXACT, 1 / f.smoothness)
    solution = with_changing_step(algorithm, [(1.0, 200), (5.0, 202), (0.2, 204)])
    np.testing.assert_allclose(solution.theta, f.optimum, rtol=0, atol=1e-12)
    np.testing.assert_allclose(solution.duals, [-f.gradient(k, f.optimum) for k in range(4)], rtol=0, atol=1e-11)


def with_changing_step(algorithm, factors, **kwargs):
    """Pairs (f, T): up to round T the step size is f times the algorithm's own."""
    solution = None
    for factor, last in factors:
        state = None
        if solution is not None:
            device = replace(solution.state.device, step_size=np.asarray(factor * algorithm.step_size))
            state = replace(solution.state, device=device)
        solution = fd.solve(problem(), algorithm, last, evaluate_every=1000, state=state, **kwargs)
    return solution


def test_the_ridge_reference_is_scikit_learns():
    from sklearn.linear_model import Ridge

    pairs = tables()
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    pooled = Ridge(alpha=L2 * len(y), fit_intercept=False).fit(x, y)
    np.testing.assert_allclose(sites.quadratics().optimum, pooled.coef_, rtol=1e-10)
