"""What errors say of times, places, problems and records, in words.

No error and no log shows what a record holds: they say where it is, its key's digest and its size. Nor do they show a
secret that a URI has.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

_OURS: Final = f"{Path(__file__).resolve().parent.parent}/"
_INSTALLED: Final = tuple(f"{sysconfig.get_path(kind)}/" for kind in ("purelib", "platlib"))
_LIBRARY: Final = tuple(f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib"))
_LAST_YEAR: Final = 9999
_DAYS_OF_400_YEARS: Final = 146_097
_MS_A_DAY: Final = 86_400_000
_DIGEST_HEX: Final = 16
_LIKE_TIMES_US: Final = range(10**15, 4 * 10**15)
"""From September 2001 to October 2096. Ids, and times in nanoseconds, are mostly larger."""


def utc_text(timestamp_ms: int) -> str:
    """Return a time as people read it, `2026-03-01 12:00:00 UTC`; only the year if that has more than four digits."""
    days = timestamp_ms // _MS_A_DAY
    year = 1970 + days * 400 // _DAYS_OF_400_YEARS
    if not 0 < year <= _LAST_YEAR:
        return f"the year {year:,}"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timestamp_ms // 1000))


_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_HOST: Final = re.compile(r"(\[[^]]*\]|[^:]*)(:[0-9]*)?")
_CONTAINERS: Final = ("abfs", "az", "wasb")
"""What schemes begin with that have a container before the `@`."""
_SECRET_OPTION: Final = re.compile(r"sig|.*(secret|passw|token|key|credential).*", re.IGNORECASE)


def without_secrets(place: str) -> str:
    """Return a path or URI without what may be a key, secret or signature in it."""
    found = _URI.fullmatch(place)
    if found is None:
        return place
    scheme, authority, rest = found.groups()
    user, _, host = authority.rpartition("@")
    if user:
        is_container = scheme.lower().startswith(_CONTAINERS) and ":" not in user
        authority = authority if is_container else host
    elif not _HOST.fullmatch(host) or (":" in host and scheme.lower().startswith("s3")):
        # Of a key and a secret, in which `/`, `?` or `#` was not escaped. They end at the last `@`.
        authority, rest = "", rest.rpartition("@")[2]
    path, _, query = rest.partition("#")[0].partition("?")
    options = "&".join(each for each in query.split("&") if not _SECRET_OPTION.fullmatch(each.partition("=")[0]))
    return f"{scheme}://{authority}{path}{'?' if options else ''}{options}"


def listed(problems: list[str]) -> str:
    """Return problems as one sentence, numbered if there are several."""
    if len(problems) == 1:
        return problems[0]
    return "; ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))


def record_place(topic: str | None, partition: int | None, offset: int | None) -> str:
    """Return where a record is, as people look for it.

    No partition has so many records that an offset reaches 10**15: it is most likely a row's time, in microseconds.
    """
    place = f"record {topic}-{partition} at offset {offset}"
    if offset is None or offset not in _LIKE_TIMES_US:
        return place
    return f"{place} ({utc_text(offset // 1000)} in microseconds)"


def record_facts(
    topic: str, partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes
) -> dict[str, Any]:
    """Return what errors say of a record as it came, as the fields of a RecordError; a negative offset is no offset."""
    place = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
    return {**(place if offset >= 0 else {}), **content_facts(key, value, headers)}


def content_facts(key: bytes | None, value: bytes | None, headers: bytes) -> dict[str, Any]:
    """Return what errors say of what a record holds: a digest and sizes."""
    return {
        "key_digest": key_digest(key),
        "key_bytes": None if key is None else len(key),
        "value_bytes": None if value is None else len(value),
        "header_bytes": len(headers),
    }


def key_digest(key: bytes | None) -> str:
    """Return the first 16 hex digits of a key's SHA-256, in Spark `left(sha2(key, 256), 16)`; of None "null"."""
    return "null" if key is None else hashlib.sha256(key).hexdigest()[:_DIGEST_HEX]


def facts_in_words(facts: Mapping[str, Any]) -> str:
    """Return in words the known fields of a RecordError, without its place; "" if none is known."""
    digest, timestamp_ms, at = facts.get("key_digest"), facts.get("timestamp_ms"), facts.get("at")
    sizes = {"value": facts.get("value_bytes"), "headers": facts.get("header_bytes")}
    known = [
        *([f"key {_sized(digest, facts.get('key_bytes'))}"] if digest else ()),
        *(f"{part} {_sized('', size)}" for part, size in sizes.items() if sizes["headers"] is not None),
        "" if timestamp_ms is None else utc_text(timestamp_ms),
        f"at {at}" if at else "",
    ]
    return ", ".join(filter(None, known))


def _sized(name: str, size_bytes: int | None) -> str:
    return name or "null" if size_bytes is None else f"{name} of {size_bytes} bytes".strip()


def shape_of(content: object) -> str:
    """Return what errors say of content: its type, and how large it is."""
    kind = type(content).__name__
    if content is None:
        return "None"
    if isinstance(content, bool):
        return kind
    if isinstance(content, int):
        return f"{kind} of {content.bit_length()} bits"
    if isinstance(content, str):
        return f"{kind} of {len(content)} characters"
    if isinstance(content, bytes):
        return f"{len(content)} bytes"
    if isinstance(content, bytearray | list | tuple | set | frozenset | dict):
        return f"{kind} of {len(content)}"
    return kind


def user_line(error: BaseException) -> str:
    """Return where the user's code raised, as `FILE:LINE` of the innermost of its frames; empty if there is none.

    If there are no others, frames of the installed package that was called first count as the user's.
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
    """Return the directory or file of the installed package that contains a file; None if none does."""
    for home in _INSTALLED:
        if file.startswith(home):
            return home + file.removeprefix(home).partition("/")[0]
    return None
