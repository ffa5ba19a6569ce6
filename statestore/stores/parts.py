"""What a typed store is made of. The builder puts it together; a store, its views and its facades share it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, KeyChanges
from statestore.bytestore.record_context import RecordContext, WrittenRow
from statestore.format.binary_columns import Integers
from statestore.headers.record_columns import RecordColumns
from statestore.recovery.commit.changelog import Changelog
from statestore.stores.caching import CachingLayer
from statestore.stores.changelogging import ChangeLoggingLayer
from statestore.stores.entry_codec import EntryCodec
from statestore.stores.expiring import ExpiringLayer
from statestore.stores.retaining import RetainingLayer


@dataclass(frozen=True)
class StoreStack:
    """The byte stores under a typed store: layers, down to the bytes that a driver provides."""

    top: ByteStore
    """The outermost one: what the typed store reads and writes."""
    retaining: RetainingLayer | None = None
    logging: ChangeLoggingLayer | None = None
    cache: CachingLayer | None = None
    expiring: ExpiringLayer | None = None

    def write_for(self, changes: KeyChanges, records: RecordColumns, rows: Integers) -> bool:
        """Apply all changes at once, each for the record in the row beside it.

        Returns False, with nothing done, if there is a layer that has to see each write by itself.
        """
        expiring = self.expiring
        if self.cache is not None or (expiring is not None and expiring.looks_at_records):
            return False
        if self.logging is not None:
            self.logging.write_for(changes, WrittenRow.of(records, rows))
        else:
            (self.top if expiring is None else expiring.inner).write(changes.items())
        if expiring is not None:
            times = records.stream_time_ms
            expiring.renew_many(changes, None if times is None else times.take(pa.array(rows)).to_pylist())
        return True


@dataclass(frozen=True)
class StoreParts:
    """What every typed store has."""

    spec: StoreSpec
    entries: EntryCodec
    stack: StoreStack


@dataclass(frozen=True)
class SegmentedParts(StoreParts):
    """What a store of windows or sessions has."""

    segments: Segments


@dataclass(frozen=True)
class VersionedParts(SegmentedParts):
    """What a versioned store has, which logs by itself: its layers see versions, not bytes."""

    changelog: Changelog | None
    written_for: RecordContext
    """The record that is logged with a write."""
