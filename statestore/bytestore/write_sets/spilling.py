"""Uncommitted writes that go to local disk when a batch holds too many.

    WriteSet (a dict) ── inner ──> SpilledWrites (RocksDB) ── inner ──> what is committed

A spill applies the upper one to the lower one. Whatever else a batch can't hold in memory goes to the same directory.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Collection, ItemsView, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol, cast

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.engines.rocksdb import RocksDBByteStore, RocksDBDatabase
from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.engines.scans import ScannedStore
from statestore.bytestore.protocol import ByteStore, Change, Pair
from statestore.bytestore.write_sets.write_set import (
    DELETED,
    DELETED_BYTES,
    Deleted,
    WriteSet,
    hold_last,
    last_writes,
    merge_pairs,
)
from statestore.errors import StoreError
from statestore.errors.state import StoreClosedError

_LOG = logging.getLogger(__name__)

ENTRY_BYTES: Final = 300
"""What a key with its value takes beside their own bytes, in a write set and a changelog: two bytes objects, and a slot
in each of two dicts, with the room that dicts keep free. Measured with CPython 3.11."""


class HoldsWrites(Protocol):
    """Holds uncommitted writes in memory."""

    def held_bytes(self) -> int:
        """Return about how much memory they take."""

    def spill(self) -> None:
        """Bring them to disk, and hold none."""


class PendingMemory:
    """Counts what is written to all stores of a batch, and has its holders spill when they hold more than the limit.

    Writers add to `written_bytes`, and call `relieve` when that is above `limit_bytes`. A write that replaces another
    one is counted too: what is really held is measured only then, so that a hot key costs no more than others.
    """

    def __init__(self, limit_bytes: int = sys.maxsize) -> None:
        self.limit_bytes = limit_bytes
        self.written_bytes = 0  # not less than what is held
        self.spills = 0
        self.failure: BaseException | None = None  # the error of a spill that failed, if any
        self._holders: list[HoldsWrites] = []

    def add(self, holder: HoldsWrites, *, first: bool = False) -> None:
        """Have `holder` spill when there is too much; `first`, before all others, if it reads what they hold."""
        self._holders.insert(0 if first else len(self._holders), holder)

    @contextmanager
    def final(self) -> Iterator[None]:
        """Make what fails in here final: each later entry raises the same.

        A spill that failed may have brought a part of the writes to disk, and the write that caused it was cut short.
        User code may swallow the error and go on, so it must come back before the batch is committed.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # a traceback would grow each time
        try:
            yield
        except BaseException as failure:
            self.failure = failure
            raise

    def relieve(self) -> None:
        """Have all holders spill, unless most of what was written was replaced meanwhile. A failure is `final`."""
        with self.final():
            held = sum(holder.held_bytes() for holder in self._holders)
            # Half the limit: just below the whole, the next few writes would call this again and again.
            if held <= self.limit_bytes // 2:
                self.written_bytes = held
                return
            # All of them: a write set and its changelog hold the same bytes, so one alone frees nothing.
            for holder in self._holders:
                holder.spill()
            self.spills += 1
            self.written_bytes = 0


class SpillSpace:
    """A directory on local disk for what a batch can't hold in memory; it goes when the batch ends.

    The directory is made at the first spill. The caller holds a lock on it, so what is there at the beginning was left
    by a process that died, and is removed.
    """

    def __init__(self, directory: Path, budget: MemoryBudget) -> None:
        self.directory = directory
        self._writes = directory / "writes"
        self.pending = PendingMemory(budget.pending_bytes)
        self._memory = budget.spill_database
        self._names: list[str] = []
        self._database: RocksDBDatabase | None = None

    def __enter__(self) -> SpillSpace:
        if self.directory.exists():
            _LOG.info("removing %s, left by a process that died", self.directory)
            shutil.rmtree(self.directory)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._database is not None:
                self._database.close()
        except StoreError as failure:
            # What could not be written is not needed: the batch is in its delta, or has failed already.
            _LOG.warning("closing what was spilled: %s", failure)
        finally:
            if self.directory.exists():
                shutil.rmtree(self.directory)

    def reserve(self, name: str) -> None:
        """Announce a name for `store`; before the first spill, which makes all stores at once."""
        self._names.append(name)

    def store(self, name: str) -> RocksDBByteStore:
        """Return an ordered map on disk for the store `name`, empty at the first call."""
        if self._database is None:
            self.make_directory()
            self._database = RocksDBDatabase(str(self._writes), self._names, memory=self._memory)
        return self._database.family(name)

    def make_directory(self) -> Path:
        """Return the directory, which is there from now on. Raises LocalDiskFullError, LocalDirectoryError."""
        with local_disk_errors("spilled writes", self.directory):
            self.directory.mkdir(exist_ok=True)
        return self.directory

    @property
    def size_bytes(self) -> int:
        """What the writes of all stores take on disk now."""
        size_bytes = 0
        for parent, _, names in os.walk(self._writes):
            for name in names:
                # RocksDB may be removing a table.
                with suppress(FileNotFoundError):
                    size_bytes += os.stat(os.path.join(parent, name)).st_size
        return size_bytes


_DELETE: Final = b""  # on disk, the value of a deleted key
_PUT: Final = b"\x01"  # on disk, the prefix of a value: an empty value is not a delete
_WRITE_BYTES: Final = 1 << 20  # how much is written at once: RocksDB's write batch holds a copy
_WRITE_ROWS: Final = 4_096  # how many changes are taken over at once, as a dict


class SpillingWriteSet(WriteSet):
    """A WriteSet over `committed` that spills to `space` when the writes of the batch hold more than they may."""

    def __init__(self, committed: ByteStore, space: SpillSpace) -> None:
        super().__init__(committed)
        self._space = space
        self._pending = space.pending
        self._spilled: SpilledWrites | None = None
        space.reserve(self.name)
        space.pending.add(self)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it. Raises LocalDiskFullError, and again the error of a spill."""
        # All of WriteSet.put with the count in it: every write of every batch goes through here.
        if self._closed:
            raise StoreClosedError(self.name)
        pending = self._pending
        held: bytes | Deleted
        if value is None:
            held = self._delete()
            pending.written_bytes += len(key) + _held_bytes(held) + ENTRY_BYTES
        else:
            held = value
            pending.written_bytes += len(key) + len(held) + ENTRY_BYTES
        if self._order.is_kept:
            self._order.expect(key)
        self.changes.pop(key, None)
        self.changes[key] = held
        if pending.written_bytes > pending.limit_bytes:
            pending.relieve()

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key. Raises what `put` raises."""
        if self._closed:
            raise StoreClosedError(self.name)
        pending = self._pending
        written: dict[bytes, bytes | Deleted | None]
        for written in _parts(changes):
            if self._order.is_kept:
                self._order.expect(*written)
            size = sum(map(len, written)) + sum(map(len, filter(None, written.values()))) + ENTRY_BYTES * len(written)
            if None in written.values():
                deletes = [key for key, value in written.items() if value is None]
                deleted = self._delete()
                written.update(dict.fromkeys(deletes, deleted))
                size += len(deletes) * _held_bytes(deleted)
            hold_last(self.changes, cast("dict[bytes, bytes | Deleted]", written))  # None is gone
            pending.written_bytes += size
            if pending.written_bytes > pending.limit_bytes:
                pending.relieve()

    def held_bytes(self) -> int:
        """Return about how much memory its writes and their changelog take."""
        sizes = sum(len(key) + _held_bytes(value) for key, value in self.changes.items())
        return sizes + ENTRY_BYTES * len(self.changes)

    def spill(self) -> None:
        """Bring to disk what is in memory."""
        if not super().is_changed:
            return
        if self._spilled is None:
            self._spilled = SpilledWrites(self.inner, self._space.store(self.name))
            self.inner = self._spilled
        super().apply_to(self._spilled)
        super().clear()

    def beside(self, name: str) -> SpillingWriteSet:
        """Return an empty write set over nothing, which spills as this one does; before the first spill."""
        return SpillingWriteSet(MemoryByteStore(name), self._space)

    def pending_puts(self) -> Iterator[Pair]:
        """Yield the keys that have a pending value, in no order, some of them twice."""
        spilled = () if self._spilled is None else self._spilled.pending_puts()
        return chain(spilled, super().pending_puts())

    @property
    def is_changed(self) -> bool:
        """Whether any changes are pending."""
        return super().is_changed or (self._spilled is not None and self._spilled.is_changed)

    def apply_to(self, store: ByteStore) -> None:
        """Make in `store` the changes that are pending here; they stay pending."""
        if self._spilled is not None:
            self._spilled.apply_to(store)
        super().apply_to(store)

    def clear(self) -> None:
        """Forget the changes that are pending: what is committed shows again."""
        if self._spilled is not None:
            self._spilled.clear()
        super().clear()

    def close(self) -> None:
        """Close the store and its iterators; the committed store is its owner's to close."""
        super().close()
        if self._spilled is not None:
            self._spilled.close()


class SpilledWrites(ScannedStore):
    """A ByteStore whose writes stay in `disk`, which is empty at first, over `inner`, which is never written to."""

    def __init__(self, inner: ByteStore, disk: RocksDBByteStore) -> None:
        super().__init__(inner.name)
        self.inner = inner
        self._disk = disk
        self._deletes = 0
        self._floor = b""  # keys of `inner` below it count as deleted

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return self._disk.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        tagged = self._disk.get(key)
        if tagged is None:
            return self.inner.get(key) if key >= self._floor else None
        return tagged[1:] if tagged else None

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key; about a megabyte of them at once."""
        chunk: list[Change] = []
        size = 0
        for key, value in changes:
            tagged = _DELETE if value is None else _PUT + value
            chunk.append((key, tagged))
            size += len(key) + len(tagged)
            self._deletes += value is None
            if size > _WRITE_BYTES:
                self._disk.write(chunk)
                chunk, size = [], 0
        self._disk.write(chunk)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self._disk.delete_below(end)
        self._floor = max(self._floor, end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        written = _strip_tags(self._disk.range(start, end, reverse=reverse))
        inner_start = max(start or b"", self._floor) if self._floor else start
        return self._hand_out(merge_pairs(written, self.inner.range(inner_start, end, reverse=reverse), reverse))

    def pending_puts(self) -> Iterator[Pair]:
        """Yield the keys that have a pending value, in order."""
        pairs = _strip_tags(self._disk.range(None, None))
        return ((key, value) for key, value in pairs if isinstance(value, bytes))

    @property
    def is_changed(self) -> bool:
        """Whether any changes are pending."""
        return bool(self._floor) or next(self._disk.range(None, None), None) is not None

    def apply_to(self, store: ByteStore) -> None:
        """Make in `store` the changes that are pending here, one after the other; they stay pending."""
        if self._floor:
            store.delete_below(self._floor)
        for key, value in _strip_tags(self._disk.range(None, None)):
            store.put(key, None if isinstance(value, Deleted) else value)

    def clear(self) -> None:
        """Forget the changes that are pending."""
        last = next(self._disk.range(None, None, reverse=True), None)
        if last is not None:
            self._disk.delete_below(last[0] + b"\0")
        self._floor = b""
        self._deletes = 0

    def approximate_num_entries(self) -> int:
        """Return the estimate of `inner` plus the puts less the deletes, at least 0."""
        written = self._disk.approximate_num_entries()
        return max(0, self.inner.approximate_num_entries() + written - 2 * self._deletes)

    def approximate_size_bytes(self) -> int:
        """Return how much room `inner` takes."""
        self._require_open()
        return self.inner.approximate_size_bytes()

    def close(self) -> None:
        """Close the store and its iterators, but not `inner`."""
        super().close()
        self._disk.abandon()  # without the flush of a close, which may fail: nobody reads it again


def _parts(changes: Iterable[Change]) -> Iterator[dict[bytes, Any]]:
    """Yield the last change of each key, some at a time; of what is not in memory yet, no more than fits there."""
    if not isinstance(changes, Collection):
        yield from map(last_writes, chunks(changes, max_bytes=_WRITE_BYTES))
        return
    left = iter(changes)
    are_distinct = isinstance(changes, ItemsView)
    while part := dict(islice(left, _WRITE_ROWS)) if are_distinct else last_writes(list(islice(left, _WRITE_ROWS))):
        yield part


def _held_bytes(value: bytes | Deleted) -> int:
    return DELETED_BYTES + len(value.header_bytes) if isinstance(value, Deleted) else len(value)


def _strip_tags(pairs: Iterator[Pair]) -> Iterator[tuple[bytes, bytes | Deleted]]:
    return ((key, tagged[1:] if tagged else DELETED) for key, tagged in pairs)
