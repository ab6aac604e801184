"""The benchmarks run, and what they compare is the same computation."""

import numpy as np

import references as ref
from fedual.bench import memory, speed
from fedual.bench.rivals import numpy_loop


def test_the_numpy_rival_is_fedpd_as_its_pseudo_code_has_it():
    tables = [(x, 2 * y - 1) for x, y in ref.ragged_tables("binary")]
    functions = [ref.logistic_nonconvex(x, y, 0.1, 1.0) for x, y in tables]
    expected = ref.fedpd(ref.gradient_solver(functions, 4, 0.2), np.full(3, 1 / 3), np.zeros(3), 0.7, [False] * 5)[-1]
    theta, duals = numpy_loop(tables, step_size=0.7, learning_rate=0.2, steps=4, rounds=5)
    np.testing.assert_allclose(theta, expected.theta, rtol=1e-12)
    np.testing.assert_allclose(duals, expected.duals, rtol=1e-11, atol=1e-14)


def test_speed_is_measured_and_the_results_agree():
    result = speed.measure(clients=6, rows=20, features=3, rounds=4, repeats=1)
    assert result["difference"] <= 1e-10
    assert result["devices"] == 1
    assert all(result[name] > 0 for name in ("run", "run_evaluated", "numpy_loop", "streaming_floor"))
    assert len(speed.table([result]).splitlines()) == 2


def test_memory_counts_data_and_states():
    result = memory.measure(gigabytes=0.001, clients=4, features=5)
    assert abs(result["data"] - 1e6) < 1e3
    # Per client: theta_k, lambda_k, the anchor, and the driver's records.
    assert 4 * 3 * 5 * 8 < result["states"] < 10_000
