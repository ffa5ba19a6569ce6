"""Serdes of what the stores of joins hold. Source: Kafka's TimestampedKeyAndJoinSideSerde, TimeFirstWindowKeySchema.

buffered key   00 timestamp_ms:i64 key:u8[] sequence:i32
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from statestore.errors import FormatError, TruncatedError
from statestore.format.buffered_record import BufferedRecord, decode_buffered_record, encode_buffered_record
from statestore.format.serde import Serde, Serdes
from statestore.format.waiting_values import (
    WaitingValue,
    decode_waiting_key,
    decode_waiting_values,
    encode_waiting_key,
    encode_waiting_values,
)

_TIME_FIRST: Final = 0
_TIME: Final = struct.Struct(">Bq")
_SEQUENCE: Final = struct.Struct(">i")


class WaitingKey(NamedTuple):
    """Where records of an outer join wait."""

    timestamp_ms: int
    is_left: bool
    key: Any


class BufferedKey(NamedTuple):
    """Where a record of a join with a versioned table waits."""

    timestamp_ms: int
    key: Any
    sequence: int


def waiting_key_serde(inner: Serde[Any]) -> Serde[WaitingKey]:
    """Return the serde of the keys of an outer join's store."""
    keys = _WaitingKeys(inner.serialize, inner.deserialize)
    return Serdes.of(f"waiting {inner.name}", keys.write, keys.read)


def waiting_values_serde() -> Serde[list[WaitingValue]]:
    """Return the serde of the values of an outer join's store."""
    return _WAITING_VALUES


def buffered_key_serde(inner: Serde[Any]) -> Serde[BufferedKey]:
    """Return the serde of the keys of the buffer of a join with a versioned table."""
    keys = _BufferedKeys(inner.serialize, inner.deserialize)
    return Serdes.of(f"buffered {inner.name}", keys.write, keys.read)


def buffered_record_serde() -> Serde[BufferedRecord]:
    """Return the serde of the values of that buffer: as they are in its changelog, at buffer time 0."""
    return _BUFFERED_RECORDS


@dataclass(frozen=True)
class _WaitingKeys:
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]

    def write(self, place: WaitingKey) -> bytes:
        return encode_waiting_key(place.timestamp_ms, place.is_left, self.serialize(place.key))

    def read(self, data: bytes) -> WaitingKey:
        timestamp_ms, is_left, key = decode_waiting_key(data)
        return WaitingKey(timestamp_ms, is_left, self.deserialize(key))


@dataclass(frozen=True)
class _BufferedKeys:
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]

    def write(self, place: BufferedKey) -> bytes:
        key = self.serialize(place.key)
        return _TIME.pack(_TIME_FIRST, place.timestamp_ms) + key + _SEQUENCE.pack(place.sequence)

    def read(self, data: bytes) -> BufferedKey:
        if len(data) < _TIME.size + _SEQUENCE.size:
            raise TruncatedError("buffered key", wanted=_TIME.size + _SEQUENCE.size, got=len(data))
        prefix, timestamp_ms = _TIME.unpack_from(data)
        if prefix != _TIME_FIRST:
            raise FormatError("buffered key", f"begins with {prefix}, not {_TIME_FIRST}")
        (sequence,) = _SEQUENCE.unpack_from(data, len(data) - _SEQUENCE.size)
        return BufferedKey(timestamp_ms, self.deserialize(data[_TIME.size : -_SEQUENCE.size]), sequence)


def _encode_logged(record: BufferedRecord) -> bytes:
    return encode_buffered_record(record, buffer_time_ms=0)


_WAITING_VALUES: Final = Serdes.of("waiting values", encode_waiting_values, decode_waiting_values)
_BUFFERED_RECORDS: Final = Serdes.of("buffered record", _encode_logged, decode_buffered_record)
