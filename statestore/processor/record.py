"""The record that flows through a topology. Source: Kafka Streams' api.Record and RecordMetadata."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from statestore.headers import Headers

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class Record(Generic[K, V]):
    """A key, a value, a timestamp in milliseconds since the epoch, and headers. Key and value may be None.

    The headers are the record's own: those that are given are copied, as in Kafka, and so are those that the `with_`
    methods pass on. Copying headers parses nothing. Raises ValueError for a negative timestamp.
    """

    __slots__ = ("headers", "key", "timestamp_ms", "value")

    def __init__(self, key: K, value: V, timestamp_ms: int, headers: Headers | None = None) -> None:
        if timestamp_ms < 0:
            raise ValueError(f"the timestamp of a record must not be negative, got {timestamp_ms}")
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.headers = Headers() if headers is None else headers.copy()

    @classmethod
    def owning(cls, key: K, value: V, timestamp_ms: int, headers: Headers) -> Record[K, V]:
        """Return a record whose headers are `headers` themselves. Nothing is checked: one is made of every input."""
        record = cls.__new__(cls)
        record.key = key
        record.value = value
        record.timestamp_ms = timestamp_ms
        record.headers = headers
        return record

    def with_key(self, key: K2) -> Record[K2, V]:
        """Return this record with another key."""
        return Record(key, self.value, self.timestamp_ms, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """Return this record with another value."""
        return Record(self.key, value, self.timestamp_ms, self.headers)

    def with_timestamp_ms(self, timestamp_ms: int) -> Record[K, V]:
        """Return this record with another timestamp. Raises ValueError if it is negative."""
        return Record(self.key, self.value, timestamp_ms, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """Return this record with a copy of other headers."""
        return Record(self.key, self.value, self.timestamp_ms, headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            bool(self.key == other.key)
            and bool(self.value == other.value)
            and self.timestamp_ms == other.timestamp_ms
            and self.headers == other.headers
        )

    __hash__ = None  # type: ignore[assignment]  # headers are mutable

    def __repr__(self) -> str:
        return f"Record({self.key!r}, {self.value!r}, timestamp_ms={self.timestamp_ms}, headers={self.headers!r})"


class RecordMetadata(NamedTuple):
    """Where the record that is being processed came from."""

    topic: str
    partition: int
    offset: int
