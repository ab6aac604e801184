"""How texts are compared, ordered and listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["WHOLE", "canonical", "listed", "ordered"]

WHOLE = r"^([+-]?\d+)\.0+$"
"""A whole number written with a fraction of zeros, as tables with missing values write integers."""


def canonical(text: str) -> str:
    """A category, label or marker as it is compared: without surrounding space, `1.0` as `1`.

    Example:
        >>> canonical(" 1.0 "), canonical("1.5")
        ('1', '1.5')
    """
    return re.sub(WHOLE, r"\1", text.strip())


def ordered(texts: Iterable[str]) -> list[str]:
    """Texts in the order of their numbers if all are numbers, else in that of the alphabet.

    Example:
        >>> ordered(["10", "9"]), ordered(["10", "9", "a"])
        (['9', '10'], ['10', '9', 'a'])
    """
    texts = list(texts)
    try:
        return sorted(texts, key=lambda text: (float(text), text))
    except ValueError:
        return sorted(texts)


def listed(what: str, names: Sequence[str], limit: int = 5) -> str:
    """Names for a message, the first few of many.

    Example:
        >>> listed("site", ["a"]), listed("site", ["a", "b", "c"], limit=2)
        ("site 'a'", "sites 'a', 'b' and 1 more")
    """
    shown = ", ".join(repr(name) for name in names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{what if len(names) == 1 else what + 's'} {shown}{more}"
