"""When windows close: what is late and what is final, for single records and for columns.

    a window has closed  <=>  end_ms <= time_ms - closes_after_ms

`time_ms` is event time as the node has seen it; each kind of windows says how long after its end a window closes, its
`closes_after_ms`. So processors compare the ends of windows with one number, the latest end that has closed, and need
neither times nor graces. A record that waits is treated as a window that ends when the wait begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow.compute as pc

from statestore.errors import TopologyError
from statestore.format.binary_columns import Integers
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import Serde, columns_of
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.earlier_times import NOWHERE, UNSEEN_MS
from statestore.processor.record import Record
from statestore.stores.iterator import Windowed


class EarlierTimesOfKeys:
    """The latest time, in ms, of a clock in the shard where a record's key was before a rescaling.

    It is -1 if the present clock is not behind it. `kind` and `name` are those of `ProcessorContext._earlier_times`,
    `key_serde` is that of the keys of the clock's store.
    """

    def __init__(self, context: ProcessorContext, kind: str, name: str, key_serde: Serde[Any]) -> None:
        self._times = context._earlier_times(kind, name)
        self._context, self._key_serde = context, key_serde

    def earlier(self, record: Record[Any, Any]) -> int:
        """Return the time for a record, whose key may be windowed."""
        if self._times is None or record.key is None:
            return UNSEEN_MS
        metadata = self._context.record_metadata
        return self._times.of(
            self._key_serde.serialize(record.key), NOWHERE if metadata is None else metadata.partition
        )

    def earlier_many(self, records: RecordColumns) -> Integers:
        """Return the time for each record; all have keys."""
        if self._times is None:
            return np.full(len(records), UNSEEN_MS, np.int64)
        keys = columns_of(self._key_serde, "key", TopologyError).serialize(records.key)
        partitions = records.partition
        places = np.full(len(records), NOWHERE) if partitions is None else partitions.to_numpy()
        return self._times.of_many(keys, places)


Times = TypeVar("Times", int, Integers)


def latest_closed(time_ms: Times, closes_after_ms: int) -> Times:
    """Return the latest window end that has closed at a time, or at each of several; it may be negative."""
    return time_ms - min(closes_after_ms, MAX_TIME_MS)  # columns have 64 bits


class ObservedTime(EarlierTimesOfKeys):
    """The latest timestamp that a node has seen in its shard, over batches and restarts.

    It is committed with the batch as processor metadata. Kafka forgets it at a restart, and then accepts records that
    were late before.
    """

    def __init__(self, context: ProcessorContext, store: str, key_serde: Serde[Any]) -> None:
        self._name = f"{store}-observed-stream-time"
        super().__init__(context, "processor", self._name, key_serde)
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
        """Have the time committed with the batch."""
        if self._time_ms != self._recorded_ms:
            self._context.set_processor_metadata(self._name, self._time_ms)
            self._recorded_ms = self._time_ms


class SharedTime(EarlierTimesOfKeys):
    """The latest timestamp that several nodes have seen, likewise; they share it under one name."""

    def __init__(self, context: ProcessorContext, store: str, key_serde: Serde[Any]) -> None:
        self._name = f"{store}-join-stream-time"
        super().__init__(context, "processor", self._name, key_serde)

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record's timestamp into account, and return the latest of all nodes."""
        latest_ms = self._context.processor_metadata(self._name)
        if latest_ms is not None and latest_ms >= record.timestamp_ms:
            return latest_ms
        self._context.set_processor_metadata(self._name, record.timestamp_ms)
        return record.timestamp_ms

    def advance_many(self, records: RecordColumns) -> None:
        """Take the timestamps of records into account."""
        latest_ms, seen_ms = pc.max(records.timestamp_ms).as_py(), self._context.processor_metadata(self._name)
        if seen_ms is None or latest_ms > seen_ms:
            self._context.set_processor_metadata(self._name, latest_ms)


class ShardTime:
    """The stream time of the shard, which all its records advance, whichever nodes they reach.

    After a rescaling, it is at least that of each key's earlier shard.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self._context = context

    def advance(self, record: Record[Any, Any]) -> int:
        """Return the time at the current record."""
        return self._context.current_stream_time_ms

    def advance_many(self, records: RecordColumns) -> Integers:
        """Return the time at each record."""
        times_ms = records.stream_time_ms
        if times_ms is None:
            return np.full(len(records), self._context.current_stream_time_ms)
        found: Integers = times_ms.to_numpy()
        return found

    def earlier(self, record: Record[Any, Any]) -> int:
        """Return -1."""
        return UNSEEN_MS

    def earlier_many(self, records: RecordColumns) -> Integers:
        """Return -1 for each record."""
        return np.full(len(records), UNSEEN_MS, np.int64)


class WindowClosing:
    """The latest window end that has closed, as records come.

    After a rescaling, later windows of some keys may have closed already in their earlier shard, which emitted them. So
    the time of the present shard alone says what closes now, and both times say what is late.
    """

    def __init__(self, time: ObservedTime | ShardTime, closes_after_ms: int) -> None:
        self._time, self._closes_after_ms = time, closes_after_ms

    def seen(self, closed_ms: Times) -> Times:
        """Return the time at which `closed_ms` is the latest end that has closed."""
        return closed_ms + min(self._closes_after_ms, MAX_TIME_MS)

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record into account, and return the latest window end that has closed by it, in ms."""
        return latest_closed(self._time.advance(record), self._closes_after_ms)

    def advance_many(self, records: RecordColumns) -> Integers:
        """Take records into account, and return the latest end that has closed by each."""
        return latest_closed(self._time.advance_many(records), self._closes_after_ms)

    def not_yet_closed(self, windows: Callable[[], Iterable[Windowed]]) -> Callable[[], Iterator[Windowed]]:
        """Return a function that yields the windows that had not closed in their key's earlier shard."""

        def open_windows() -> Iterator[Windowed]:
            for window in windows():
                if window.end_ms > self.of_key(Record(window.key, None, window.end_ms), UNSEEN_MS):
                    yield window

        return open_windows

    def of_key(self, record: Record[Any, Any], closed_ms: int) -> int:
        """Return the latest end that has closed for the record's key; for all keys it is `closed_ms`."""
        return max(closed_ms, latest_closed(self._time.earlier(record), self._closes_after_ms))

    def of_keys(self, records: RecordColumns, closed_ms: Integers) -> Integers:
        """Return the latest end that has closed for the key of each record."""
        return np.maximum(closed_ms, latest_closed(self._time.earlier_many(records), self._closes_after_ms))
