"""Records as Arrow columns: what a batch processor is given and forwards, and what stores and sinks take."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import as_binary_array, as_column
from statestore.format.key_groups import KeyGroups
from statestore.format.records.header_columns import decode_header_column, encode_header_column
from statestore.format.records.header_lists import add_header_column, last_header_column, remove_header_column

ORIGIN: Final = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("stream_time_ms", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)
"""What a batch knows of the input record behind each row: where it came from, the shard's stream time once it was
read, the size of its key, value and headers as they came, and its place among the rows that go on together."""


class RecordColumns:
    """Records in order, as columns of the same length. Nothing in it is ever changed.

    key, value       Arrow columns of any type that the serdes around can write; null where a record has none
    timestamp_ms     int64, milliseconds since the epoch, 0 or more
    headers          binary, in KIP-1271's encoding, empty for none; parsed by nobody until one of the methods is called
    topic, partition, offset    where each record came from; None for records that came from nowhere

    The columns that the library hands out are Arrow arrays. In what a user makes, numpy arrays and chunked arrays will
    do too, and headers may be Spark's array of structs of key and value, or None for no headers. Raises TypeError for
    columns of other types, ValueError for columns that differ in length, negative times, and times or headers that are
    null.
    """

    def __init__(self, key: Any, value: Any, timestamp_ms: Any, headers: Any = None) -> None:
        self.key: pa.Array = as_column(key, "column key of records")
        self.value: pa.Array = as_column(value, "column value of records")
        self.timestamp_ms: pa.Int64Array = _times(timestamp_ms)
        self.headers: pa.BinaryArray = _header_bytes(headers, len(self.key))
        self._origin: pa.RecordBatch | None = None
        self._by_key: KeyGroups | None = None
        columns = {name: len(getattr(self, name)) for name in ("key", "value", "timestamp_ms", "headers")}
        if len(set(columns.values())) > 1:
            raise ValueError(f"columns of records differ in length: {columns}")

    @classmethod
    def adopt(
        cls,
        key: pa.Array,
        value: pa.Array,
        timestamp_ms: pa.Int64Array,
        headers: pa.BinaryArray,
        origin: pa.RecordBatch | None,
    ) -> RecordColumns:
        """Return records of columns that are known to be sound; `origin` has the columns of ORIGIN, or is None."""
        records = cls.__new__(cls)
        records.key = key
        records.value = value
        records.timestamp_ms = timestamp_ms
        records.headers = headers
        records._origin = origin
        records._by_key = None
        return records

    def __len__(self) -> int:
        return len(self.key)

    @property
    def origin(self) -> pa.RecordBatch | None:
        """The columns of ORIGIN, in interceptors some of them; None for records that came from nowhere."""
        return self._origin

    @property
    def topic(self) -> pa.DictionaryArray | None:
        """The topic that each record came from, or in an interceptor's hook for what is sent, the one that it goes to.

        None for records that came from nowhere.
        """
        return self._origin_column("topic")

    @property
    def partition(self) -> pa.Int32Array | None:
        """The partition that each record came from."""
        return self._origin_column("partition")

    @property
    def offset(self) -> pa.Int64Array | None:
        """The offset that each record had in its partition."""
        return self._origin_column("offset")

    @property
    def stream_time_ms(self) -> pa.Int64Array | None:
        """The shard's stream time once each record was read, in milliseconds since the epoch."""
        return self._origin_column("stream_time_ms")

    @property
    def row(self) -> pa.Int64Array | None:
        """The place of each record's input record among those that go on together."""
        return self._origin_column("row")

    @property
    def by_key(self) -> KeyGroups:
        """Which records have the same key. Found once, also for records that are made of these with the same keys."""
        if self._by_key is None:
            self._by_key = KeyGroups(self.key)
        return self._by_key

    def with_columns(self, **columns: Any) -> RecordColumns:
        """Return the same records with other columns for some of key, value, timestamp_ms and headers.

        They came from where they came. Raises what RecordColumns raises.
        """
        unknown = columns.keys() - {"key", "value", "timestamp_ms", "headers"}
        if unknown:
            raise TypeError(f"records have no column {sorted(unknown)[0]!r} that can be given")
        made = RecordColumns(
            columns.get("key", self.key),
            columns.get("value", self.value),
            columns.get("timestamp_ms", self.timestamp_ms),
            columns.get("headers", self.headers),
        )
        if len(made) != len(self):
            raise ValueError(f"{len(self)} records can't have columns of {len(made)} rows: take or filter them first")
        made._origin = self._origin
        if made.key is self.key:
            made._by_key = self._by_key
        return made

    def take(self, rows: Any) -> RecordColumns:
        """Return the records in these rows, in this order; a row may be there twice."""
        return self._select("take", rows if isinstance(rows, pa.Array) else pa.array(rows, pa.int64()))

    def filter(self, mask: Any) -> RecordColumns:
        """Return the records whose row in `mask` is true; null counts as false."""
        return self._select("filter", mask if isinstance(mask, pa.Array) else pa.array(mask, pa.bool_()))

    def slice(self, start: int, count: int | None = None) -> RecordColumns:
        """Return `count` records from row `start` on, None = all; no bytes are copied."""
        return self._select("slice", start, count)

    def header(self, key: str) -> pa.BinaryArray:
        """Return the value of each record's last header `key`; null where there is none, or its value is null.

        Raises FormatError if a record's headers can't be read, as do the methods below.
        """
        return last_header_column(self.headers, key)

    def with_header(self, key: str, values: Any) -> RecordColumns:
        """Return the records with one more header each: `values` has one for each row, or is bytes or None for all."""
        return self._with_headers(add_header_column(self.headers, key, values))

    def without_header(self, key: str) -> RecordColumns:
        """Return the records without any header `key`."""
        return self._with_headers(remove_header_column(self.headers, key))

    def decoded_headers(self) -> pa.ListArray:
        """Return the headers as a list of structs of key and value for each record, as Spark has them."""
        return decode_header_column(self.headers)

    def __repr__(self) -> str:
        return f"RecordColumns({len(self)} records, key {self.key.type}, value {self.value.type})"

    def _origin_column(self, name: str) -> Any:
        origin = self._origin
        return None if origin is None or origin.schema.get_field_index(name) < 0 else origin.column(name)

    def _with_headers(self, headers: pa.BinaryArray) -> RecordColumns:
        made = RecordColumns.adopt(self.key, self.value, self.timestamp_ms, headers, self._origin)
        made._by_key = self._by_key
        return made

    def _select(self, how: str, *which: Any) -> RecordColumns:
        columns = (self.key, self.value, self.timestamp_ms, self.headers)
        key, value, times, headers = (getattr(column, how)(*which) for column in columns)
        origin = None if self._origin is None else getattr(self._origin, how)(*which)
        return RecordColumns.adopt(key, value, times, headers, origin)


def _times(column: Any) -> pa.Int64Array:
    times = as_column(column, "timestamp_ms")
    if not pa.types.is_int64(times.type):
        raise TypeError(f"timestamp_ms must be a column of int64, got {times.type}")
    if times.null_count:
        raise ValueError("timestamp_ms must not be null: each record has a time")
    earliest = pc.min(times).as_py()
    if earliest is not None and earliest < 0:
        raise ValueError(f"timestamp_ms must not be negative, got {earliest}")
    return times


def _header_bytes(column: Any, rows: int) -> pa.BinaryArray:
    if column is None:
        return pa.repeat(pa.scalar(b"", pa.binary()), rows)
    headers = as_column(column, "headers")
    if pa.types.is_list(headers.type):
        return encode_header_column(headers)
    headers = as_binary_array(headers, "headers")
    if headers.null_count:
        raise ValueError("headers must not be null: a record without any has b''")
    return headers
