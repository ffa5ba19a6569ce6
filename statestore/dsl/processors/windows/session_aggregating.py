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
from typing import Any

from statestore.dsl.processors.windows.session_merging import Session, SessionMerging
from statestore.dsl.processors.windows.windowed_aggregating import WindowedAggregate
from statestore.dsl.windows import SessionWindows
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record
from statestore.stores.holders import AggregationWithHeaders, ValueTimestampHeaders
from statestore.stores.iterator import Windowed


class SessionAggregating(WindowedAggregate[SessionWindows]):
    """Keeps one aggregate a key and session."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store, and what merges sessions: one that is kept is removed before, as Kafka logs it."""
        super().init(context)
        plan, changes = self._plan, self._plan.aggregate.changes
        self._gap_ms = plan.windows.inactivity_gap_ms
        self._keeps_old = changes.send_old or changes.is_cached
        self._merging = SessionMerging(
            plan.windows,
            plan.aggregate.aggregation,
            retention_ms=self._store.retention_ms,
            tells_each=not changes.is_cached and not plan.is_final,
            removes_kept=True,
        )

    def process(self, record: Record[Any, Any]) -> None:
        """Make one session of all that a record belongs to."""
        key, time_ms = record.key, record.timestamp_ms
        if key is None or self._lacks_value(record):
            self._drop()
            return
        closed_ms = self._close(record)
        near = self._sessions_near(key, time_ms)
        # Functions may change what they are given.
        olds = {session[:2]: deepcopy(session[2]) if self._keeps_old else None for session in near}
        merged = self._merging.merge(
            [(0, time_ms, record.value, record.headers.to_bytes(), closed_ms, time_ms)],
            [key],
            [near],
            self._update.merged,
            self._store.stream_time_ms,
        )
        if merged.late:
            self._drop()
            self._tell_late(record)
            return
        (headers,) = merged.headers
        *gone, (_, start_ms, end_ms, aggregate, told) = merged.changes
        kept = end_ms, start_ms
        for _, gone_start_ms, gone_end_ms, _, _ in gone:
            place = gone_end_ms, gone_start_ms
            session = Windowed(key, gone_start_ms, gone_end_ms)
            self._remove(session, olds[place], headers, is_kept=place == kept)
        old = None if told is None else olds[kept]
        self._keep(Windowed(key, start_ms, end_ms), aggregate, headers, old, is_new=kept not in olds)

    def _sessions_near(self, key: Any, time_ms: int) -> list[Session]:
        """Return the sessions that a record belongs to, in order of their ends."""
        from_ms, to_ms = max(0, time_ms - self._gap_ms), min(time_ms + self._gap_ms, MAX_TIME_MS)
        with self._store.find_sessions(key, from_ms, to_ms) as sessions:
            return [(each.end_ms, each.start_ms, held.aggregation, held.header_bytes) for each, held in sessions]

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
