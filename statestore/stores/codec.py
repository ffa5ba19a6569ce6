"""Turns what a store holds of a key into stored bytes and back: the one place where formats and holders meet.

Headers are a choice of codec: the stores themselves don't know of them.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

import pyarrow as pa

from statestore.bytestore.protocol import Change, Pair
from statestore.errors import DeserializationError, FormatError, StoreError
from statestore.errors.readable import shape_of
from statestore.format.binary_columns import as_column
from statestore.format.serde import Serde, columns_of
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import join_stored_columns, split_stored_columns
from statestore.format.values.stored_value import join_stored, split_stored
from statestore.format.values.value_timestamp_headers import (
    UNKNOWN_TIMESTAMP_MS,
    before_value,
    encode_value_headers,
    encode_value_timestamp,
    encode_value_timestamp_headers,
    pack_before_value,
    plain_values,
    split_value_headers,
    split_value_timestamp,
    split_value_timestamp_headers,
)
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.stores.holders import (
    AggregationWithHeaders,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    blank_value_timestamp_headers,
)

H = TypeVar("H")
K = TypeVar("K")
V = TypeVar("V")


class StateSerdes(Generic[K, V]):
    """Key and value serde of the store `state_name`.

    The methods take the record's headers, for serdes that read or add some. Without them they still work, as deprecated
    methods do: they warn. None is passed through as None.
    """

    def __init__(self, state_name: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.state_name = state_name
        self.key_serde = key_serde
        self.value_serde = value_serde
        self._keys = key_serde.on_topic(None)
        self._values = value_serde.on_topic(None)

    @overload
    def key_from(self, raw_key: None, headers: Headers | None = None) -> None: ...

    @overload
    def key_from(self, raw_key: bytes, headers: Headers | None = None) -> K: ...

    def key_from(self, raw_key: bytes | None, headers: Headers | None = None) -> K | None:
        """Return the key in `raw_key`. Raises DeserializationError."""
        given = _warn_of_no_headers("key_from") if headers is None else headers
        return None if raw_key is None else self._keys.deserialize(raw_key, given)

    @overload
    def value_from(self, raw_value: None, headers: Headers | None = None) -> None: ...

    @overload
    def value_from(self, raw_value: bytes, headers: Headers | None = None) -> V: ...

    def value_from(self, raw_value: bytes | None, headers: Headers | None = None) -> V | None:
        """Return the value in `raw_value`. Raises DeserializationError."""
        given = _warn_of_no_headers("value_from") if headers is None else headers
        return None if raw_value is None else self._values.deserialize(raw_value, given)

    @overload
    def raw_key(self, key: None, headers: Headers | None = None) -> None: ...

    @overload
    def raw_key(self, key: K, headers: Headers | None = None) -> bytes: ...

    def raw_key(self, key: K | None, headers: Headers | None = None) -> bytes | None:
        """Return the bytes of a key; the serde may add to the headers. Raises SerializationError."""
        given = _warn_of_no_headers("raw_key") if headers is None else headers
        return None if key is None else self._keys.serialize(key, given)

    @overload
    def raw_value(self, value: None, headers: Headers | None = None) -> None: ...

    @overload
    def raw_value(self, value: V, headers: Headers | None = None) -> bytes: ...

    def raw_value(self, value: V | None, headers: Headers | None = None) -> bytes | None:
        """Return the bytes of a value; the serde may add to the headers. Raises SerializationError."""
        given = _warn_of_no_headers("raw_value") if headers is None else headers
        return None if value is None else self._values.serialize(value, given)


def _warn_of_no_headers(method: str) -> Headers:
    warnings.warn(
        f"StateSerdes.{method} without headers is deprecated (KIP-1271): pass the record's headers",
        DeprecationWarning,
        stacklevel=3,
    )
    return Headers()


Encode = Callable[[Any], "bytes | None"]
Decode = Callable[[bytes], Any]
DecodeValues = Callable[[list[Pair]], list[Any]]
DecodePairs = Callable[
    [Iterator[Pair], "Callable[[bytes], Any] | None", Callable[[Exception], StoreError], Callable[[], None]],
    Generator[tuple[Any, Any], None, None],
]
EncodeWithKey = Callable[[Any, Callable[[Headers], bytes]], "Change | None"]
DecodeWithHeaders = Callable[[bytes], tuple[Any, Headers]]
_Coders: TypeAlias = tuple[Encode, Decode, "type[Any] | None"]  # and what it holds, if that has headers


class ValueCodec(NamedTuple):
    """Encodes what a store holds, None for a delete, and decodes stored bytes.

    The encoders raise SerializationError, the others FormatError and DeserializationError.
    """

    encode: Encode
    decode: Decode
    decode_values: DecodeValues
    """Returns the values of many entries alone, without what they were written with: faster, one by one."""
    decode_pairs: DecodePairs | None
    """Yields key and holder of each pair, the key by the function that is given, its bytes for None.

    Raises what the third argument makes of a FormatError or DeserializationError; calls the last one at the end. None
    where `decode` is to be called for each.
    """
    encode_with_key: EncodeWithKey | None
    """Serializes the key, whose serde may add to the headers, then the value; returns the bytes of both.

    None in formats without headers.
    """
    decode_with_headers: DecodeWithHeaders | None
    """Returns the headers beside what the store holds, for the key's serde; None in formats without headers."""


def value_codec(store_format: StoreFormat, serdes: StateSerdes[Any, Any]) -> ValueCodec:
    """Return the codec for plain values, ValueAndTimestamp, ValueTimestampHeaders or AggregationWithHeaders."""
    encode, decode, headed = _CODECS[store_format](serdes)
    takes_headers = serdes.value_serde.with_headers is not None
    encode_with_key: EncodeWithKey | None = None
    beside_headers: DecodeWithHeaders | None = None
    if headed is not None:
        encode_with_key = _headers_to_both(serdes, store_format, headed)
        if takes_headers:
            encode, decode = _without_key(encode_with_key), _decoder_with_headers(serdes, store_format, headed)
        beside_headers = _beside_headers(decode)
    decode_values = _values_decoder(store_format, serdes, has_headers=headed is not None)
    fused = store_format is StoreFormat.TIMESTAMPED_WITH_HEADERS and not takes_headers
    decode_pairs = _pairs_with_headers_decoder(serdes.value_serde) if fused else None
    return ValueCodec(encode, decode, decode_values, decode_pairs, encode_with_key, beside_headers)


def _pairs_with_headers_decoder(serde: Serde[Any]) -> DecodePairs:
    """Return a function that decodes pairs of a timestamped store with headers, as `decode` does, inline for each."""
    deserialize = None if serde.is_identity else serde.deserialize

    def decode_pairs(
        pairs: Iterator[Pair],
        key_object: Callable[[bytes], Any] | None,
        unreadable: Callable[[Exception], StoreError],
        require_open: Callable[[], None],
    ) -> Generator[tuple[Any, Any], None, None]:
        new, holder, table = object.__new__, ValueTimestampHeaders, before_value
        try:
            for key, stored in pairs:
                held: ValueTimestampHeaders[Any] = new(holder)
                try:
                    unpack, value_at = table[stored[:2]]
                    held._headers, held._timestamp_ms = unpack(stored)
                    value = stored[value_at:]
                except struct.error:
                    held._headers, held._timestamp_ms, value = split_value_timestamp_headers(stored)
                held._value = value if deserialize is None else deserialize(value)
                yield (key if key_object is None else key_object(key)), held
        except (FormatError, DeserializationError) as cause:
            raise unreadable(cause) from cause
        require_open()

    return decode_pairs


def _beside_headers(decode: Decode) -> DecodeWithHeaders:
    def decode_with_headers(stored: bytes) -> tuple[Any, Headers]:
        holder = decode(stored)
        return holder, holder.headers

    return decode_with_headers


def _values_decoder(store_format: StoreFormat, serdes: StateSerdes[Any, Any], *, has_headers: bool) -> DecodeValues:
    split, serde = _PLAIN_VALUES[store_format], serdes.value_serde
    if has_headers and serde.with_headers is not None:
        value_from = serdes.value_from

        def decode_with_headers(pairs: list[Pair]) -> list[Any]:
            parts = (split_stored(store_format, stored) for _, stored in pairs)
            return [value_from(value, Headers.from_bytes(data or b"")) for value, _, data in parts]

        return decode_with_headers
    if serde.is_identity:
        return split
    deserialize = serde.deserialize
    return lambda pairs: [deserialize(value) for value in split(pairs)]


def _plain(serdes: StateSerdes[Any, Any]) -> _Coders:
    serialize = serdes.value_serde.serialize
    return (lambda value: None if value is None else serialize(value)), serdes.value_serde.deserialize, None


def _timestamped(serdes: StateSerdes[Any, Any]) -> _Coders:
    serialize, deserialize = serdes.value_serde.serialize, serdes.value_serde.deserialize

    def encode(holder: ValueAndTimestamp[Any] | None) -> bytes | None:
        if holder is None or _require_holder(ValueAndTimestamp, holder).value is None:
            return None
        return encode_value_timestamp(serialize(holder.value), holder.timestamp_ms)

    def decode(stored: bytes) -> ValueAndTimestamp[Any]:
        timestamp_ms, value = split_value_timestamp(stored)
        return ValueAndTimestamp(deserialize(value), timestamp_ms)

    return encode, decode, None


def _timestamped_with_headers(serdes: StateSerdes[Any, Any]) -> _Coders:
    serialize = serdes.value_serde.serialize
    deserialize = None if serdes.value_serde.is_identity else serdes.value_serde.deserialize
    keeps_bytes = serdes.value_serde.writes_bytes
    pack_before, unpack_before = pack_before_value, before_value

    # Most stores are these, and every record is written and read through here: fields are looked at without the calls
    # of their properties, serdes that change nothing are not called, and what the layout is made of is in place.
    def encode(holder: ValueTimestampHeaders[Any] | None) -> bytes | None:
        if holder is None:
            return None
        if holder.__class__ is not ValueTimestampHeaders:
            _require_holder(ValueTimestampHeaders, holder)
        value, headers = holder._value, holder._headers
        if value is None:
            return None
        if not (keeps_bytes and value.__class__ is bytes):
            value = serialize(value)
        if headers.__class__ is not bytes:
            headers = holder.header_bytes
        try:
            return pack_before[len(headers)](headers, holder._timestamp_ms) + value
        except struct.error:
            return encode_value_timestamp_headers(value, holder._timestamp_ms, headers)

    def decode(stored: bytes) -> ValueTimestampHeaders[Any]:
        held = blank_value_timestamp_headers()
        try:
            unpack, value_at = unpack_before[stored[:2]]
            held._headers, held._timestamp_ms = unpack(stored)
            value = stored[value_at:]
        except struct.error:
            held._headers, held._timestamp_ms, value = split_value_timestamp_headers(stored)
        held._value = value if deserialize is None else deserialize(value)
        return held

    return encode, decode, ValueTimestampHeaders


def _aggregation_with_headers(serdes: StateSerdes[Any, Any]) -> _Coders:
    serialize, deserialize = serdes.value_serde.serialize, serdes.value_serde.deserialize

    def encode(holder: AggregationWithHeaders[Any] | None) -> bytes | None:
        if holder is None:
            return None
        aggregation = _require_holder(AggregationWithHeaders, holder)._aggregation
        return None if aggregation is None else encode_value_headers(serialize(aggregation), holder.header_bytes)

    def decode(stored: bytes) -> AggregationWithHeaders[Any]:
        header_bytes, value = split_value_headers(stored)
        return AggregationWithHeaders(deserialize(value), header_bytes)

    return encode, decode, AggregationWithHeaders


def _headers_to_both(serdes: StateSerdes[Any, Any], store_format: StoreFormat, kind: type[Any]) -> EncodeWithKey:
    """Return a function that serializes key and value with the holder's headers, as in Kafka the key first."""
    raw_value = serdes.raw_value

    def encode_with_key(holder: Any, raw_key: Callable[[Headers], bytes]) -> Change | None:
        if holder is None:
            return None
        value = kind.get_value_or_null(_require_holder(kind, holder))
        if value is None:
            return None
        headers = holder.headers.copy()
        key = raw_key(headers)
        data = raw_value(value, headers)
        timestamp_ms = holder.timestamp_ms if store_format.has_timestamp else UNKNOWN_TIMESTAMP_MS
        return key, join_stored(store_format, data, timestamp_ms, headers.to_bytes())

    return encode_with_key


def _decoder_with_headers(serdes: StateSerdes[Any, Any], store_format: StoreFormat, kind: type[Any]) -> Decode:
    def decode_with_headers(stored: bytes) -> Any:
        value, timestamp_ms, header_bytes = split_stored(store_format, stored)
        headers = Headers.from_bytes(header_bytes or b"")
        times_ms = () if timestamp_ms is None else (timestamp_ms,)
        return kind(serdes.value_from(value, headers), *times_ms, headers)

    return decode_with_headers


def _without_key(encode_with_key: EncodeWithKey) -> Encode:

    def encode(holder: Any) -> bytes | None:
        entry = encode_with_key(
            holder, lambda headers: b""
        )  # the key's serde takes no headers, and is called elsewhere
        return None if entry is None else entry[1]

    return encode


def _require_holder(kind: type[H], holder: H) -> H:
    """Return what a store is to hold. Raises TypeError if it is not of the store's kind."""
    if not isinstance(holder, kind):
        raise TypeError(f"the store holds a {kind.__name__} or None of a key, not {shape_of(holder)}")
    return holder


_CODECS: Final[dict[StoreFormat, Callable[[StateSerdes[Any, Any]], _Coders]]] = {
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


class HeldColumns(NamedTuple):
    """What a store holds of some keys, in columns; a row is null in all of them if it holds nothing.

    Times are milliseconds since the epoch, headers bytes in KIP-1271's encoding. What the store's format has no room
    for is None.
    """

    value: pa.Array
    timestamp_ms: pa.Int64Array | None
    headers: pa.BinaryArray | None

    def take(self, rows: Any) -> HeldColumns:
        """Return these rows, in this order; a row may be there twice."""
        indices = rows if isinstance(rows, pa.Array) else pa.array(rows, pa.int64())
        return HeldColumns(*(None if column is None else column.take(indices) for column in self))


class EntryColumns:
    """Serializes and deserializes columns of one store. Raises TypeError unless both its serdes have columns."""

    def __init__(self, store: str, store_format: StoreFormat, key_serde: Serde[Any], value_serde: Serde[Any]) -> None:
        self._store = store
        self._format = store_format
        self._keys = columns_of(key_serde, "key", self._no_columns)
        self._values = columns_of(value_serde, "value", self._no_columns)

    def key_bytes(self, keys: Any) -> pa.BinaryArray:
        """Return the bytes of a column of keys. Raises TypeError for a null, SerializationError for another type."""
        column = self._keys.serialize(as_column(keys, "keys"))
        if column.null_count:
            raise TypeError(f"store {self._store!r}: a key must not be None")
        return column

    def stored(self, records: RecordColumns) -> pa.BinaryArray:
        """Return the stored bytes of the records' values; null is a delete. Raises SerializationError."""
        values = self._values.serialize(records.value)
        return join_stored_columns(self._format, values, records.timestamp_ms, records.headers)

    def held(self, stored: pa.BinaryArray) -> HeldColumns:
        """Return what is in a column of stored bytes. Raises FormatError and DeserializationError naming the row."""
        value, timestamps_ms, header_bytes = split_stored_columns(self._format, stored)
        return HeldColumns(self._values.deserialize(value), timestamps_ms, header_bytes)

    def _no_columns(self, problem: str) -> TypeError:
        return TypeError(
            f"store {self._store!r}: {problem}: use get() and put(), or give the store a serde with columns "
            "(Serdes.bytes(), or Serdes.of with `columns`)"
        )
