"""Aggregates of keys and windows of time. Source: Kafka's KStreamWindowAggregate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from statestore.dsl.processors.aggregating import AggregatePlan, Update
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import ObservedTime, WindowClosing
from statestore.dsl.processors.windows.final_windows import FinalWindows
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, LATE_RECORDS
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders
from statestore.stores.iterator import Windowed

WindowsT = TypeVar("WindowsT", TimeWindows, SlidingWindows, SessionWindows)


@dataclass(frozen=True)
class WindowedPlan(Generic[WindowsT]):
    """What an aggregate by windows is made of. Travels to the executors."""

    aggregate: AggregatePlan
    windows: WindowsT
    is_final: bool = False
    """Whether a window is put out once, when it closes, instead of at each change."""
    late_child: str | None = None
    """Who gets the records that came too late for a window."""


class WindowedAggregate(Planned[WindowedPlan[WindowsT]]):
    """What all aggregates by windows have in common: what is late, and what is final."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store, and what is remembered of the batches before."""
        super().init(context)
        plan = self._plan.aggregate
        self._store = context.state_store(plan.store)
        # What is final is put out at once, also of a table whose changes are held back.
        changes = replace(plan.changes, is_cached=False) if self._plan.is_final else plan.changes
        self._changes = changes.open(context, plan.key_serde)
        self._update = Update(plan, context)
        self._observed = ObservedTime(context, plan.store, plan.key_serde)
        self._closing = WindowClosing(self._observed, self._plan.windows.closes_after_ms)
        self._store_is_behind = context._earlier_times("store", plan.store) is not None
        self._final = None
        if self._plan.is_final:
            windows = self._closing.not_yet_closed(self._windows)
            self._final = FinalWindows(context, plan.store, plan.key_serde, self._held, windows)

    def finish_batch(self) -> None:
        """Send on what was held back, and have committed what is to be remembered."""
        self._changes.finish()
        self._observed.record()
        if self._final is not None:
            self._final.record()

    @abstractmethod
    def _held(self, window: Windowed) -> ValueTimestampHeaders[Any] | None:
        """Return what is held of a window, with the timestamp that it goes on with."""

    @abstractmethod
    def _windows(self) -> Iterable[Windowed]:
        """Yield all windows that there are."""

    def _close(self, record: Record[Any, Any]) -> int:
        """Return the latest end that has closed for a record; what has is put out, if that is what is asked for.

        To be called before the record is stored, which may take the store to a time in which it shows them no longer.
        """
        closed_ms = self._closing.advance(record)
        if self._final is not None:
            self._final.put_out(closed_ms, self._changes)
        if self._store_is_behind:
            # What came from a shard that was ahead must not hide what is open.
            self._store.hold_stream_time(self._closing.seen(closed_ms))
        return self._closing.of_key(record, closed_ms)

    def _lacks_value(self, record: Record[Any, Any]) -> bool:
        return record.value is None and self._plan.aggregate.aggregation.needs_value

    def _drop(self) -> None:
        self._context.count(DROPPED_RECORDS)

    def _tell_late(self, record: Record[Any, Any]) -> None:
        self._context.count(LATE_RECORDS)
        if self._plan.late_child is not None:
            self._context.forward(record, self._plan.late_child)


class AggregateByStart(WindowedAggregate[WindowsT]):
    """What aggregates have in common whose windows are known by their start, and all of one length."""

    _length_ms: int
    """From the start of a window to what is called its end."""

    def _held(self, window: Windowed) -> ValueTimestampHeaders[Any] | None:
        held: ValueTimestampHeaders[Any] | None = self._store.fetch(window.key, window.start_ms)
        return held

    def _windows(self) -> Iterable[Windowed]:
        with self._store.all() as entries:
            for window, _ in entries:
                yield Windowed(window.key, window.start_ms, self._end_ms(window.start_ms))

    def _end_ms(self, start_ms: int) -> int:
        return min(start_ms + self._length_ms, MAX_TIME_MS)

    def _change(
        self, start_ms: int, held: ValueTimestampHeaders[Any] | None, record: Record[Any, Any], *, is_new: bool
    ) -> None:
        """Add a record to a window that holds so much, and send the change on; None is nothing."""
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
