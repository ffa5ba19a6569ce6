"""Aggregates of keys and windows of time. Source: Kafka's KStreamWindowAggregate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from statestore.bytestore.chunks import slices
from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.column_types import windowed_column
from statestore.dsl.processors.aggregating import AggregatePlan, Update
from statestore.dsl.processors.aggregating_columns import ColumnUpdate, UpdatedColumns, with_keys
from statestore.dsl.processors.changes_out import ChangesOut, ColumnChanges
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import ObservedTime, WindowClosing
from statestore.dsl.processors.windows.final_windows import Closing, FinalWindowColumns, FinalWindows
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.format.binary_columns import Flags, Integers, is_valid, row_sizes
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS, LATE_RECORDS, BatchProcessor
from statestore.processor.record import Record
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import ValueTimestampHeaders
from statestore.stores.iterator import Windowed

_BYTES_AT_ONCE: Final = 64 << 20
"""Each record is there once for each of its windows, and up to five copies of that are held."""
_ROW_BYTES: Final = 128
"""Of a row beside its headers and its text."""
WindowsT = TypeVar("WindowsT", bound=TimeWindows | SlidingWindows | SessionWindows)


@dataclass(frozen=True)
class WindowedPlan(Generic[WindowsT]):
    """How records are aggregated by windows. Travels to the executors."""

    aggregate: AggregatePlan
    windows: WindowsT
    is_final: bool = False
    """Whether a window is emitted once, when it closes, instead of at each change."""
    late_child: str | None = None
    """The node that gets the records that came too late for a window."""


class WindowedProcessor(Planned[WindowedPlan[WindowsT]]):
    """What all aggregates by windows share, by records and in columns: what is late, and what is final."""

    _changes: ChangesOut | ColumnChanges
    _final: FinalWindows | FinalWindowColumns | None

    def init(self, context: ProcessorContext) -> None:
        """Open the store, and what earlier batches have committed."""
        super().init(context)
        plan = self._plan.aggregate
        self._store = context.state_store(plan.store)
        clock = plan.store if plan.node is None else f"{plan.store}/{plan.node}"
        self._observed = ObservedTime(context, clock, plan.key_serde)
        self._closing = WindowClosing(self._observed, self._plan.windows.closes_after_ms)
        self._store_is_behind = context._earlier_times("store", plan.store) is not None

    def finish_batch(self) -> None:
        """Send on what was held back, and have times committed."""
        self._changes.finish()
        self._observed.record()
        if self._final is not None:
            self._final.record()

    @abstractmethod
    def _windows(self) -> Iterable[Windowed]:
        """Yield all windows of the store."""


class WindowedAggregate(WindowedProcessor[WindowsT]):
    """What all aggregates by windows share that go by records."""

    _changes: ChangesOut
    _final: FinalWindows | None

    def init(self, context: ProcessorContext) -> None:
        """Open what sends changes, and what emits final windows."""
        super().init(context)
        plan = self._plan.aggregate
        # Final windows are emitted at once, even with caching.
        changes = replace(plan.changes, is_cached=False) if self._plan.is_final else plan.changes
        self._changes = changes.open(context, plan.key_serde, has_windows=True)
        self._update = Update(plan, context)
        self._final = None
        if self._plan.is_final:
            windows = self._closing.not_yet_closed(self._windows)
            self._final = FinalWindows(context, plan.store, plan.key_serde, self._held, windows)

    def _forgotten_ms(self) -> int:
        """Return the latest window end that the store hides as expired."""
        return int(self._store.first_visible_ms) - 1

    @abstractmethod
    def _held(self, window: Windowed) -> ValueTimestampHeaders[Any] | None:
        """Return what is held of a window, with the timestamp at which it is emitted."""

    def _close(self, record: Record[Any, Any]) -> int:
        """Return the latest end that has closed for a record; final windows that have closed are emitted.

        Call this before storing the record, which may advance the store to a time at which it hides them.
        """
        closed_ms = self._closing.advance(record)
        if self._final is not None:
            self._final.emit(closed_ms, self._changes)
        if self._store_is_behind:
            # Entries of an earlier shard that was ahead must not hide open windows.
            self._store.hold_stream_time(self._closing.seen(closed_ms))
        closed_ms = self._closing.of_key(record, closed_ms)
        # Other nodes may have advanced the store, which would not keep an expired window.
        return closed_ms if self._plan.aggregate.node is None else max(closed_ms, self._forgotten_ms())

    def _lacks_value(self, record: Record[Any, Any]) -> bool:
        return record.value is None and self._plan.aggregate.aggregation.needs_value

    def _drop(self) -> None:
        self._context.count(DROPPED_RECORDS)

    def _tell_late(self, record: Record[Any, Any]) -> None:
        self._context.count(LATE_RECORDS)
        if self._plan.late_child is not None:
            self._context.forward(record, self._plan.late_child)


class AggregateByStart(WindowedAggregate[WindowsT]):
    """What aggregates share whose windows are identified by their start and have one length."""

    _length_ms: int
    """From the start of a window to its end."""

    def _held(self, window: Windowed) -> ValueTimestampHeaders[Any] | None:
        held: ValueTimestampHeaders[Any] | None = self._store.fetch(window.key, window.start_ms)
        return held

    def _forgotten_ms(self) -> int:
        return self._end_ms(super()._forgotten_ms())

    def _windows(self) -> Iterable[Windowed]:
        with self._store.all() as entries:
            for window, _ in entries:
                yield Windowed(window.key, window.start_ms, self._end_ms(window.start_ms))

    def _end_ms(self, start_ms: int) -> int:
        return min(start_ms + self._length_ms, MAX_TIME_MS)

    def _change(
        self, start_ms: int, held: ValueTimestampHeaders[Any] | None, record: Record[Any, Any], *, is_new: bool
    ) -> None:
        """Add a record to a window that holds `held`, if anything, and send the change on."""
        old, updated = self._update.of(held, record)
        self._store_window(start_ms, updated, old, record, is_new=is_new)

    def _store_window(
        self, start_ms: int, held: ValueTimestampHeaders[Any], old: Any, record: Record[Any, Any], *, is_new: bool
    ) -> None:
        window = Windowed(record.key, start_ms, self._end_ms(start_ms))
        self._store.put(record.key, held if held.value is not None else None, start_ms)
        if self._final is None:
            self._changes.send(window, held.value, old, held.timestamp_ms, held.header_bytes)
        elif is_new and held.value is not None:
            self._final.note(window)


class WindowedAggregating(AggregateByStart[TimeWindows]):
    """Keeps one aggregate a key and window, with the latest timestamp of its records."""

    def __init__(self, plan: WindowedPlan[TimeWindows]) -> None:
        super().__init__(plan)
        self._length_ms = plan.windows.size_ms

    def process(self, record: Record[Any, Any]) -> None:
        """Add a record to the aggregates of its windows."""
        key = record.key
        if key is None or self._lacks_value(record):
            self._drop()
            return
        closed_ms, is_late = self._close(record), False
        for start_ms in self._plan.windows.starts(record.timestamp_ms):
            if self._end_ms(start_ms) <= closed_ms:
                is_late = True
                self._drop()
            else:
                held = self._store.fetch(key, start_ms)
                self._change(start_ms, held, record, is_new=held is None)
        if is_late:
            self._tell_late(record)


class _Assigned(NamedTuple):
    """Records with their windows: a row for each window of each record, in that order."""

    rows: Integers
    """The record of each row."""
    starts_ms: Integers
    ends_ms: Integers

    def where(self, mask: Flags) -> _Assigned:
        return _Assigned(*(column[mask] for column in self))

    def divided(self, count: int) -> tuple[_Assigned, _Assigned]:
        return _Assigned(*(column[:count] for column in self)), _Assigned(*(column[count:] for column in self))


class WindowedAggregateColumns(WindowedProcessor[WindowsT], BatchProcessor):
    """What all aggregates by windows share that go in columns."""

    _changes: ColumnChanges
    _final: FinalWindowColumns | None

    def __init__(self, plan: WindowedPlan[WindowsT], aggregation: ColumnAggregation) -> None:
        super().__init__(plan)
        self._aggregation = aggregation

    def init(self, context: ProcessorContext) -> None:
        """Open what sends changes, and what emits final windows."""
        super().init(context)
        plan = self._plan.aggregate
        self._changes = ColumnChanges(plan.changes, context)
        self._final = None
        if self._plan.is_final:
            windows = self._closing.not_yet_closed(self._windows)
            self._final = FinalWindowColumns(context, plan, self._changes, self._held, windows)

    def process_batch(self, records: RecordColumns) -> None:
        """Add records to the aggregates of their windows."""
        records = with_keys(records, self._context, needs_value=self._plan.aggregate.aggregation.needs_value)
        for rows in self._at_once(records):
            part = records.slice(rows.start, rows.stop - rows.start)
            self._aggregate(Closing(part, self._closing.advance_many(part)))

    @abstractmethod
    def _at_once(self, records: RecordColumns) -> Iterable[slice]:
        """Return the rows of records in parts to aggregate at once, none of which is empty."""

    @abstractmethod
    def _aggregate(self, closing: Closing) -> None:
        """Add records that have keys to the aggregates of their windows, and emit final windows that they close."""

    @abstractmethod
    def _held(self, keys: pa.Array, starts_ms: Integers, ends_ms: Integers) -> HeldColumns:
        """Return what is held of windows."""

    def _tell_late(self, records: RecordColumns, late: Integers) -> None:
        """Count and send on late records; `late` has the row of a record once for each window that it missed."""
        if not len(late):
            return
        rows = np.unique(late)
        self._context.count(DROPPED_RECORDS, len(late))
        self._context.count(LATE_RECORDS, len(rows))
        if self._plan.late_child is not None:
            self._context.forward_batch(records.take(pa.array(rows)), self._plan.late_child)


class WindowedAggregatingColumns(WindowedAggregateColumns[TimeWindows]):
    """Keeps one aggregate a key and window, with the latest timestamp of its records."""

    def init(self, context: ProcessorContext) -> None:
        """Open what aggregates."""
        super().init(context)
        self._update = ColumnUpdate(self._aggregation, self._plan.aggregate, context)

    def _at_once(self, records: RecordColumns) -> Iterable[slice]:
        sizes = row_sizes(records.headers) + _ROW_BYTES
        values = records.value.storage if isinstance(records.value, pa.ExtensionArray) else records.value
        if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
            sizes += row_sizes(values)
        return slices(sizes * self._plan.windows.most_at_once, _BYTES_AT_ONCE)

    def _aggregate(self, closing: Closing) -> None:
        records = closing.records
        assigned = self._assign(records.timestamp_ms.to_numpy())
        is_late = assigned.ends_ms <= self._closing.of_keys(records, closing.closed_ms)[assigned.rows]
        self._tell_late(records, assigned.rows[is_late])
        kept = assigned.where(~is_late)
        while self._final is not None or len(kept.rows):
            updated = self._updated(closing.records, kept)
            done, others = kept.divided(len(updated.made))
            count = int(others.rows[0]) if len(others.rows) else len(closing.records)
            if self._final is None:
                self._change(updated, done)
            else:
                self._close(self._final, closing.slice(0, count), updated, done)
            if not len(others.rows):
                return
            closing, kept = closing.slice(count), others._replace(rows=others.rows - count)

    def _held(self, keys: pa.Array, starts_ms: Integers, ends_ms: Integers) -> HeldColumns:
        held: HeldColumns = self._store.fetch_many(keys, starts_ms)
        return held

    def _windows(self) -> Iterator[Windowed]:
        with self._store.all() as entries:
            for window, _ in entries:
                yield window

    def _assign(self, times_ms: Integers) -> _Assigned:
        windows = self._plan.windows
        first = first_starts(windows, times_ms)
        counts = (times_ms - first) // windows.advance_ms + 1
        rows = np.repeat(np.arange(len(times_ms)), counts)
        numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = first[rows] + numbers * windows.advance_ms
        # Sums beyond 64 bits become the end of time.
        return _Assigned(rows, starts, np.minimum(starts, MAX_TIME_MS - windows.size_ms) + windows.size_ms)

    def _change(self, updated: UpdatedColumns, assigned: _Assigned) -> None:
        """Store windows, and send each change on."""
        made = updated.made
        self._store.put_many(updated.stored, assigned.starts_ms[updated.last_rows])
        windowed = windowed_column(made.key, assigned.starts_ms, assigned.ends_ms)
        changed = RecordColumns.adopt(windowed, made.value, made.timestamp_ms, made.headers, made.origin)
        self._changes.send(changed, updated.old, updated.groups)

    def _close(self, final: FinalWindowColumns, closing: Closing, updated: UpdatedColumns, assigned: _Assigned) -> None:
        """Store windows, and emit those that records close."""
        lasts, made = updated.last_rows, updated.made
        windows, starts_ms, ends_ms = made.take(lasts), assigned.starts_ms[lasts], assigned.ends_ms[lasts]
        places = final.places(windows.key, starts_ms, ends_ms)
        is_closed = ends_ms <= closing.closed_ms[-1]
        is_shown = starts_ms >= self._store.first_visible_ms
        final.emit(closing, windows.with_columns(key=places).filter(is_closed & is_shown))
        self._store.put_many(updated.stored, starts_ms)
        noted = np.flatnonzero(is_valid(made.value) & updated.has_begun)
        places = final.places(made.key.take(pa.array(noted)), assigned.starts_ms[noted], assigned.ends_ms[noted])
        final.note(closing, places, assigned.rows[noted], np.ones(len(noted), np.bool_))

    def _updated(self, records: RecordColumns, assigned: _Assigned) -> UpdatedColumns:
        """Add records to their windows."""
        rows, starts_ms = assigned.rows, assigned.starts_ms
        codes = records.by_key.codes[rows]
        # Windows are numbered, as a product of starts may exceed 64 bits. By window first, as in the store.
        windows = np.unique(starts_ms, return_inverse=True)[1] * len(records.by_key) + codes
        # Each record begins anew a window that the store hides as expired.
        hidden = np.flatnonzero(starts_ms < self._store.first_visible_ms)
        windows[hidden] = hidden - len(windows)
        groups = KeyGroups(pa.array(windows))
        firsts = groups.first_rows
        keys = records.by_key.keys.take(pa.array(codes[firsts]))
        return self._update.of(groups, self._store.fetch_many(keys, starts_ms[firsts]), records, rows)


def first_starts(windows: TimeWindows, times_ms: Integers) -> Integers:
    """Return the start of the first window of each time: `TimeWindows.starts`, for columns."""
    shifted = np.maximum(0, times_ms - (windows.size_ms - windows.advance_ms))
    return shifted // windows.advance_ms * windows.advance_ms
