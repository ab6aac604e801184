"""Splitting one table without natural silos into clients.

Every function returns a `Partition`: disjoint sets of rows that together are all rows, the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedual.data.parts import Heterogeneity, Partition, label_codes
from fedual.data.readers import rows_by_site

__all__ = ["Heterogeneity", "Partition", "by_column", "dirichlet", "iid", "quantity", "shards"]


def iid(rows: int, clients: int | Sequence[int], seed: int = 0) -> Partition:
    """Random parts of equal size (within one row), or of the sizes asked for.

    Args:
        rows: number of rows of the table, n.
        clients: number of clients, or the size of each; the sizes must add up to n.
        seed: of the shuffle.

    Raises:
        ValueError: there are fewer rows than clients, or the sizes are not positive or do not add up.

    Example:
        >>> iid(10, clients=3).sizes.tolist(), iid(10, clients=[7, 1, 2]).sizes.tolist()
        ([4, 3, 3], [7, 1, 2])
    """
    if isinstance(clients, int | np.integer):
        _check_minimum(rows, clients, 1)
        sizes = np.full(clients, rows // clients) + (np.arange(clients) < rows % clients)
    else:
        sizes = np.asarray(clients)
        if sizes.sum() != rows or (sizes < 1).any():
            raise ValueError(f"the sizes {sizes.tolist()} must be positive and add up to {rows} rows.")
    order = np.random.default_rng(seed).permutation(rows)
    return _partition(np.split(order, np.cumsum(sizes)[:-1]))


def quantity(rows: int, clients: int, alpha: float, minimum: int = 1, seed: int = 0) -> Partition:
    """Random parts of very different sizes: proportions drawn from a symmetric Dirichlet distribution.

    Args:
        rows: number of rows of the table, n.
        clients: number of clients, K.
        alpha: concentration; small for few large and many small clients, large for equal sizes.
        minimum: fewest rows of a client; where the draw gives fewer, rows are taken from the largest clients.
        seed: of the draw.

    Raises:
        ValueError: K clients of `minimum` rows are more than n rows, or `alpha` is not positive.

    Example:
        >>> quantity(1000, clients=4, alpha=0.5, minimum=50).sizes.sum()
        np.int64(1000)
    """
    return dirichlet(np.zeros(rows, dtype=np.int64), clients, alpha, minimum, seed)


def dirichlet(labels: Any, clients: int, alpha: float, minimum: int = 1, seed: int = 0) -> Partition:
    """Label skew: the rows of every label are dealt out in proportions from a symmetric Dirichlet distribution.

    The proportions are drawn once per label. Clients left with fewer than `minimum` rows get rows of the most frequent
    label of the client that is the largest at the time, until they have enough; nothing is drawn again, so the
    function always ends.

    Args:
        labels: the label of each row, shape `(n,)`: text or whole numbers.
        clients: number of clients, K.
        alpha: concentration; 0.1 gives most clients one or two labels, 100 nearly identical clients.
        minimum: fewest rows of a client.
        seed: of the draw.

    Raises:
        ValueError: K clients of `minimum` rows are more than n rows, `alpha` is not positive, or the labels are not
            labels.

    Example:
        >>> labels = np.arange(1000) % 10
        >>> skewed, even = (dirichlet(labels, 20, alpha).heterogeneity(labels) for alpha in (0.1, 100.0))
        >>> skewed.label_distance > 0.5 > 0.2 > even.label_distance
        True

    Reference:
        Hsu, Qi and Brown (2019), Measuring the effects of non-identical data distribution for federated visual
        classification, draws the proportions per client; here as in most later work they are drawn per label.
    """
    values, codes = label_codes(labels)
    _check_minimum(len(codes), clients, minimum)
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha = {alpha} must be a positive number.")
    rng = np.random.default_rng(seed)
    ordered = [rng.permutation(np.flatnonzero(codes == code)) for code in range(len(values))]
    # Counts of rows per client and label; cutting at the rounded cumulative proportions loses no row.
    cuts = [np.rint(np.cumsum(rng.dirichlet(np.full(clients, alpha))) * len(rows)).astype(int) for rows in ordered]
    counts = np.stack([np.diff([0, *cut[:-1], len(rows)]) for cut, rows in zip(cuts, ordered, strict=True)], axis=1)
    _raise_to_minimum(counts, minimum)
    parts = [np.split(rows, np.cumsum(column)[:-1]) for rows, column in zip(ordered, counts.T, strict=True)]
    return _partition([np.concatenate(own) for own in zip(*parts, strict=True)])


def shards(labels: Any, clients: int, per_client: int = 2, seed: int = 0) -> Partition:
    """Label skew of equal sizes: rows sorted by label are cut into shards, and every client gets some at random.

    Args:
        labels: the label of each row, shape `(n,)`: text or whole numbers.
        clients: number of clients, K.
        per_client: shards of each client; a client has about that many labels.
        seed: of the draw.

    Raises:
        ValueError: there are fewer rows than shards, or the labels are not labels.

    Example:
        >>> shards([0] * 50 + [1] * 50, clients=5).sizes.tolist()
        [20, 20, 20, 20, 20]

    Reference:
        McMahan et al. (2017), Communication-efficient learning of deep networks from decentralized data, section 3.
    """
    _, codes = label_codes(labels)
    if per_client < 1:
        raise ValueError(f"per_client = {per_client} must be at least 1.")
    _check_minimum(len(codes), clients, per_client)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(codes))
    pieces = np.array_split(shuffled[np.argsort(codes[shuffled], kind="stable")], clients * per_client)
    dealt = rng.permutation(clients * per_client).reshape(clients, per_client)
    return _partition([np.concatenate([pieces[shard] for shard in own]) for own in dealt])


def by_column(sites: Any) -> Partition:
    """One client per value of a column, named by it.

    Args:
        sites: the site of each row, shape `(n,)`: text or whole numbers, none missing.

    Raises:
        ValueError: as `fedual.data.from_table`.

    Example:
        >>> by_column(["north", "south", "north"]).rows
        (array([0, 2]), array([1]))
    """
    rows = rows_by_site(sites)
    return Partition(rows=tuple(rows.values()), names=tuple(rows))


def _partition(parts: Sequence[np.ndarray]) -> Partition:
    return Partition(tuple(np.sort(part) for part in parts), tuple(f"client {k}" for k in range(len(parts))))


def _check_minimum(rows: int, clients: int, minimum: int) -> None:
    if clients < 1 or minimum < 1:
        raise ValueError(f"clients = {clients} and the fewest rows of each = {minimum} must be at least 1.")
    if clients * minimum > rows:
        raise ValueError(
            f"{clients} clients with at least {minimum} rows each need {clients * minimum} rows, but there are {rows}. "
            "Ask for fewer clients or a smaller minimum."
        )


def _raise_to_minimum(counts: np.ndarray, minimum: int) -> None:
    """Move rows between clients, in place: counts has shape (K, classes) and at least K * minimum rows in all."""
    for client in range(len(counts)):
        while (lacking := minimum - counts[client].sum()) > 0:
            sizes = counts.sum(axis=1)
            donor = int(sizes.argmax())
            label = int(counts[donor].argmax())
            # Half of what the donor can spare at most, so that the next largest gives its share.
            moved = min(lacking, counts[donor, label], max(1, (sizes[donor] - minimum) // 2))
            counts[donor, label] -= moved
            counts[client, label] += moved
