"""When windows close: what is late and what is final, of one time and of columns of times.

    a window has closed  <=>  end_ms <= time_ms - closes_after_ms

`time_ms` is event time as the node has seen it, `closes_after_ms` how long after its end a window takes records no
longer: `statestore.dsl.windows` says it of each kind. So who keeps windows compares their ends with one number, the
latest end that has closed, and knows neither times nor graces. What waits is a window that ends when its wait begins.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

import numpy as np

from statestore.format.binary_columns import Integers
from statestore.format.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record

_OBSERVED: Final = "{}-observed-stream-time"
_OF_JOIN: Final = "{}-join-stream-time"


Times = TypeVar("Times", int, Integers)


def latest_closed(time_ms: Times, closes_after_ms: int) -> Times:
    """Return the latest end of a window that has closed at a time, or at each of several; it may be negative."""
    return time_ms - min(closes_after_ms, MAX_TIME_MS)  # columns have 64 bits


class EventTime(Protocol):
    """Event time as a node sees it: the latest timestamp of all records up to one, in ms."""

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record into account, and return what time it is for the record's key."""
        ...

    def advance_many(self, records: RecordColumns) -> Integers:
        """Take records into account, of which there is one at least, and return what time it is at each."""
        ...


class ObservedTime:
    """The latest timestamp that a node has been given in its shard, over batches and restarts.

    It is committed with the batch as processor metadata: Kafka forgets it at a restart, and takes records again that
    were late before.
    """

    def __init__(self, context: ProcessorContext, store: str) -> None:
        self._context = context
        self._name = _OBSERVED.format(store)
        recorded = context.processor_metadata(self._name)
        self._time_ms = self._recorded_ms = -1 if recorded is None else recorded

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record's timestamp into account, and return the latest of all."""
        if record.timestamp_ms > self._time_ms:
            self._time_ms = record.timestamp_ms
        return self._time_ms

    def advance_many(self, records: RecordColumns) -> Integers:
        """Take the timestamps of records into account, and return the latest up to each."""
        times_ms: Integers = np.maximum(np.maximum.accumulate(records.timestamp_ms.to_numpy()), self._time_ms)
        self._time_ms = int(times_ms[-1])
        return times_ms

    def record(self) -> None:
        """Have it committed with the batch."""
        if self._time_ms != self._recorded_ms:
            self._context.set_processor_metadata(self._name, self._time_ms)
            self._recorded_ms = self._time_ms


class SharedTime:
    """The latest timestamp that several nodes have been given, which all know it by one name, likewise."""

    def __init__(self, context: ProcessorContext, store: str) -> None:
        self._context = context
        self._name = _OF_JOIN.format(store)

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record's timestamp into account, and return the latest of all nodes."""
        latest_ms = self._context.processor_metadata(self._name)
        if latest_ms is not None and latest_ms >= record.timestamp_ms:
            return latest_ms
        self._context.set_processor_metadata(self._name, record.timestamp_ms)
        return record.timestamp_ms


class ShardTime:
    """The stream time of the shard, which all its records advance, whichever nodes they come to."""

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context

    def advance(self, record: Record[Any, Any]) -> int:
        """Return what the record that is being processed has made it."""
        return self._context.current_stream_time_ms

    def advance_many(self, records: RecordColumns) -> Integers:
        """Return what each record has made it."""
        times_ms = records.stream_time_ms
        if times_ms is None:
            return np.full(len(records), self._context.current_stream_time_ms)
        found: Integers = times_ms.to_numpy()
        return found


class WindowClosing:
    """Up to which end windows have closed, as records come."""

    def __init__(self, time: EventTime, closes_after_ms: int) -> None:
        self._time, self._closes_after_ms = time, closes_after_ms

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record into account, and return the latest end of a window that has closed by it, in ms."""
        return latest_closed(self._time.advance(record), self._closes_after_ms)

    def advance_many(self, records: RecordColumns) -> Integers:
        """Take records into account, and return the latest end that has closed by each."""
        return latest_closed(self._time.advance_many(records), self._closes_after_ms)
