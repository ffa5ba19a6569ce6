"""The databases of a store in Kafka Streams' layout, read from a store of any layout.

A key-value or versioned store is one database. A window or session store is one for each segment, where keys do not
begin with the segment's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kafka_streams.layout import (
    database_directory,
    has_segment_directories,
    segment_name,
    segments_directory,
)
from statestore.bytestore.kafka_streams.segment_directories import SegmentDirectories
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.protocol import ByteStore, Pair
from upgrade_tools.errors import UnknownKindError
from upgrade_tools.migration.planning.conversions import converted_pairs
from upgrade_tools.migration.planning.plan import Plan, StorePlan
from upgrade_tools.states.state import READING_INTERVAL_MS, OpenStore

Entries = Callable[[bytes | None], Iterator[Pair]]
"""Reads entries in the order of their keys, from a key on, inclusive; None reads from the first."""


@dataclass(frozen=True)
class DatabaseSource:
    """One database of the target, and what goes into it."""

    place: Path
    """Relative to the task's directory."""
    name: str
    """Name of the store, or of its segment, in errors."""
    entries: Entries
    """In the format that the store gets."""


def databases_of(plan: Plan, store_plan: StorePlan, store: OpenStore) -> list[DatabaseSource]:
    """Return the databases of a store, in the order of their times.

    Raises UnknownKindError if their names need times that the source's segments do not say.
    """

    def converted(entries: Entries) -> Entries:
        return lambda start: converted_pairs(store_plan, entries(start), plan.request.timestamp_ms)

    task, store_name = Path(), store_plan.name
    if not has_segment_directories(store_plan.reading.kind):
        whole = _from(store.bytes)
        return [DatabaseSource(database_directory(task, store_name), store_name, converted(whole))]
    _, interval_ms = store_plan.reading.retention
    if not store.knows_segments and interval_ms == READING_INTERVAL_MS:  # nor do options say it
        raise UnknownKindError(
            plan.state.path,
            problem=f"how long segments of store {store_name!r} are, which the names of their directories need",
            remedy="give that with --segment-interval-ms, as in the query that made them",
        )
    found = []
    for segment_id, entries in _segments(store_plan, store.bytes):
        name = segment_name(store_name, segment_id * interval_ms)
        found.append(DatabaseSource(segments_directory(task, store_name) / name, name, converted(entries)))
    return found


def _segments(plan: StorePlan, store: ByteStore) -> Iterator[tuple[int, Entries]]:
    if isinstance(store, SegmentDirectories):
        for segment_id in store.segment_ids:
            yield segment_id, _from(store.segment(segment_id))
        return
    for segment_id in Segments(store, *plan.reading.retention).ids():
        yield segment_id, _within(store, segment_id)


def _from(store: ByteStore) -> Entries:
    return lambda start: store.range(start, None)


def _within(store: ByteStore, segment_id: int) -> Entries:
    """Return the entries of a segment that shares a family with others."""
    prefix = segment_prefix(segment_id)

    def entries(start: bytes | None) -> Iterator[Pair]:
        for key, value in pairs_with_prefix(store, prefix, start):
            yield key[SEGMENT_ID_SIZE:], value

    return entries
