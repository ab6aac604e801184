"""Docstrings as the site's reader wants them."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """An "Example:" becomes a section of code, <a, b> an inner product and not an HTML tag."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with every documented object, before its docstring is parsed."""
        if obj.is_attribute and "property" not in obj.labels:
            obj.docstring = None  # an inspected field would show the docstring of its value's type
        if obj.docstring:
            text = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"<([a-z][^<>]*), ([^<>]+)>", r"⟨\1, \2⟩", text)
