"""ExpiryHeader: records that say until when they count, and are not let in afterwards.

The header and its forms are those of `statestore.headers.expiry_header`, which stores read, too, with
`StoreBuilder.with_expiry_header`. Source: the architecture of metadata, retention by headers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import FormatError
from statestore.errors.middleware import ExpiryHeaderError, RecordExpiredError
from statestore.format.binary_columns import binary_array
from statestore.format.records.header_lists import rows_with_key
from statestore.headers.expiry_header import EXPIRY_HEADER, NO_EXPIRY_MS, expiry_column, expiry_in_headers, expiry_value
from statestore.headers.record_columns import RecordColumns
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.middleware.application import Application, options
from statestore.stores.supplier import Duration, milliseconds

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ExpiryHeader"]

_LOG = logging.getLogger(__name__)


class ExpiryHeader(Application):
    """Stamps on each record that is sent when it expires, and leaves out those that come too late.

    A record expires `lifetime` after its timestamp, or after the batch's time if it has none. A record that has the
    header already keeps it, also one whose value is null, which never expires. `lifetime` of None stamps nothing.

    A record that is ingested when it expires or later, by the clock of the micro-batch, is dropped, and the log counts
    such records; with expired="refuse" it raises RecordExpiredError. A malformed header raises ExpiryHeaderError:
    whoever wrote it meant the record to expire. In a configuration, `lifetime` is `lifetime.ms`.
    """

    kind = "expiry"
    _options = options(LONG="lifetime.ms", STRING="header expired")
    not_after: ClassVar[Mapping[str, str]] = {
        "signing": "it would stamp what is signed already, and drop what comes in by a header that nobody has verified"
    }

    def __init__(self, lifetime: Duration | None = None, *, header: str = EXPIRY_HEADER, expired: str = "drop") -> None:
        """Make one.

        Raises ValueError for a lifetime below 1 ms or with a fraction of one, for an empty name, and unless `expired`
        is "drop" or "refuse".
        """
        if not header:
            raise ValueError("header must be the name of a header, got ''")
        if expired not in ("drop", "refuse"):
            raise ValueError(f"expired must be one of drop, refuse, got {expired!r}")
        self.lifetime_ms = None if lifetime is None else milliseconds("lifetime", lifetime, least=1)
        self.header = header
        self.goes_by = (header,)
        self.expired = expired
        self._dropped = 0

    @classmethod
    def _configured(cls, lifetime_ms: int | None = None, **arguments: str) -> Self:
        return cls(None if lifetime_ms is None else timedelta(milliseconds=lifetime_ms), **arguments)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Stamp a record that has no such header."""
        if self.lifetime_ms is not None and self.header not in record.headers:
            sent_ms = self._now_ms() if record.timestamp_ms is None else record.timestamp_ms
            record.headers.add(self.header, expiry_value(min(sent_ms + self.lifetime_ms, NO_EXPIRY_MS)))
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Stamp those of the records that have no such header."""
        if self.lifetime_ms is None:
            return records
        lifetime_ms = min(self.lifetime_ms, NO_EXPIRY_MS)
        sent_ms = records.timestamp_ms.to_numpy()
        times_ms = np.where(sent_ms > NO_EXPIRY_MS - lifetime_ms, NO_EXPIRY_MS, sent_ms + lifetime_ms)
        stamped = records.with_header(
            self.header, binary_array(np.arange(len(records) + 1) * 8, times_ms.astype(">i8"))
        )
        has_header = rows_with_key(records.decoded_headers(), self.header)
        if not has_header.any():
            return stamped
        return records.with_columns(headers=pc.if_else(pa.array(has_header), records.headers, stamped.headers))

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Let a record in that has not expired. Raises ExpiryHeaderError; RecordExpiredError with expired="refuse"."""
        try:
            expiry_ms = expiry_in_headers(record.headers.to_bytes(), self.header)
        except FormatError as cause:
            raise ExpiryHeaderError(str(cause), header=self.header) from cause
        now_ms = self._now_ms()
        if expiry_ms is None or expiry_ms > now_ms:
            return (record,)
        if self.expired == "refuse":
            raise RecordExpiredError(expiry_ms=expiry_ms, now_ms=now_ms)
        self._dropped += 1
        return ()

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Let those of the records in that have not expired. Raises as `on_ingest` does, for any of them."""
        times_ms, malformed = expiry_column(records.headers, self.header)
        if malformed.size:
            raise ExpiryHeaderError(f"it is malformed in {malformed.size} records", header=self.header)
        now_ms = self._now_ms()
        lives = times_ms > now_ms
        if lives.all():
            return records
        if self.expired == "refuse":
            raise RecordExpiredError(expiry_ms=int(times_ms.min()), now_ms=now_ms)
        self._dropped += int((~lives).sum())
        return records.filter(lives)

    def close(self) -> None:
        """Say how many records came too late."""
        if self._dropped:
            _LOG.info("%d records had expired when they came", self._dropped)
            self._dropped = 0

    def __repr__(self) -> str:
        return f"ExpiryHeader({self.lifetime_ms!r}, header={self.header!r}, expired={self.expired!r})"
