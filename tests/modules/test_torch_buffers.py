"""Batch normalization, counters, masks and half precision."""

from __future__ import annotations

from functools import partial

import numpy as np
import optax
import pytest

import fedual as fd

torch = pytest.importorskip("torch")
ft = pytest.importorskip("fedual.torch")

SGD = ft.TorchOptimizer(partial(torch.optim.SGD, lr=0.05), steps=6, batch_size=8)


class Masked(torch.nn.Module):
    """Batch normalization, a boolean mask and an integer counter of its own."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.head = torch.nn.Linear(3, 1)
        self.register_buffer("mask", torch.tensor([True, True, False]))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return self.head(self.norm(x) * self.mask)[:, 0]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def sites(rows=40, means=(0.0, 10.0)):
    rng = np.random.default_rng(1)
    return {f"site {m:g}": (rng.normal(m, 1, (rows, 3)).astype(np.float32), rng.normal(size=rows)) for m in means}


def problem(**settings):
    return ft.TorchProblem(Masked(), torch.nn.functional.mse_loss, sites(), **settings)


def test_averaged_statistics_are_those_of_a_plain_weighted_mean():
    """One round: both start from the module's, so the common mean is the mean of the sites' own."""
    solution = ft.solve(problem(buffers="average"), fd.FedPD(SGD, 1.0), rounds=1)
    own = [client.buffers["norm.running_mean"] for client in solution.state.clients]
    assert own[0].abs().max() < 2
    assert own[1].min() > 3
    torch.testing.assert_close(solution.module().norm.running_mean, (own[0] + own[1]) / 2)


def test_local_statistics_stay_with_their_site():
    solution = ft.solve(problem(buffers="local"), fd.FedPD(SGD, 1.0), rounds=5)
    means = {name: solution.module(name).norm.running_mean for name in ("site 0", "site 10")}
    assert means["site 0"].abs().max() < 1
    assert (means["site 10"] - 10).abs().max() < 1
    assert (solution.module("site 0").head.weight == solution.module("site 10").head.weight).all()
    with pytest.raises(ValueError, match="name the client whose buffers to use"):
        solution.module()
    averaged = ft.solve(problem(buffers="average"), fd.FedPD(SGD, 1.0), rounds=5)
    assert (averaged.module().norm.running_mean - 5).abs().max() < 1


def test_only_averaged_buffers_cost_bytes():
    sent = [ft.solve(problem(buffers=b), fd.FedPD(SGD, 1.0), rounds=1).history["uplink_bytes"][0] for b in
            ("average", "local")]  # fmt: skip
    assert sent == [2 * 4 * (10 + 6), 2 * 4 * 10]


@pytest.mark.parametrize(
    "algorithm",
    [fd.FedPD(SGD, 2.0), fd.FedDyn(SGD, 2.0), fd.FedOpt(SGD, optax.sgd(2.0)), fd.FedOpt(SGD, optax.adam(0.5))],
    ids=lambda a: a.name,
)
def test_variances_are_never_extrapolated(algorithm):
    solution = ft.solve(problem(), algorithm, rounds=5)
    variances = [client.buffers["norm.running_var"] for client in solution.state.clients]
    common = solution.state.buffers["norm.running_var"]
    assert (common >= torch.minimum(*variances) - 1e-6).all()
    assert (common <= torch.maximum(*variances) + 1e-6).all()
    assert np.isfinite(solution.history["objective"]).all()


def test_counters_and_masks_keep_their_types_and_have_no_duals():
    solution = ft.solve(problem(), fd.FedPD(SGD, 1.0), rounds=2)
    assert solution.duals.shape == (2, 3 + 3 + 3 + 1)
    trained = solution.module()
    assert (trained.mask.dtype, trained.seen.dtype) == (torch.bool, torch.int64)
    assert trained.mask.tolist() == [True, True, False]
    assert trained.seen.item() == 0
    assert solution.module("site 0").seen.item() == 2 * 6 * 8


def test_33_rows_in_batches_of_32_train_through_batch_normalization():
    data = sites(rows=33)
    oracle = ft.TorchOptimizer(partial(torch.optim.SGD, lr=0.05), epochs=1, batch_size=32)
    solution = ft.solve(ft.TorchProblem(Masked(), torch.nn.functional.mse_loss, data), fd.FedPD(oracle, 1.0), rounds=4)
    assert solution.history["objective"][-1] < solution.history["objective"][0]


@pytest.mark.parametrize(
    ("oracle", "remedy"),
    [
        (fd.oracles.StochasticGradient(steps=2, learning_rate=0.1, batch_size=1), "Take batch_size >= 2"),
        (fd.oracles.GradientDescent(2, 0.1), "Leave that client out"),
    ],
)
def test_a_batch_of_one_is_refused_with_site_and_remedy(oracle, remedy):
    single = ft.TorchProblem(Masked(), torch.nn.functional.mse_loss, {"solo": (np.ones((1, 3)), [1.0])})
    with pytest.raises(ValueError, match=f"client 'solo' would train on a batch of one row.*'norm'.*{remedy}"):
        ft.solve(single, fd.FedPD(oracle, 1.0), rounds=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_precision_do_not_stick(dtype):
    from fedual.torch.modules import weighted_sum

    one, total = torch.full((1,), 0.1, dtype=dtype), None
    for _ in range(20_000):
        total = weighted_sum(total, 1 / 20_000, one)
    assert abs(total.item() - 0.1) < 1e-3


def test_a_half_precision_module_has_vectors_and_duals_in_single_precision():
    module = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
    mse = lambda output, target: torch.nn.functional.mse_loss(output[:, 0], target)  # noqa: E731
    half = ft.TorchProblem(module, mse, sites(means=(0.0, 1.0)))
    solution = ft.solve(half, fd.FedPD(fd.oracles.GradientDescent(3, 0.1), 1.0), rounds=5)
    assert half.dtype == "float32"
    assert solution.duals.dtype == np.float32
    assert solution.module().weight.dtype == torch.bfloat16
    assert solution.history["objective"][-1] < solution.history["objective"][0]
