"""Fashion-MNIST on 100 clients with two label shards each: speed beside a plain PyTorch loop, accuracy of the methods.

`fedual bench vision FOLDER` runs it; FOLDER holds the four files of the distribution (`fedual datasets` says where to
get them). The network has two
convolutions of 5 x 5 and 1,663,370 parameters; 10 clients a round, one local epoch in batches of 32.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedual.algorithms import SCAFFOLD, FedADMM, FedAvg, FedDyn
from fedual.data import load
from fedual.data.images import read_idx
from fedual.data.partition import shards
from fedual.oracles import StochasticGradient
from fedual.participation import Uniform
from fedual.protocols import Algorithm
from fedual.torch import TorchOptimizer, TorchProblem, iterate

__all__ = ["METHODS", "accuracy", "correct", "fashion", "network", "plain_round", "speed"]

BATCH, PER_ROUND, RATE = 32, 10, 0.05
_OPTIMIZER = TorchOptimizer(partial(torch.optim.SGD, lr=RATE), epochs=1, batch_size=BATCH)
_STEPS = StochasticGradient(epochs=1, batch_size=BATCH, learning_rate=RATE)

#: The methods compared, all with the same local steps.
METHODS: dict[str, Algorithm] = {
    "FedAvg": FedAvg(_OPTIMIZER),
    "FedADMM": FedADMM(_OPTIMIZER, step_size=10.0),
    "FedDyn": FedDyn(_OPTIMIZER, step_size=10.0),
    "SCAFFOLD": SCAFFOLD(_STEPS),
}


class Images(NamedTuple):
    """The clients' pairs by name, and the official test set, 10,000 images."""

    clients: dict[str, tuple[Tensor, Tensor]]
    test: tuple[Tensor, Tensor]


def fashion(folder: str | Path, seed: int = 0) -> Images:
    """100 clients of 600 images, two label shards each.

    Args:
        folder: with the files of the distribution.
        seed: of the assignment of shards.

    Raises:
        FileNotFoundError: the files are not there.
    """
    pixels, labels = load("fashion-mnist", path=folder).clients.pooled()
    parts = shards(labels, clients=100, per_client=2, seed=seed).clients(pixels, labels)
    clients = {
        name: (torch.from_numpy(x).view(-1, 1, 28, 28), torch.from_numpy(y))
        for name, x, y in zip(parts.names, parts.features, parts.targets, strict=True)
    }
    found = [next(Path(folder).glob(f"t10k-{what}*")) for what in ("images", "labels")]
    x, y = (torch.from_numpy(read_idx(path)) for path in found)
    return Images(clients, (x.view(-1, 1, 28, 28).float() / 255, y.long()))


def network(seed: int = 0) -> nn.Module:
    """Two convolutions of 5 x 5 with 32 and 64 channels, each halved by pooling, and a hidden layer of 512."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
        )  # fmt: skip


def correct(module: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """The share of the test images that a module classifies correctly."""
    module.eval()
    with torch.no_grad():
        hits = [(module(x).argmax(1) == y).sum() for x, y in zip(*(t.split(1000) for t in test), strict=True)]
    return float(sum(hits)) / len(test[1])


def plain_round(module: nn.Module, clients: list[tuple[Tensor, Tensor]], draw: Callable[[int], Tensor]) -> None:
    """Federated averaging as one would write it by hand: the yardstick of `speed`.

    Args:
        module: the global model, changed in place.
        clients: data of those who take part.
        draw: from a number of rows to a minibatch's indices.
    """
    start, total = copy.deepcopy(module.state_dict()), None
    for x, y in clients:
        module.load_state_dict(start)
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        for _ in range(max(1, round(len(x) / BATCH))):
            rows = draw(len(x))
            optimizer.zero_grad()
            cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
        share = {name: value / len(clients) for name, value in module.state_dict().items()}
        total = share if total is None else {name: total[name] + value for name, value in share.items()}
    assert total is not None, "no client takes part"
    module.load_state_dict(total)


def speed(folder: str | Path, rounds: int = 5, names: tuple[str, ...] = tuple(METHODS)) -> dict[str, float]:
    """Seconds a round, taken in turns with rounds of the plain loop.

    Args:
        folder: with the files of the distribution.
        rounds: measured ones; the median counts.
        names: of methods.

    Returns:
        "plain" and every method's seconds a round.
    """
    images = fashion(folder)
    problem = TorchProblem(network(), cross_entropy, images.clients)
    module, some = network(), list(images.clients.values())[:PER_ROUND]
    settings: dict[str, Any] = {
        "participation": Uniform(count=PER_ROUND),
        "rounds": rounds + 1,
        "evaluate_every": rounds + 2,
    }
    runs: dict[str, Iterator[Any]] = {name: iterate(problem, METHODS[name], **settings) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in ("plain", *names)}
    for _ in range(rounds + 1):  # the first warms up
        for name, taken in seconds.items():
            begun = time.perf_counter()
            if name == "plain":
                plain_round(module, some, lambda n: torch.randint(0, n, (BATCH,)))
            else:
                next(runs[name])
            taken.append(time.perf_counter() - begun)
    return {name: float(np.median(taken[1:])) for name, taken in seconds.items()}


def accuracy(
    folder: str | Path, name: str, rounds: int = 100, seed: int = 0, every: int = 10
) -> list[tuple[int, float, float, float]]:
    """A method's accuracy on the test set along a run.

    Args:
        folder: with the files of the distribution.
        name: of a method in `METHODS`.
        rounds: as many.
        seed: of the shards, the first weights and the run.
        every: rounds between two evaluations.

    Returns:
        Rows (round, megabytes sent up, megabytes sent down, accuracy).
    """
    images = fashion(folder, seed)
    problem = TorchProblem(network(seed), cross_entropy, images.clients)
    rows = []
    for solution in iterate(
        problem, METHODS[name], rounds, participation=Uniform(count=PER_ROUND), seed=seed, evaluate_every=rounds + 1
    ):
        done, history = solution.history.rounds, solution.history
        if done % every == 0:
            sent = (history[column][-1] / 1e6 for column in ("uplink_bytes", "downlink_bytes"))
            rows.append((done, *sent, correct(solution.module(), images.test)))
    return rows
