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

    Not to be changed: the `with_` methods return a new record with headers of its own.
    """

    __slots__ = ("headers", "key", "timestamp_ms", "value")

    def __init__(self, key: K, value: V, timestamp_ms: int, headers: Headers | None = None) -> None:
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.headers = Headers() if headers is None else headers

    def with_key(self, key: K2) -> Record[K2, V]:
        """Return this record with another key."""
        return Record(key, self.value, self.timestamp_ms, self.headers.copy())

    def with_value(self, value: V2) -> Record[K, V2]:
        """Return this record with another value."""
        return Record(self.key, value, self.timestamp_ms, self.headers.copy())

    def with_timestamp_ms(self, timestamp_ms: int) -> Record[K, V]:
        """Return this record with another timestamp."""
        return Record(self.key, self.value, timestamp_ms, self.headers.copy())

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """Return this record with a copy of other headers."""
        return Record(self.key, self.value, self.timestamp_ms, headers.copy())

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
