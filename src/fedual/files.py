"""Writing files so that a crash leaves the old content or the new, never half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_text"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; at the end it is flushed to disk and takes the name of `path`.

    If the body raises, `path` is left as it was. The temporary name is fixed, so that what a killed process left
    behind is written over by the next one.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text(), temporary.exists()
        ('whole', False)
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.part")
    temporary.touch()
    mode = temporary.stat().st_mode  # the user's default, which some writers do not keep to
    try:
        yield temporary
        temporary.chmod(mode)
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Make the new name durable, where the system lets folders be opened (Windows does not)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one piece; see `replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
