"""The entries of a store as Arrow columns, some thousand at a time: only those that are asked for.

What is not asked for is left where it is, as far as the store's layout allows: other keys of key-value and versioned
stores, and time segments that no entry asked for can stand in. The rest is left out before its value is taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from statestore.bytestore.chunks import steps
from statestore.bytestore.engines.prefix_scan import pairs_with_prefix
from statestore.bytestore.kinds.contents import entry_parts
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.format.header_columns import HEADERS_TYPE, decode_header_column
from statestore.format.session_key import SESSION_SUFFIX_SIZE
from statestore.format.store_format import StoreFormat
from statestore.format.stored_value import split_stored
from statestore.format.value_timestamp_headers import split_columns
from statestore.format.window_key import WINDOW_SUFFIX_SIZE
from statestore.spark.datasource.selection import Selection

ENTRY_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("timestamp_ms", pa.int64()),
    pa.field("headers", HEADERS_TYPE),
    pa.field("start_ms", pa.int64()),
    pa.field("end_ms", pa.int64()),
)


def entry_columns(
    spec: StoreSpec, store: ByteStore, selection: Selection, *, with_headers: bool
) -> Iterator[dict[str, pa.Array]]:
    """Yield the entries that are asked for, as the columns of ENTRY_FIELDS, in the order of the store's bytes.

    Without headers, these are neither decoded nor there. Raises FormatError for bytes that are not of the store's kind
    and format.
    """
    for step in steps(_pairs(spec, store, selection)):
        columns = _kept(selection, _places(spec, step))
        stored = columns.pop("stored")
        values, timestamps_ms, header_bytes = _split(spec.format, stored)
        columns |= {"value": values, "timestamp_ms": timestamps_ms, "headers": header_bytes}
        columns = _kept(selection, columns)
        headers = columns.pop("headers")
        if with_headers:
            columns["headers"] = decode_header_column(headers)
        if len(columns["key"]):
            yield columns


def _kept(selection: Selection, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    kept = selection.kept(columns)
    if kept is None or kept.true_count == len(kept):
        return columns
    return {name: column.filter(kept) for name, column in columns.items()}


def _places(spec: StoreSpec, pairs: list[Pair]) -> dict[str, pa.Array]:
    if spec.kind is StoreKind.KEY_VALUE:
        keys, stored = zip(*pairs, strict=True)
        none = pa.nulls(len(pairs), pa.int64())
        return {
            "key": pa.array(keys, pa.binary()),
            "start_ms": none,
            "end_ms": none,
            "stored": pa.array(stored, pa.binary()),
        }
    parts = [part for key, value in pairs for part in entry_parts(spec, key, value)]
    columns: list[Any] = [list(column) for column in zip(*parts, strict=True)] or [[], [], [], []]
    types = (pa.binary(), pa.int64(), pa.int64(), pa.binary())
    names = ("key", "start_ms", "end_ms", "stored")
    return {name: pa.array(column, type_) for name, column, type_ in zip(names, columns, types, strict=True)}


def _split(store_format: StoreFormat, stored: pa.BinaryArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return values, timestamps and header bytes; null what the format has not."""
    if store_format is StoreFormat.TIMESTAMPED_WITH_HEADERS:
        return split_columns(stored)
    none = pa.nulls(len(stored), pa.int64()), pa.nulls(len(stored), pa.binary())
    if store_format is StoreFormat.PLAIN:
        return stored, *none
    parts = [split_stored(store_format, each) for each in stored.to_pylist()]
    return (
        pa.array([part.value for part in parts], pa.binary()),
        pa.array([part.timestamp_ms for part in parts], pa.int64()),
        pa.array([part.header_bytes for part in parts], pa.binary()),
    )


def _pairs(spec: StoreSpec, store: ByteStore, selection: Selection) -> Iterator[Pair]:
    keys = selection.keys()
    if spec.kind is StoreKind.KEY_VALUE:
        if keys is None:
            yield from store.range(*selection.key_bounds())
        else:
            yield from _found(store, keys)
        return
    first_ms, last_ms = _segment_times(spec, selection)
    _, interval_ms = spec.retention
    ids = Segments(store, *spec.retention).existing(max(0, first_ms) // interval_ms, last_ms // interval_ms)
    if keys is None:
        for segment_id in ids:
            yield from pairs_with_prefix(store, segment_prefix(segment_id))
    elif spec.kind is StoreKind.VERSIONED:
        for segment_id in ids:
            yield from _found(store, [segment_prefix(segment_id) + key for key in keys])
    else:
        yield from _beginning_with(spec, store, ids, keys)
    if spec.kind is StoreKind.VERSIONED and not selection.needs_value("end_ms"):
        if keys is None:
            yield from pairs_with_prefix(store, segment_prefix(LATEST_SEGMENT))
        else:
            yield from _found(store, [segment_prefix(LATEST_SEGMENT) + key for key in keys])


def _segment_times(spec: StoreSpec, selection: Selection) -> tuple[int, int]:
    """Return the first and last time whose segments can hold what is asked for: that by which an entry is placed."""
    first_ms, last_ms = selection.time_bounds("end_ms")
    if spec.kind is not StoreKind.WINDOW:
        return first_ms, last_ms
    # A window is placed by its start. One that would end after the last time of all ends there.
    size_ms = spec.window_size_ms or 0
    starts = selection.time_bounds("start_ms")
    return max(starts[0], first_ms - size_ms), min(starts[1], last_ms)


def _found(store: ByteStore, keys: list[bytes]) -> Iterator[Pair]:
    for key in keys:
        value = store.get(key)
        if value is not None:
            yield key, value


def _beginning_with(spec: StoreSpec, store: ByteStore, ids: list[int], keys: list[bytes]) -> Iterator[Pair]:
    """Yield what stands between the first and the last time of each key; longer keys may stand there, too."""
    suffix_size = WINDOW_SUFFIX_SIZE if spec.kind is StoreKind.WINDOW else SESSION_SUFFIX_SIZE
    for segment_id in ids:
        for key in keys:
            start = segment_prefix(segment_id) + key
            for pair in store.range(start, start + b"\xff" * suffix_size):
                if len(pair[0]) == len(start) + suffix_size:
                    yield pair
