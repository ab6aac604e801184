"""A run's whole state in one safetensors file, and back. Nothing is ever unpickled.

Arrays of clients are stored in the order in which the user gave the clients, so that a checkpoint does not depend on
how they lay in memory; the layout that they had is noted beside them. Continued on that layout a run is bit-identical
to one that was never interrupted; on another it agrees to rounding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedual import __version__
from fedual.arrays import precision
from fedual.checkpoint.identity import data_digests, describe_method, refuse_other_data, refuse_other_method
from fedual.checkpoint.packing import pack, unpack
from fedual.engine.bind import Bound, bind
from fedual.engine.run import device_count
from fedual.engine.runner import Views
from fedual.engine.state import RunState, start_state
from fedual.engine.stored import whole
from fedual.files import replacing
from fedual.problem import Problem
from fedual.protocols import Algorithm, Participation, Schedule
from fedual.solution import COLUMNS, History, Solution

__all__ = ["Restored", "data_digests", "restore", "save", "saved_devices"]

_FORMAT = 1


@dataclass(frozen=True)
class Restored:
    """What `restore` returns.

    Attributes:
        solution: the run as it was when saved; `solution.state` goes into `fedual.solve(..., state=...)`.
        same_layout: whether the run goes on bit-identically; if not, it agrees to about 1e-12 relative.
        layout: the saved layout and the present one, in words.
    """

    solution: Solution
    same_layout: bool
    layout: str


def save(path: str | Path, solution: Solution, digests: np.ndarray | None = None) -> None:
    """Write the state of a run; an earlier file of that name is replaced only when the new one is complete.

    Args:
        path: usually ends in `.safetensors`.
        solution: from `fedual.solve` or `fedual.iterate`.
        digests: `data_digests(solution.problem.clients)`, to save computing them at every call.

    Example:
        >>> import tempfile, fedual as fd
        >>> from fedual import checkpoint
        >>> clients = fd.data.from_arrays([([[1.0]], [0.0]), ([[2.0]], [2.0])])
        >>> problem, method = fd.Problem(fd.losses.least_squares(), clients), fd.ADMM(step_size=1.0)
        >>> path = tempfile.mkdtemp() + "/run.safetensors"
        >>> checkpoint.save(path, fd.solve(problem, method, rounds=5))
        >>> restored = checkpoint.restore(path, problem, method)
        >>> fd.solve(problem, method, rounds=10, state=restored.solution.state).history.rounds
        10
    """
    bound, state = solution.bound, solution.state
    tensors = {f"state/{name}": array for name, array in pack(bound.layout, whole(bound, state))}
    tensors |= {f"history/{name}": state.history[name] for name in COLUMNS}
    tensors["data"] = data_digests(solution.problem.clients) if digests is None else digests
    facts = {
        "format": _FORMAT,
        "version": __version__,
        "method": describe_method(bound, state.seed),
        "clients": solution.problem.clients.names,
        "layout": _layout(bound),
        "verdict": (solution.status, solution.reason, solution.remedy),
    }
    with replacing(path) as temporary:
        # The writer takes an array's bytes as they lie in memory, whatever its strides.
        contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
        save_file(contiguous, temporary, metadata={"fedual": json.dumps(facts)})


def restore(
    path: str | Path,
    problem: Problem,
    algorithm: Algorithm,
    schedule: Schedule | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    clients_at_once: int | str = "auto",
) -> Restored:
    """Read the state that `save` wrote, for the same problem and method.

    Args:
        path: the file.
        problem, algorithm, schedule, participation, seed, clients_at_once: as in the call of `fedual.solve` that made
            the state.

    Raises:
        ValueError: the file is damaged, was written by another version, or for another method, seed or data; the
            difference is named.
        FileNotFoundError: there is no such file.
    """
    facts = _facts(path)
    with precision(problem.dtype):
        bound = bind(problem, algorithm, schedule, participation, clients_at_once, device_count(problem))
        start = problem.vector(problem.loss.start(problem.feature_shape))
        with safe_open(path, "numpy") as file:
            refuse_other_data(path, facts["clients"], file.get_tensor("data"), problem.clients)
            refuse_other_method(path, facts["method"], describe_method(bound, seed))
            template = start_state(bound, start, seed).device
            device = unpack(bound.layout, template, lambda name: file.get_tensor(f"state/{name}"))
            history = History({name: file.get_tensor(f"history/{name}") for name in COLUMNS})
    old, new = facts["layout"], _layout(bound)
    if old == new:
        layout = f"the layout is the saved one ({_tell(new)}): bit-identical to an uninterrupted run"
    else:
        layout = (
            f"the layout was {_tell(old)} and is {_tell(new)}: equal to an uninterrupted run to about 1e-12, "
            "not bit for bit"
        )
    state = RunState(device, history, seed)
    status, reason, remedy = facts["verdict"]
    return Restored(Solution(problem, state, status, reason, remedy, Views(bound, state)), old == new, layout)


def saved_devices(path: str | Path) -> int:
    """Over how many devices the saved run shared out its clients.

    Raises:
        ValueError, FileNotFoundError: as `restore`.
    """
    return int(_facts(path)["layout"]["devices"])


def _layout(bound: Bound) -> dict[str, Any]:
    """All that decides in which order numbers are added up."""
    return {
        "devices": bound.devices,
        "clients": [len(members) for members in bound.layout.members],
        "rows": [int(bucket.rows.weights.shape[1]) for bucket in bound.layout.buckets],
        "blocks": list(bound.method.blocks),
        "platform": jax.default_backend(),
        "jax": jax.__version__,
    }


def _tell(layout: dict[str, Any]) -> str:
    return (
        f"{layout['devices']} {layout['platform']} device(s), {layout['clients']} clients in blocks of "
        f"{layout['blocks']}, JAX {layout['jax']}"
    )


def _facts(path: str | Path) -> dict[str, Any]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: there is no such checkpoint.")
    try:
        with safe_open(path, "numpy") as file:
            facts = json.loads((file.metadata() or {})["fedual"])
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a checkpoint of fedual, or is damaged: {error}") from None
    if (facts["format"], facts["version"]) != (_FORMAT, __version__):
        raise ValueError(
            f"{path} was written by fedual {facts['version']} (format {facts['format']}); this is {__version__} "
            f"(format {_FORMAT}), whose numbers may differ. Install the former to go on, or start the run again."
        )
    return facts
