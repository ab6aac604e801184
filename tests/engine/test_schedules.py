"""p is the probability of SKIPPING, one coin for all clients; a skipped round sends nothing."""

import numpy as np
import pytest

import fedual as fd

METHOD = fd.FedPD(fd.oracles.GradientDescent(4, 0.2), 0.7)
VECTOR = 3 * 8  # bytes of one message


def test_one_shared_coin_skips_at_the_stated_rate(classification):
    history = fd.solve(
        classification, METHOD, rounds=1000, schedule=fd.schedules.Skip(0.3), evaluate_every=1000
    ).history
    talks = history["communicated"]
    # Binomial(1000, 0.7): four standard deviations are 58.
    assert abs(talks.sum() - 700) < 58
    np.testing.assert_array_equal(history["p"], 0.3)
    np.testing.assert_array_equal(history["communications"], np.cumsum(talks))
    # All three clients talk in the same rounds or none does.
    np.testing.assert_array_equal(history["uplinks"], 3 * np.cumsum(talks))
    np.testing.assert_array_equal(history["uplink_bytes"], VECTOR * history["uplinks"])
    # A broadcast reaches the clients at the start of the stretch that follows it.
    begins = np.concatenate([[True], talks[:-1]])
    np.testing.assert_array_equal(history["downlinks"], 3 * np.cumsum(begins))
    np.testing.assert_array_equal(history["downlink_bytes"], VECTOR * history["downlinks"])


@pytest.mark.parametrize(
    ("schedule", "p"),
    [
        (fd.schedules.Always(), np.zeros(8)),
        (fd.schedules.Decay(4), [0.75, 0.5, 0.25, 0, 0, 0, 0, 0]),
        (fd.schedules.Periodic(3), [1, 1, 0, 1, 1, 0, 1, 1]),
        (fd.schedules.Explicit([True, False, True]), [1, 0, 1, 0, 0, 0, 0, 0]),
    ],
    ids=str,
)
def test_schedules_state_their_probability_of_skipping(classification, schedule, p):
    history = fd.solve(classification, METHOD, rounds=8, schedule=schedule).history
    np.testing.assert_array_equal(history["p"], p)
    certain = np.isin(p, (0, 1))
    np.testing.assert_array_equal(history["communicated"][certain], np.asarray(p)[certain] == 0)


def test_decay_is_not_altered_by_a_resume(classification):
    schedule = fd.schedules.Decay(8)
    whole = fd.solve(classification, METHOD, rounds=8, schedule=schedule)
    part = fd.solve(classification, METHOD, rounds=3, schedule=schedule)
    resumed = fd.solve(classification, METHOD, rounds=8, schedule=schedule, state=part.state)
    np.testing.assert_array_equal(resumed.history["p"], np.arange(7, -1, -1) / 8)
    np.testing.assert_array_equal(resumed.thetas, whole.thetas)


@pytest.mark.parametrize("p", [1, 1.0, -0.1, 1.5, float("nan"), True])
def test_a_probability_outside_zero_to_one_is_refused(classification, p):
    with pytest.raises(ValueError, match=r"probability = .* must lie in \[0, 1\): it is the probability of skipping"):
        fd.solve(classification, METHOD, schedule=fd.schedules.Skip(p))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fd.schedules.Decay(0).check(), r"rounds = 0 must be an integer >= 1"),
        (lambda: fd.schedules.Decay(2.5).check(), r"rounds = 2.5 must be an integer >= 1"),
        (lambda: fd.schedules.Periodic(0).check(), r"period = 0 must be an integer >= 1"),
        (lambda: fd.schedules.Periodic(2.9).check(), r"period = 2.9 must be an integer >= 1"),
        (lambda: fd.schedules.Explicit([True, 0]), r"skips = \[True, 0\] must be booleans"),
    ],
)
def test_schedules_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
