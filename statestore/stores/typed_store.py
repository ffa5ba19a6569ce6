"""What all typed stores share beside reading: caches, upgrades, what `put_value` writes, closing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.bytestore.protocol import Change, ProcessingContext
from statestore.bytestore.upgrades import UpgradeProgress, upgradable
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import (
    UNKNOWN_TIMESTAMP_MS,
    convert_from_plain_to_header_format,
    convert_to_header_format,
)
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.stores.codec import ValueCodec
from statestore.stores.metrics import StoreMetrics
from statestore.stores.readable_store import WRITES, ReadableStore, StoreParts, StoreStack

T = TypeVar("T")


class TypedStore(ReadableStore):
    """A store of typed keys and values over bytes. Every method raises StoreClosedError once it is closed."""

    kind: ClassVar[StoreKind]
    """What the keys look like."""
    value_format: ClassVar[StoreFormat]
    """What users hold of a value: what its format has room for."""
    metrics: StoreMetrics | None = None
    """Where the operations are measured; None if they are not."""

    def __init__(self, parts: StoreParts) -> None:
        super().__init__(parts)
        self.record_context: ProcessingContext = parts.entries.record
        """The record that is being processed: whose timestamp and headers `put_value` writes."""
        self._encode = parts.entries.values.encode
        self._watched_by: tuple[Callable[[bytes], None], ...] = ()
        if self._keys is not None:
            for name in WRITES.intersection(dir(type(self))):
                setattr(self, name, self._keys.forget_delete_after(getattr(self, name)))

    @property
    def stack(self) -> StoreStack:
        """The byte stores below."""
        return self._parts.stack

    @property
    def dropped_records(self) -> int:
        """How many writes of windows or sessions came too late, so that they were not stored."""
        retaining = self.stack.retaining
        return 0 if retaining is None else retaining.dropped_records

    def with_codec(self, store_class: Callable[..., T], change: Callable[[ValueCodec], ValueCodec]) -> T:
        """Return a store of another class on these layers through another codec: not measured, closed with this."""
        entries = self._parts.entries
        return store_class(replace(self._parts, entries=entries._replace(values=change(entries.values))))

    def flush(self) -> None:
        """Pass on what a cache holds back; nothing without one."""
        if self.stack.cache is not None:
            self.stack.cache.flush()

    def delete_expired(self) -> int:
        """Delete some of the entries whose time to live has passed, and return how many; 0 without one."""
        return 0 if self.stack.expiring is None else self.stack.expiring.delete_expired()

    def upgrade_progress(self) -> UpgradeProgress:
        """Return how many entries of an older format were moved since the store was opened, and how many are left."""
        upgrading = upgradable(self._inner)
        return UpgradeProgress(0, 0) if upgrading is None else upgrading.upgrade_progress()

    def finish_upgrade(self, budget_ms: float | None = None) -> UpgradeProgress:
        """Move entries of an older format that nobody touches, until none is left or `budget_ms` is used up.

        None means no limit. Can be called repeatedly, and be interrupted: what was moved stays moved.
        """
        upgrading = upgradable(self._inner)
        return UpgradeProgress(0, 0) if upgrading is None else upgrading.finish_upgrade(budget_ms)

    def watch_stored(self, watch: Callable[[bytes], None]) -> None:
        """Have `watch` called with the bytes of every value that is put, from now on."""
        self._watched_by = (*self._watched_by, watch)
        encode = self._encode

        def watched(value: Any) -> bytes | None:
            stored = encode(value)
            if stored is not None:
                watch(stored)
            return stored

        self._encode = watched
        if self._keys is not None:
            self._keys.watch_stored(watch)

    def watch_expired(self, watch: Callable[[bytes, bytes | None], None]) -> None:
        """Have `watch` called with the bytes of each entry that `delete_expired` deletes, before it does, from now on.

        Nothing happens for a store without a time to live: a retention deletes whole segments unread.
        """
        if self.stack.expiring is not None:
            self.stack.expiring.watch(watch)

    def _watch_many(self, stored: pa.BinaryArray) -> None:
        for watch in self._watched_by:
            for value in stored.drop_null().to_pylist():
                watch(value)

    def _put_one_by_one(self, put: Callable[..., None], records: RecordColumns, *columns: Sequence[Any]) -> None:
        """Call `put` with each row of the columns, while the record in that row is the current one."""
        with closing(self.record_context.rows(records)) as rows:
            for row in rows:
                put(*(column[row] for column in columns))

    def close(self) -> None:
        """Close the store and every iterator that it handed out. Closing twice is harmless."""
        self._inner.close()

    def _timestamp_to_put(self, given_ms: int | None) -> int:
        """Return `given_ms`, or the record's timestamp if it is None or -1. Raises ValueError if there is neither."""
        if given_ms is not None and given_ms != UNKNOWN_TIMESTAMP_MS:
            if given_ms < 0:
                raise ValueError(f"store {self.name!r}: timestamp_ms must not be negative, got {given_ms}")
            return given_ms
        timestamp_ms = self.record_context.timestamp_ms
        if timestamp_ms < 0:
            raise ValueError(f"store {self.name!r}: no record is being processed, so put_value needs a timestamp_ms")
        return timestamp_ms

    def _headers_to_put(self, given: Headers | None) -> Headers | bytes:
        """Return `given`, or the headers of the record as they are now; they are not parsed."""
        return self.record_context.header_bytes if given is None else given

    def _to_put(self, key: Any, holder: Any) -> Change:
        """Return the bytes of a key and of what is put, None for a delete. Raises TypeError for a key of None."""
        if key is None:
            self._refuse_key()
        if self._keys is None:
            return self._key_bytes(key), self._encode(holder)
        return self._keys.entry(key, holder)


class HeadersBytesStore:
    """Marks the stores whose bytes have headers; turns stored values without headers into ones with empty headers.

    None stays None. What is on disk is recorded: `StoreSpec.format`.
    """

    convert_to_header_format = staticmethod(convert_to_header_format)
    convert_from_plain_to_header_format = staticmethod(convert_from_plain_to_header_format)


HeaderBytesStore = HeadersBytesStore
"""The KIP's text spells it both ways."""
