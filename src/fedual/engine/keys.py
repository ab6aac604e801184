"""What is drawn in a round: the coin, the participants, the minibatches; from the run's key and the clients' names."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedual.arrays import wrap_key
from fedual.engine.bind import Method
from fedual.engine.state import Device

__all__ = ["COIN", "MINIBATCH", "PARTICIPATION", "client_key", "client_uniforms", "draw_active", "uniform_number"]

COIN, PARTICIPATION, MINIBATCH = 0, 1, 2  # what the round's key is folded with


def draw_active(method: Method, state: Device, words: jax.Array) -> jax.Array:
    """Who takes part in the next round, flags of shape `(K,)`: drawn at the start of a stretch, kept within it."""
    if method.participation.everyone:
        return state.active
    key = jax.random.fold_in(jax.random.fold_in(wrap_key(state.key), state.round + 1), PARTICIPATION)
    drawn = method.participation.draw(client_uniforms(key, words), state.stretch)
    return jnp.where(state.fresh, drawn, state.active)


def client_uniforms(key: jax.Array, words: jax.Array) -> jax.Array:
    """One uniform number per client, shape `(K,)`, from the round and the client's name alone."""
    return jax.vmap(lambda w: uniform_number(client_key(key, w)))(words)


def uniform_number(key: jax.Array) -> jax.Array:
    """In 32 bits whatever the problem's precision, so that both precisions draw the same."""
    return jax.random.uniform(key, dtype=jnp.float32)


def client_key(key: jax.Array, words: jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(key, words[0]), words[1])
