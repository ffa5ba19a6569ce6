"""What a typed store is made of. The builder puts it together; a store, its views and its facades share it."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.record_context import RecordContext
from statestore.recovery.commit.changelog import Changelog
from statestore.stores.entries.entry_codec import EntryCodec
from statestore.stores.layers.layer import Drops, Expires, HoldsBack


@dataclass(frozen=True)
class StoreStack:
    """The byte stores under a typed store: layers, down to the bytes that a driver provides."""

    top: ByteStore
    """The outermost one: what the typed store reads and writes."""
    retaining: Drops | None = None
    cache: HoldsBack | None = None
    expiring: Expires | None = None


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
