"""`NAME[:KIND[:OPTION=MS,...]]`: which store is meant, and what its files do not tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from statestore.bytestore.kinds.kind_names import Kind
from statestore.bytestore.kinds.store_spec import require_milliseconds
from upgrade_tools.states import StateOptions

_TIMES: Final = {"window-size-ms": 0, "retention-ms": 0, "segment-interval-ms": 1}
"""What can be said in milliseconds, and how many these are at least."""


def said_of_stores(words: Sequence[str], otherwise: StateOptions) -> tuple[list[str], dict[str | None, StateOptions]]:
    """Return the names of stores, and what is said of each; `otherwise` holds for what a word does not say.

    Raises ValueError for a word that is not of the form.
    """
    names: list[str] = []
    said: dict[str | None, StateOptions] = {None: otherwise}
    for word in words:
        name, _, rest = word.partition(":")
        kind, _, times = rest.partition(":")
        if not name or name in names:
            raise ValueError(f"{word!r} names no store, or one a second time")
        names.append(name)
        if rest:
            said[name] = StateOptions(**{**vars(otherwise), **_kind(word, kind), **_times(word, times)})
    return names, said


def _kind(word: str, kind: str) -> dict[str, Any]:
    if not kind:
        return {}
    try:
        return {"kind": Kind(kind)}
    except ValueError:
        known = ", ".join(candidate.value for candidate in Kind)
        raise ValueError(f"{word!r} is not NAME[:KIND[:OPTION=MS,...]] with one of the kinds {known}") from None


def _times(word: str, times: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, times.split(",")):
        option, _, value = part.partition("=")
        if option not in _TIMES or not value.isascii() or not value.isdigit():
            raise ValueError(f"{word!r}: {part!r} is not one of {', '.join(_TIMES)} with = and milliseconds")
        milliseconds = int(value)
        require_milliseconds(f"{word!r}: {option}", milliseconds, least=_TIMES[option])
        found[option.replace("-", "_")] = milliseconds
    return found
