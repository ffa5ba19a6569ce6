"""Aggregates of keys and windows of time, of records in columns: what `windowed_aggregating` does record by record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.column_types import windowed_column
from statestore.dsl.processors.aggregating_columns import with_keys
from statestore.dsl.processors.column_changes import ColumnChanges
from statestore.dsl.processors.column_updates import ColumnUpdate
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import ObservedTime, WindowClosing
from statestore.dsl.processors.windows.final_window_columns import Closing, FinalWindowColumns
from statestore.dsl.processors.windows.windowed_aggregating import WindowedPlan
from statestore.dsl.windows import TimeWindows
from statestore.format.binary_columns import Flags, Integers, is_valid
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, LATE_RECORDS
from statestore.processor.processor import BatchProcessor
from statestore.stores.iterator import Windowed


class _Assigned(NamedTuple):
    """Records with the windows that they belong to: a row for each window of each record, in that order."""

    rows: Integers
    """The record of each row."""
    starts_ms: Integers
    ends_ms: Integers

    def where(self, mask: Flags) -> _Assigned:
        return _Assigned(*(column[mask] for column in self))


class _Updated(NamedTuple):
    """What records make of the windows that they belong to: a row for each window of each record."""

    groups: KeyGroups
    """Which rows have the same window."""
    made: RecordColumns
    """By keys without windows."""
    old: pa.Array
    is_new: Flags
    """Of each group, whether nothing was held of it."""


class WindowedAggregatingColumns(Planned[WindowedPlan[TimeWindows]], BatchProcessor):
    """Keeps one aggregate a key and window, with the latest timestamp of its records."""

    def __init__(self, plan: WindowedPlan[TimeWindows], aggregation: ColumnAggregation) -> None:
        super().__init__(plan)
        self._aggregation = aggregation

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        plan = self._plan.aggregate
        self._store = context.state_store(plan.store)
        self._changes = ColumnChanges(plan.changes, context)
        self._update = ColumnUpdate(self._aggregation, plan, context)
        self._observed = ObservedTime(context, plan.store, plan.key_serde)
        self._closing = WindowClosing(self._observed, self._plan.windows.closes_after_ms)
        self._final = None
        if self._plan.is_final:
            self._final = FinalWindowColumns(
                context,
                plan,
                self._changes,
                lambda keys, starts_ms, _: self._store.fetch_many(keys, starts_ms),
                self._closing.not_yet_closed(self._windows),
            )

    def process_batch(self, records: RecordColumns) -> None:
        """Add records to the aggregates of their windows."""
        records = with_keys(records, self._context, needs_value=self._plan.aggregate.aggregation.needs_value)
        if not len(records):
            return
        closing = Closing(records, self._closing.advance_many(records))
        assigned = self._assign(records.timestamp_ms.to_numpy())
        is_late = assigned.ends_ms <= self._closing.of_keys(records, closing.closed_ms)[assigned.rows]
        self._tell_late(records, assigned.rows[is_late])
        kept = assigned.where(~is_late)
        if self._final is not None:
            self._close(self._final, closing, kept)
        elif len(kept.rows):
            self._change(records, kept)

    def finish_batch(self) -> None:
        """Send on what was held back, and have committed what is to be remembered."""
        self._changes.finish()
        self._observed.record()
        if self._final is not None:
            self._final.record()

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
        # A sum beyond 64 bits is not taken: the end of time is.
        return _Assigned(rows, starts, np.minimum(starts, MAX_TIME_MS - windows.size_ms) + windows.size_ms)

    def _change(self, records: RecordColumns, assigned: _Assigned) -> None:
        """Store what records make of their windows, and send each change on."""
        updated = self._updated(records, assigned)
        groups, made = updated.groups, updated.made
        lasts = np.sort(groups.last_rows)
        self._store.put_many(made.take(lasts), assigned.starts_ms[lasts])
        windowed = windowed_column(made.key, assigned.starts_ms, assigned.ends_ms)
        changed = RecordColumns.adopt(windowed, made.value, made.timestamp_ms, made.headers, made.origin)
        self._changes.send(changed, updated.old, groups)

    def _close(self, final: FinalWindowColumns, closing: Closing, assigned: _Assigned) -> None:
        """Store what records make of their windows, and put out those windows that are closed by any of them."""
        updated = self._updated(closing.records, assigned)
        lasts = np.sort(updated.groups.last_rows)
        windows, starts_ms, ends_ms = updated.made.take(lasts), assigned.starts_ms[lasts], assigned.ends_ms[lasts]
        places = final.places(windows.key, starts_ms, ends_ms)
        is_closed = ends_ms <= closing.closed_ms[-1]
        is_shown = starts_ms >= self._store.first_visible_ms
        final.put_out(closing, windows.with_columns(key=places).filter(is_closed & is_shown))
        self._store.put_many(windows, starts_ms)
        groups = updated.groups
        is_begun = np.where(groups.rows_before < 0, updated.is_new[groups.codes], ~is_valid(updated.old))
        noted = np.flatnonzero(is_valid(updated.made.value) & is_begun)
        starts_ms, ends_ms = assigned.starts_ms[noted], assigned.ends_ms[noted]
        places = final.places(updated.made.key.take(pa.array(noted)), starts_ms, ends_ms)
        final.note(closing, places, assigned.rows[noted], np.ones(len(noted), np.bool_))

    def _updated(self, records: RecordColumns, assigned: _Assigned) -> _Updated:
        rows, starts_ms = assigned.rows, assigned.starts_ms
        codes = records.by_key.codes[rows]
        # By number of window, not by start: the product has to fit in 64 bits. By window first, as the store has them.
        windows = np.unique(starts_ms, return_inverse=True)[1] * len(records.by_key) + codes
        # A window that the store does not show is begun anew by each record.
        hidden = np.flatnonzero(starts_ms < self._store.first_visible_ms)
        windows[hidden] = hidden - len(windows)
        groups = KeyGroups(pa.array(windows))
        firsts = groups.first_rows
        keys = records.by_key.keys.take(pa.array(codes[firsts]))
        held = self._store.fetch_many(keys, starts_ms[firsts])
        is_one_each = np.array_equal(rows, np.arange(len(records)))
        of_windows = records if is_one_each else records.take(pa.array(rows))
        updated = self._update.of(groups, held, of_windows)
        made = of_windows.with_columns(value=updated.new, timestamp_ms=updated.timestamp_ms, headers=updated.headers)
        return _Updated(groups, made, updated.old, ~is_valid(held.value))

    def _tell_late(self, records: RecordColumns, late: Integers) -> None:
        if not len(late):
            return
        rows = np.unique(late)
        self._context.count(DROPPED_RECORDS, len(late))
        self._context.count(LATE_RECORDS, len(rows))
        if self._plan.late_child is not None:
            self._context.forward_batch(records.take(pa.array(rows)), self._plan.late_child)


def first_starts(windows: TimeWindows, times_ms: Integers) -> Integers:
    """Return when the first of the windows of each time starts: `TimeWindows.starts`, for columns."""
    shifted = np.maximum(0, times_ms - (windows.size_ms - windows.advance_ms))
    return shifted // windows.advance_ms * windows.advance_ms
