"""Sorts changelog records by their timestamps, on disk.

Kafka Streams restores versions in the order of the log, and drops one that is too late by the time of earlier ones.

    key := timestamp_ms:i64_be  number:i64_be
    row := has_value:u8  key_size:u32_be  headers_size:u32_be  key  headers  value
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase
from statestore.bytestore.protocol import Change
from statestore.recovery.commit.changelog import ChangelogRecord

_KEY: Final = struct.Struct(">qq")
_HEAD: Final = struct.Struct(">?II")
_ROWS_PER_WRITE: Final = 5_000


@contextmanager
def in_order_of_time(records: Iterable[ChangelogRecord], work_dir: str | None) -> Iterator[Iterator[ChangelogRecord]]:
    """Hand out the records sorted by their timestamps, which are 0 or more; those of one time stay in their order."""
    with TemporaryDirectory(prefix="statestore-sort-", dir=work_dir) as directory:
        database = RocksDBDatabase(directory, [])
        try:
            store = database.family(DEFAULT_FAMILY)
            rows = (_row(number, record) for number, record in enumerate(records))
            # In chunks, as a write is held in memory.
            for chunk in chunks(rows, max_rows=_ROWS_PER_WRITE):
                store.write(chunk)
            yield (_record(key, row) for key, row in store.range(None, None))
        finally:
            database.close()


def _row(number: int, record: ChangelogRecord) -> Change:
    key, value, timestamp_ms, header_bytes = record
    head = _HEAD.pack(value is not None, len(key), len(header_bytes))
    return _KEY.pack(timestamp_ms, number), b"".join((head, key, header_bytes, value or b""))


def _record(sort_key: bytes, row: bytes) -> ChangelogRecord:
    timestamp_ms, _ = _KEY.unpack(sort_key)
    has_value, key_size, headers_size = _HEAD.unpack_from(row)
    headers_at = _HEAD.size + key_size
    value_at = headers_at + headers_size
    value = row[value_at:] if has_value else None
    return ChangelogRecord(row[_HEAD.size : headers_at], value, timestamp_ms, row[headers_at:value_at])
