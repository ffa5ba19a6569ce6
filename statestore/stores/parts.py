"""What a typed store is made of. The builder puts it together; a store, its views and its facades share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Change
from statestore.bytestore.record_context import RecordContext
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

    def write_for(self, changes: Sequence[Change], written_for: Callable[[int], RecordContext]) -> bool:
        """Apply all changes at once, each for the record that `written_for` returns for its place.

        Returns False, with nothing done, if there is a layer that has to see each write by itself.
        """
        if self.cache is not None or self.expiring is not None:
            return False
        if self.logging is None:
            self.top.write(changes)
        else:
            self.logging.write_for(changes, written_for)
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
