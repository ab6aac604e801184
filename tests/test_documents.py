"""The Python blocks of the README and the documentation run, page by page, and print what the pages say."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

import fedual

ROOT = Path(__file__).parents[1]
PAGES = sorted(str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"^```python[^\n]*\n(?P<code>.*?)^```\n(?:\n```text[^\n]*\n(?P<printed>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
NEEDS = re.compile(r"<!-- needs: ([\w., ]+) -->")


def blocks(page: str) -> list[re.Match[str]]:
    return list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    text = (ROOT / page).read_text(encoding="utf-8")
    for module in re.split(r", *", needs[1]) if (needs := NEEDS.search(text)) else []:
        pytest.importorskip(module, reason=f"{page} needs {module}")
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        first = text.count("\n", 0, block.start("code"))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * first + block["code"], ROOT / page, "exec"), names)  # lines as on the page
        got, want = printed.getvalue(), block["printed"] or ""
        assert doctest.OutputChecker().check_output(want, got, flags), f"{page}, line {first}: printed\n{got}"


def test_the_readme_opens_with_an_example_of_fifteen_lines_or_fewer():
    first = blocks("README.md")[0]["code"]
    assert len([line for line in first.splitlines() if line.strip()]) <= 15


def test_continuous_integration_runs_the_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^python3 -m venv .*$", readme, re.MULTILINE)
    assert len(commands) == 2
    steps = " && ".join(commands).replace(".venv", ".venv-ci").split(" && ")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    missing = [step for step in steps if step not in script and step.split("/")[-1] not in script]
    assert missing == []


def test_every_public_name_has_a_place_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md"))
    documented = set(re.findall(r"^::: fedual\.(\w+)$", pages, re.MULTILINE))
    assert set(fedual.__all__) - documented == set()
