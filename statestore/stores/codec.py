"""Turns what a store holds of a key into stored bytes and back: the one place where formats and holders meet.

Headers are a choice of codec: the stores themselves don't know of them.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as short_repr
from typing import Any, Final, NamedTuple, TypeVar

from statestore.bytestore.protocol import Pair
from statestore.format.serde import HeaderSerde, Serde
from statestore.format.store_format import StoreFormat
from statestore.format.stored_value import split_stored
from statestore.format.value_headers import encode_value_headers, split_value_headers
from statestore.format.value_timestamp import encode_value_timestamp, split_value_timestamp
from statestore.format.value_timestamp_headers import (
    encode_value_timestamp_headers,
    plain_values,
    split_value_timestamp_headers,
)
from statestore.headers import Headers
from statestore.stores.holders import (
    AggregationWithHeaders,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    blank_value_timestamp_headers,
)

H = TypeVar("H")

Encode = Callable[[Any], "bytes | None"]
Decode = Callable[[bytes], Any]
DecodeValues = Callable[[list[Pair]], list[Any]]


class ValueCodec(NamedTuple):
    """Encodes what a store holds, None for a delete, and decodes stored bytes.

    `encode` raises SerializationError, the others FormatError and DeserializationError.
    """

    serde: str
    """The name of the serde, for errors."""
    encode: Encode
    decode: Decode
    decode_values: DecodeValues
    """Returns the values of many entries alone, without what they were written with: faster, one by one."""


def value_codec(store_format: StoreFormat, serde: Serde[Any]) -> ValueCodec:
    """Return the codec for plain values, ValueAndTimestamp, ValueTimestampHeaders or AggregationWithHeaders."""
    encode, decode = _CODECS[store_format](serde)
    return ValueCodec(serde.name, encode, decode, _values_decoder(store_format, serde))


def _values_decoder(store_format: StoreFormat, serde: Serde[Any]) -> DecodeValues:
    split, with_headers = _PLAIN_VALUES[store_format], serde.with_headers
    if with_headers is not None and store_format in (StoreFormat.TIMESTAMPED_WITH_HEADERS, StoreFormat.WITH_HEADERS):

        def decode_with_headers(pairs: list[Pair]) -> list[Any]:
            parts = (split_stored(store_format, stored) for _, stored in pairs)
            return [with_headers.deserialize(value, Headers.from_bytes(data or b"")) for value, _, data in parts]

        return decode_with_headers
    if serde.is_identity:
        return split
    deserialize = serde.deserialize
    return lambda pairs: [deserialize(value) for value in split(pairs)]


def _plain(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize = serde.serialize
    return (lambda value: None if value is None else serialize(value)), serde.deserialize


def _timestamped(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize, deserialize = serde.serialize, serde.deserialize

    def encode(holder: ValueAndTimestamp[Any] | None) -> bytes | None:
        if holder is None or _checked(ValueAndTimestamp, holder).value is None:
            return None
        return encode_value_timestamp(serialize(holder.value), holder.timestamp_ms)

    def decode(stored: bytes) -> ValueAndTimestamp[Any]:
        timestamp_ms, value = split_value_timestamp(stored)
        return ValueAndTimestamp(deserialize(value), timestamp_ms)

    return encode, decode


def _timestamped_with_headers(serde: Serde[Any]) -> tuple[Encode, Decode]:
    serialize, deserialize, with_headers = serde.serialize, serde.deserialize, serde.with_headers

    def encode(holder: ValueTimestampHeaders[Any] | None) -> bytes | None:
        if holder is None or _checked(ValueTimestampHeaders, holder).value is None:
            return None
        return encode_value_timestamp_headers(serialize(holder.value), holder.timestamp_ms, holder.header_bytes)

    def decode(stored: bytes) -> ValueTimestampHeaders[Any]:
        held = blank_value_timestamp_headers()
        held._headers, held._timestamp_ms, value = split_value_timestamp_headers(stored)
        held._value = deserialize(value)
        return held

    if with_headers is None:
        return encode, decode

    def encode_with_headers(holder: ValueTimestampHeaders[Any] | None) -> bytes | None:
        if holder is None or _checked(ValueTimestampHeaders, holder).value is None:
            return None
        value, header_bytes = _serialized(with_headers, holder.value, holder.headers)
        return encode_value_timestamp_headers(value, holder.timestamp_ms, header_bytes)

    def decode_with_headers(stored: bytes) -> ValueTimestampHeaders[Any]:
        header_bytes, timestamp_ms, value = split_value_timestamp_headers(stored)
        headers = Headers.from_bytes(header_bytes)
        return ValueTimestampHeaders(with_headers.deserialize(value, headers), timestamp_ms, headers)

    return encode_with_headers, decode_with_headers


def _aggregation_with_headers(serde: Serde[Any]) -> tuple[Encode, Decode]:
    with_headers = serde.on_topic(None)

    def encode(holder: AggregationWithHeaders[Any] | None) -> bytes | None:
        if holder is None or _checked(AggregationWithHeaders, holder).aggregation is None:
            return None
        return encode_value_headers(*_serialized(with_headers, holder.aggregation, holder.headers))

    def decode(stored: bytes) -> AggregationWithHeaders[Any]:
        header_bytes, value = split_value_headers(stored)
        headers = Headers.from_bytes(header_bytes)
        return AggregationWithHeaders(with_headers.deserialize(value, headers), headers)

    return encode, decode


def _checked(kind: type[H], holder: H) -> H:
    """Return what a store is to hold of a key. Raises TypeError if it is not of the store's kind."""
    if not isinstance(holder, kind):
        raise TypeError(f"the store holds a {kind.__name__} or None of a key, not {short_repr(holder)}")
    return holder


def _serialized(serde: HeaderSerde[Any], value: Any, headers: Headers) -> tuple[bytes, bytes]:
    """Return a value's bytes and those of its headers, to which the serde may have added: to a copy of them."""
    added_to = headers.copy()
    return serde.serialize(value, added_to), added_to.to_bytes()


_CODECS: Final[dict[StoreFormat, Callable[[Serde[Any]], tuple[Encode, Decode]]]] = {
    StoreFormat.PLAIN: _plain,
    StoreFormat.TIMESTAMPED: _timestamped,
    StoreFormat.TIMESTAMPED_WITH_HEADERS: _timestamped_with_headers,
    StoreFormat.WITH_HEADERS: _aggregation_with_headers,
}

_PLAIN_VALUES: Final[dict[StoreFormat, Callable[[list[Pair]], list[bytes]]]] = {
    StoreFormat.PLAIN: lambda pairs: [stored for _, stored in pairs],
    StoreFormat.TIMESTAMPED: lambda pairs: [split_value_timestamp(stored)[1] for _, stored in pairs],
    StoreFormat.TIMESTAMPED_WITH_HEADERS: plain_values,
    StoreFormat.WITH_HEADERS: lambda pairs: [split_value_headers(stored)[1] for _, stored in pairs],
}
