"""step_size="auto" and steps="auto" in runs."""

import dataclasses

import numpy as np
import pytest

import fedual as fd
import references as ref

PRIMAL_DUAL = (fd.ADMM, fd.FedPD, fd.FedADMM, fd.FedDyn, fd.FedDR, fd.FedSplit, fd.AFedPD)
EXACT = fd.oracles.Exact()


def quadratics(condition=30.0, scale=1.0, clients=6):
    """Clients with Hessians of this condition number, losses multiplied by `scale`; and the pooled minimizer."""
    rng = np.random.default_rng(3)
    pairs, hessian, slope = [], 0.0, 0.0
    for _ in range(clients):
        basis, _ = np.linalg.qr(rng.normal(size=(4, 4)))
        root = np.sqrt(4 * np.geomspace(1 / condition, 1, 4))[:, None] * basis.T
        y = root @ rng.normal(size=4)
        hessian, slope = hessian + root.T @ root, slope + root.T @ y
        pairs.append((np.sqrt(scale) * root, np.sqrt(scale) * y))
    return fd.Problem(fd.losses.least_squares(), fd.data.from_arrays(pairs)), np.linalg.solve(hessian, slope)


@pytest.fixture(scope="module")
def problem():
    return quadratics()


@pytest.mark.parametrize("algorithm", PRIMAL_DUAL, ids=lambda a: a.__name__)
def test_every_primal_dual_method_adapts_and_arrives(problem, algorithm):
    solution = fd.solve(problem[0], algorithm(oracle=EXACT), rounds=150, tolerance=1e-20)
    assert solution.converged
    np.testing.assert_allclose(solution.theta, problem[1], atol=1e-8)
    assert len(set(solution.history["s"])) > 3


def test_all_starts_arrive_with_few_communications(problem):
    grid = {"step_size": np.geomspace(0.1, 100, 13).tolist()}
    fixed = fd.sweep(problem[0], fd.FedPD(EXACT, step_size=1.0), grid, rounds=400, tolerance=1e-12)
    best = min(s.history.rounds for s in fixed.solutions if s.converged)

    def needed(step_size):
        solution = fd.solve(problem[0], fd.FedPD(EXACT, step_size=step_size), rounds=400, tolerance=1e-12)
        assert solution.converged
        np.testing.assert_allclose(solution.theta, problem[1], atol=1e-4)
        return solution.history.rounds

    assert needed("auto") <= 1.5 * best
    for start in (1e-4, 1.0, 1e4):
        assert needed(fd.Auto(start)) <= 3 * best


def test_strongly_heterogeneous_clients_need_a_fraction_of_what_theory_gives(monkeypatch):
    clients = fd.data.synthetic.reference(strong=True, clients=20, rows=100).clients
    problem = fd.Problem(fd.losses.logistic_nonconvex(), clients)

    def needed(step_size):
        found = fd.solve(problem, fd.FedPD(step_size=step_size), rounds=300, tolerance=1e-12, evaluate_every=1)
        assert found.converged
        return found.history.rounds

    assert needed(fd.theory.step_size(fd.theory.smoothness(problem))) > 100
    assert needed("auto") < 35


def test_scaling_the_losses_scales_s_and_changes_nothing_else(problem):
    plain = fd.solve(problem[0], fd.FedPD(), rounds=30)
    scaled = fd.solve(quadratics(scale=1e6)[0], fd.FedPD(), rounds=30)
    np.testing.assert_allclose(1e6 * scaled.history["s"], plain.history["s"], rtol=1e-6)
    np.testing.assert_allclose(scaled.thetas, plain.thetas, rtol=1e-6)


def test_partial_participation_and_skips_reach_the_optimum(problem):
    two = fd.participation.Uniform(count=2)
    solution = fd.solve(problem[0], fd.FedADMM(EXACT), rounds=900, participation=two, tolerance=1e-18)
    assert solution.converged
    skipped = fd.solve(
        problem[0], fd.FedADMM(EXACT), rounds=900, participation=two, schedule=fd.schedules.Decay(60), tolerance=1e-18
    )
    assert skipped.converged
    s = skipped.history["s"]
    silent = ~skipped.history["communicated"][:-1]
    assert silent.any()
    assert (s[1:][silent] == s[:-1][silent]).all()  # changes at communications alone
    np.testing.assert_allclose(skipped.theta, problem[1], atol=1e-7)


def test_noise_does_not_drive_s_away(problem):
    noisy = fd.FedPD(fd.oracles.StochasticGradient(steps=5, learning_rate=0.1, batch_size=1))
    s = fd.solve(problem[0], noisy, rounds=200).history["s"]
    assert s.max() / s.min() < 1e3
    assert len(set(s[101:])) == 1


def test_a_run_cut_in_pieces_is_the_same_run(problem):
    whole = fd.solve(problem[0], fd.FedPD(), rounds=12)
    part = fd.solve(problem[0], fd.FedPD(), rounds=5)
    resumed = fd.solve(problem[0], fd.FedPD(), rounds=12, state=part.state)
    np.testing.assert_array_equal(resumed.theta, whole.theta)
    np.testing.assert_array_equal(resumed.history["s"], whole.history["s"])


def test_messages_carry_two_numbers_more_and_s_comes_back(problem):
    fixed = fd.solve(problem[0], fd.FedPD(EXACT, step_size=1.0), rounds=2).history
    auto = fd.solve(problem[0], fd.FedPD(EXACT), rounds=2).history
    assert (fixed["uplink_bytes"][0], fixed["downlink_bytes"][0]) == (6 * 4 * 8, 6 * 4 * 8)
    assert (auto["uplink_bytes"][0], auto["downlink_bytes"][0]) == (6 * (4 + 2) * 8, 6 * (4 + 1) * 8)


@pytest.mark.parametrize("start", [0.0, -1.0, np.nan, "auto "])
def test_a_start_that_is_no_step_size_is_refused(problem, start):
    with pytest.raises(ValueError, match="step_size"):
        fd.solve(problem[0], fd.FedPD(step_size=fd.Auto(start)), rounds=1)


def test_automatic_steps_follow_s():
    tables = ref.ragged_tables("normal")
    problem = fd.Problem(fd.losses.least_squares(0.1), fd.data.from_arrays(tables))
    smoothness = np.array([np.linalg.eigvalsh(x.T @ x / len(x))[-1] + 0.1 for x, _ in tables])
    sizes = np.array([len(y) for _, y in tables])
    for oracle in (fd.oracles.GradientDescent(), fd.oracles.Linearized()):
        for s in (0.01, 1.0, 50.0):
            # A step of either leaves s L_k/(1 + s L_k) of the distance: so many leave a tenth.
            steps = np.maximum(1, np.ceil(np.log(0.1) / np.log(s * smoothness / (1 + s * smoothness))))
            history = fd.solve(problem, fd.FedPD(oracle, step_size=s), rounds=1).history
            assert history["gradient_evaluations"][0] == steps @ sizes


def test_a_fixed_number_of_steps_stays_as_it_is():
    problem, _ = quadratics()
    oracle = fd.oracles.GradientDescent(steps=3)
    history = fd.solve(problem, fd.FedPD(oracle), rounds=2).history
    assert history["gradient_evaluations"].tolist() == [3 * 24, 6 * 24]
    assert dataclasses.replace(oracle).steps == 3
