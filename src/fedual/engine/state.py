"""The whole state of a run."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from fedual import tuning
from fedual.arrays import random_key, record, squared_norm, static
from fedual.devices import share_out
from fedual.engine import watch
from fedual.solution import History

__all__ = ["PER_CLIENT", "ClientRecord", "Device", "RunState", "check_state", "duals", "placed", "start_state"]

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
        tuner: the memory of the rule for s, `()` where s is fixed.
        mean, dual: sum of w_k theta_k and of w_k lambda_k, each of shape `(d,)`; participants add what they change.
        scales: the largest (sum w_k ||theta_k||^2)^(1/2) and (sum w_k ||lambda_k||^2)^(1/2) so far.
        watch: see `engine.watch`.
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
    tuner: Any
    mean: Any
    scales: Any
    watch: Any
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


def start_state(bound: Any, theta: Any, seed: int, stored: Any = None) -> RunState:
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
        tuner=tuning.start(s) if bound.method.adapts else (),
        mean=theta,
        dual=dual,
        scales=(jnp.zeros_like(s), jnp.zeros_like(s)),
        watch=watch.start(theta),
        key=random_key(seed),
        start=theta,
    )
    return RunState(device, History(), seed, stored)


def placed(state: RunState, mesh: Mesh | None) -> RunState:
    """Every part on the devices where the compiled program leaves it, so that all its calls are the same program."""
    if mesh is None:
        return state
    per_client = {name: share_out(getattr(state.device, name), mesh) for name in PER_CLIENT}
    same = jax.device_put(state.device, NamedSharding(mesh, P()))
    return dataclasses.replace(state, device=dataclasses.replace(same, **per_client))


def check_state(bound: Any, state: Any) -> None:
    """Raise ValueError where `state` is not one that a run of this problem and method has."""
    theta = np.zeros(bound.problem.dimension, bound.problem.dtype)
    stored = getattr(state, "stored", None)
    expected = jax.eval_shape(lambda: start_state(bound, theta, 0, stored).device)
    if not isinstance(state, RunState) or _shapes(state.device) != _shapes(expected):
        raise ValueError(
            "state does not belong to this problem and method: its arrays differ in number, shape or precision. Pass "
            "`solution.state` of a run with the same loss, clients, dtype, algorithm, oracle and number of devices."
        )


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
