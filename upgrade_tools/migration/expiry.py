"""What of a store has expired: a state location has no room for it, as its stores know the latest time in them.

Kafka Streams forgets a store's stream time when it stops. What has expired by then goes with the next write only, so
its directories may still have some of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from statestore.bytestore.chunks import steps
from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from upgrade_tools.migration.plan import StorePlan
from upgrade_tools.migration.report import Tallies
from upgrade_tools.rows.live_entries import LiveVersions
from upgrade_tools.states import OpenStore


def unexpired(plan: StorePlan, store: OpenStore, tallies: Tallies) -> Iterator[list[LogicalWrite]]:
    """Yield the writes that make what has not expired of a store, by the latest time in it if none is recorded.

    What has expired is counted in `tallies`.
    """
    spec = plan.reading
    if not spec.kind.is_segmented or store.stream_time_ms != NO_STREAM_TIME:
        yield from logical_writes(spec, store.bytes, store.stream_time_ms)
        return
    assert plan.written is not None  # a location's stores have a retention
    live = _live_versions if LAYOUTS[spec.kind].keeps_versions else _live_entries
    yield from live(spec, store, Segments(store.bytes, *plan.written.retention, _latest_ms(spec, store)), tallies)


def _live_entries(
    spec: StoreSpec, store: OpenStore, segments: Segments, tallies: Tallies
) -> Iterator[list[LogicalWrite]]:
    _, interval_ms = spec.retention
    first = Segments(store.bytes, *spec.retention).existing()[:1]
    if not first or segments.is_live(segments.id_of(first[0] * interval_ms)):
        yield from logical_writes(spec, store.bytes, NO_STREAM_TIME)
        return
    time_of = layout_of(spec).put_time_ms
    for step in logical_writes(spec, store.bytes, NO_STREAM_TIME):
        live = [write for write in step if segments.is_live(segments.id_of(time_of(write.key)))]
        tallies.expired += len(step) - len(live)
        yield live


def _live_versions(
    spec: StoreSpec, store: OpenStore, segments: Segments, tallies: Tallies
) -> Iterator[list[LogicalWrite]]:
    writes = chain.from_iterable(logical_writes(spec, store.bytes, NO_STREAM_TIME))
    versions = LiveVersions(segments)
    followed = map(versions.followed_by, chain(writes, [None]))
    yield from steps(write for write in followed if write is not None)
    tallies.expired += versions.take_expired()


def _latest_ms(spec: StoreSpec, store: OpenStore) -> int:
    """Return the latest time in a store, -1 if it has none."""
    layout = layout_of(spec)
    if layout.keeps_versions:
        writes = chain.from_iterable(logical_writes(spec, store.bytes, NO_STREAM_TIME))
        return max((write.timestamp_ms or 0 for write in writes), default=NO_STREAM_TIME)
    last = Segments(store.bytes, *spec.retention).existing()[-1:]
    if not last:
        return NO_STREAM_TIME
    return max(layout.put_time_ms(key[SEGMENT_ID_SIZE:]) for key, _ in store.bytes.range(segment_prefix(last[0]), None))
