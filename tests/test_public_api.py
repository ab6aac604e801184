"""The public names and their signatures, compared with `public_api.txt`, a file that a person reviews.

After a wanted change: `python tests/test_public_api.py --write`, and look at the difference before committing it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).with_name("public_api.txt")


def modules() -> list[str]:
    """The package and the public modules that hang off it."""
    import fedual

    return ["fedual", *sorted(f"fedual.{name}" for name in fedual.__all__ if name in fedual._MODULES)]


def signature(value: Any) -> str:
    """Names and defaults; what a user's script depends on."""
    bare = [p.replace(annotation=p.empty) for p in inspect.signature(value).parameters.values()]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(bare)))  # a default that is a function


def lines(name: str, value: Any) -> list[str]:
    """A function's or class's signature, with the public methods and properties that the class adds to its bases."""
    if isinstance(value, ModuleType):
        return [f"{name}: module"]
    if not inspect.isclass(value):
        return [f"{name}{signature(value)}" if callable(value) else f"{name}: {type(value).__name__}"]
    found = [f"class {name}{signature(value)}"]
    for member, raw in sorted(vars(value).items()):
        if member.startswith("_") or any(hasattr(base, member) for base in value.__bases__):
            continue
        if isinstance(raw, classmethod | staticmethod):
            found.append(f"  {member}{signature(getattr(value, member))}")
        elif inspect.isfunction(raw):
            found.append(f"  {member}{signature(raw)}")
        elif isinstance(raw, property) or type(raw).__name__ == "cached_property":
            found.append(f"  {member}: property")
    return found


def describe(module: str) -> str:
    """One section of the file."""
    home = importlib.import_module(module)
    found = [f"[{module}]"]
    for name in sorted(home.__all__):
        found += lines(name, getattr(home, name))
    return "\n".join(found) + "\n"


def recorded() -> dict[str, str]:
    """The sections of the file by module."""
    sections = FILE.read_text(encoding="utf-8").split("\n\n")
    return {section[1 : section.index("]")]: section.rstrip("\n") + "\n" for section in sections}


@pytest.mark.parametrize("module", modules())
def test_names_and_signatures_are_those_reviewed(module):
    try:
        now = describe(module)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{module} needs {missing.name}")
    assert now == recorded().get(module, ""), "see the top of tests/test_public_api.py"


def test_no_public_module_was_lost():
    assert sorted(recorded()) == sorted(modules())


if __name__ == "__main__" and "--write" in sys.argv:
    FILE.write_text("\n".join(describe(module) for module in modules()), encoding="utf-8")
