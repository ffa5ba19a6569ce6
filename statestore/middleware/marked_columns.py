"""Headers for some of the records in columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.headers.record_columns import RecordColumns


def with_header_where(records: RecordColumns, mask: pa.BooleanArray, key: str, values: Any) -> RecordColumns:
    """Return the records, those where `mask` is true with one more header: `values` has one for each row, or is one."""
    if pc.all(mask).as_py():
        return records.with_header(key, values)
    if not pc.any(mask).as_py():
        return records
    marked = records.with_header(key, values)
    return records.with_columns(headers=pc.if_else(mask, marked.headers, records.headers))
