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
from typing import Any, TypeVar

import jax
import numpy as np

__all__ = ["Arrays", "Order", "Refused", "Reply", "check_arrays", "pack", "unpack"]

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


def unpack(template: Any, arrays: Arrays, prefix: str = "", who: str = "the state") -> Any:
    """The inverse of `pack`, into the structure of `template` (arrays, or their shapes and types).

    Raises:
        Refused: names, a shape or a type differ, or a number is not finite.
    """
    names = {f"{prefix}{jax.tree_util.keystr(p)}": leaf for p, leaf in jax.tree_util.tree_leaves_with_path(template)}
    chosen = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    check_arrays(names, chosen, who)
    return jax.tree.unflatten(jax.tree.structure(template), [chosen[name] for name in names])


def check_arrays(expected: Mapping[str, Any], arrays: Arrays, who: str) -> None:
    """Refuse arrays whose names, shapes or types are not those of `expected`, or that are not finite."""
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
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            position = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise Refused("number", f"{who}: array {name!r} holds {array[position]} at {position}.")


@dataclass(frozen=True)
class Message:
    """Fields that are arrays by name are marked as such; all others are JSON."""

    def parts(self) -> tuple[str, dict[str, np.ndarray]]:
        """The JSON part, and all arrays under `field/name`."""
        facts: dict[str, Any] = {}
        arrays: dict[str, np.ndarray] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.metadata.get("arrays"):
                arrays |= {f"{item.name}/{name}": array for name, array in value.items()}
            else:
                facts[item.name] = value
        return json.dumps(facts, sort_keys=True), arrays

    @classmethod
    def from_parts(cls: type[T], facts: str, arrays: Arrays) -> T:
        """The inverse of `parts`.

        Raises:
            Refused: a field is missing, unknown or of another type; texts are checked before they are used.
        """
        wanted = {item.name: item for item in dataclasses.fields(cls) if not item.metadata.get("arrays")}
        named = [item.name for item in dataclasses.fields(cls) if item.metadata.get("arrays")]
        try:
            values = json.loads(facts)
        except (ValueError, TypeError):
            values = None
        if not isinstance(values, dict) or set(values) != set(wanted):
            raise Refused("format", f"a message without the fields of {cls.__name__}: {str(facts)[:200]!r}.")
        for name, item in wanted.items():
            kind = item.metadata["kind"]
            if not isinstance(values[name], kind) or (isinstance(values[name], bool) and kind is not bool):
                raise Refused("format", f"{cls.__name__}.{name} = {values[name]!r} is not a {kind}.")
        groups: dict[str, dict[str, np.ndarray]] = {name: {} for name in named}
        for path, array in arrays.items():
            group, _, name = path.partition("/")
            if group not in groups:
                raise Refused("format", f"a message with an array {path!r} that {cls.__name__} does not have.")
            groups[group][name] = array
        return cls(**values, **groups)

    def digest(self) -> str:
        """A text that two messages share only if they are equal."""
        facts, arrays = self.parts()
        total = hashlib.blake2b(facts.encode(), digest_size=16)
        for name in sorted(arrays):
            array = arrays[name]
            total.update(f"{name} {array.dtype} {array.shape}".encode())
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()

    def nbytes(self) -> int:
        """What the arrays take."""
        return sum(array.nbytes for array in self.parts()[1].values())


def _arrays() -> Any:
    return field(default_factory=dict, metadata={"arrays": True})


def _fact(kind: Any, **kwargs: Any) -> Any:
    return field(metadata={"kind": kind}, **kwargs)


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
        evaluate: whether value and gradient of f_k at the server's model are wanted.
        duals: whether lambda_k is wanted.
        broadcast: what the server sent last.
        answer: what became of the site's last accepted message, for algorithms that tell; else empty.
        theta: the server's model where it is wanted and not the broadcast itself.
        start: theta^(0), while no reply of the site was accepted.
    """

    run: str = _fact(str)
    site: str = _fact(str)
    number: int = _fact(int)
    accepted: int = _fact(int)
    first: int = _fact(int)
    last: int = _fact(int)
    rows: int = _fact(int)
    key: list[int] = _fact(list)
    settings: dict[str, float] = _fact(dict)
    started: dict[str, float] = _fact(dict)
    evaluate: bool = _fact(bool)
    duals: bool = _fact(bool)
    broadcast: Arrays = _arrays()
    answer: Arrays = _arrays()
    theta: Arrays = _arrays()
    start: Arrays = _arrays()


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
        message: what the algorithm sends.
        gradient, dual: grad f_k at that model, and lambda_k; empty where not asked for.
    """

    run: str = _fact(str)
    site: str = _fact(str)
    number: int = _fact(int)
    first: int = _fact(int)
    last: int = _fact(int)
    rows: int = _fact(int)
    evaluations: float = _fact(float)
    gap: float = _fact(float)
    model_square: float = _fact(float)
    dual_square: float = _fact(float)
    value: float = _fact(float)
    message: Arrays = _arrays()
    gradient: Arrays = _arrays()
    dual: Arrays = _arrays()
