"""How texts are compared, ordered and listed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

__all__ = ["as_number", "canonical", "listed", "ordered"]


_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")


def canonical(text: str) -> str:
    """A category, label or marker as it is compared: without surrounding space, `1.0` as `1`.

    Tables with missing values often write whole numbers with a fraction of zeros.

    Example:
        >>> canonical(" 1.0 "), canonical("1.5")
        ('1', '1.5')
    """
    text = text.strip()
    return _WHOLE.sub(r"\1", text) if text.endswith("0") else text


def as_number(text: str) -> float | None:
    """The finite number that a text is, if it is one.

    Example:
        >>> as_number("-1"), as_number("NA"), as_number("inf")
        (-1.0, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def ordered(texts: Iterable[str]) -> list[str]:
    """Texts in the order of their numbers if all are numbers, else in that of the alphabet.

    Example:
        >>> ordered(["10", "9"]), ordered(["10", "9", "a"])
        (['9', '10'], ['10', '9', 'a'])
    """
    numbers = {text: as_number(text) for text in texts}
    return sorted(numbers, key=lambda text: (0 if None in numbers.values() else numbers[text], text))


def listed(what: str, names: Sequence[str], limit: int = 5) -> str:
    """Names for a message, the first few of many.

    Example:
        >>> listed("site", ["a"]), listed("site", ["a", "b", "c"], limit=2)
        ("site 'a'", "sites 'a', 'b' and 1 more")
    """
    shown = ", ".join(repr(name) for name in names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{what if len(names) == 1 else what + 's'} {shown}{more}"
