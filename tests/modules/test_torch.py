"""PyTorch modules: the same numbers as the JAX path on a convex model, the same draws, the same columns."""

from __future__ import annotations

from functools import partial

import numpy as np
import optax
import pytest

import fedual as fd
from fedual.solution import COLUMNS

torch = pytest.importorskip("torch")
ft = pytest.importorskip("fedual.torch")

FULL = fd.oracles.GradientDescent(steps=3, learning_rate=0.3)
BATCHES = fd.oracles.StochasticGradient(steps=4, learning_rate=0.2, batch_size=3)
TWO = {"participation": fd.participation.Uniform(count=2)}
METHODS = [
    (fd.FedPD(BATCHES, 1.0), {"schedule": fd.schedules.Skip(0.5)}),
    (fd.ADMM(FULL, 0.5), {}),
    (fd.FedADMM(fd.oracles.VarianceReduced(4, 0.1, 2, 3), 1.0), TWO | {"schedule": fd.schedules.Skip(0.3)}),
    (fd.FedDR(BATCHES, 1.0), {"participation": fd.participation.Bernoulli(0.5)}),
    (fd.FedSplit(fd.oracles.Linearized(4, 0.2), 1.0), TWO),
    (fd.FedDyn(fd.oracles.SVRG(4, 0.2, 2), 1.0), TWO),
    (fd.AFedPD(BATCHES, 1.0), TWO),
    (fd.SCAFFOLD(fd.oracles.StochasticGradient(learning_rate=0.1, batch_size=3, epochs=2.0)), TWO),
    (fd.SCAFFOLD(BATCHES, option="I"), TWO),
    (fd.ProxSkip(learning_rate=0.1, skip_probability=0.5), {}),
    (fd.FedAvg(BATCHES, averaging="unbiased"), TWO),
    (fd.FedProx(BATCHES, mu=0.3), {}),
    (fd.FedOpt(BATCHES, optax.adam(0.1)), TWO),
]


def entropy(output, target):
    return torch.nn.functional.binary_cross_entropy_with_logits(output[:, 0], target)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(0)
    sizes = (5, 9, 20, 7, 12)
    return fd.data.from_arrays([(rng.normal(size=(n, 4)), (rng.random(n) < 0.5).astype(float)) for n in sizes])


def logistic(clients, dtype="float64", **settings):
    """The same problem for both: `(jax, torch)`."""
    regularizer, l2 = settings.get("regularizer"), settings.get("l2", 0.0)
    module = torch.nn.Linear(4, 1, bias=False, dtype=getattr(torch, dtype))
    return (
        fd.Problem(fd.losses.logistic(l2=l2), clients, regularizer=regularizer, dtype=dtype),
        ft.TorchProblem(module, entropy, clients, **settings),
    )


@pytest.mark.parametrize(("algorithm", "rules"), METHODS, ids=lambda value: getattr(value, "name", ""))
def test_a_module_gives_the_numbers_of_the_jax_path(clients, algorithm, rules):
    arrays, modules = logistic(clients)
    a = fd.solve(arrays, algorithm, rounds=8, seed=3, theta0=np.ones(4), **rules)
    b = ft.solve(modules, algorithm, rounds=8, seed=3, theta0=np.ones(4), **rules)
    for name in ("theta", "thetas", "duals"):
        np.testing.assert_allclose(getattr(b, name), getattr(a, name), rtol=0, atol=1e-12, err_msg=name)
    for name in set(COLUMNS) - {"seconds"}:
        np.testing.assert_allclose(b.history[name], a.history[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_single_precision_agrees_to_a_millionth(clients):
    arrays, modules = logistic(clients, "float32")
    runs = [s(p, fd.FedADMM(BATCHES, 1.0), rounds=8, theta0=np.ones(4), **TWO) for s, p in
            ((fd.solve, arrays), (ft.solve, modules))]  # fmt: skip
    assert modules.dtype == "float32"
    np.testing.assert_allclose(runs[1].theta, runs[0].theta, atol=1e-6)


def test_regularizers_and_penalties_are_those_of_the_jax_path(clients):
    arrays, modules = logistic(clients, regularizer=fd.prox.l1(0.05), l2=0.1)
    rules = {"schedule": fd.schedules.Skip(0.4), "rounds": 10, "theta0": np.ones(4)}
    a, b = (s(p, fd.FedPD(FULL, 1.0), **rules) for s, p in ((fd.solve, arrays), (ft.solve, modules)))
    np.testing.assert_allclose(b.theta, a.theta, atol=1e-12)
    for name in ("objective", "stationarity", "dual_residual"):
        np.testing.assert_allclose(b.history[name], a.history[name], rtol=1e-11, atol=1e-13)


def test_the_modules_own_optimizer_makes_the_same_steps(clients):
    _, modules = logistic(clients, l2=0.1)
    own = ft.TorchOptimizer(partial(torch.optim.SGD, lr=0.2), steps=4, batch_size=3)
    a, b = (ft.solve(modules, fd.FedADMM(o, 1.0), rounds=6, theta0=np.ones(4), **TWO) for o in (BATCHES, own))
    np.testing.assert_allclose(b.theta, a.theta, atol=1e-13)
    assert a.history["gradient_evaluations"].tolist() == b.history["gradient_evaluations"].tolist()


@pytest.mark.parametrize("keep", [False, True])
def test_the_optimizers_state_is_kept_where_asked(clients, keep):
    """One client, FedAvg: rounds of momentum steps are one run of momentum steps, restarted or not."""
    one = clients.select([2])
    modules = logistic(one)[1]
    own = ft.TorchOptimizer(partial(torch.optim.SGD, lr=0.1, momentum=0.9), steps=2, batch_size=40, keep=keep)
    theta, velocity, rounds = np.ones(4), np.zeros(4), 3
    solution = ft.solve(modules, fd.FedAvg(own), rounds=rounds, theta0=theta)
    for number in range(rounds):
        velocity = velocity if keep else 0 * velocity
        for rows in batches(number + 1, one.names[0], steps=2, size=40, count=20):
            x, y = one.features[0][rows], one.targets[0][rows]
            velocity = 0.9 * velocity + x.T @ (1 / (1 + np.exp(-x @ theta)) - y) / len(y)
            theta = theta - 0.1 * velocity
    np.testing.assert_allclose(solution.theta, theta, atol=1e-13)


def batches(number, name, steps, size, count):
    """The documented draws, from JAX's generator alone: the run's key, the round, 2 for minibatches, the name."""
    import hashlib

    import jax

    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), number), 2)
        for word in (digest[:4], digest[4:]):
            key = jax.random.fold_in(key, np.uint32(int.from_bytes(word, "little")))
        draw = [jax.random.randint(jax.random.fold_in(key, q), (size,), 0, count, np.int32) for q in range(steps)]
        return np.array(draw)


def test_a_run_goes_on_from_its_state_and_old_states_stay(clients):
    _, modules = logistic(clients)
    run = partial(ft.solve, modules, fd.FedADMM(BATCHES, 1.0), seed=5, **TWO)
    whole, half = run(rounds=8), run(rounds=3)
    before = half.thetas.copy()
    assert run(rounds=8, state=half.state).theta.tolist() == whole.theta.tolist()
    assert half.thetas.tolist() == before.tolist()


def test_the_users_module_and_random_numbers_are_left_alone(clients):
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)).double()
    before, drawn = [p.detach().clone() for p in module.parameters()], torch.get_rng_state()
    problem = ft.TorchProblem(module, entropy, clients)
    first, second = (ft.solve(problem, fd.FedAvg(BATCHES), rounds=2, seed=s).theta for s in (1, 1))
    assert all((p == q).all() for p, q in zip(module.parameters(), before, strict=True))
    assert (torch.get_rng_state() == drawn).all()
    assert first.tolist() == second.tolist()


def test_frozen_parameters_keep_their_values_and_have_no_dual(clients):
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)).double()
    module[0].requires_grad_(False)
    problem = ft.TorchProblem(module, entropy, clients)
    solution = ft.solve(problem, fd.FedPD(FULL, 1.0), rounds=3)
    assert solution.duals.shape == (5, 4)
    assert (solution.module()[0].weight == module[0].weight).all()
    assert not (solution.module()[1].weight == module[1].weight).any()


def test_data_sets_and_mappings_give_the_numbers_of_arrays(clients):
    class Listed(torch.utils.data.Dataset):
        def __init__(self, x, y):
            self.rows = list(zip(x, y, strict=True))

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, i):
            return self.rows[i]

    module = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    forms = [clients]
    for kind in (Listed, lambda x, y: torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))):
        named = zip(clients.names, clients.features, clients.targets, strict=True)
        forms.append({name: kind(x, y) for name, x, y in named})
    runs = [ft.solve(ft.TorchProblem(module, entropy, form), fd.FedPD(BATCHES, 1.0), rounds=2).theta for form in forms]
    np.testing.assert_allclose(runs[1], runs[0], atol=1e-14)
    assert runs[2].tolist() == runs[0].tolist()


def test_a_result_that_is_not_finite_names_the_client_and_keeps_the_state(clients):
    _, modules = logistic(clients)
    wild = fd.oracles.PerClient({"client 3": fd.oracles.GradientDescent(4, 1e308)}, default=FULL)
    wrong = ft.TorchProblem(modules.flat.module, lambda o, y: o.square().mean() * 1e200, clients)
    solution = ft.solve(wrong, fd.FedPD(wild, 1.0), rounds=3, theta0=np.ones(4))
    assert solution.status == "diverged"
    assert "client" in solution.reason
    assert solution.history.rounds == 0
    assert np.isfinite(solution.thetas).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": fd.FedPD(fd.oracles.Newton(), 1.0)}, "Newton does not work on tensors; use fedual.torch"),
        ({"algorithm": fd.FedPD(FULL)}, "give step_size as a number"),
        ({"algorithm": fd.FedPD(fd.oracles.GradientDescent(3), 1.0)}, "give learning_rate as a number"),
        ({"algorithm": fd.FedAvg()}, "needs an oracle with a learning rate"),
        ({"algorithm": fd.FedPD(FULL, 1.0), **TWO}, "it is FedADMM"),
        ({"theta0": np.zeros(3)}, r"theta0 has shape \(3,\); this problem has 4"),
        ({"theta0": {"bias": np.zeros(1)}}, "theta0 lacks 'weight'"),
        ({"theta0": {"weight": np.zeros((4, 1))}}, r"'weight' has shape \(4, 1\); expected \(1, 4\)"),
        ({"rounds": 0}, "rounds = 0"),
    ],
)
def test_what_does_not_fit_is_refused(clients, change, message):
    settings = {"algorithm": fd.FedADMM(FULL, 1.0), "rounds": 2} | change
    with pytest.raises(ValueError, match=message):
        ft.solve(logistic(clients)[1], **settings)


def test_bad_data_name_the_client():
    module = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match="client 'b' has no rows"):
        ft.TorchProblem(module, entropy, {"a": (np.ones((1, 2)), [0.0]), "b": (np.ones((0, 2)), np.zeros(0))})
    with pytest.raises(ValueError, match="client 'client 0': X has 2 rows and y has 1"):
        ft.TorchProblem(module, entropy, [(np.ones((2, 2)), [0.0])])
    with pytest.raises(ValueError, match="nothing can train"):
        ft.TorchProblem(torch.nn.ReLU(), entropy, [(np.ones((1, 2)), [0.0])])
    rows = ft.TorchProblem(module, lambda o, y: o[:, 0], [(np.ones((2, 2)), [0.0, 1.0])])
    with pytest.raises(ValueError, match="must be the mean over the batch") as caught:
        ft.solve(rows, fd.FedPD(FULL, 1.0), rounds=1)
    assert "client 'client 0'" in caught.value.__notes__[0]
