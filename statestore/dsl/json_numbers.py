"""Numbers as JSON holds them, and those that it has no number for: NaN and the infinities are texts, as in Jackson."""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import Any, Final

from statestore.errors import InputError

_TEXTS: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def number_of(held: Any) -> Any:
    """Return a number that JSON held. Raises InputError for anything else."""
    if isinstance(held, str) and held in _TEXTS:
        return _TEXTS[held]
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        raise InputError(f"a number is needed, not {type(held).__name__}")
    return held


def in_json(number: Any) -> Any:
    """Return a number as JSON can hold it."""
    if not isinstance(number, float) or isfinite(number):
        return number
    return next(text for text, same in _TEXTS.items() if repr(same) == repr(number))
