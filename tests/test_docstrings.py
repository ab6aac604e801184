"""Every example in a docstring runs and prints what it says; every public name has a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import fedual

MODULES = sorted(module.name for module in pkgutil.walk_packages(fedual.__path__, "fedual."))


def load(name: str) -> ModuleType:
    """The module; a skip that names what it needs where an optional dependency is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] == "fedual":
            raise
        pytest.skip(f"{name} needs {missing.name}")


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_print_what_they_say(name, tmp_path, monkeypatch, capsys):
    module = load(name)
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def test_public_names_are_documented():
    homes = [fedual, *(load(f"fedual.{name}") for name in fedual.__all__ if name in fedual._MODULES)]
    bare = [f"{home.__name__}.{name}" for home in homes for name in home.__all__ if not getattr(home, name).__doc__]
    assert bare == []
