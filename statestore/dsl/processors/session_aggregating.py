"""Aggregates of keys and sessions. Source: Kafka's KStreamSessionWindowAggregate.

A record makes one session of all that it is at most the gap away from. A change says of each of these that it is gone,
and another one what the new one is; they go on with the ends of the sessions as timestamps, as in Kafka.

Headers: the policy goes through the sessions that become one in order of their ends, and takes the record last. So
`first` is what the earliest session began with, and `latest` the record, whenever it was. All changes of a record have
the headers that come of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from statestore.dsl.processors.windowed_aggregating import WindowedAggregate, WindowedPlan
from statestore.dsl.windows import SessionWindows
from statestore.format.window_key import MAX_TIME_MS
from statestore.processor.processor import Processor
from statestore.processor.record import Record
from statestore.stores.holders import AggregationWithHeaders, ValueTimestampHeaders
from statestore.stores.iterator import Windowed


@dataclass(frozen=True)
class SessionAggregating(WindowedPlan):
    """Makes the processor."""

    windows: SessionWindows

    def __call__(self) -> Processor:
        """Return a new processor."""
        return _SessionAggregate(self)


class _SessionAggregate(WindowedAggregate):
    """Keeps one aggregate a key and session."""

    def __init__(self, asked: SessionAggregating) -> None:
        super().__init__(asked)
        aggregation, changes = asked.plan.aggregation, asked.plan.changes
        self._gap_ms = asked.windows.inactivity_gap_ms
        self._initializer, self._aggregator = aggregation.initializer, aggregation.aggregator
        assert aggregation.merger is not None  # a stream by session asks for one
        self._merger = aggregation.merger
        self._is_cached = changes.is_cached
        self._keeps_old = changes.send_old or changes.is_cached

    def process(self, record: Record[Any, Any]) -> None:
        key, time_ms = record.key, record.timestamp_ms
        if key is None or self._lacks_value(record):
            self._drop()
            return
        close_ms = self._observed.advance(time_ms) - self._grace_ms - self._gap_ms
        self._put_out(close_ms)
        found = self._sessions_near(key, time_ms)
        merged = Windowed(
            key,
            min([time_ms, *(each.start_ms for each, _ in found)]),
            max([time_ms, *(each.end_ms for each, _ in found)]),
        )
        if merged.end_ms < close_ms:
            self._drop()
            self._tell_late(record)
            return
        aggregate, header_bytes = self._initializer(), None
        olds = [deepcopy(held.aggregation) if self._keeps_old else None for _, held in found]
        for _, held in found:
            aggregate = self._merger(key, aggregate, held.aggregation)
            is_first = header_bytes is None
            header_bytes = held.header_bytes if is_first else self._update.merged(header_bytes, held.header_bytes)
        aggregate = self._aggregator(key, record.value, aggregate)
        headers = self._update.merged(header_bytes, record.headers.to_bytes())
        told = None
        if (merged.start_ms, merged.end_ms) != (time_ms, time_ms):
            for (session, _), old in zip(found, olds, strict=True):
                self._remove(session, old, headers, is_kept=session == merged)
        elif found and self._is_cached:
            told = olds[0]  # a session of one moment is not removed before: what it was comes out of the cache
        self._keep(merged, aggregate, headers, told, is_new=all(session != merged for session, _ in found))

    def _sessions_near(self, key: Any, time_ms: int) -> list[tuple[Windowed, AggregationWithHeaders[Any]]]:
        """Return the sessions that a record belongs to, in order of their ends."""
        from_ms, to_ms = max(0, time_ms - self._gap_ms), min(time_ms + self._gap_ms, MAX_TIME_MS)
        with self._store.find_sessions(key, from_ms, to_ms) as sessions:
            return list(sessions)

    def _remove(self, session: Windowed, old: Any, header_bytes: bytes, *, is_kept: bool) -> None:
        self._store.remove(session)
        if self._final is None:
            self._changes.send(session, None, old, session.end_ms, header_bytes)
        elif not is_kept:
            self._final.forget(session)

    def _keep(self, session: Windowed, aggregate: Any, header_bytes: bytes, old: Any, *, is_new: bool) -> None:
        self._store.put(session, None if aggregate is None else AggregationWithHeaders(aggregate, header_bytes))
        if self._final is None:
            self._changes.send(session, aggregate, old, session.end_ms, header_bytes)
        elif is_new and aggregate is not None:
            self._final.note(session)

    def _held(self, window: Windowed) -> ValueTimestampHeaders[Any] | None:
        held: AggregationWithHeaders[Any] | None = self._store.fetch_session(window.key, window.start_ms, window.end_ms)
        return None if held is None else ValueTimestampHeaders(held.aggregation, window.end_ms, held.header_bytes)

    def _windows(self) -> Iterable[Windowed]:
        with self._store.fetch(None, None) as sessions:
            for session, _ in sessions:
                yield session
