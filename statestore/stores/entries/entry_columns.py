"""Keys and values of a store as columns: what its codec does to one entry, done to many without an object each."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from statestore.format.binary_columns import as_column
from statestore.format.serde import Serde, columns_of
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import join_stored_columns, split_stored_columns
from statestore.headers.record_columns import RecordColumns


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
