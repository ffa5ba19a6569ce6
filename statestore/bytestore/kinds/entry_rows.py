"""Entries of a store, whatever its kind, one by one and as rows of Arrow: for readers without serdes and topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import split_columns
from statestore.format.values.stored_value import split_stored

KEY_FIELD: Final = pa.field("key", pa.binary())
VALUE_FIELD: Final = pa.field("value", pa.binary())
TIMESTAMP_FIELD: Final = pa.field("timestamp_ms", pa.int64())
HEADERS_FIELD: Final = pa.field("headers", HEADERS_TYPE)
START_FIELD: Final = pa.field("start_ms", pa.int64())
"""Of the window or session, or from when a version is valid; null for key-value stores."""
END_FIELD: Final = pa.field("end_ms", pa.int64())
"""Of the window, exclusive, or of the session, inclusive, or until when a version is valid; null if there is none."""
ENTRY_FIELDS: Final = (KEY_FIELD, VALUE_FIELD, TIMESTAMP_FIELD, HEADERS_FIELD, START_FIELD, END_FIELD)


def stored_columns(
    store_format: StoreFormat, stored: pa.BinaryArray
) -> tuple[pa.BinaryArray, pa.Int64Array, pa.BinaryArray]:
    """Return values, timestamps in ms and header bytes; null what the format or row has not. Raises FormatError."""
    if store_format is StoreFormat.TIMESTAMPED_WITH_HEADERS:
        return split_columns(stored)
    if store_format is StoreFormat.PLAIN:
        return stored, pa.nulls(len(stored), pa.int64()), pa.nulls(len(stored), pa.binary())
    parts = [(None, None, None) if each is None else split_stored(store_format, each) for each in stored.to_pylist()]
    values, timestamps_ms, header_bytes = zip(*parts, strict=True) if parts else ((), (), ())
    return (pa.array(values, pa.binary()), pa.array(timestamps_ms, pa.int64()), pa.array(header_bytes, pa.binary()))


class StoredEntry(NamedTuple):
    """An entry, of a window or session too, or a version; None where there is no such time or part, or no end yet."""

    key: bytes
    start_ms: int | None
    end_ms: int | None
    value: bytes
    timestamp_ms: int | None
    header_bytes: bytes | None


def stored_entries(spec: StoreSpec, store: ByteStore) -> Iterator[StoredEntry]:
    """Yield all entries of a store in the order of its bytes, without tombstones of versions. Raises FormatError."""
    for key, start_ms, end_ms, stored in layout_of(spec).entries(store.range(None, None)):
        yield StoredEntry(key, start_ms, end_ms, *split_stored(spec.format, stored))
