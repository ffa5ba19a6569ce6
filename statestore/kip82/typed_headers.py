"""Records whose headers are one object of the user's own type.

The record on the topic has ordinary headers, so other clients see nothing of it. Source: KIP-82, the rejected
`ProducerRecord<K, H, V>` and `ConsumerRecord<K, H, V>`, "complete customisation of what a header is".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from statestore.errors import DeserializationError, SerializationError
from statestore.errors.data import SerdeError
from statestore.errors.readable import shape_of
from statestore.headers.record_headers import Headers
from statestore.headers.records import ConsumerRecord, ProducerRecord

__all__ = ["HeaderMapper", "TypedRecord"]

_K = TypeVar("_K")
_H = TypeVar("_H")
_V = TypeVar("_V")


@dataclass(frozen=True)
class TypedRecord(Generic[_K, _H, _V]):
    """A record with an object for headers. Partition and timestamp may be None before it is sent."""

    topic: str
    key: _K
    header: _H
    value: _V
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class HeaderMapper(Generic[_H]):
    """Your two functions that turn an object into headers and back; picklable if they are."""

    to_headers: Callable[[_H], Iterable[tuple[str, bytes | None]]]
    from_headers: Callable[[Headers], _H]

    def headers_of(self, header: _H) -> Headers:
        """Return the headers of an object. Raises SerializationError, with what `to_headers` raised as the cause."""
        try:
            return Headers(self.to_headers(header))
        except SerdeError:
            raise
        except Exception as cause:
            raise SerializationError(f"header object ({shape_of(header)}): {cause or type(cause).__name__}") from cause

    def object_of(self, headers: Headers) -> _H:
        """Return the object of headers. Raises DeserializationError, with what `from_headers` raised as the cause."""
        try:
            return self.from_headers(headers)
        except SerdeError:
            raise
        except Exception as cause:
            raise DeserializationError(
                f"header object of {len(headers)} headers: {cause or type(cause).__name__}"
            ) from cause

    def to_producer_record(self, record: TypedRecord[_K, _H, _V]) -> ProducerRecord[_K, _V]:
        """Return the record with headers for its object. Raises SerializationError and what ProducerRecord raises."""
        return ProducerRecord(
            record.topic,
            key=record.key,
            value=record.value,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=self.headers_of(record.header),
        )

    def from_consumer_record(self, record: ConsumerRecord[_K, _V]) -> TypedRecord[_K, _H, _V]:
        """Return the record with an object for its headers. Raises DeserializationError."""
        return TypedRecord(
            record.topic,
            record.key,
            self.object_of(record.headers),
            record.value,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
