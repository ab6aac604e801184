"""State on disk: written in one piece before anything that depends on it leaves, and free of code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedual.engine.message import Arrays, Order, Refused, Reply
from fedual.engine.site import Site, SiteState, Stored
from fedual.files import replacing

__all__ = ["SiteFolder", "exclusive", "read_arrays", "write_arrays"]

_FORMAT = "1"


def write_arrays(path: Path, facts: str, arrays: Arrays) -> None:
    """A safetensors file with JSON beside the arrays; the old file stays until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(contiguous, temporary, metadata={"format": _FORMAT, "fedual": facts})


def read_arrays(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """The inverse of `write_arrays`.

    Raises:
        Refused: the file is damaged or of another format.
    """
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Refused("format", f"{path} is damaged: {error}. Restore it from a copy.") from None
    if metadata.get("format") != _FORMAT:
        raise Refused("format", f"{path} has format {metadata.get('format')}; this version reads {_FORMAT}.")
    return metadata["fedual"], arrays


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Only one process at a time gets past this; a process that dies lets go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as handle:
        with suppress(ImportError):  # where the system has no such locks, the folder's owner sees to it
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class SiteFolder:
    """One site's state of all runs it takes part in.

    In `<folder>/<run>`, `state.safetensors` holds the last reply and names the files of the points before and after the
    stretch that it answers. A point is written once: the one after a stretch is the one before the next.

    Args:
        folder: of this site alone.
        at: called with the name of every point that a crash could fall on: "before save", "after save". For tests.
    """

    def __init__(self, folder: str | Path, at: Callable[[str], Any] = lambda point: None) -> None:
        self.folder = Path(folder)
        self.at = at

    def path(self, run: str) -> Path:
        """The file of one run."""
        if not run or not set(run) <= set("abcdefghijklmnopqrstuvwxyz0123456789-"):
            raise Refused("run", f"run id {run!r} must consist of small letters, digits and hyphens.")
        return self.folder / run / "state.safetensors"

    def load(self, site: Site, run: str) -> SiteState | None:
        """The site's state of a run; None if it has none.

        Raises:
            Refused: a file is damaged, or belongs to another problem or method.
        """
        path = self.path(run)
        return site.load(self._read(path)[0]) if path.is_file() else None

    def serve(self, site: Site, order: Order) -> Reply:
        """Work through an order and keep the new state; only then is there a reply.

        Raises:
            Refused, FloatingPointError: as `Site.work`; the state on disk is unchanged.
        """
        path = self.path(order.run)
        with exclusive(path.with_name("lock")):
            old, files = None, dict[str, Any]()
            if path.is_file():
                stored, files = self._read(path)
                old = site.load(stored)
            new, reply = site.work(old, order)
            if new is not old:
                self.at("before save")
                self._write(path, site, new, old, files)
                self.at("after save")
        return reply

    def models(self, run: str) -> dict[str, np.ndarray]:
        """What the site holds after its last stretch, by name: `.client.model` is theta_k, `.client.dual` lambda_k."""
        return dict(self._read(self.path(run))[0].done)

    def _read(self, path: Path) -> tuple[Stored, dict[str, str]]:
        """A state, and the names of its points' files."""
        facts, reply = read_arrays(path)
        files = json.loads(facts)["files"]
        base, done = (read_arrays(path.with_name(files[point]))[1] for point in ("base", "done"))
        return Stored(facts, base, done, reply), files

    def _write(self, path: Path, site: Site, new: SiteState, old: SiteState | None, files: dict[str, str]) -> None:
        stored = site.save(new)
        # Names that no earlier state uses, so that a crash in between leaves that state whole.
        unique = f"{new.number}-{new.order[:12]}.safetensors"
        known = {} if old is None else {id(old.base): files["base"], id(old.done): files["done"]}
        named = {"base": known.get(id(new.base), f"base-{unique}"), "done": f"point-{unique}"}
        if named["base"] not in files.values():
            write_arrays(path.with_name(named["base"]), "", stored.base)
        write_arrays(path.with_name(named["done"]), "", stored.done)
        write_arrays(path, json.dumps({**json.loads(stored.facts), "files": named}), stored.reply)
        for file in path.parent.glob("*-*.safetensors"):
            if file.name not in named.values():
                file.unlink()
