"""The rule for s as plain functions."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedual import tuning


def follow(first, ratios):
    """s after each communication in which the clients moved with these ratios of model to dual."""

    def after(state, ratio):
        state = tuning.adapt(*state, tuning.Movement(ratio**2, jnp.ones_like(ratio)))
        return state, state[1]

    with jax.enable_x64(True):
        s = jnp.asarray(first)
        return np.asarray(jax.lax.scan(after, (tuning.start(s), s), jnp.asarray(ratios))[1])


def test_s_goes_to_the_ratio_and_then_averages_it():
    assert follow(1e4, [2.0] * 4)[-1] == pytest.approx(2.0, rel=0.1)
    alternating = follow(1.0, [1.0, 4.0] * 50)
    assert alternating[-1] == pytest.approx(2.0, rel=0.1)  # the geometric mean


def test_the_sign_is_that_of_residual_balancing():
    # Model moves little against the primal residual s ||change of lambda||: s falls; and the other way round.
    assert follow(1.0, [0.5])[0] < 1 < follow(1.0, [2.0])[0]


def test_s_is_constant_in_the_end_and_its_total_change_is_bounded():
    path = follow(1.0, [10.0 ** (n % 7) for n in range(150)])
    assert len(set(path[100:])) == 1
    assert follow(1.0, [1e150] * 20).max() <= 1e8
    assert follow(1.0, [1e-150] * 20).min() >= 1e-8


def test_no_movement_is_no_news():
    with jax.enable_x64(True):
        tuner = tuning.start(jnp.asarray(1.0))
        for model, dual in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (math.nan, 1.0), (math.inf, 1.0)):
            tuner, s = tuning.adapt(tuner, jnp.asarray(3.0), tuning.Movement(jnp.asarray(model), jnp.asarray(dual)))
            assert (float(s), int(tuner.count)) == (3.0, 0)


def test_a_first_visit_says_nothing():
    with jax.enable_x64(True):
        old, new = (jnp.zeros(2), jnp.zeros(2)), (jnp.array([3.0, 4.0]), jnp.array([1.0, 0.0]))
        assert tuple(map(float, tuning.movement(0.5, 0, old, new))) == (0.0, 0.0)
        assert tuple(map(float, tuning.movement(0.5, 1, old, new))) == (12.5, 0.5)


@pytest.mark.parametrize(
    ("contraction", "steps"), [(0.1, 1), (0.5, 4), (0.9, 22), (0.0, 1), (1 - 1e-5, 1000), (1, 1000)]
)
def test_local_steps_leave_a_tenth(contraction, steps):
    assert int(tuning.local_steps(contraction)) == steps
