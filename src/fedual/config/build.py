"""From a validated configuration to the objects that run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedual.clients import Clients
from fedual.config.parts import build_part, complete_part
from fedual.config.sections import Config, DataSection
from fedual.problem import Problem
from fedual.protocols import Algorithm, Loss, Participation, Regularizer, Schedule

__all__ = ["Experiment", "build", "build_method", "hold_out", "load_data"]


@dataclass(frozen=True)
class Experiment:
    """What a configuration describes.

    Attributes:
        config: complete: every default is filled in.
        problem: over the training rows.
        algorithm, schedule, participation: as for `fedual.solve`.
        test: the held-out rows; None where none are held out. Clients too small to hold a row out are missing.
        transform: the map from raw columns to numbers, where the data came from files.
    """

    config: Config
    problem: Problem
    algorithm: Algorithm
    schedule: Schedule | None
    participation: Participation | None
    test: Clients | None
    transform: Any = None


def build(config: Config) -> Experiment:
    """Load the data and make the objects.

    Raises:
        ValueError: a setting does not suit its class, or the data do not suit the loss; named.
        FileNotFoundError: a file or a data set is not there.

    Example:
        >>> config = Config.from_dict({
        ...     "data": {"source": "flights"},
        ...     "loss": {"name": "logistic", "l2": 1e-3, "intercept": True},
        ...     "schedule": {"name": "Skip", "probability": 0.25},
        ... })
        >>> experiment = build(config)
        >>> len(experiment.problem.clients), experiment.schedule
        (90, Skip(probability=0.25))
    """
    # Everything that needs no data comes first: a misspelt setting should not wait for a large file.
    loss, regularizer, algorithm, schedule, participation = build_method(config)
    train, test, transform = load_data(config.data, config.run.seed)
    problem = Problem(loss, train, config.problem.weights, regularizer, config.problem.dtype)
    kinds = ("loss", "regularizer", "algorithm", "oracle", "schedule", "participation")
    parts = {kind: complete_part(kind, table) for kind in kinds if (table := getattr(config, kind)) is not None}
    return Experiment(config.model_copy(update=parts), problem, algorithm, schedule, participation, test, transform)


def build_method(
    config: Config,
) -> tuple[Loss, Regularizer | None, Algorithm, Schedule | None, Participation | None]:
    """The part of a configuration that needs no data.

    Raises:
        ValueError: a setting does not suit its class; named.
    """
    regularizer = None if config.regularizer is None else build_part("regularizer", config.regularizer)
    oracle = {} if config.oracle is None else {"oracle": build_part("oracle", config.oracle)}
    schedule = None if config.schedule is None else build_part("schedule", config.schedule)
    participation = None if config.participation is None else build_part("participation", config.participation)
    algorithm = build_part("algorithm", config.algorithm, **oracle)
    return build_part("loss", config.loss), regularizer, algorithm, schedule, participation


def load_data(section: DataSection, seed: int) -> tuple[Clients, Clients | None, Any]:
    """Training rows, held-out rows (None where nothing is held out), and the transform that coded them.

    A transform is learned from the training rows alone.
    """
    if section.source is not None:
        from fedual import data

        try:
            clients = data.load(section.source, section.path).clients
        except KeyError as error:
            raise ValueError(f"[data] source: {error.args[0]}") from None
        if section.test_fraction == 0:
            return clients, None, None
        return *clients.split(section.test_fraction, seed), None
    return _from_tables(section, seed)


def _from_tables(section: DataSection, seed: int) -> tuple[Clients, Clients | None, Any]:
    """The only place that knows how tables become clients."""
    from fedual import tables

    files = section.files or section.file or ()  # exactly one is given
    if section.schema_ is not None:
        with open(section.schema_, encoding="utf-8") as handle:
            schema = tables.Schema.from_toml(handle.read(), section.schema_)
    else:
        schema = tables.inspect_files(files, target=section.target, site=section.site)
    sites = tables.read_sites(files, schema.site)
    parts = [hold_out(site, schema, section.test_fraction, seed) for site in sites]
    transform = tables.Transform.fit(schema, [tables.summarize(train, schema) for train, _ in parts])
    # The intercept is the loss's affair, which leaves it unpenalized.
    train = transform.clients([train for train, _ in parts], intercept=False)
    held = [test for _, test in parts if len(test)]
    return train, transform.clients(held, intercept=False) if held else None, transform


def hold_out(site: Any, schema: Any, fraction: float, seed: int) -> tuple[Any, Any]:
    """A site's rows with a target as training and test part; at least one training row remains."""
    from fedual.tables.cells import labelled

    used, _ = labelled(site, schema)
    held = max(0, min(round(fraction * len(used)), len(used) - 1))
    order = np.random.default_rng([seed, *site.site.encode()]).permutation(len(used))
    mask = np.zeros(len(used), bool)
    mask[order[:held]] = True
    return used.where(~mask), used.where(mask)
