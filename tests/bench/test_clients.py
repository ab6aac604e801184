"""Memory and speed with many clients, at sizes for every day."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest


def in_a_process_of_its_own(call: str) -> dict[str, float]:
    """Peak memory is a process's, so every measurement gets one."""
    code = f"import json; from fedual.bench.clients import *; print(json.dumps({call}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous memory is read from /proc")
def test_200_clients_whose_states_exceed_what_the_run_takes():
    figures = in_a_process_of_its_own("many_clients(200, participants=4, rounds=3, state_memory=2**24)")
    small = in_a_process_of_its_own("many_clients(8, participants=4, rounds=3, state_memory=2**24)")
    assert figures["state_bytes"] == 200 * 4 * 4 * 100_020
    # Beyond what the program itself takes there is room for less than a third of the states.
    assert figures["peak_anonymous_bytes"] - small["peak_anonymous_bytes"] < figures["state_bytes"] / 3
    assert np.isfinite(figures["objective"])


@pytest.mark.skipif(sys.platform == "win32", reason="needs getrusage")
def test_memory_does_not_grow_with_the_rounds_nor_with_the_runs():
    peaks = in_a_process_of_its_own("growth()")
    assert peaks["late"] <= 1.05 * peaks["early"]
    assert peaks["second"] <= 1.05 * peaks["early"]


def test_the_loop_beside_which_speed_is_measured_computes_the_same():
    from fedual.bench.clients import against_loop

    figures = against_loop(clients=5, rows=20, features=4, rounds=30)
    np.testing.assert_allclose(figures["theta"], figures["loop_theta"], atol=1e-12)
    print(f"seconds against the NumPy loop: {figures['ratio']:.2f}")
