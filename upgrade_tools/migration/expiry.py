"""What of a store has expired: a state location has no room for it, as its stores know the latest time in them.

Kafka Streams forgets a store's stream time when it stops. What has expired by then goes with the next write only, so
its directories may still have some of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Final

from statestore.bytestore.segments import NO_STREAM_TIME, SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.format.session_key import split_session_key
from statestore.format.window_key import split_window_key
from statestore.recovery.logical_writes import LogicalWrite, logical_writes
from upgrade_tools.migration.plan import StorePlan
from upgrade_tools.migration.report import Tallies
from upgrade_tools.states import OpenStore

_WRITES_PER_STEP: Final = 10_000
_MAX_SEGMENT_ID: Final = 2**63 - 1


def unexpired(plan: StorePlan, store: OpenStore, tallies: Tallies) -> Iterator[list[LogicalWrite]]:
    """Yield the writes that make what has not expired of a store, by the latest time in it if none is recorded.

    What has expired is counted in `tallies`.
    """
    spec = plan.reading
    if not spec.kind.is_segmented or store.stream_time_ms != NO_STREAM_TIME:
        yield from logical_writes(spec, store.bytes, store.stream_time_ms)
        return
    assert plan.written is not None  # a location's stores have a retention
    live = _live_versions if spec.kind is StoreKind.VERSIONED else _live_entries
    yield from live(spec, store, Segments(store.bytes, *plan.written.retention, _latest_ms(spec, store)), tallies)


def _live_entries(
    spec: StoreSpec, store: OpenStore, segments: Segments, tallies: Tallies
) -> Iterator[list[LogicalWrite]]:
    _, interval_ms = spec.retention
    first = Segments(store.bytes, *spec.retention).existing(0, _MAX_SEGMENT_ID)[:1]
    if not first or segments.is_live(segments.id_of(first[0] * interval_ms)):
        yield from logical_writes(spec, store.bytes, NO_STREAM_TIME)
        return
    time_of = _time_of(spec)
    for step in logical_writes(spec, store.bytes, NO_STREAM_TIME):
        live = [write for write in step if segments.is_live(segments.id_of(time_of(write.key)))]
        tallies.expired += len(step) - len(live)
        yield live


def _live_versions(
    spec: StoreSpec, store: OpenStore, segments: Segments, tallies: Tallies
) -> Iterator[list[LogicalWrite]]:
    writes = chain.from_iterable(logical_writes(spec, store.bytes, NO_STREAM_TIME))

    def live() -> Iterator[LogicalWrite]:
        for _, of_key in groupby(writes, attrgetter("key")):
            versions = list(of_key)
            kept = _live(versions, segments)
            tallies.expired += len(versions) - len(kept)
            yield from kept

    kept = live()
    while step := list(islice(kept, _WRITES_PER_STEP)):
        yield step


def _live(versions: list[LogicalWrite], segments: Segments) -> list[LogicalWrite]:
    """Return those writes of a key, in order of time, of which something has not expired."""
    kept: list[LogicalWrite] = []
    for number, write in enumerate(versions):
        ended_ms = versions[number + 1].timestamp_ms if number + 1 < len(versions) else None
        # A tombstone that nothing comes before stands in the segment of its own time.
        stands_at_ms = write.timestamp_ms if write.stored is None and not kept else ended_ms
        if stands_at_ms is None or segments.is_live(segments.id_of(stands_at_ms)):
            kept.append(write)
    return kept


def _latest_ms(spec: StoreSpec, store: OpenStore) -> int:
    """Return the latest time in a store, -1 if it has none."""
    if spec.kind is StoreKind.VERSIONED:
        writes = chain.from_iterable(logical_writes(spec, store.bytes, NO_STREAM_TIME))
        return max((write.timestamp_ms or 0 for write in writes), default=NO_STREAM_TIME)
    last = Segments(store.bytes, *spec.retention).existing(0, _MAX_SEGMENT_ID)[-1:]
    if not last:
        return NO_STREAM_TIME
    time_of = _time_of(spec)
    return max(time_of(key[SEGMENT_ID_SIZE:]) for key, _ in store.bytes.range(segment_prefix(last[0]), None))


def _time_of(spec: StoreSpec) -> Callable[[bytes], int]:
    """Return what tells the time of a key of a window or session, by which it expires."""
    if spec.kind is StoreKind.WINDOW:
        return lambda key: split_window_key(key)[1]
    return lambda key: split_session_key(key)[2]
