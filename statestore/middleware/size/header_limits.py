"""Header limits: records with too many headers, or too large ones, are refused before they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow.compute as pc

from statestore.errors.middleware import HeaderLimitError
from statestore.format.binary_columns import row_sizes
from statestore.format.records.header_bytes import header_count
from statestore.headers.record_columns import RecordColumns
from statestore.interception.interceptor import IngestedRecord
from statestore.middleware.application import Application, options

__all__ = ["HeaderLimits"]

_HEADER_BYTES_MIN: Final = 2  # of an empty key and no value: one byte for the length of each


class HeaderLimits(Application):
    """Refuses records with more than `max_headers` headers, or more than `max_bytes` of them as they are encoded.

    Of the headers only the count is decoded. Put it at the end of a chain, so that what comes in passes it first.
    """

    kind = "limits"
    _options = options(INT="max.headers max.bytes")

    def __init__(self, max_headers: int = 256, max_bytes: int = 64 << 10) -> None:
        """Raise ValueError for a negative limit."""
        if max_headers < 0 or max_bytes < 0:
            raise ValueError(f"limits of headers must not be negative, got {max_headers} and {max_bytes}")
        self.max_headers: Final = max_headers
        self.max_bytes: Final = max_bytes

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Raise HeaderLimitError for a record beyond the limits."""
        self._check(record.headers.to_bytes())
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Raise HeaderLimitError if a record is beyond the limits."""
        sizes = row_sizes(records.headers)
        # Fewer bytes can't hold more headers than are allowed.
        suspects = np.flatnonzero(sizes > min(self.max_bytes, _HEADER_BYTES_MIN * self.max_headers))
        for data in pc.take(records.headers, suspects).to_pylist():
            self._check(data)
        return records

    def _check(self, data: bytes) -> None:
        if len(data) > self.max_bytes:
            raise HeaderLimitError(what="bytes of headers", found=len(data), limit=self.max_bytes)
        count = header_count(data)
        if count > self.max_headers:
            raise HeaderLimitError(what="headers", found=count, limit=self.max_headers)

    def __repr__(self) -> str:
        return f"HeaderLimits({self.max_headers}, {self.max_bytes})"
