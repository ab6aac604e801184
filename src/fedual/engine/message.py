"""What passes between a coordinator and its sites, as plain arrays and JSON; nothing in it can carry code.

One `Order` goes to a participant per communication and one `Reply` comes back, however many silent rounds the stretch
before the communication has. Whatever carries them needs `parts` and `from_parts` only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_origin, get_type_hints

import jax
import numpy as np

__all__ = ["Arrays", "Order", "Refused", "Reply", "check_arrays", "digest", "pack", "shapes", "unpack"]

Arrays = Mapping[str, np.ndarray]
T = TypeVar("T", bound="Message")


class Refused(ValueError):
    """A message or a state that is not accepted.

    Args:
        kind: "old", "gap", "run", "site", "shape", "number", "rows", "data" or "format".
        text: what was wrong, with the site's name, and what to do.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def pack(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """A tree of arrays as named arrays.

    Example:
        >>> import numpy as np
        >>> sorted(pack({"a": np.zeros(2), "b": np.ones(())}, "client"))
        ["client['a']", "client['b']"]
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{prefix}{jax.tree_util.keystr(path)}": np.ascontiguousarray(leaf) for path, leaf in leaves}


def shapes(tree: Any) -> dict[str, Any]:
    """Like `pack`, for a tree of shapes and types."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unpack(template: Any, arrays: Arrays, prefix: str = "", who: str = "the state", finite: bool = True) -> Any:
    """The inverse of `pack`, into the structure of `template` (arrays, or their shapes and types).

    Raises:
        Refused: names, a shape or a type differ, or a number is not finite where `finite` asks for it.
    """
    names = {f"{prefix}{jax.tree_util.keystr(p)}": leaf for p, leaf in jax.tree_util.tree_leaves_with_path(template)}
    chosen = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    check_arrays(names, chosen, who, finite)
    return jax.tree.unflatten(jax.tree.structure(template), [chosen[name] for name in names])


def check_arrays(expected: Mapping[str, Any], arrays: Arrays, who: str, finite: bool = True) -> None:
    """Refuse arrays whose names, shapes or types are not those of `expected`, or that are not finite (if asked)."""
    if set(expected) != set(arrays):
        missing, more = sorted(set(expected) - set(arrays)), sorted(set(arrays) - set(expected))
        raise Refused("shape", f"{who}: arrays missing: {missing or 'none'}; not expected: {more or 'none'}.")
    for name, like in expected.items():
        array = arrays[name]
        if array.shape != np.shape(like) or array.dtype != like.dtype:
            raise Refused(
                "shape",
                f"{who}: array {name!r} is {array.dtype} {array.shape}; expected {like.dtype} {np.shape(like)}.",
            )
        if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            position = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise Refused("number", f"{who}: array {name!r} holds {array[position]} at {position}.")


def digest(arrays: Arrays, facts: str = "") -> str:
    """A text that equal arrays and facts share, and no others."""
    total = hashlib.blake2b(facts.encode(), digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


@dataclass(frozen=True)
class Message:
    """Fields of type `Arrays` are arrays by name; all others are JSON."""

    def parts(self) -> tuple[str, dict[str, np.ndarray]]:
        """The JSON part, and all arrays under `field/name`."""
        kinds = _kinds(type(self))
        facts = {name: getattr(self, name) for name, kind in kinds.items() if kind is not Mapping}
        arrays = {
            f"{group}/{name}": array
            for group, kind in kinds.items()
            if kind is Mapping
            for name, array in getattr(self, group).items()
        }
        return json.dumps(facts, sort_keys=True), arrays

    @classmethod
    def from_parts(cls: type[T], facts: str, arrays: Arrays) -> T:
        """The inverse of `parts`.

        Raises:
            Refused: a field is missing, unknown, of another type, or a number that is not finite.
        """
        kinds = _kinds(cls)
        plain = {name: kind for name, kind in kinds.items() if kind is not Mapping}
        groups: dict[str, dict[str, np.ndarray]] = {name: {} for name, kind in kinds.items() if kind is Mapping}
        try:
            values = json.loads(facts, parse_constant=_not_a_number)
        except (ValueError, TypeError) as error:
            raise Refused("format", f"a message that is not readable: {error}") from None
        if not isinstance(values, dict) or set(values) != set(plain):
            raise Refused("format", f"a message without the fields of {cls.__name__}: {str(facts)[:200]!r}.")
        for name, kind in plain.items():
            if not isinstance(values[name], kind) or (isinstance(values[name], bool) and kind is not bool):
                raise Refused("format", f"{cls.__name__}.{name} = {values[name]!r} must be of type {kind.__name__}.")
        for path, array in arrays.items():
            group, _, name = path.partition("/")
            if group not in groups:
                raise Refused("format", f"a message with an array {path!r} that {cls.__name__} does not have.")
            groups[group][name] = array
        return cls(**values, **groups)

    def digest(self) -> str:
        """A text that two messages share only if they are equal."""
        facts, arrays = self.parts()
        return digest(arrays, facts)

    def nbytes(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for array in self.parts()[1].values())


def _kinds(cls: type[Message]) -> dict[str, type]:
    """The type of every field, without its parameters; `Mapping` for arrays."""
    hints = get_type_hints(cls)
    return {item.name: get_origin(hints[item.name]) or hints[item.name] for item in dataclasses.fields(cls)}


def _not_a_number(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


@dataclass(frozen=True)
class Order(Message):
    """From the coordinator to one participant: a stretch of rounds to work through.

    Attributes:
        run, site: whom it is for.
        number: of the stretch, 1, 2, ...
        accepted: number of the site's last reply that was accepted, 0 for none; a site whose last reply was not goes
            back to its state from before that stretch.
        first, last: the stretch's rounds; all but the last are silent. `last < first`: nothing to work, only to hear.
        rows: the site's number of rows, as it declared.
        key: the run's random key, two words.
        settings: numbers of the algorithm in force during the stretch, s (`step_size`) among them.
        started: the same settings when the run started.
        chance: the probability with which the site takes part in a stretch; 0 where there is none.
        adapts, observes: whether the reply is to say how the site moved, for the rule for s, and grad f_k at the model
            received, for the schedule.
        evaluate: whether value and gradient of f_k at the server's model are wanted.
        duals: whether lambda_k is wanted.
        broadcast: what the server sent last.
        answer: what became of the site's last accepted message, for algorithms that tell; else empty.
        theta: the server's model where it is wanted; empty where it is the broadcast itself.
        start: theta^(0), while no reply of the site was accepted; empty where it is the broadcast itself.
    """

    run: str
    site: str
    number: int
    accepted: int
    first: int
    last: int
    rows: int
    key: list[int]
    settings: dict[str, float]
    started: dict[str, float]
    chance: float
    adapts: bool
    observes: bool
    evaluate: bool
    duals: bool
    broadcast: Arrays = field(default_factory=dict)
    answer: Arrays = field(default_factory=dict)
    theta: Arrays = field(default_factory=dict)
    start: Arrays = field(default_factory=dict)


@dataclass(frozen=True)
class Reply(Message):
    """From a site to the coordinator, after a stretch.

    Attributes:
        run, site, number, first, last: those of the order.
        rows: n_k.
        evaluations: sample gradients that the stretch took.
        gap, model_square, dual_square: ||theta_k - anchor_k||^2, ||theta_k||^2 and ||lambda_k||^2 after it (0 for a
            method without duals).
        value: f_k at the server's model from before the stretch; 0 where not asked for.
        moved: ||change of theta_k||^2 and ||change of lambda_k||^2 in the last round; empty where not asked for.
        message: what the algorithm sends.
        observed: grad f_k and its square at the model received; empty where not asked for.
        gradient, dual: grad f_k at that model, and lambda_k; empty where not asked for.
    """

    run: str
    site: str
    number: int
    first: int
    last: int
    rows: int
    evaluations: float
    gap: float
    model_square: float
    dual_square: float
    value: float
    moved: list[float]
    message: Arrays = field(default_factory=dict)
    observed: Arrays = field(default_factory=dict)
    gradient: Arrays = field(default_factory=dict)
    dual: Arrays = field(default_factory=dict)
