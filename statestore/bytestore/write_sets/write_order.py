"""In which order a batch's writes are held: of each key the last one, in the order of these.

It is what Kafka's compaction leaves of a log that has all of them, wherever the log was cut meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T")


def last_writes(writes: Collection[tuple[bytes, T]]) -> dict[bytes, T]:
    """Return the last write of each key, in their order."""
    held = dict(writes)
    if len(held) < len(writes):
        held = {}
        for key, write in writes:
            held.pop(key, None)
            held[key] = write
    return held


def hold_last(held: dict[bytes, T], writes: Mapping[bytes, T]) -> None:
    """Add writes of different keys to those that are held; they are the last ones then."""
    if held:
        for key in writes.keys() & held.keys():
            del held[key]
    held.update(writes)
