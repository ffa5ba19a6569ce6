"""The entries of a store as Arrow columns, some thousand at a time: only those that are asked for.

What is not asked for is left where it is, as far as the store's layout allows: other keys of key-value and versioned
stores, and time segments that no entry asked for can stand in. The rest is left out before its value is taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from statestore.bytestore.chunks import steps
from statestore.bytestore.engines.prefix_scan import pairs_with_prefix
from statestore.bytestore.kinds.kind_layout import KindLayout, layout_of
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.format.header_columns import HEADERS_TYPE, decode_header_column
from statestore.format.store_format import StoreFormat
from statestore.format.stored_value import split_stored
from statestore.format.value_timestamp_headers import split_columns
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
    layout = layout_of(spec)
    for step in steps(_pairs(layout, store, selection)):
        columns = _kept(selection, layout.entry_columns(step))
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


def _pairs(layout: KindLayout, store: ByteStore, selection: Selection) -> Iterator[Pair]:
    keys = selection.keys()
    if not layout.spec.kind.is_segmented:
        if keys is None:
            yield from store.range(*selection.key_bounds())
        for key in keys or ():
            yield from layout.pairs_of_key(store, b"", key)
        return
    for segment_id in _segment_ids(layout, store, selection):
        segment = segment_prefix(segment_id)
        if keys is None:
            yield from pairs_with_prefix(store, segment)
        for key in keys or ():
            yield from layout.pairs_of_key(store, segment, key)


def _segment_ids(layout: KindLayout, store: ByteStore, selection: Selection) -> list[int]:
    """Return the segments that can hold what is asked for."""
    first_ms, last_ms = layout.segment_times(selection.time_bounds("start_ms"), selection.time_bounds("end_ms"))
    _, interval_ms = layout.spec.retention
    segments = Segments(store, *layout.spec.retention)
    ids = segments.existing(max(0, first_ms) // interval_ms, last_ms // interval_ms)
    if layout.unended_segment is not None and not selection.needs_value("end_ms"):
        ids.append(layout.unended_segment)
    return ids
