"""Headers by which applications mark records, of single ones and in columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers


def value_of(headers: Headers, key: str) -> bytes | None:
    """Return the value of the last header of a key; None if there is none, or it has no value."""
    header = headers.last_header(key)
    return None if header is None else header.value


def has_none(records: RecordColumns, key: str) -> bool:
    """Return whether none of the records has a header of this key, with a value."""
    values = records.header(key)
    return bool(values.null_count == len(values))


def with_header_where(records: RecordColumns, mask: pa.BooleanArray, key: str, values: Any) -> RecordColumns:
    """Return the records, those where `mask` is true with one more header: `values` has one for each row, or is one."""
    if pc.all(mask).as_py():
        return records.with_header(key, values)
    if not pc.any(mask).as_py():
        return records
    marked = records.with_header(key, values)
    return records.with_columns(headers=pc.if_else(mask, marked.headers, records.headers))
