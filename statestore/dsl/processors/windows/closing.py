"""When windows close: what is late and what is final, of one time and of columns of times.

    a window has closed  <=>  end_ms <= time_ms - closes_after_ms

`time_ms` is event time as the node has seen it, `closes_after_ms` how long after its end a window takes records no
longer: each kind of windows says it. So who keeps windows compares their ends with one number, the
latest end that has closed, and knows neither times nor graces. What waits is a window that ends when its wait begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from statestore.dsl.windowed_serdes import WindowedSerde
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
    """The latest time that a clock had shown in the shard that a record's key was in, in ms; -1 if the present one has.

    `kind` and `name` are those of `ProcessorContext._earlier_times`, `key_serde` that of the keys of the clock's store.
    """

    def __init__(self, context: ProcessorContext, kind: str, name: str, key_serde: Serde[Any]) -> None:
        self._times = context._earlier_times(kind, name)
        self._context, self._key_serde = context, key_serde

    def of(self, record: Record[Any, Any]) -> int:
        """Return the time for a record, also of a windowed key."""
        if self._times is None or record.key is None:
            return UNSEEN_MS
        key, serde = record.key, self._key_serde
        while isinstance(serde, WindowedSerde):
            key, serde = key.key, serde.layout.inner
        metadata = self._context.record_metadata
        return self._times.of(serde.serialize(key), NOWHERE if metadata is None else metadata.partition)

    def of_many(self, records: RecordColumns) -> Integers:
        """Return the time for each record, which have keys."""
        if self._times is None:
            return np.full(len(records), UNSEEN_MS, np.int64)
        keys, serde = records.key, self._key_serde
        while isinstance(serde, WindowedSerde):
            keys, serde = keys.storage.field("key"), serde.layout.inner
        partitions = records.partition
        places = np.full(len(records), NOWHERE) if partitions is None else partitions.to_numpy()
        return self._times.of_many(columns_of(serde, "key", TopologyError).serialize(keys), places)


_OBSERVED: Final = "{}-observed-stream-time"
_OF_JOIN: Final = "{}-join-stream-time"


Times = TypeVar("Times", int, Integers)


def latest_closed(time_ms: Times, closes_after_ms: int) -> Times:
    """Return the latest end of a window that has closed at a time, or at each of several; it may be negative."""
    return time_ms - min(closes_after_ms, MAX_TIME_MS)  # columns have 64 bits


class EventTime(Protocol):
    """Event time as a node sees it: the latest timestamp of all records up to one, in ms."""

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record into account, and return what time it is."""
        ...

    def advance_many(self, records: RecordColumns) -> Integers:
        """Take records into account, of which there is one at least, and return what time it is at each."""
        ...

    def earlier(self, record: Record[Any, Any]) -> int:
        """Return what time it was in the shard of the record's key before the state was rescaled; -1 if it is later."""
        ...

    def earlier_many(self, records: RecordColumns) -> Integers:
        """Return that of each record."""
        ...


class _NodeTime:
    """What time it was before the state was rescaled, of what is committed by a name of processor metadata."""

    def __init__(self, context: ProcessorContext, name: str, key_serde: Serde[Any]) -> None:
        self._context, self._name = context, name
        self._earlier = EarlierTimesOfKeys(context, "processor", name, key_serde)

    def earlier(self, record: Record[Any, Any]) -> int:
        """Return what time it was in the shard of the record's key before the state was rescaled; -1 if it is later."""
        return self._earlier.of(record)

    def earlier_many(self, records: RecordColumns) -> Integers:
        """Return that of each record."""
        return self._earlier.of_many(records)


class ObservedTime(_NodeTime):
    """The latest timestamp that a node has been given in its shard, over batches and restarts.

    It is committed with the batch as processor metadata: Kafka forgets it at a restart, and takes records again that
    were late before.
    """

    def __init__(self, context: ProcessorContext, store: str, key_serde: Serde[Any]) -> None:
        super().__init__(context, _OBSERVED.format(store), key_serde)
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


class SharedTime(_NodeTime):
    """The latest timestamp that several nodes have been given, which all know it by one name, likewise."""

    def __init__(self, context: ProcessorContext, store: str, key_serde: Serde[Any]) -> None:
        super().__init__(context, _OF_JOIN.format(store), key_serde)

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record's timestamp into account, and return the latest of all nodes."""
        latest_ms = self._context.processor_metadata(self._name)
        if latest_ms is not None and latest_ms >= record.timestamp_ms:
            return latest_ms
        self._context.set_processor_metadata(self._name, record.timestamp_ms)
        return record.timestamp_ms


class ShardTime:
    """The stream time of the shard, which all its records advance, whichever nodes they come to.

    What it was for a record's key before the state was rescaled is in it.
    """

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

    def earlier(self, record: Record[Any, Any]) -> int:
        """Return -1."""
        return UNSEEN_MS

    def earlier_many(self, records: RecordColumns) -> Integers:
        """Return -1 for each record."""
        return np.full(len(records), UNSEEN_MS, np.int64)


class WindowClosing:
    """Up to which end windows have closed, as records come.

    Of a state that was rescaled, later ones of some keys may have closed before, in the shard where these were. Each of
    them was put out there: what closes now is said by the time of the shard alone, and what is late by both.
    """

    def __init__(self, time: EventTime, closes_after_ms: int) -> None:
        self._time, self._closes_after_ms = time, closes_after_ms

    def seen(self, closed_ms: Times) -> Times:
        """Return what time it is where `closed_ms` is the latest end that has closed."""
        return closed_ms + min(self._closes_after_ms, MAX_TIME_MS)

    def advance(self, record: Record[Any, Any]) -> int:
        """Take a record into account, and return the latest end of a window that has closed by it, in ms."""
        return latest_closed(self._time.advance(record), self._closes_after_ms)

    def advance_many(self, records: RecordColumns) -> Integers:
        """Take records into account, and return the latest end that has closed by each."""
        return latest_closed(self._time.advance_many(records), self._closes_after_ms)

    def not_yet_closed(self, windows: Callable[[], Iterable[Windowed]]) -> Callable[[], Iterator[Windowed]]:
        """Return what yields those of some windows that had not closed in the shard of their key."""

        def open_windows() -> Iterator[Windowed]:
            for window in windows():
                if window.end_ms > self.of_key(Record(window.key, None, window.end_ms), UNSEEN_MS):
                    yield window

        return open_windows

    def of_key(self, record: Record[Any, Any], closed_ms: int) -> int:
        """Return the latest end that has closed of the record's key, where of all keys it is `closed_ms`."""
        return max(closed_ms, latest_closed(self._time.earlier(record), self._closes_after_ms))

    def of_keys(self, records: RecordColumns, closed_ms: Integers) -> Integers:
        """Return the latest end that has closed of the key of each record."""
        return np.maximum(closed_ms, latest_closed(self._time.earlier_many(records), self._closes_after_ms))
