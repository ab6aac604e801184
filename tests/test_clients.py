"""The container of the clients' data refuses what would be silently wrong later."""

import numpy as np
import pytest

from fedual.clients import Clients

A = (np.arange(6.0).reshape(3, 2), np.array([0, 1, 1]))


def test_ragged_pairs_are_kept_as_given():
    clients = Clients.build([A, (np.ones((1, 2)), [1])], names=["a", "b"])
    assert clients.sizes.tolist() == [3, 1]
    x, y = clients.pooled()
    np.testing.assert_array_equal(x, np.vstack([A[0], np.ones((1, 2))]))
    np.testing.assert_array_equal(y, [0, 1, 1, 1])


def test_an_empty_client_is_refused_by_name_with_the_remedy():
    with pytest.raises(ValueError, match=r"client 'b' has no rows.*empty='skip'"):
        Clients.build([A, (np.ones((0, 2)), [])], names=["a", "b"])


def test_empty_clients_are_left_out_when_asked(caplog):
    clients = Clients.build([(np.ones((0, 2)), []), A], names=["a", "b"], empty="skip")
    assert clients.names == ("b",)
    assert "'a' has no rows" in caplog.text
    with pytest.raises(ValueError, match="no client has any rows"):
        Clients.build([(np.ones((0, 2)), []), (np.ones((0, 2)), [])], empty="skip")


@pytest.mark.parametrize(
    ("pairs", "names", "message"),
    [
        ([A, (np.ones((2, 3)), [0, 1])], ["a", "b"], r"clients 'a' and 'b' differ in the shape of their features"),
        ([A, (np.ones((2, 2)), [0])], ["a", "b"], r"client 'b': X has shape \(2, 2\) and y has shape \(1,\)"),
        ([A, (np.full((1, 2), np.nan), [0])], ["a", "b"], r"client 'b': X holds nan at index \(0, 0\)"),
        ([A, (np.ones((1, 2)), [np.inf])], ["a", "b"], r"client 'b': y holds inf at index \(0,\)"),
        ([A, (np.ones((1, 2)), ["yes"])], ["a", "b"], r"client 'b': y has dtype"),
        ([A, A], ["a", "a"], "'a' appears twice"),
        ([A, A], ["a", " "], "must be a non-empty string"),
        ([A, A], ["a"], "1 names were given for 2 clients"),
        ([A, A[0]], ["a", "b"], r"client 'b': expected a pair \(X, y\)"),
    ],
)
def test_bad_input_is_refused_naming_the_client(pairs, names, message):
    with pytest.raises(ValueError, match=message):
        Clients.build(pairs, names=names)


def test_split_is_a_partition_that_depends_on_the_name_alone():
    rng = np.random.default_rng(0)
    clients = Clients.build([(rng.normal(size=(n, 2)), np.arange(n)) for n in (10, 1, 7)], names=["a", "b", "c"])
    train, test = clients.split(0.3, seed=1)
    assert train.sizes.tolist() == [7, 1, 5]
    assert test.names == ("a", "c")
    for name, whole in zip(clients.names, clients.targets, strict=True):
        parts = [p.targets[p.names.index(name)] for p in (train, test) if name in p.names]
        assert sorted(np.concatenate(parts)) == sorted(whole)
    again, _ = clients.select(["c", "a"]).split(0.3, seed=1)
    np.testing.assert_array_equal(again.targets[0], train.targets[2])
