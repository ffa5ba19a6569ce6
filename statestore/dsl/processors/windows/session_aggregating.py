"""Aggregates of keys and sessions. Source: Kafka's KStreamSessionWindowAggregate.

A record merges all sessions that are at most the gap away from it. Each of them is deleted by a change, and another
change has the new session; the timestamps of changes are the ends of the sessions, as in Kafka.

Headers: the policy takes the merged sessions in order of their ends, and the record last. So `first` gives the first
headers of the earliest session, `latest` those of the record, whatever its time. All changes of a record have the same
resulting headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.aggregations import of_type
from statestore.dsl.column_types import windowed_column
from statestore.dsl.processors.aggregating import Update
from statestore.dsl.processors.windows.final_windows import Closing, FinalWindowColumns
from statestore.dsl.processors.windows.session_merging import MergedRecords, Session, SessionMerging
from statestore.dsl.processors.windows.windowed_aggregating import WindowedAggregate, WindowedAggregateColumns
from statestore.dsl.windows import SessionWindows
from statestore.format.binary_columns import Integers, is_valid
from statestore.format.key_groups import KeyGroups, are_last
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import AggregationWithHeaders, ValueTimestampHeaders
from statestore.stores.iterator import Windowed
from statestore.stores.session import FoundSessions


class SessionAggregating(WindowedAggregate[SessionWindows]):
    """Keeps one aggregate a key and session."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store, and what merges sessions; an unchanged span is deleted before it is put, as Kafka logs it."""
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
        """Merge all sessions that a record belongs to."""
        key, time_ms = record.key, record.timestamp_ms
        if key is None or self._lacks_value(record):
            self._drop()
            return
        closed_ms = self._close(record)
        near = self._sessions_near(key, time_ms)
        # Functions may change their arguments.
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
        elif not is_new and aggregate is None:
            self._final.forget(session)

    def _held(self, window: Windowed) -> ValueTimestampHeaders[Any] | None:
        held: AggregationWithHeaders[Any] | None = self._store.fetch_session(window.key, window.start_ms, window.end_ms)
        return None if held is None else ValueTimestampHeaders(held.aggregation, window.end_ms, held.header_bytes)

    def _windows(self) -> Iterator[Windowed]:
        return _sessions_in(self._store)


def _sessions_in(store: Any) -> Iterator[Windowed]:
    with store.fetch(None, None) as sessions:
        for session, _ in sessions:
            yield session


class _Changed(NamedTuple):
    """The changes that records make to sessions: a row for each change."""

    rows: Integers
    """The record that made it."""
    keys: pa.Array
    starts_ms: Integers
    ends_ms: Integers
    made: RecordColumns
    """By key and session; the value of a deleted one is null."""
    old: pa.Array
    groups: KeyGroups
    """Which changes have the same session."""


class SessionAggregatingColumns(WindowedAggregateColumns[SessionWindows]):
    """Keeps one aggregate a key and session."""

    def init(self, context: ProcessorContext) -> None:
        """Open what merges sessions."""
        super().init(context)
        plan, windows = self._plan.aggregate, self._plan.windows
        self._headers, self._update = plan.headers, Update(plan, context)
        self._gap_ms = windows.inactivity_gap_ms
        tells_each = not plan.changes.is_cached and not self._plan.is_final
        self._merging = SessionMerging(
            windows,
            self._aggregation.merging(plan.aggregation),
            retention_ms=self._store.retention_ms,
            tells_each=tells_each,
            removes_kept=tells_each,
        )

    def _at_once(self, records: RecordColumns) -> Iterable[slice]:
        count = self._aggregation.sessions_at_once or max(1, len(records))
        return [slice(start, min(start + count, len(records))) for start in range(0, len(records), count)]

    def _aggregate(self, closing: Closing) -> None:
        records = closing.records
        found = self._sessions_near(records)
        values = self._values(records.value, found.held.value)
        headers, merge_headers = self._headers_of(records.headers, found.held.headers)
        sessions: list[list[Session]] = [[] for _ in range(len(records.by_key))]
        held = found.rows.tolist(), found.end_ms.tolist(), found.start_ms.tolist(), values.held, headers.held
        for key, *session in zip(*held, strict=True):
            sessions[key].append(tuple(session))
        times_ms = records.timestamp_ms.to_pylist()
        closed_ms = self._closing.of_keys(records, closing.closed_ms).tolist()
        seen_ms = self._closing.seen(closing.closed_ms).tolist()
        rows = records.by_key.codes.tolist(), times_ms, values.coming, headers.coming, closed_ms, seen_ms
        merged = self._merged(records, rows, sessions, merge_headers)
        self._tell_late(records, np.array(merged.late, np.int64))
        changed = self._changed(records, merged, values, headers)
        if self._final is not None:
            self._emit(self._final, closing, changed)
        if self._store_is_behind:
            # Entries of an earlier shard that was ahead must not hide open sessions.
            self._store.hold_stream_time(seen_ms[-1])
        if merged.changes:
            self._keep(records, changed)
        if self._final is None:
            self._changes.send(changed.made, changed.old, changed.groups)

    def _merged(
        self,
        records: RecordColumns,
        columns: tuple[Sequence[Any], ...],
        sessions: list[list[Session]],
        merge_headers: Callable[[Any, Any], Any],
    ) -> MergedRecords:
        keys, stream_time_ms = records.by_key.keys.to_pylist(), self._store.stream_time_ms
        rows = zip(*columns, strict=True)
        try:
            return self._merging.merge(rows, keys, sessions, merge_headers, stream_time_ms)
        except Exception as cause:
            not_reached = sum(1 for _ in rows)
            self._context.fail_on(records, max(0, len(records) - not_reached - 1), cause)

    def _held(self, keys: pa.Array, starts_ms: Integers, ends_ms: Integers) -> HeldColumns:
        held: HeldColumns = self._store.fetch_session_many(keys, starts_ms, ends_ms)
        return held

    def _windows(self) -> Iterator[Windowed]:
        return _sessions_in(self._store)

    def _sessions_near(self, records: RecordColumns) -> FoundSessions:
        """Return all sessions that may belong to a record of their key."""
        groups, times_ms = records.by_key, records.timestamp_ms.to_numpy()
        earliest_ms, latest_ms = np.full(len(groups), MAX_TIME_MS), np.zeros(len(groups), np.int64)
        np.minimum.at(earliest_ms, groups.codes, times_ms)
        np.maximum.at(latest_ms, groups.codes, times_ms)
        gap_ms = self._gap_ms
        earliest_ms = np.maximum(earliest_ms, gap_ms) - gap_ms
        latest_ms = np.minimum(latest_ms, MAX_TIME_MS - gap_ms) + gap_ms
        found: FoundSessions = self._store.find_sessions_many(groups.keys, earliest_ms, latest_ms)
        return found

    def _values(self, coming: pa.Array, held: pa.Array) -> _Items:
        aggregation = self._aggregation
        if aggregation.chooses:
            return _Chosen(of_type(held.type, coming), held)
        given = [None] * len(coming) if aggregation.counts else coming.to_pylist()
        return _Made(given, aggregation.cells(held), partial(aggregation.column, type_=held.type))

    def _headers_of(self, coming: pa.BinaryArray, held: pa.BinaryArray) -> tuple[_Items, Callable[[Any, Any], Any]]:
        """Return the headers, and a function that merges two lists of them."""
        policy = self._headers
        if policy.keeps_none:
            return _Chosen(pa.repeat(pa.scalar(b"", pa.binary()), len(coming)), held), _later
        if policy.is_of_one_record and policy.fits_all(coming) and policy.fits_all(held):
            return _Chosen(coming, held), _earlier if policy.keeps_first else _later
        return _Made(coming.to_pylist(), held.to_pylist(), partial(pa.array, type=held.type)), self._update.merged

    def _changed(self, records: RecordColumns, merged: MergedRecords, values: _Items, headers: _Items) -> _Changed:
        row_numbers, starts, ends, new, old = zip(*merged.changes, strict=True) if merged.changes else ((),) * 5
        rows, starts_ms, ends_ms = (np.array(numbers, np.int64) for numbers in (row_numbers, starts, ends))
        keys = records.key.take(pa.array(rows))
        made = RecordColumns.adopt(
            windowed_column(keys, starts_ms, ends_ms),
            values.column(new),
            pa.array(ends_ms),
            headers.column(merged.headers).take(pa.array(rows)),
            None if records.origin is None else records.origin.take(pa.array(rows)),
        )
        return _Changed(rows, keys, starts_ms, ends_ms, made, values.column(old), made.by_key)

    def _keep(self, records: RecordColumns, changed: _Changed) -> None:
        """Store the last state of each session."""
        lasts = np.sort(changed.groups.last_rows)
        made_for = records.take(changed.rows[lasts])
        value, headers = (column.take(pa.array(lasts)) for column in (changed.made.value, changed.made.headers))
        # Deletions are logged with the headers of the record.
        headers = pc.if_else(pc.is_valid(value), headers, made_for.headers)
        stored = made_for.with_columns(value=value, headers=headers)
        self._store.put_many(stored, changed.starts_ms[lasts], changed.ends_ms[lasts])

    def _emit(self, final: FinalWindowColumns, closing: Closing, changed: _Changed) -> None:
        """Emit the sessions that the records close, and note when the others end."""
        groups, made, ends_ms = changed.groups, changed.made, changed.ends_ms
        is_there = is_valid(made.value)
        is_new = np.zeros(len(groups), np.bool_)
        is_new[groups.codes[is_there & ~is_valid(changed.old)]] = True
        closed_by = np.searchsorted(closing.closed_ms, ends_ms)
        # A closed session that is still visible can be merged: it was emitted before, in its earlier state.
        before = np.flatnonzero((changed.rows < closed_by) & (closed_by < len(closing.records)))
        lasts = before[are_last(pa.array(groups.codes[before]))]
        lasts = lasts[ends_ms[lasts] >= self._store.first_visible_ms]
        ready = made.take(lasts).with_columns(key=self._places(final, changed, lasts))
        final.emit(closing, ready.filter(is_new[groups.codes[lasts]] | final.are_noted(ready.key)))
        noted = np.flatnonzero(is_there != is_valid(changed.old))
        final.note(closing, self._places(final, changed, noted), changed.rows[noted], is_there[noted])

    def _places(self, final: FinalWindowColumns, changed: _Changed, rows: Integers) -> pa.BinaryArray:
        return final.places(changed.keys.take(pa.array(rows)), changed.starts_ms[rows], changed.ends_ms[rows])


class _Chosen:
    """Items that are only chosen among: their positions stand for them, first the new ones, then those held."""

    def __init__(self, coming: pa.Array, held: pa.Array) -> None:
        self._all = pa.concat_arrays([coming, held])
        self.coming: Sequence[Any] = range(len(coming))
        self.held: Sequence[Any] = range(len(coming), len(self._all))

    def column(self, items: Sequence[Any]) -> pa.Array:
        """Return the items as a column; None is null."""
        return self._all.take(pa.array(items, pa.int64()))


class _Made(NamedTuple):
    """Items that functions make new ones of, as Python objects."""

    coming: Sequence[Any]
    held: Sequence[Any]
    column: Callable[[Sequence[Any]], pa.Array]


_Items: TypeAlias = "_Chosen | _Made"


def _later(old: Any, new: Any) -> Any:
    return new


def _earlier(old: Any, new: Any) -> Any:
    return new if old is None else old
