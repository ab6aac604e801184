"""Partitions are disjoint, complete and seeded; what cannot be met is refused at once."""

import io

import numpy as np
import pytest

from fedual.data import partition

LABELS = np.arange(997) % 3
NAMES = np.array(["north", "east", "south"])[LABELS]

EVERY = {
    "iid": lambda seed: partition.iid(997, 10, seed),
    "quantity": lambda seed: partition.quantity(997, 10, alpha=0.3, seed=seed),
    "dirichlet": lambda seed: partition.dirichlet(LABELS, 10, alpha=0.1, seed=seed),
    "dirichlet with a minimum": lambda seed: partition.dirichlet(NAMES, 10, alpha=0.05, minimum=90, seed=seed),
    "shards": lambda seed: partition.shards(LABELS, 10, per_client=2, seed=seed),
    "by column": lambda seed: partition.by_column(NAMES),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_row_has_exactly_one_client(name):
    parts = EVERY[name](0)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts.rows)), np.arange(997))
    assert all(np.all(np.diff(rows) > 0) for rows in parts.rows)
    assert parts.sizes.min() >= 1
    assert len(set(parts.names)) == len(parts.rows) == (3 if name == "by column" else 10)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "by column"])
def test_the_seed_decides(name):
    first, again, other = EVERY[name](0), EVERY[name](0), EVERY[name](1)
    assert all(np.array_equal(a, b) for a, b in zip(first.rows, again.rows, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.rows, other.rows, strict=True))


def test_sizes_are_as_asked():
    assert partition.iid(997, 10).sizes.tolist() == [100] * 7 + [99] * 3
    assert partition.iid(997, [900, 90, 7]).sizes.tolist() == [900, 90, 7]
    assert partition.dirichlet(LABELS, 10, alpha=0.05, minimum=90).sizes.min() >= 90
    assert partition.quantity(997, 100, alpha=0.1, minimum=9).sizes.min() >= 9
    assert set(partition.shards(LABELS, 10).sizes.tolist()) <= {98, 99, 100}


def test_a_minimum_that_takes_every_row_is_met_exactly():
    assert partition.dirichlet(np.arange(1000) % 10, 100, alpha=0.01, minimum=10).sizes.tolist() == [10] * 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: partition.dirichlet(np.arange(1000) % 10, 100, alpha=0.1, minimum=20),
            "100 clients with at least 20 rows each need 2000 rows, but there are 1000",
        ),
        (lambda: partition.quantity(10, 11, alpha=1.0), "11 clients with at least 1 rows each"),
        (lambda: partition.iid(3, 4), "4 clients"),
        (lambda: partition.iid(10, [5, 6]), r"\[5, 6\] must be positive and add up to 10"),
        (lambda: partition.iid(10, [11, -1]), "positive"),
        (lambda: partition.shards(LABELS, 500, per_client=2), "500 clients with at least 2 rows"),
        (lambda: partition.shards(LABELS, 10, per_client=0), "per_client = 0"),
        (lambda: partition.iid(10, 0), "clients = 0"),
        (lambda: partition.dirichlet(LABELS, 10, alpha=0.0), "alpha = 0.0 must be a positive number"),
        (lambda: partition.dirichlet(LABELS, 10, alpha=float("nan")), "alpha = nan"),
        (lambda: partition.dirichlet(np.linspace(0, 1, 50), 5, alpha=1.0), "Sort a continuous target into bins"),
        (lambda: partition.by_column(["a", None]), "1 of 2 rows have no site"),
    ],
)
def test_the_impossible_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_dirichlet_draw_has_the_moments_of_its_distribution():
    # A client's share of a label is Beta(alpha, (K - 1) alpha): mean 1/K, variance (K - 1)/(K^2 (K alpha + 1)).
    clients, alpha = 5, 0.7
    labels = np.zeros(20_000, dtype=int)
    shares = np.array([partition.dirichlet(labels, clients, alpha, seed=s).sizes[0] / 20_000 for s in range(2000)])
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert shares.mean() == pytest.approx(1 / clients, abs=4 * np.sqrt(variance / 2000))
    assert shares.var() == pytest.approx(variance, rel=0.15)


def test_shards_give_few_labels():
    parts = partition.shards(np.repeat(np.arange(10), 100), clients=10, per_client=2)
    assert ((parts.counts(np.repeat(np.arange(10), 100)) > 0).sum(axis=1) <= 2).all()


def test_heterogeneity_by_hand():
    # Sizes 3 and 1, labels (a, a, b) and (b): frequencies (2/3, 1/3) and (0, 1) against (1/2, 1/2).
    parts = partition.Partition(rows=(np.array([0, 1, 2]), np.array([3])), names=("p", "q"))
    measured = parts.heterogeneity(["a", "a", "b", "b"])
    assert measured.label_distance == pytest.approx(3 / 4 * 1 / 6 + 1 / 4 * 1 / 2)
    assert measured.farthest == pytest.approx(0.5)
    assert measured.size_variation == pytest.approx(0.5)
    assert measured.missing_labels == pytest.approx(0.25)


def test_the_picture_holds_every_row():
    parts = partition.dirichlet(LABELS, 10, alpha=0.3)
    figure = parts.plot(LABELS)
    bars = figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(997)
    assert len(bars) == 10 * 3
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")


def test_a_partition_makes_clients():
    x = np.arange(997.0)[:, None]
    parts = partition.by_column(NAMES)
    clients = parts.clients(x, LABELS, columns=["row"])
    assert clients.names == ("east", "north", "south")
    np.testing.assert_array_equal(clients.features[0][:, 0], np.flatnonzero(NAMES == "east"))
    with pytest.raises(ValueError, match="the partition is of 997 rows, but X has 996"):
        parts.clients(x[1:], LABELS)
    with pytest.raises(ValueError, match="there are 996 labels"):
        parts.heterogeneity(LABELS[1:])
