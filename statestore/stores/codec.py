"""Turns what a store holds of a key into stored bytes and back: the one place where formats and holders meet.

Headers are a choice of codec: the stores themselves don't know of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from statestore.format.serde import Serde
from statestore.format.store_format import StoreFormat
from statestore.format.value_headers import encode_value_headers, split_value_headers
from statestore.format.value_timestamp import encode_value_timestamp, split_value_timestamp
from statestore.format.value_timestamp_headers import encode_value_timestamp_headers, split_value_timestamp_headers
from statestore.headers import Headers
from statestore.stores.holders import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders

Encode = Callable[[Any], "bytes | None"]
Decode = Callable[[bytes], Any]


class ValueCodec(NamedTuple):
    """Encodes what a store holds, None for a delete, and decodes stored bytes.

    `encode` raises SerializationError, `decode` FormatError and DeserializationError.
    """

    serde: str
    """The name of the serde, for errors."""
    encode: Encode
    decode: Decode


def value_codec(store_format: StoreFormat, serde: Serde[Any]) -> ValueCodec:
    """Return the codec for plain values, ValueAndTimestamp, ValueTimestampHeaders or AggregationWithHeaders."""
    return ValueCodec(serde.name, *_CODECS[store_format](serde))


def _plain(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize = serde.serialize
    return (lambda value: None if value is None else serialize(value)), serde.deserialize


def _timestamped(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize, deserialize = serde.serialize, serde.deserialize

    def encode(holder: ValueAndTimestamp[Any] | None) -> bytes | None:
        if holder is None or holder.value is None:
            return None
        return encode_value_timestamp(serialize(holder.value), holder.timestamp_ms)

    def decode(stored: bytes) -> ValueAndTimestamp[Any]:
        timestamp_ms, value = split_value_timestamp(stored)
        return ValueAndTimestamp(deserialize(value), timestamp_ms)

    return encode, decode


def _timestamped_with_headers(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize, deserialize = _with_headers(serde)

    def encode(holder: ValueTimestampHeaders[Any] | None) -> bytes | None:
        if holder is None or holder.value is None:
            return None
        value, headers = serialize(holder.value, holder.headers)
        return encode_value_timestamp_headers(value, holder.timestamp_ms, headers.to_bytes())

    def decode(stored: bytes) -> ValueTimestampHeaders[Any]:
        header_bytes, timestamp_ms, value = split_value_timestamp_headers(stored)
        headers = Headers.from_bytes(header_bytes)
        return ValueTimestampHeaders(deserialize(value, headers), timestamp_ms, headers)

    return encode, decode


def _aggregation_with_headers(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize, deserialize = _with_headers(serde)

    def encode(holder: AggregationWithHeaders[Any] | None) -> bytes | None:
        if holder is None or holder.aggregation is None:
            return None
        value, headers = serialize(holder.aggregation, holder.headers)
        return encode_value_headers(value, headers.to_bytes())

    def decode(stored: bytes) -> AggregationWithHeaders[Any]:
        header_bytes, value = split_value_headers(stored)
        headers = Headers.from_bytes(header_bytes)
        return AggregationWithHeaders(deserialize(value, headers), headers)

    return encode, decode


def _with_headers(
    serde: Serde[Any],
) -> tuple[Callable[[Any, Headers], tuple[bytes, Headers]], Callable[[bytes, Headers], Any]]:
    """Return how to serialize a value with its headers, and to deserialize it.

    A serde that wants the headers may add to them, as a schema id; it works on a copy, not on the caller's.
    """
    with_headers = serde.with_headers
    if with_headers is None:
        serialize, deserialize = serde.serialize, serde.deserialize
        return (lambda value, headers: (serialize(value), headers)), (lambda value, headers: deserialize(value))

    def serialize_with_headers(value: Any, headers: Headers) -> tuple[bytes, Headers]:
        added_to = headers.copy()
        return with_headers.serialize(value, added_to), added_to

    return serialize_with_headers, with_headers.deserialize


_CODECS: Final[dict[StoreFormat, Callable[[Serde[Any]], tuple[Encode, Decode]]]] = {
    StoreFormat.PLAIN: _plain,
    StoreFormat.TIMESTAMPED: _timestamped,
    StoreFormat.TIMESTAMPED_WITH_HEADERS: _timestamped_with_headers,
    StoreFormat.WITH_HEADERS: _aggregation_with_headers,
}
