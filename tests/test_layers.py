"""Imports point downwards only: the package stays readable from the bottom up."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedual

PACKAGE = Path(fedual.__file__).parent

# From the bottom. Where modules of a layer may import each other it is said so; elsewhere siblings never do.
LAYERS = (
    {"__version__", "arrays", "files"},
    {"blocks", "clients", "devices", "formulas", "layout", "local", "problem", "protocols", "reference", "solution"},
    {
        "algorithms", "losses", "metrics", "oracles", "participation", "prox", "schedules", "theory", "tuning",
    },
    {"data", "engine"},
    {"inference", "tables"},
    {"checkpoint", "comparison", "config", "pictures", "runs"},
    {"flower", "report", "sklearn", "torch", "trackers"},
    {"bench"},
    {"cli"},
)  # fmt: skip
SOCIABLE = {0, 1, 4, 5}  # foundations, what a person works on data with, and runs on disk
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}


def imported(tree: ast.AST, package: str) -> set[tuple[int, str]]:
    """Line and dotted name of every import of the package in a module, wherever it stands in the file.

    `package` is the dotted package that relative imports start from.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "fedual" else [module]
            found |= {(node.lineno, name) for name in names}
    return {(line, name) for line, name in found if name.split(".")[0] == "fedual"}


def violations(root: Path) -> list[str]:
    """One sentence for every import under `root` that the table forbids."""
    complaints = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts == ("__init__",):
            continue  # the package's own names are looked up lazily
        if parts[0] not in LAYER:
            complaints.append(f"{parts[0]}: give it a layer in tests/test_layers.py")
            continue
        package = ".".join(["fedual", *parts[:-1]])
        for line, name in sorted(imported(ast.parse(path.read_text(encoding="utf-8")), package)):
            target = [*name.split("."), ""][1]
            here, there = LAYER[parts[0]], LAYER.get(target, len(LAYERS))
            if target != parts[0] and (there > here or (there == here and here not in SOCIABLE)):
                complaints.append(f"{'/'.join(parts)}.py:{line} imports {name}")
    return complaints


def test_imports_point_downwards():
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("problem.py", "from fedual.layout import Layout", True),
        ("problem.py", "def f():\n    from fedual.engine import solve", False),
        ("oracles/exact.py", "from fedual.oracles.first_order import x", True),
        ("oracles/exact.py", "from fedual import losses", False),
        ("oracles/exact.py", "from .first_order import x", True),
        ("oracles/exact.py", "from ..engine.run import x", False),
        ("engine/run.py", "import fedual.checkpoint", False),
        ("engine/run.py", "import fedual", False),
        ("report/page.py", "from fedual.engine import solve", True),
        ("report/page.py", "from fedual.torch import x", False),
        ("cli/main.py", "from fedual.report import write", True),
        ("nowhere.py", "", False),
    ],
)
def test_the_walk_tells_allowed_from_forbidden(tmp_path, path, source, allowed):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    assert (violations(tmp_path) == []) is allowed


def test_every_layer_below_the_methods_exists():
    found = {path.stem for path in PACKAGE.iterdir()}
    assert LAYERS[0] | LAYERS[1] <= found | {"__version__"}
