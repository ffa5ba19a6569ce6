"""The databases that a store is in Kafka Streams' layout, whatever the layout that it is read from.

A key-value or versioned store is one database, a window or session store one for each segment, whose keys do not begin
with the segment's id there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from statestore.bytestore.kafka_streams_layout import (
    database_directory,
    has_segment_directories,
    segment_name,
    segments_directory,
)
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.bytestore.segment_directories import SegmentDirectories
from statestore.bytestore.segments import SEGMENT_ID_SIZE, Segments, segment_prefix
from upgrade_tools.migration.conversions import converted_pairs
from upgrade_tools.migration.plan import StorePlan
from upgrade_tools.states import OpenStore

_MAX_SEGMENT_ID: Final = 2**63 - 1

Entries = Callable[[bytes | None], Iterator[Pair]]
"""Reads entries in the order of their keys, from a key on, inclusive; None is from the first."""


@dataclass(frozen=True)
class DatabaseSource:
    """One database of the target, and what goes into it."""

    place: Path
    """Relative to the task's directory."""
    name: str
    """Of the store, or its segment, in errors."""
    entries: Entries
    """In the format that the store gets."""


def databases_of(plan: StorePlan, store: OpenStore, timestamp_ms: int | None) -> list[DatabaseSource]:
    """Return the databases of a store, in the order of their times."""

    def converted(entries: Entries) -> Entries:
        return lambda start: converted_pairs(plan, entries(start), timestamp_ms)

    task = Path()
    if not has_segment_directories(plan.reading.kind):
        whole = _from(store.bytes)
        return [DatabaseSource(database_directory(task, plan.name), plan.name, converted(whole))]
    _, interval_ms = plan.reading.retention
    found = []
    for segment_id, entries in _segments(plan, store.bytes):
        name = segment_name(plan.name, segment_id * interval_ms)
        found.append(DatabaseSource(segments_directory(task, plan.name) / name, name, converted(entries)))
    return found


def _segments(plan: StorePlan, store: ByteStore) -> Iterator[tuple[int, Entries]]:
    if isinstance(store, SegmentDirectories):
        for segment_id in store.segment_ids:
            yield segment_id, _from(store.segment(segment_id))
        return
    for segment_id in Segments(store, *plan.reading.retention).existing(0, _MAX_SEGMENT_ID):
        yield segment_id, _within(store, segment_id)


def _from(store: ByteStore) -> Entries:
    return lambda start: store.range(start, None)


def _within(store: ByteStore, segment_id: int) -> Entries:
    """Return the entries of a segment that stands among others in one family."""
    prefix = segment_prefix(segment_id)

    def entries(start: bytes | None) -> Iterator[Pair]:
        for key, value in store.range(prefix + (start or b""), None):
            if not key.startswith(prefix):
                return
            yield key[SEGMENT_ID_SIZE:], value

    return entries
