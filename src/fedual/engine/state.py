"""The whole state of a run."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedual.arrays import random_key, record, squared_norm, static
from fedual.solution import History

__all__ = ["PER_CLIENT", "ClientRecord", "Device", "RunState", "duals", "start_state"]

PER_CLIENT = ("clients", "carries", "records")
"""The fields of `Device` that hold one tree per bucket, leading axis its clients."""


class ClientRecord(NamedTuple):
    """What the driver remembers of a client.

    Attributes:
        visits: rounds of work the client has done.
        gap: ||theta_k - anchor_k||^2 of its last round of work.
        model_square, dual_square: ||theta_k||^2 and ||lambda_k||^2 after it.
        step_size: s when it last took part.
        finite: whether its last result was finite.
    """

    visits: Any
    gap: Any
    model_square: Any
    dual_square: Any
    step_size: Any
    finite: Any


@record
class Device:
    """The part of a run's state that the compiled program advances. Per-client parts are one tree per bucket.

    Attributes:
        round: rounds done.
        stretch: stretches of rounds begun and ended by a communication.
        fresh: whether the next round begins a stretch.
        active: who takes part in the present stretch, shape `(K,)`.
        server, broadcast: the server's state and what it last sent.
        clients, carries, records: states of clients, oracles, and the driver's records.
        schedule: the schedule's state.
        step_size: s in force, NaN for a method without one.
        mean, dual: sum of w_k theta_k and of w_k lambda_k, each of shape `(d,)`; participants add what they change.
        key: the run's random key, two words.
        start: theta^(0), shape `(d,)`.
    """

    round: Any
    stretch: Any
    fresh: Any
    active: Any
    server: Any
    broadcast: Any
    clients: Any
    carries: Any
    records: Any
    schedule: Any
    step_size: Any
    mean: Any
    dual: Any
    key: Any
    start: Any


@record
class RunState:
    """Everything needed to go on with a run.

    Attributes:
        device: see `Device`.
        history: the rows so far.
        seed: what the key was made of.
        stored: where the states of clients and oracles are if they are not in `device`, see `engine.stored`.
    """

    device: Device
    history: History = static()
    seed: int = static()
    stored: Any = static(default=None)


def duals(algorithm: Any, clients: Any, records: Any) -> Any:
    """lambda_k of a bucket's clients, shape `(K_b, d)`, each with the s that was in force when it last took part."""

    def one(client: Any, record: Any) -> Any:
        own = algorithm
        if hasattr(algorithm, "step_size"):
            own = dataclasses.replace(algorithm, step_size=record.step_size)
        return own.dual(client)

    return jax.vmap(one)(clients, records)


def start_state(bound: Any, theta: np.ndarray, seed: int, stored: Any = None) -> RunState:
    """The state before round 1, from a bound method (see `engine.bind`) and theta^(0).

    With `stored` the states of clients and oracles are left out of it: they are there.
    """
    algorithm, layout = bound.method.algorithm, bound.layout
    theta = jnp.asarray(theta)
    server, client = algorithm.init(theta)

    def stack(bucket: Any, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(bucket.count), *jnp.shape(leaf))), tree)

    s = jnp.asarray(getattr(algorithm, "step_size", jnp.nan), theta.dtype)
    dual = algorithm.dual(client)
    record = ClientRecord(
        jnp.int32(0), jnp.zeros((), theta.dtype), squared_norm(theta), squared_norm(dual), s, jnp.asarray(True)
    )
    device = Device(
        round=jnp.int32(0),
        stretch=jnp.int32(0),
        fresh=jnp.asarray(True),
        active=jnp.ones(len(bound.problem.clients), bool),
        server=server,
        broadcast=algorithm.first_broadcast(theta),
        clients=tuple(stack(bucket, client) for bucket in layout.buckets) if stored is None else (),
        carries=bound.start_carries(theta) if stored is None else (),
        records=tuple(stack(bucket, record) for bucket in layout.buckets),
        schedule=bound.method.schedule.init(),
        step_size=s,
        mean=theta,
        dual=dual,
        key=random_key(seed),
        start=theta,
    )
    return RunState(device, History(), seed, stored)
