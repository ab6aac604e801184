"""The rule for p against numbers worked out by hand, and its properties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from fedual import formulas
from fedual.theory import plot_skip_probability, skip_probability, step_size

S = (np.sqrt(5) - 1) / 8  # the theory's s for L = 1; tau = 0.5985 with it
FORMS = ("seed", "published", "relation")


def test_the_step_size_of_the_analysis():
    assert step_size(2.0) == pytest.approx(0.0772542, rel=1e-6)


def test_both_branches_by_hand():
    # sqrt(0.01 / (36 * 0.1545085)) and 1 - 2/ln(1e6 / (42 * 0.1545085)); with s^2 in the published form.
    assert skip_probability(0.01, 1, 1) == pytest.approx(0.0424006, rel=1e-5)
    assert skip_probability(1e6, 1, 1) == pytest.approx(0.8325706, rel=1e-6)
    assert skip_probability(0.01, 1, 1, form="published") == pytest.approx(0.1 / (6 * S), rel=1e-12)
    assert skip_probability(1e6, 1, 1, form="published") == pytest.approx(1 - 2 / np.log(1e6 / (42 * S**2)), rel=1e-12)


def test_between_the_branches_p_is_tau():
    tau = 0.5985084
    assert skip_probability(12.89 * S, 1, 1) < tau - 1e-5
    for scaled in (12.91, 100, 6.1e3):
        assert skip_probability(scaled * S, 1, 1) == pytest.approx(tau, abs=1e-7)
    assert skip_probability(6.13e3 * S, 1, 1) > tau + 1e-5
    assert skip_probability(20 * S**2, 1, 1, form="relation") == pytest.approx(tau, abs=1e-7)


@pytest.mark.parametrize("scaled", [43.0, 1e3, 1e6, 1e30])
def test_relation_solves_the_equation_it_comes_from(scaled):
    def excess(p):
        return 2 * np.log((p * (1 + S) + S) / (1 - S)) / (1 - p) - np.log(scaled / 42)

    found = skip_probability(scaled * S**2, 1, 1, form="relation")
    assert found == pytest.approx(min(brentq(excess, 0.59, 1 - 1e-9), 0.99), rel=1e-9)


def test_identical_clients_get_the_cap():
    assert {skip_probability(1e-6, 0.0, 1, form=form) for form in FORMS} == {0.99}
    assert skip_probability(1e-6, 1e-300, 1) == 0.99


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0.0}, {"epsilon": np.nan}, {"epsilon": np.inf}, {"epsilon": True}, {"G": -1.0}, {"G": np.nan},
        {"G": np.inf}, {"G": False}, {"L": 0.0}, {"L": "1"}, {"s": -1.0}, {"s": 0.5}, {"form": "printed"},
    ],
)  # fmt: skip
def test_impossible_input_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        skip_probability(**({"epsilon": 1.0, "G": 1.0, "L": 1.0} | bad))


numbers = st.floats(1e-12, 1e12)


@given(st.tuples(numbers, numbers).map(sorted), st.floats(0.01, 0.49), st.sampled_from(FORMS))
@settings(max_examples=200, deadline=None)
def test_p_never_falls_as_the_clients_get_more_alike(ratios, s, form):
    low, high = (skip_probability(ratio, 1.0, 1.0, s, form) for ratio in ratios)
    assert 0 <= low <= high <= 0.99


@given(numbers, st.floats(1e-3, 1e3), st.sampled_from(FORMS))
@settings(max_examples=100, deadline=None)
def test_only_the_ratio_of_epsilon_to_g_squared_counts(ratio, g, form):
    assert skip_probability(ratio * g**2, g, 1.0, form=form) == pytest.approx(skip_probability(ratio, 1, 1, form=form))


@pytest.mark.parametrize("form", FORMS)
def test_the_traced_formula_is_the_same(form):
    ratios = np.logspace(-6, 9, 31)
    with jax.enable_x64(True):
        traced = jax.jit(lambda r: formulas.skip_probability(r, S, S, form, jnp))(ratios)
    np.testing.assert_allclose(traced, [skip_probability(float(r), 1.0, 1.0, form=form) for r in ratios], rtol=1e-12)


def test_the_picture_shows_the_three_forms():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    plot_skip_probability(axes)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(FORMS)
    heights = [line.get_ydata() for line in axes.get_lines()[:3]]
    assert (heights[0] <= heights[1] + 1e-12).all()
    assert (heights[1] <= heights[2] + 1e-12).all()
