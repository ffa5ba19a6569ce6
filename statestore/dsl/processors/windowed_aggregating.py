"""Aggregates of keys and windows of time. Source: Kafka's KStreamWindowAggregate.

A window takes records until the latest timestamp that the node has seen is its grace past its end. That time, and up to
where windows were put out as final, are committed with the state as processor metadata: Kafka forgets the first at a
restart, and takes records again that were late before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from statestore.dsl.processors.aggregating import AggregatePlan, Update
from statestore.dsl.processors.changes_out import ChangesOut
from statestore.dsl.windows import TimeWindows
from statestore.format.serde import Serde
from statestore.format.window_key import MAX_TIME_MS
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, LATE_RECORDS
from statestore.processor.processor import Processor
from statestore.processor.record import Record
from statestore.stores.iterator import Windowed

_OBSERVED: Final = "{}-observed-stream-time"


@dataclass(frozen=True)
class WindowedAggregating:
    """Makes the processor."""

    plan: AggregatePlan
    windows: TimeWindows
    is_final: bool = False
    """Whether a window is put out once, when it closes, instead of at each change."""
    late_child: str | None = None
    """Who gets the records that came too late for a window."""

    def __call__(self) -> Processor:
        """Return a new processor."""
        return _WindowedAggregate(self)


class ObservedTime:
    """The latest timestamp that a node has seen, over batches and restarts."""

    def __init__(self, context: ProcessorContext, store: str) -> None:
        self._context = context
        self._name = _OBSERVED.format(store)
        recorded = context.processor_metadata(self._name)
        self.time_ms = self._recorded_ms = -1 if recorded is None else recorded

    def advance(self, timestamp_ms: int) -> int:
        """Take a record's timestamp into account, and return the latest of all."""
        if timestamp_ms > self.time_ms:
            self.time_ms = timestamp_ms
        return self.time_ms

    def record(self) -> None:
        """Have it committed with the batch."""
        if self.time_ms != self._recorded_ms:
            self._context.set_processor_metadata(self._name, self.time_ms)
            self._recorded_ms = self.time_ms


class FinalWindows:
    """Puts out windows that have closed, earliest first, each once over batches and restarts."""

    def __init__(self, context: ProcessorContext, store: str, key_serde: Serde[Any]) -> None:
        self._context, self._name = context, store
        self._store = context.state_store(store)
        self._key_bytes = key_serde.serialize
        self._closed_ms = context.processor_metadata(store)

    def put_out(self, close_ms: int, windows: TimeWindows, changes: ChangesOut) -> None:
        """Send on the windows that have closed since this was last called: those that end at `close_ms` or before."""
        before_ms = self._closed_ms
        if before_ms is not None and before_ms >= close_ms:
            return
        first_ms = 0 if before_ms is None else max(0, before_ms - windows.size_ms) + 1
        last_ms = close_ms - windows.size_ms
        if last_ms < 0 or (windows.starts(last_ms) == windows.starts(first_ms - 1) and before_ms is not None):
            return
        with self._store.fetch_all(first_ms, last_ms) as found:
            closed = sorted(found, key=lambda entry: (entry[0].start_ms, self._key_bytes(entry[0].key)))
        for window, held in closed:
            changes.send(window, held.value, None, held.timestamp_ms, held.header_bytes)
        self._closed_ms = close_ms
        self._context.set_processor_metadata(self._name, close_ms)


class _WindowedAggregate(Processor):
    """Keeps one aggregate a key and window, with the latest timestamp of its records."""

    def __init__(self, asked: WindowedAggregating) -> None:
        self._asked = asked
        self._windows = asked.windows

    def init(self, context: ProcessorContext) -> None:
        plan = self._asked.plan
        self._context = context
        self._store = context.state_store(plan.store)
        self._changes = plan.changes.open(context, plan.key_serde)
        self._update = Update(plan, context)
        self._observed = ObservedTime(context, plan.store)
        self._final = FinalWindows(context, plan.store, plan.key_serde) if self._asked.is_final else None

    def process(self, record: Record[Any, Any]) -> None:
        key, windows = record.key, self._windows
        if key is None or (record.value is None and self._asked.plan.aggregation.needs_value):
            self._context.count(DROPPED_RECORDS)
            return
        close_ms = self._observed.advance(record.timestamp_ms) - windows.grace_ms
        is_late = False
        for start_ms in windows.starts(record.timestamp_ms):
            end_ms = min(start_ms + windows.size_ms, MAX_TIME_MS)
            if end_ms <= close_ms:
                is_late = True
                self._context.count(DROPPED_RECORDS)
                continue
            old, updated = self._update.of(self._store.fetch(key, start_ms), record)
            self._store.put(key, updated if updated.value is not None else None, start_ms)
            if self._final is None:
                window = Windowed(key, start_ms, end_ms)
                self._changes.send(window, updated.value, old, updated.timestamp_ms, updated.header_bytes)
        if is_late:
            self._tell_late(record)
        if self._final is not None:
            self._final.put_out(close_ms, windows, self._changes)

    def finish_batch(self) -> None:
        self._changes.finish()
        self._observed.record()

    def _tell_late(self, record: Record[Any, Any]) -> None:
        self._context.count(LATE_RECORDS)
        if self._asked.late_child is not None:
            self._context.forward(record, self._asked.late_child)
