"""Aggregates of keys and sliding windows. Source: Kafka's KStreamSlidingWindowAggregate.

Each record has a left window, which ends at it. It has a right window, which starts a millisecond after it, if a record
of the same key lies in it. So each set of records that close to each other has a window. A record changes the
existing windows that hold its time, and makes missing ones from the aggregates of others. No window starts before 0:
all records earlier than the length of a window share the first one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from statestore.dsl.processors.windows.windowed_aggregating import AggregateByStart, WindowedPlan
from statestore.dsl.windows import SlidingWindows
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders


class SlidingAggregating(AggregateByStart[SlidingWindows]):
    """Keeps one aggregate a key and window, with the latest timestamp of its records, which later windows need."""

    def __init__(self, plan: WindowedPlan[SlidingWindows]) -> None:
        super().__init__(plan)
        self._length_ms = plan.windows.time_difference_ms
        self._closed_ms = 0
        self._is_late = False

    def process(self, record: Record[Any, Any]) -> None:
        """Add a record to the windows that it is in, and make those that are missing."""
        if record.key is None or record.value is None:
            self._drop()
            return
        time_ms = record.timestamp_ms
        self._closed_ms, self._is_late = self._close(record), False
        if time_ms + self._length_ms <= self._closed_ms:
            self._drop()
            self._is_late = True
        elif time_ms < self._length_ms:
            self._process_early(record)
        else:
            self._process(record)
        if self._is_late:
            self._tell_late(record)

    def _process(self, record: Record[Any, Any]) -> None:
        time_ms, length_ms = record.timestamp_ms, self._length_ms
        starts: set[int] = set()
        left = right = previous_ms = None
        has_left = False
        for start_ms, held in self._found(record.key, max(0, time_ms - 2 * length_ms), time_ms + 1)[::-1]:
            starts.add(start_ms)
            end_ms = start_ms + length_ms
            if start_ms > time_ms:
                continue
            if end_ms > time_ms:
                right = right or _copied(held)
                self._change_open(start_ms, held, record)
            elif end_ms == time_ms:
                has_left, latest_ms = True, held.timestamp_ms
                self._change_open(start_ms, held, record)
                if latest_ms >= time_ms:
                    return  # an earlier record of the same time has made all windows
                previous_ms = latest_ms
            else:
                left, previous_ms = held, held.timestamp_ms
                break
        if previous_ms is not None and previous_ms + 1 + length_ms >= time_ms:
            self._make_right_of(previous_ms, starts, record)
        if not has_left:
            start_ms = time_ms - length_ms
            before = left if previous_ms is not None and previous_ms >= start_ms else None
            begun = None if before is None else ValueTimestampHeaders(before.value, time_ms, before.header_bytes)
            self._change_open(start_ms, begun, record, is_new=True)
        self._make_right(right, starts, record)

    def _process_early(self, record: Record[Any, Any]) -> None:
        """Process a record whose left window would start before 0: it belongs to the one that starts there."""
        time_ms = record.timestamp_ms
        starts: set[int] = set()
        first = right = previous_ms = None
        for start_ms, held in self._found(record.key, 0, time_ms + 1):
            starts.add(start_ms)
            if start_ms == 0:
                first = held
                previous_ms = held.timestamp_ms if held.timestamp_ms < time_ms else None
            elif start_ms <= time_ms:
                right = _copied(held)
                self._change_open(start_ms, held, record)
        if right is None and first is not None:
            right = _copied(first)
        self._make_right(right, starts, record)
        if previous_ms is not None:
            self._make_right_of(previous_ms, starts, record)
        self._change_open(0, first, record, is_new=first is None)

    def _found(self, key: Any, from_ms: int, to_ms: int) -> list[tuple[int, ValueTimestampHeaders[Any]]]:
        """Return the windows that start within these times, earliest first."""
        with self._store.fetch(key, from_ms, to_ms) as windows:
            return list(windows)

    def _make_right_of(self, previous_ms: int, starts: set[int], record: Record[Any, Any]) -> None:
        """Make the right window of the record before; this record is its first."""
        if previous_ms + 1 not in starts:
            self._change_open(previous_ms + 1, None, record, is_new=True)

    def _make_right(self, of: ValueTimestampHeaders[Any] | None, starts: set[int], record: Record[Any, Any]) -> None:
        """Make the record's right window from the earlier window `of`, if that has a later record."""
        start_ms = record.timestamp_ms + 1
        if start_ms not in starts and of is not None and of.timestamp_ms > record.timestamp_ms:
            self._store_window(start_ms, of, None, record, is_new=True)

    def _change_open(
        self, start_ms: int, held: ValueTimestampHeaders[Any] | None, record: Record[Any, Any], *, is_new: bool = False
    ) -> None:
        """Add a record to a window that holds `held`, if anything, unless it has closed."""
        if self._end_ms(start_ms) <= self._closed_ms:
            self._drop()
            self._is_late = True
        else:
            self._change(start_ms, held, record, is_new=is_new)


def _copied(held: ValueTimestampHeaders[Any]) -> ValueTimestampHeaders[Any]:
    """Return a copy, as an aggregator may change the value."""
    return ValueTimestampHeaders(deepcopy(held.value), held.timestamp_ms, held.header_bytes)
