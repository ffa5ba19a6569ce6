"""Compaction of a log by a key in a header: of the records with one key the last counts, and a null value ends it.

    "compaction-key"    any bytes: what the record replaces, instead of its key

A broker compacts by the key of records, which also says in which partition they are. Where several keys stand for one
thing, or one key for several, the header says what is meant. The header of `statestore.headers.expiry_header` is
honoured at the same time: a record whose time has come goes, and does not bring back what it has replaced. Source: the
architecture of metadata, custom retention and compaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import FormatError
from statestore.format.key_groups import are_last
from statestore.format.records.header_bytes import last_header_value
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_column, expiry_in_headers
from statestore.headers.record_columns import RecordColumns
from statestore.headers.records import ConsumerRecord, ProducerRecord
from statestore.recovery.commit.changelog import ChangelogRecord

__all__ = ["COMPACTION_HEADER", "compacted", "compacted_columns"]

COMPACTION_HEADER: Final = "compaction-key"
"""The header that says what a record replaces, unless another name is given."""

_AnyRecord = TypeVar(
    "_AnyRecord", bound="ConsumerRecord[Any, bytes | None] | ProducerRecord[Any, bytes | None] | ChangelogRecord"
)


def compacted(
    records: Iterable[_AnyRecord],
    *,
    now_ms: int,
    header: str = COMPACTION_HEADER,
    expiry_header: str | None = EXPIRY_HEADER,
    keep_tombstones: bool = False,
) -> list[_AnyRecord]:
    """Return what compaction leaves of the records of one log, in their order.

    A record is replaced by a later one with the same bytes in `header`, or, where there is no such header or its value
    is null, in its key. One that has neither is left. Null values replace others, and are left out themselves unless
    `keep_tombstones`. What has expired at `now_ms`, in milliseconds since the epoch, is left out in any case; with an
    `expiry_header` of None nothing expires. A malformed expiry does not count, as in a store.

    Of each key one record is held in memory. Raises FormatError for headers that can't be read.
    """
    last: dict[Any, _AnyRecord] = {}
    for record in records:
        compaction_key = last_header_value(_header_bytes(record), header)
        place = record.key if compaction_key is None else compaction_key
        place = object() if place is None else place
        last.pop(place, None)  # so that the dict is in the order of last records
        last[place] = record
    return [
        record
        for record in last.values()
        if (keep_tombstones or record.value is not None)
        and (expiry_header is None or not _has_expired(_header_bytes(record), expiry_header, now_ms))
    ]


def compacted_columns(
    records: RecordColumns,
    *,
    now_ms: int,
    header: str = COMPACTION_HEADER,
    expiry_header: str | None = EXPIRY_HEADER,
    keep_tombstones: bool = False,
) -> RecordColumns:
    """Do what `compacted` does to records in columns, whose keys are bytes. Raises TypeError for other keys."""
    places = records.key
    if not pa.types.is_binary(places.type):
        raise TypeError(f"records are compacted by keys of bytes, not of {places.type}")
    if pc.any(pc.match_substring(records.headers, header)).as_py():
        places = pc.coalesce(records.header(header), places)
    is_left = np.asarray(places.is_null()) | are_last(places)
    if not keep_tombstones:
        is_left &= np.asarray(records.value.is_valid())
    if expiry_header is not None:
        is_left &= expiry_column(records.headers, expiry_header)[0] > now_ms
    return records.filter(is_left)


def _header_bytes(record: Any) -> bytes:
    header_bytes: bytes = record.header_bytes if isinstance(record, ChangelogRecord) else record.headers.to_bytes()
    return header_bytes


def _has_expired(header_bytes: bytes, name: str, now_ms: int) -> bool:
    try:
        expiry_ms = expiry_in_headers(header_bytes, name)
    except FormatError:
        return False
    return expiry_ms is not None and expiry_ms <= now_ms
