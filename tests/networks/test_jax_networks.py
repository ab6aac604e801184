"""Networks of other libraries by `from_function`: one full step a round is those libraries' gradient descent."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import fedual as fd


def entropies(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def equinox_network(inputs):
    eqx = pytest.importorskip("equinox")
    network = eqx.nn.MLP(inputs, 3, width_size=5, depth=1, activation=jax.nn.tanh, key=jax.random.key(0))
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)
    return parameters, lambda p, rows: entropies(jax.vmap(eqx.combine(p, rest))(rows[0]), rows[1])


def flax_network(side):
    nn = pytest.importorskip("flax.linen")

    class Convolutions(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(nn.tanh(nn.Conv(2, (3, 3))(x)).reshape(len(x), -1))

    network = Convolutions()
    parameters = network.init(jax.random.key(0), np.zeros((1, side, side, 1), "float32"))
    return parameters, lambda p, rows: entropies(network.apply(p, rows[0]), rows[1])


@pytest.mark.parametrize(
    ("build", "shape", "settings"),
    [(equinox_network, (4,), {}), (flax_network, (5, 5, 1), {"clients_at_once": 1})],
    ids=["equinox", "flax, clients one by one"],
)
def test_a_network_trains_as_its_own_library_would_train_it(rng, build, shape, settings):
    parameters, loss = build(shape[0])
    pairs = [(rng.normal(size=(n, *shape)).astype("float32"), rng.integers(0, 3, n)) for n in (6, 9)]
    problem = fd.Problem(fd.losses.from_function(loss, parameters), fd.data.from_arrays(pairs), dtype="float32")
    one_step = fd.FedAvg(fd.oracles.GradientDescent(steps=1, learning_rate=0.2))
    solution = fd.solve(problem, one_step, rounds=4, **settings)

    pooled = tuple(np.concatenate(part) for part in zip(*pairs, strict=True))
    slope = jax.jit(jax.grad(lambda p: loss(p, pooled).mean()))
    for _ in range(4):
        parameters = jax.tree.map(lambda p, g: p - 0.2 * g, parameters, slope(parameters))
    np.testing.assert_allclose(solution.theta, ravel_pytree(parameters)[0], atol=2e-6)
    assert not np.allclose(solution.theta, problem.loss.start(shape), atol=1e-3)
