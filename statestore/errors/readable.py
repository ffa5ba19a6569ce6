"""What errors say of times, places and problems, in words."""

from __future__ import annotations

import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Final

_OURS: Final = f"{Path(__file__).resolve().parent.parent}/"
_INSTALLED: Final = tuple(f"{sysconfig.get_path(kind)}/" for kind in ("purelib", "platlib"))
_LIBRARY: Final = tuple(f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib"))
_LAST_YEAR: Final = 9999
_DAYS_OF_400_YEARS: Final = 146_097
_MS_A_DAY: Final = 86_400_000


def utc_text(timestamp_ms: int) -> str:
    """Return a time as people read it: `2026-03-01 12:00:00 UTC`; of a year that has more than four digits, that."""
    days = timestamp_ms // _MS_A_DAY
    year = 1970 + days * 400 // _DAYS_OF_400_YEARS
    if not 0 < year <= _LAST_YEAR:
        return f"the year {year:,}"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timestamp_ms // 1000))


def listed(problems: list[str]) -> str:
    """Return problems as one sentence, numbered if there are several."""
    if len(problems) == 1:
        return problems[0]
    return "; ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))


def record_facts(key: str, timestamp_ms: int | None, at: str) -> str:
    """Return what tells a record from others, and where code failed on it: as far as it is known, else empty."""
    facts = (
        f"key {key}" if key else "",
        "" if timestamp_ms is None else utc_text(timestamp_ms),
        f"at {at}" if at else "",
    )
    return ", ".join(filter(None, facts))


def user_line(error: BaseException) -> str:
    """Return where the user's code raised, as `FILE:LINE` of the innermost of its frames; empty if there is none.

    That of an installed package counts as the user's if no other does, and it was called before anything else.
    """
    places = list(_places(error))
    own = [place for place in places if not place[0].startswith((*_INSTALLED, *_LIBRARY))]
    if not own:
        called = next((home for file, _ in places if (home := _package_of(file)) is not None), None)
        own = [place for place in places if called is not None and place[0].startswith(called)]
    return ":".join(map(str, own[-1])) if own else ""


def _places(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yield file and line of each frame that is neither ours nor Python's own, from the outermost on."""
    for frame, line in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, "<")):
            yield file, line


def _package_of(file: str) -> str | None:
    """Return the directory or file of the installed package that a file is of; None if it is of none."""
    for home in _INSTALLED:
        if file.startswith(home):
            return home + file.removeprefix(home).partition("/")[0]
    return None
