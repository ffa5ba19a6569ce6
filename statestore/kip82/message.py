"""Message: headers that travel inside a marked value, for a record format that has no headers.

A wrapped value is `value_headers`: header bytes, then the value. Bit 0 of the record's attributes marks it: readers
that know the mark unwrap the value; for older ones the server does, and drops the headers.
It was rejected because a delete has no value, and so no room for headers.
Source: KIP-82, "Common Value Message Wrapper - Message<V>".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from statestore.errors import LossyHeadersError
from statestore.format.records.header_bytes import encode_headers
from statestore.format.records.record_v2 import RecordV2
from statestore.format.serde import Serde, Serdes
from statestore.format.values.value_timestamp_headers import encode_value_headers, split_value_headers
from statestore.headers.record_headers import Headers

__all__ = ["Message", "for_old_reader", "message_serde", "unwrap", "wrap"]

_V = TypeVar("_V")

WRAPPED: Final = 0x01
"""The attribute bit of a record whose value is wrapped. Kafka gives it no meaning."""


@dataclass(frozen=True)
class Message(Generic[_V]):
    """A value with headers. Not hashable, for its headers are not."""

    value: _V
    headers: Headers = field(default_factory=Headers)


def wrap(record: RecordV2) -> RecordV2:
    """Return the record with its headers inside its value, and marked; as it is if it has no headers or is marked.

    Raises LossyHeadersError if it has headers but no value.
    """
    if not record.headers or record.attributes & WRAPPED:
        return record
    if record.value is None:
        raise LossyHeadersError("a wrapped value", key=record.headers[0][0], problem="belongs to a delete")
    wrapped = encode_value_headers(record.value, encode_headers(record.headers))
    return record._replace(value=wrapped, headers=(), attributes=record.attributes | WRAPPED)


def unwrap(record: RecordV2) -> RecordV2:
    """Return the record with the headers out of its value again; as it is if it is not marked.

    The record's other headers come behind those. Raises FormatError if the value is not wrapped.
    """
    if not record.attributes & WRAPPED or record.value is None:
        return record
    header_bytes, value = split_value_headers(record.value)
    headers = (*Headers.from_bytes(header_bytes), *record.headers)
    return record._replace(value=value, headers=headers, attributes=record.attributes & ~WRAPPED)


def for_old_reader(record: RecordV2) -> RecordV2:
    """Return the record for a reader that knows neither headers nor the mark: with its value alone.

    The headers are not parsed. Raises FormatError if the record is marked and its value is not wrapped.
    """
    if not record.attributes & WRAPPED or record.value is None:
        return record._replace(headers=())
    _, value = split_value_headers(record.value)
    return record._replace(value=value, headers=(), attributes=record.attributes & ~WRAPPED)


def message_serde(serde: Serde[_V]) -> Serde[Message[_V]]:
    """Return the serde of wrapped values, for topics and stores where every value is one.

    `serde` gets the message's own headers. They are parsed when somebody looks at them.
    """
    return Serdes.of_topics(f"message of {serde.name}", _Wrap(serde), _Unwrap(serde))


@dataclass(frozen=True)
class _Wrap(Generic[_V]):
    serde: Serde[_V]

    def __call__(self, topic: str | None, outer: Headers | None, message: Message[_V]) -> bytes:
        headers = message.headers.copy()
        value = self.serde.on_topic(topic).serialize(message.value, headers)
        wrapped = encode_value_headers(value, headers.to_bytes())
        assert wrapped is not None
        return wrapped


@dataclass(frozen=True)
class _Unwrap(Generic[_V]):
    serde: Serde[_V]

    def __call__(self, topic: str | None, outer: Headers | None, data: bytes) -> Message[_V]:
        header_bytes, value = split_value_headers(data)
        headers = Headers.from_bytes(header_bytes)
        return Message(self.serde.on_topic(topic).deserialize(value, headers), headers)
