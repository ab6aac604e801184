"""A deployment computes what the simulation computes."""

from __future__ import annotations

import numpy as np
import pytest

import fedual as fd
from deployed import Federation


def problem(loss=None, regularizer=None, sizes=(6, 6, 6)) -> fd.Problem:
    rng = np.random.default_rng(3)
    pairs = [(rng.normal(size=(n, 3)) + k, rng.integers(0, 2, n).astype(float)) for k, n in enumerate(sizes)]
    clients = fd.data.from_arrays(pairs, names=["north", "south", "west"])
    return fd.Problem(loss or fd.losses.logistic(l2=0.05), clients, regularizer=regularizer)


gd = fd.oracles.GradientDescent(steps=3, learning_rate=0.2)
skip = {"schedule": fd.schedules.Skip(0.4)}
two = {"participation": fd.participation.Uniform(count=2)}
some = {"participation": fd.participation.Bernoulli(0.4)}

CASES = {
    "FedPD": (fd.FedPD(gd, step_size=1.0), skip),
    "FedPD auto": (fd.FedPD(), skip),
    "FedPD adaptive": (fd.FedPD(gd, step_size=fd.Auto(start=2.0)), {"schedule": fd.schedules.Adaptive(1e-9)}),
    "FedPD SGD": (fd.FedPD(fd.oracles.StochasticGradient(steps=[2, 5, 3], learning_rate=0.1), step_size=1.0), skip),
    "FedPD VR": (fd.FedPD(fd.oracles.VarianceReduced(4, np.array([0.1, 0.2, 0.3]), 2, refresh=3), step_size=1.0), skip),
    "FedPD mixed": (
        fd.FedPD(fd.oracles.PerClient({"south": gd}, default=fd.oracles.Newton(1e-12)), step_size=2.0),
        {"schedule": fd.schedules.Periodic(3)},
    ),
    "ADMM": (fd.ADMM(step_size=1.0), {}),
    "FedADMM": (fd.FedADMM(gd, step_size=1.0), skip | two),
    "FedADMM coins": (fd.FedADMM(gd, step_size=1.0), skip | some),
    "FedSplit": (fd.FedSplit(step_size=1.0), two),
    "FedDR": (fd.FedDR(gd, step_size=1.0), two),
    "FedDyn": (fd.FedDyn(gd, step_size=1.0), two),
    "AFedPD": (fd.AFedPD(gd, step_size=1.0), two),
    "FedAvg": (fd.FedAvg(gd), two),
    "FedAvg unbiased": (fd.FedAvg(gd, averaging="unbiased"), two),
    "FedProx": (fd.FedProx(gd, mu=0.1), two),
    "FedOpt": (fd.FedOpt(gd), {}),
    "SCAFFOLD": (fd.SCAFFOLD(gd), two),
    "ProxSkip": (fd.ProxSkip(skip_probability=0.5), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_deployment_gives_the_iterates_of_the_simulation(case):
    """theta, theta_k and lambda_k after every communication, to 1e-10."""
    algorithm, settings = CASES[case]
    p = problem()
    federation = Federation(p, algorithm, {**settings, "rounds": 14, "seed": 5})
    simulated = list(fd.iterate(p, algorithm, rounds=14, seed=5, chunk_rounds=1, evaluate_every=14, **settings))
    communications = 0
    for state in federation.run():
        solution, communications = simulated[state.round - 1], communications + 1
        np.testing.assert_allclose(federation.coordinator.theta(state), solution.theta, atol=1e-10)
        if None in federation.kept.values() or algorithm.name == "AFedPD":
            continue  # AFedPD's participants hear the answer with their next order
        thetas, duals = federation.local()
        np.testing.assert_allclose(thetas, solution.thetas, atol=1e-10)
        np.testing.assert_allclose(duals, solution.duals, atol=1e-10)
    assert communications == simulated[-1].history["communications"][-1] > 3
    if None not in federation.kept.values():
        thetas, duals = federation.local()
        np.testing.assert_allclose(thetas, simulated[state.round - 1].thetas, atol=1e-10)
