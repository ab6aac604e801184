"""Formulas become MathML while the site is built, which browsers draw by themselves, offline."""

import html
import re

from math_core import LatexToMathML

CONVERTER = LatexToMathML()
SPAN = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Called by MkDocs with every page's HTML; a formula that cannot be read stops the build."""

    def formula(found: re.Match[str]) -> str:
        latex = html.unescape(found[3]).strip()
        if r"\tag" in latex:
            latex = rf"\begin{{equation}}{latex}\end{{equation}}"
        mathml = CONVERTER.convert_with_local_state(latex, displaystyle=found[2] == "[")
        return f'<{found[1]} class="formula">{mathml}</{found[1]}>'

    return SPAN.sub(formula, content)
