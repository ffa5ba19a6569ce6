"""Aggregates of keys and sessions, of records in columns: what `session_aggregating` does record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.aggregations import ColumnAggregation, aggregates_of
from statestore.dsl.column_types import windowed_column
from statestore.dsl.processors.aggregating import Update
from statestore.dsl.processors.aggregating_columns import with_keys
from statestore.dsl.processors.column_changes import ColumnChanges, groups_of
from statestore.dsl.processors.session_aggregating import SessionAggregating
from statestore.dsl.processors.session_merging import MergedRecords, Session, SessionMerging
from statestore.dsl.processors.windowed_aggregating import ObservedTime
from statestore.format.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.batch_processor import BatchProcessor
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, LATE_RECORDS
from statestore.stores.session import FoundSessions


@dataclass(frozen=True)
class SessionAggregatingColumns:
    """Makes the processor."""

    asked: SessionAggregating
    aggregation: ColumnAggregation

    def __call__(self) -> BatchProcessor:
        """Return a new processor."""
        return _SessionColumnAggregate(self)


class _SessionColumnAggregate(BatchProcessor):
    """Keeps one aggregate a key and session."""

    def __init__(self, made_for: SessionAggregatingColumns) -> None:
        self._asked, self._aggregation = made_for.asked, made_for.aggregation

    def init(self, context: ProcessorContext) -> None:
        plan, windows = self._asked.plan, self._asked.windows
        self._context = context
        self._store = context.state_store(plan.store)
        self._changes = ColumnChanges(plan.changes, context)
        self._headers, self._update = plan.headers, Update(plan, context)
        self._observed = ObservedTime(context, plan.store)
        self._gap_ms = windows.inactivity_gap_ms
        self._merging = SessionMerging(
            windows, plan.aggregation, retention_ms=self._store.retention_ms, is_cached=plan.changes.is_cached
        )

    def process_batch(self, records: RecordColumns) -> None:
        records = with_keys(records, self._context, needs_value=self._asked.plan.aggregation.needs_value)
        if not len(records):
            return
        found = self._sessions_near(records)
        values = self._values(records.value, found.held.value)
        headers, merge_headers = self._headers_of(records.headers, found.held.headers)
        sessions: list[list[Session]] = [[] for _ in range(len(records.by_key))]
        held = found.rows.tolist(), found.end_ms.tolist(), found.start_ms.tolist(), values.held, headers.held
        for key, *session in zip(*held, strict=True):
            sessions[key].append(tuple(session))
        times_ms = records.timestamp_ms.to_numpy()
        merged = self._merging.merge(
            zip(records.by_key.codes.tolist(), times_ms.tolist(), values.coming, headers.coming, strict=True),
            records.by_key.keys.to_pylist(),
            sessions,
            merge_headers,
            self._observed.time_ms,
            self._store.stream_time_ms,
        )
        self._observed.advance(int(times_ms.max()))
        if merged.late:
            self._tell_late(records, merged.late)
        if merged.changes:
            self._keep(records, merged, values, headers)

    def finish_batch(self) -> None:
        self._changes.finish()
        self._observed.record()

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
        if aggregation.counts:
            return _Made([None] * len(coming), held)
        return _Chosen(coming, held) if aggregation.combine is None else _Made(coming.to_pylist(), held)

    def _headers_of(self, coming: pa.BinaryArray, held: pa.BinaryArray) -> tuple[_Items, Callable[[Any, Any], Any]]:
        """Return the headers, and what merges two of them."""
        policy = self._headers
        if policy.keeps_none:
            return _Chosen(pa.repeat(pa.scalar(b"", pa.binary()), len(coming)), held), _later
        if policy.is_of_one_record and policy.fits_all(coming) and policy.fits_all(held):
            return _Chosen(coming, held), _earlier if policy.keeps_first else _later
        return _Made(coming.to_pylist(), held), self._update.merged

    def _keep(self, records: RecordColumns, merged: MergedRecords, values: _Items, headers: _Items) -> None:
        """Store what became of sessions, and send it on."""
        row_numbers, starts, ends, new, old = zip(*merged.changes, strict=True)
        rows, starts_ms, ends_ms = (np.array(numbers, np.int64) for numbers in (row_numbers, starts, ends))
        value, by_record = values.column(new), records.take(rows)
        merged_headers = headers.column(merged.headers).take(pa.array(rows))
        windowed = windowed_column(by_record.key, starts_ms, ends_ms)
        groups = groups_of(windowed)
        lasts = groups.last_rows
        # What is removed is logged with the headers of the record.
        stored = by_record.with_columns(
            value=value, headers=pc.if_else(pc.is_valid(value), merged_headers, by_record.headers)
        )
        self._store.put_many(stored.take(lasts), starts_ms[lasts], ends_ms[lasts])
        changed = RecordColumns.adopt(windowed, value, pa.array(ends_ms), merged_headers, by_record.origin)
        self._changes.send(changed, values.column(old), groups)

    def _tell_late(self, records: RecordColumns, late: list[int]) -> None:
        self._context.count(DROPPED_RECORDS, len(late))
        self._context.count(LATE_RECORDS, len(late))
        if self._asked.late_child is not None:
            self._context.forward_batch(records.take(late), self._asked.late_child)


class _Chosen:
    """Items that are only chosen among: their places stand for them, of what is held behind those that come."""

    def __init__(self, coming: pa.Array, held: pa.Array) -> None:
        self._all = pa.concat_arrays([coming, held])
        self.coming: Sequence[Any] = range(len(coming))
        self.held: Sequence[Any] = range(len(coming), len(self._all))

    def column(self, items: Sequence[Any]) -> pa.Array:
        """Return the items as a column; None is null."""
        return self._all.take(pa.array(items, pa.int64()))


class _Made:
    """Items that others are made of, as Python objects."""

    def __init__(self, coming: Sequence[Any], held: pa.Array) -> None:
        self._type = held.type
        self.coming: Sequence[Any] = coming
        self.held: Sequence[Any] = held.to_pylist()

    def column(self, items: Sequence[Any]) -> pa.Array:
        """Return the items as a column; None is null. Raises SerializationError for a number that does not fit."""
        return aggregates_of(items, self._type)


_Items: TypeAlias = "_Chosen | _Made"


def _later(old: Any, new: Any) -> Any:
    return new


def _earlier(old: Any, new: Any) -> Any:
    return new if old is None else old
