"""Serdes of what the stores of joins hold. Source: Kafka's TimestampedKeyAndJoinSideSerde, TimeFirstWindowKeySchema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from statestore.format.serde import Serde, Serdes
from statestore.format.values.buffered_record import (
    BufferedRecord,
    decode_buffered_key,
    decode_buffered_record,
    encode_buffered_key,
    encode_buffered_record,
)
from statestore.format.values.subscriptions import (
    Response,
    decode_response,
    decode_subscription,
    encode_response,
    encode_subscription,
)
from statestore.format.values.waiting_values import decode_waiting_key, encode_waiting_key


class WaitingKey(NamedTuple):
    """The key of unmatched records that wait in a left or outer join."""

    timestamp_ms: int
    is_left: bool
    key: Any


class BufferedKey(NamedTuple):
    """The key of a record that waits in a join with a versioned table."""

    timestamp_ms: int
    key: Any
    sequence: int


def waiting_key_serde(inner: Serde[Any]) -> Serde[WaitingKey]:
    """Return the serde of the keys of an outer join's store."""
    write, read = partial(_write_waiting, inner.serialize), partial(_read_waiting, inner.deserialize)
    return Serdes.of(f"waiting {inner.name}", write, read)


def buffered_key_serde(inner: Serde[Any]) -> Serde[BufferedKey]:
    """Return the serde of the keys of the buffer of a join with a versioned table."""
    write, read = partial(_write_buffered, inner.serialize), partial(_read_buffered, inner.deserialize)
    return Serdes.of(f"buffered {inner.name}", write, read)


def _write_waiting(serialize: Callable[[Any], bytes], place: WaitingKey) -> bytes:
    return encode_waiting_key(place.timestamp_ms, place.is_left, serialize(place.key))


def _read_waiting(deserialize: Callable[[bytes], Any], data: bytes) -> WaitingKey:
    timestamp_ms, is_left, key = decode_waiting_key(data)
    return WaitingKey(timestamp_ms, is_left, deserialize(key))


def _write_buffered(serialize: Callable[[Any], bytes], place: BufferedKey) -> bytes:
    return encode_buffered_key(place.timestamp_ms, serialize(place.key), place.sequence)


def _read_buffered(deserialize: Callable[[bytes], Any], data: bytes) -> BufferedKey:
    timestamp_ms, key, sequence = decode_buffered_key(data)
    return BufferedKey(timestamp_ms, deserialize(key), sequence)


def _encode_logged(record: BufferedRecord) -> bytes:
    return encode_buffered_record(record, buffer_time_ms=0)


BUFFERED_RECORDS: Final = Serdes.of("buffered record", _encode_logged, decode_buffered_record)
"""The serde of the values in the buffer of such a join: as in its changelog, with a buffer time of 0."""


SUBSCRIPTIONS: Final = Serdes.of("subscription", encode_subscription, decode_subscription)
"""The serde of what a left table tells a right one in a join by a foreign key."""


def response_serde(values: Serde[Any]) -> Serde[Response]:
    """Return the serde of what the right table, of such values, tells the left one."""
    codec = _ResponseCodec(values)
    return Serdes.of_topics(f"response of {values.name}", codec.serialize, codec.deserialize)


@dataclass(frozen=True)
class _ResponseCodec:
    values: Serde[Any]

    def serialize(self, topic: str | None, headers: Any, response: Response) -> bytes:
        """Return its bytes."""
        if response.value is None:
            return encode_response(response)
        value = self.values.on_topic(topic).serialize(response.value, headers)
        return encode_response(response._replace(value=value))

    def deserialize(self, topic: str | None, headers: Any, data: bytes) -> Response:
        """Return the response. Raises FormatError for malformed bytes."""
        response = decode_response(data)
        if response.value is None:
            return response
        return response._replace(value=self.values.on_topic(topic).deserialize(response.value, headers))
