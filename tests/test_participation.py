"""Participation rules: how often, who, and what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedual as fd

NAMES = tuple("abcde")
RULES = fd.participation


def draws(rule, count=2000):
    uniform = np.random.default_rng(0).random((count, len(NAMES)))
    bound = rule.bind(NAMES)
    return bound, np.array([np.asarray(bound.draw(jnp.asarray(u), 0)) for u in uniform])


def test_uniform_picks_the_count_and_everyone_as_often():
    bound, flags = draws(RULES.Uniform(count=2))
    assert (flags.sum(axis=1) == 2).all()
    np.testing.assert_allclose(flags.mean(axis=0), bound.chances(5), atol=5 * np.sqrt(0.24 / 2000))
    pairs = (flags.T.astype(int) @ flags)[np.triu_indices(5, 1)] / len(flags)
    np.testing.assert_allclose(pairs, 0.1, atol=5 * np.sqrt(0.09 / 2000))


def test_uniform_with_equal_numbers_still_picks_the_count():
    assert int(RULES.Uniform(count=3).bind(NAMES).draw(jnp.zeros(5), 0).sum()) == 3


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 1), (0.5, 3), (0.4, 2), (0.49, 2), (1.0, 5), (1e-9, 1)])
def test_a_fraction_is_rounded_but_never_to_nobody(fraction, count):
    assert RULES.Uniform(fraction=fraction).bind(NAMES).count == count


def test_bernoulli_tosses_for_each():
    chances = np.array([0.1, 0.3, 0.5, 0.9, 1.0])
    bound, flags = draws(RULES.Bernoulli(chances))
    np.testing.assert_allclose(flags.mean(axis=0), chances, atol=5 * np.sqrt(0.25 / 2000))
    assert flags[:, 4].all()
    assert bound.chances(5).tolist() == chances.tolist()
    assert abs(np.corrcoef(flags[:, 1], flags[:, 2])[0, 1]) < 5 / np.sqrt(2000)


def test_full_and_traces():
    uniform = jnp.zeros(5)
    assert RULES.Full().bind(NAMES).draw(uniform, 3).all()
    explicit = RULES.Explicit([["b"], [], [True, False, False, False, True]]).bind(NAMES)
    shown = ["".join(n for n, f in zip(NAMES, explicit.draw(uniform, t), strict=True) if f) for t in range(5)]
    assert shown == ["b", "", "ae", "abcde", "abcde"]
    trace = {name: [name < "c", name > "c"] for name in reversed(NAMES)}
    cycle = RULES.Availability(trace).bind(NAMES)
    shown = ["".join(n for n, f in zip(NAMES, cycle.draw(uniform, t), strict=True) if f) for t in range(3)]
    assert shown == ["ab", "de", "ab"]
    assert np.isnan(cycle.chances(5)).all()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (RULES.Uniform(), "give exactly one of the two"),
        (RULES.Uniform(count=2, fraction=0.5), "give exactly one of the two"),
        (RULES.Uniform(count=6), "count = 6 must be an integer from 1 to 5, the number of clients"),
        (RULES.Uniform(count=0), "count = 0"),
        (RULES.Uniform(count=2.5), "count = 2.5"),
        (RULES.Uniform(fraction=1.5), r"fraction = 1.5 must lie in \(0, 1\]"),
        (RULES.Bernoulli(0.0), r"client 'a' would take part with probability 0.0"),
        (RULES.Bernoulli([0.5, 0.5, 1.5, 0.5, 0.5]), r"client 'c' would take part with probability 1.5"),
        (RULES.Bernoulli([0.5, 0.5]), "must be one number, or 5, one per client"),
        (RULES.Explicit([["a"], ["z"]]), r"stretch 1 names \['z'\]"),
        (RULES.Explicit([[True, False]]), r"stretch 0 .* must hold names, or 5 booleans"),
        (RULES.Availability({"a": [True]}), r"the trace and the clients differ in \['b', 'c', 'd', 'e'\]"),
        (RULES.Availability([[True], [True]]), "the trace has 2 clients where there are 5"),
        (RULES.Availability([[True, False]] * 4 + [[True]]), "of one length"),
        (RULES.Availability([[0.5]] * 5), "a trace holds flags"),
    ],
)
def test_refusals(rule, message):
    with pytest.raises(ValueError, match=message):
        rule.bind(NAMES)


def test_a_draw_belongs_to_the_name_not_to_the_position():
    """Reordering the clients reorders who takes part, and nothing else."""
    rng = np.random.default_rng(0)
    tables = {name: (rng.normal(size=(4, 1)), rng.normal(size=4)) for name in NAMES}
    shown = []
    for names in (NAMES, tuple(reversed(NAMES))):
        clients = fd.data.from_arrays([tables[n] for n in names], names=names)
        solution = fd.solve(
            fd.Problem(fd.losses.least_squares(), clients), fd.FedAvg(), 1, participation=RULES.Bernoulli(0.5), seed=4
        )
        shown.append({n for n, active in zip(names, solution.state.device.active, strict=True) if active})
    assert shown[0] == shown[1]
    assert 0 < len(shown[0]) < 5
