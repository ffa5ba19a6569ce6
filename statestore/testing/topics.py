"""The ends of a test driver: records go in at a TestInputTopic, and come out at a TestOutputTopic.

Source: Kafka's TestInputTopic, TestOutputTopic and TestRecord (KIP-470).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, repeat
from operator import index
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from statestore.bytestore.kinds.store_spec import require_milliseconds
from statestore.errors import DriverError, NoRecordError
from statestore.format.serde import HeaderSerde, Serde
from statestore.headers.record_headers import Headers
from statestore.processor.record import HeadersLike, Record, RecordFields, own_headers
from statestore.testing.topic_logs import ReadableTopic

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Any = object()

PipedRecord: TypeAlias = "tuple[int, bytes | None, bytes | None, bytes]"
"""A record on its way into a topic: timestamp_ms, key, value, header bytes (KIP-1271)."""


class TestRecord(RecordFields[K, V]):
    """A key, a value, a timestamp in milliseconds since the epoch (None takes the topic's time), and headers.

    The headers that are given are copied. Raises ValueError for a negative timestamp.
    """

    __test__ = False  # pytest would collect it for its name
    __slots__ = ()

    def __init__(self, key: K, value: V, timestamp_ms: int | None = None, headers: HeadersLike | None = None) -> None:
        if timestamp_ms is not None:
            require_milliseconds("timestamp_ms", timestamp_ms)
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self._headers = own_headers(headers)

    @classmethod
    def of(cls, record: Record[K, V]) -> TestRecord[K, V]:
        """Return a test record with what `record` has; anything that has a Record's fields will do."""
        return cls(record.key, record.value, record.timestamp_ms, record.headers)


class Driver(Protocol):
    """What topics need of the driver that made them."""

    def pipe(self, topic: str, records: Iterator[PipedRecord]) -> None:
        """Process records of a topic, each committed before the next."""
        ...

    def pipe_micro_batch(self, topic: str, records: Iterator[PipedRecord]) -> None:
        """Process records of a topic, and commit them together."""
        ...

    def readable(self, topic: str) -> ReadableTopic | None:
        """Return what was written to a topic, None if nothing ever was."""
        ...


class TestInputTopic(Generic[K, V]):
    """Pipes records into a topic of a driver; each is processed and committed before the call returns.

    A record without a timestamp gets the topic's time, which then advances by `auto_advance_ms`.
    """

    __test__ = False

    def __init__(
        self,
        driver: Driver,
        topic: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_timestamp_ms: int,
        auto_advance_ms: int,
    ) -> None:
        require_milliseconds("start_timestamp_ms", start_timestamp_ms)
        require_milliseconds("auto_advance_ms", auto_advance_ms)
        self.topic = topic
        self._driver = driver
        self._serdes = f"key_serde={key_serde.name}, value_serde={value_serde.name}"
        self._key_serde, self._value_serde = key_serde.on_topic(topic), value_serde.on_topic(topic)
        self._adds_headers = key_serde.with_headers is not None or value_serde.with_headers is not None
        self._key_bytes, self._value_bytes = key_serde.serialize, value_serde.serialize
        self._time_ms = start_timestamp_ms
        self._advance_ms = auto_advance_ms

    def pipe_input(
        self,
        key_or_value: Any,
        value: Any = _ABSENT,
        *,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> None:
        """Pipe a value, a key and a value, or a TestRecord, which brings timestamp and headers itself."""
        if isinstance(key_or_value, TestRecord) and value is _ABSENT:
            if timestamp_ms is not None or headers is not None:
                raise TypeError("a TestRecord has its own timestamp and headers: set them there")
            self.pipe_record_list([key_or_value])
            return
        key, value = (None, key_or_value) if value is _ABSENT else (key_or_value, value)
        if timestamp_ms is not None:
            require_milliseconds("timestamp_ms", timestamp_ms)
        self._pipe([(key, value, timestamp_ms, None if headers is None else own_headers(headers))])

    def pipe_record_list(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Pipe test records in order."""
        self._pipe((record.key, record.value, record.timestamp_ms, record.headers) for record in records)

    def pipe_micro_batch(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Pipe test records as one micro-batch, as Spark has them: processed in order, and committed together.

        A batch processor gets all of them at once; what they lead to in topics that are read again comes after them.
        Changelogs get of each key the last write alone, in the order of these.
        """
        rows = ((record.key, record.value, record.timestamp_ms, record.headers) for record in records)
        self._driver.pipe_micro_batch(self.topic, self._encoded(rows))

    def pipe_key_value_list(
        self, pairs: Iterable[tuple[K, V]], start_timestamp_ms: int | None = None, advance_ms: int = 0
    ) -> None:
        """Pipe keys and values in order: at the topic's time, or from `start_timestamp_ms` in steps of `advance_ms`."""
        times = self._times(start_timestamp_ms, advance_ms)
        self._pipe((key, value, timestamp_ms, None) for (key, value), timestamp_ms in zip(pairs, times, strict=False))

    def pipe_value_list(self, values: Iterable[V], start_timestamp_ms: int | None = None, advance_ms: int = 0) -> None:
        """Pipe values without keys in order, at the same times as pipe_key_value_list."""
        times = self._times(start_timestamp_ms, advance_ms)
        self._pipe((None, value, timestamp_ms, None) for value, timestamp_ms in zip(values, times, strict=False))

    def advance_time(self, advance_ms: int) -> None:
        """Let the topic's time go on. Raises ValueError for a negative step."""
        require_milliseconds("advance_ms", advance_ms)
        self._time_ms += advance_ms

    def _times(self, start_timestamp_ms: int | None, advance_ms: int) -> Iterator[int | None]:
        if start_timestamp_ms is None:
            if advance_ms:
                raise ValueError(
                    "advance_ms needs start_timestamp_ms: without it, the topic's time advances by auto_advance_ms"
                )
            return repeat(None)
        require_milliseconds("start_timestamp_ms", start_timestamp_ms)
        return count(start_timestamp_ms, index(advance_ms))

    def _pipe(self, records: Iterable[tuple[Any, Any, int | None, Headers | None]]) -> None:
        self._driver.pipe(self.topic, self._encoded(records))

    def _encoded(self, records: Iterable[tuple[Any, Any, int | None, Headers | None]]) -> Iterator[PipedRecord]:
        return (self._with_headers if self._adds_headers else self._plain)(records)

    def _plain(self, records: Iterable[tuple[Any, Any, int | None, Headers | None]]) -> Iterator[PipedRecord]:
        key_bytes, value_bytes = self._key_bytes, self._value_bytes
        for key, value, timestamp_ms, headers in records:
            if timestamp_ms is None:
                timestamp_ms = self._time_ms
                self._time_ms += self._advance_ms
            yield (
                timestamp_ms,
                None if key is None else key_bytes(key),
                None if value is None else value_bytes(value),
                b"" if headers is None else headers.to_bytes(),
            )

    def _with_headers(self, records: Iterable[tuple[Any, Any, int | None, Headers | None]]) -> Iterator[PipedRecord]:
        """Do what `_plain` does with serdes that are passed the headers, key first, and may add to them."""
        for key, value, timestamp_ms, headers in records:
            if timestamp_ms is None:
                timestamp_ms = self._time_ms
                self._time_ms += self._advance_ms
            added_to = Headers() if headers is None else headers.copy()
            key_bytes = None if key is None else self._key_serde.serialize(key, added_to)
            value_bytes = None if value is None else self._value_serde.serialize(value, added_to)
            yield timestamp_ms, key_bytes, value_bytes, added_to.to_bytes()

    def __repr__(self) -> str:
        return f"TestInputTopic({self.topic!r}, {self._serdes})"


class TestOutputTopic(Generic[K, V]):
    """Reads what was written to a topic of a driver: a sink's, or a store's changelog. Each record is read once.

    Reading one record raises NoRecordError if nothing was ever written to the topic, or all was read; reading all of
    them gives nothing then.
    """

    __test__ = False

    def __init__(self, driver: Driver, topic: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.topic = topic
        self._driver = driver
        self._serdes = f"key_serde={key_serde.name}, value_serde={value_serde.name}"
        self._key_object = _reader(key_serde.on_topic(topic))
        self._value_object = _reader(value_serde.on_topic(topic))

    def read_value(self) -> V:
        """Read a record and return its value."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Read a record and return its key and value."""
        record = self.read_record()
        return record.key, record.value

    def read_record(self) -> TestRecord[K, V]:
        """Read a record."""
        topic = self._driver.readable(self.topic)
        if topic is None:
            raise NoRecordError(self.topic, problem="Uninitialized topic")
        if not len(topic):
            raise NoRecordError(self.topic, problem="Empty topic")
        _, timestamp_ms, key, value, header_bytes = topic.take()
        headers = Headers.from_bytes(header_bytes)
        return TestRecord.adopt(
            self._key_object(key, headers), self._value_object(value, headers), timestamp_ms, headers
        )

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Read all records."""
        return [self.read_record() for _ in range(self.get_queue_size())]

    def read_values_to_list(self) -> list[V]:
        """Read all records and return their values."""
        return [self.read_record().value for _ in range(self.get_queue_size())]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Read all records and return their keys and values."""
        return [self.read_key_value() for _ in range(self.get_queue_size())]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Read all records and return the last value of each key. Raises DriverError where a key is None."""
        found: dict[K, V] = {}
        for _ in range(self.get_queue_size()):
            key, value = self.read_key_value()
            if key is None:
                raise DriverError(
                    f"Null keys not allowed with read_key_values_to_map: topic {self.topic!r} has a record without a "
                    "key. Read it with read_key_values_to_list"
                )
            found[key] = value
        return found

    def get_queue_size(self) -> int:
        """Return how many records there are to read."""
        topic = self._driver.readable(self.topic)
        return 0 if topic is None else len(topic)

    @property
    def queue_size(self) -> int:
        """How many records there are to read."""
        return self.get_queue_size()

    def is_empty(self) -> bool:
        """Return whether there is no record to read."""
        return self.get_queue_size() == 0

    def __repr__(self) -> str:
        return f"TestOutputTopic({self.topic!r}, {self._serdes}, size={self.get_queue_size()})"


def _reader(serde: HeaderSerde[Any]) -> Callable[[bytes | None, Headers], Any]:
    deserialize = serde.deserialize
    return lambda data, headers: None if data is None else deserialize(data, headers)
