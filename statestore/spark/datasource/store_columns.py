"""The entries of a store as Arrow columns, some thousand at a time: only those that are asked for.

What is not asked for is not read, as far as the store's layout allows; the rest is left out before its value is taken
apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kinds.entry_rows import stored_columns
from statestore.bytestore.kinds.entry_scan import bounded_pairs
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.format.records.header_columns import decode_header_column
from statestore.spark.datasource.row_filter import RowFilter


def entry_columns(
    spec: StoreSpec, store: ByteStore, row_filter: RowFilter, *, with_headers: bool
) -> Iterator[dict[str, pa.Array]]:
    """Yield the entries that are asked for, as the columns of ENTRY_FIELDS, in the order of the store's bytes.

    Without headers, these are neither decoded nor there. Raises FormatError for bytes that are not of the store's kind
    and format.
    """
    layout = layout_of(spec)
    for chunk in chunks(bounded_pairs(layout, store, row_filter.bounds())):
        columns = _kept(row_filter, layout.entry_columns(chunk))
        stored = columns.pop("stored")
        values, timestamps_ms, header_bytes = stored_columns(spec.format, stored)
        columns |= {"value": values, "timestamp_ms": timestamps_ms, "headers": header_bytes}
        yield from asked_columns([columns], row_filter, with_headers=with_headers)


def asked_columns(
    entries: Iterable[dict[str, pa.Array]], row_filter: RowFilter, *, with_headers: bool
) -> Iterator[dict[str, pa.Array]]:
    """Yield of entries, as columns with header bytes, those that are asked for, with headers as ENTRY_FIELDS has them.

    Without headers, these are neither decoded nor there. Raises FormatError.
    """
    for each in entries:
        columns = _kept(row_filter, each)
        header_bytes = columns.pop("headers")
        if with_headers:
            columns["headers"] = decode_header_column(header_bytes)
        if len(columns["key"]):
            yield columns


def _kept(row_filter: RowFilter, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    kept = row_filter.kept(columns)
    if kept is None or kept.true_count == len(kept):
        return columns
    return {name: column.filter(kept) for name, column in columns.items()}
