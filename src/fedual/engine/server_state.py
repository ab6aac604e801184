"""What a coordinator keeps, in memory and as arrays and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedual.arrays import precision
from fedual.engine.ledger import Ledger
from fedual.engine.message import Arrays, Refused, pack, unpack
from fedual.solution import COLUMNS, History

__all__ = ["ServerState", "Stretch", "load_state", "save_state"]


class Stretch(NamedTuple):
    """Rounds up to and including the next communication.

    Attributes:
        number: 1, 2, ...
        first, last: the rounds.
        active: names of the participants.
        p: the probability of skipping that was in force, per round.
    """

    number: int
    first: int
    last: int
    active: tuple[str, ...]
    p: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ServerState:
    """What the coordinator keeps between communications.

    Attributes:
        run: the run's id.
        round, stretch: done so far.
        settings: the algorithm's shared settings in force.
        server, broadcast: the server's state and what it last sent.
        accepted: every site's last accepted reply, by number.
        schedule, tuner: states of the schedule and of the rule for s, `()` where s is fixed.
        answers: what became of it, where the algorithm tells.
        ledger: what the messages told; the history is in it.
        status, reason: "running" and "", or how the run ended.
    """

    run: str
    round: int
    stretch: int
    settings: Mapping[str, float]
    server: Any
    broadcast: Any
    accepted: Mapping[str, int]
    answers: Mapping[str, Any]
    schedule: Any
    tuner: Any
    ledger: Ledger
    status: str = "running"
    reason: str = ""


_PLAIN = ("run", "round", "stretch", "settings", "accepted", "status", "reason")


def save_state(state: ServerState) -> tuple[str, dict[str, np.ndarray]]:
    """A state as JSON and named arrays."""
    ledger = state.ledger
    arrays = pack(state.server, "server") | pack(state.broadcast, "broadcast")
    arrays |= pack(state.schedule, "schedule") | pack(state.tuner, "tuner")
    for name, answer in state.answers.items():
        arrays |= pack(answer, f"answer/{name}/")
    arrays |= {f"dual/{name}": array for name, array in ledger.duals.items()}
    arrays |= {f"history/{name}": ledger.history[name] for name in COLUMNS}
    arrays |= {"scalars": ledger.scalars, "model": ledger.model, "mean dual": ledger.dual, "scales": ledger.scales}
    facts = {name: getattr(state, name) for name in _PLAIN} | {"answers": list(state.answers), "names": ledger.names}
    return json.dumps(facts), arrays


def load_state(start: ServerState, facts: str, arrays: Arrays) -> ServerState:
    """The inverse of `save_state`.

    Args:
        start: the state before round 1 of the same method and sites.

    Raises:
        Refused: the arrays are those of another method, or sites differ. Sites may leave where the server's state is
            the model alone; the others' weights then sum to 1 among themselves.
    """
    values = json.loads(facts)
    names, gone = list(start.ledger.names), [name for name in values["names"] if name not in start.ledger.names]
    if [name for name in values["names"] if name not in gone] != names:
        raise Refused("site", f"the saved run has the sites {values['names']}; this one {names}.")
    if gone and len(jax.tree.leaves(start.server)) > 1:
        raise Refused(
            "site",
            f"sites {gone} cannot leave this run: the server's state remembers what they sent. Start a new run without "
            "them, with the present model for theta0.",
        )

    def tree(template: Any, prefix: str) -> Any:
        with precision(start.ledger.model.dtype):
            return jax.tree.map(jnp.asarray, unpack(template, arrays, prefix, "the saved run", finite=False))

    ledger = Ledger(
        history=History({name: arrays[f"history/{name}"] for name in COLUMNS}),
        scalars=arrays["scalars"][[values["names"].index(name) for name in names]],
        names=start.ledger.names,
        model=np.full_like(arrays["model"], np.nan) if gone else arrays["model"],
        dual=np.full_like(arrays["mean dual"], np.nan) if gone else arrays["mean dual"],
        scales=arrays["scales"],
        duals={name.removeprefix("dual/"): array for name, array in arrays.items() if name.startswith("dual/")},
    )
    values["accepted"] = {name: values["accepted"][name] for name in names}
    return dataclasses.replace(
        start,
        **{name: values[name] for name in _PLAIN},
        server=tree(start.server, "server"),
        broadcast=tree(start.broadcast, "broadcast"),
        schedule=tree(start.schedule, "schedule"),
        tuner=tree(start.tuner, "tuner"),
        answers={name: tree(start.broadcast, f"answer/{name}/") for name in values["answers"]},
        ledger=ledger,
    )
