"""Fields of the JSON that is recorded, checked: what is read may have been changed by anybody."""

from __future__ import annotations

from typing import Any

MALFORMED = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What parsing and unpacking malformed JSON raises: json.loads of deep nesting raises RecursionError."""

_MAX = 2**63 - 1


def distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the pairs of an object or map as a dict. Raises ValueError if a key is there twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("it has a key twice")
    return made


def whole_number(value: Any, lowest: int) -> int:
    """Return `value` if it is an int from `lowest` to 2^63 - 1, and no bool. Raises ValueError."""
    if type(value) is not int or not lowest <= value <= _MAX:
        raise ValueError(f"{value!r} is not a whole number from {lowest} to 2^63 - 1")
    return value
