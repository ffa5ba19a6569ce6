"""RocksDB through rocksdict: a database of several column families, and the byte store over one of them.

Facts that shape this module:
- a live iterator or column family handle keeps the database's lock after `close`, so all of them are tracked and
  dropped first;
- rocksdict's fast iterators end silently where a block is damaged, so the end of every scan is checked;
- a write that waits for a flush hangs the whole process if the flush fails for want of space. So writes do not wait;
  one that would is repeated after an explicit flush, which raises what is wrong;
- a shard's copy is opened without a write-ahead log (what is committed is in the deltas): families are flushed one
  after the other when it is closed, so after a crash one may hold a write that another one lost;
- a close aborts the compactions that are under way. A database that is opened and closed again and again must wait for
  them first, or none ever ends.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, Final

import rocksdict

from statestore.bytestore.engines.memory_budget import DatabaseMemory
from statestore.bytestore.engines.rocksdb_options import database_options, engine_errors, write_options
from statestore.bytestore.protocol import Change, Pair, Range
from statestore.errors.state import StoreClosedError

_LOG = logging.getLogger(__name__)

DEFAULT_FAMILY: Final = "default"  # the column family that every database of RocksDB has

_COMPACTION_POLL_S = 0.001
_COMPACTION_START_S = 0.01
"""How long a compaction that is due may take to begin. RocksDB begins none if no runs are of like size after all, or if
it is short of space."""
_STALLED = "Write stall"  # how RocksDB refuses a write that would have to wait


def list_families(path: str) -> tuple[str, ...]:
    """Return the database's column families, in order; none if there is none. Raises LocalStateCorruptedError."""
    if not os.path.exists(os.path.join(path, "CURRENT")):
        return ()
    with engine_errors(path, path):
        return tuple(sorted(rocksdict.Rdict.list_cf(path, database_options())))


class RocksDBDatabase:
    """One RocksDB database, open for reading and writing by this process alone, until `close`.

    Opens every family that is there and creates those of `families` that are missing. With a write-ahead log, a write
    survives the death of the process, and one to several families does so as a whole. `memory` of None is RocksDB's
    default: 64 MiB of write buffers and 32 MiB of cache for each family. If it is not `compacting`, the tables stay as
    they are. Raises LocalStateLockedError, LocalStateCorruptedError, LocalDiskFullError, and otherwise StoreError.
    """

    def __init__(
        self,
        path: str,
        families: Sequence[str],
        *,
        write_ahead_log: bool = False,
        memory: DatabaseMemory | None = None,
        compacting: bool = True,
    ) -> None:
        self.path = path
        self._stores: dict[str, RocksDBByteStore] = {}
        self._dropped: list[RocksDBByteStore] = []
        self.write_options = write_options(write_ahead_log, waits=False)
        self._waiting_write_options = write_options(write_ahead_log, waits=True)
        self.found = list_families(path)  # the families that were there before it was opened
        names = sorted({DEFAULT_FAMILY, *self.found, *families})
        cache = None if memory is None else rocksdict.Cache(memory.block_cache_bytes)
        with engine_errors(path, path):
            options = {name: database_options(memory, cache, compacting=compacting) for name in names}
            own = database_options(memory, cache, compacting=compacting)
            self._db: Any = rocksdict.Rdict(path, own, column_families=options)
            for name in names:
                self._stores[name] = RocksDBByteStore(self, name, self._db.get_column_family(name))

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the column families, in order."""
        return tuple(sorted(self._stores))

    def family(self, name: str, store: str | None = None) -> RocksDBByteStore:
        """Return the byte store over the family `name`, called `store` in errors from now on."""
        family = self._stores[name]
        family.name = store or family.name
        return family

    def write(self, changes: Mapping[str, Iterable[Change]]) -> None:
        """Apply the changes of several families as one atomic write."""
        self._require_open()
        held = {name: list(pairs) for name, pairs in changes.items()}  # it may take two batches to write them

        def fill(batch: rocksdict.WriteBatch) -> None:
            for name, pairs in held.items():
                batch.set_default_column_family(self._db.get_column_family_handle(name))
                put, delete = batch.put, batch.delete
                for key, value in pairs:
                    if value is None:
                        delete(key)
                    else:
                        put(key, value)

        self._write_batch(held, fill)

    def delete_below(self, families: Sequence[str], end: bytes) -> None:
        """Delete every key below `end` in several families, as one atomic write."""
        self._require_open()

        def fill(batch: rocksdict.WriteBatch) -> None:
            for name in families:
                batch.delete_range(b"", end, self._db.get_column_family_handle(name))

        self._write_batch(families, fill)

    def _write_batch(self, families: Iterable[str], fill: Callable[[rocksdict.WriteBatch], None]) -> None:
        try:
            self._write_filled(fill, self.write_options)
        except Exception:
            # Repeated inside the translation of errors, which costs as much as a small write.
            with engine_errors(self.path, self.path):
                try:
                    self._write_filled(fill, self.write_options)
                    return
                except Exception as stall:
                    if _STALLED not in str(stall):
                        raise
                for name in families:
                    self._stores[name].flush()
                self._write_filled(fill, self._waiting_write_options)

    def _write_filled(self, fill: Callable[[rocksdict.WriteBatch], None], options: Any) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        fill(batch)
        self._db.write(batch, options)

    def drop_family(self, name: str) -> None:
        """Drop a column family with all that is in it. Not `default`: RocksDB keeps that one."""
        self._require_open()
        with engine_errors(self.path, self.path):
            self._db.drop_column_family(name)
        # Its scans go on, on files that RocksDB keeps for them.
        self._dropped.append(self._stores.pop(name))

    def flush(self) -> None:
        """Write what is in memory to files, one family after the other."""
        for store in self._stores.values():
            store.flush()

    def ingest(self, family: str, table: str) -> None:
        """Add the table file `table` to a family, as its newest entries; the file is moved."""
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        self._stores[family].ingest(table, options)

    @property
    def is_scanned(self) -> bool:
        """Whether a scan of one of its stores has not ended: to close the database would cut it short."""
        return any(store.is_scanned for store in self._stores.values())

    def checkpoint(self, path: str) -> None:
        """Make `path`, which must not exist, a database with all that was written; tables are links if they can be."""
        self._require_open()
        with engine_errors(self.path, self.path):
            rocksdict.Checkpoint(self._db).create_checkpoint(path)

    def close(self, *, compacted: bool = False) -> None:
        """Flush what was written, close every store and iterator, and release the lock. Twice is harmless.

        `compacted` waits first until RocksDB has merged the tables that are due: some seconds for each gigabyte.
        """
        if self._db is None:
            return
        with engine_errors(self.path, self.path):
            try:
                if compacted:
                    self.flush()
                    self._wait_for_compactions()
            finally:
                self._close()

    def _require_open(self) -> None:
        if self._db is None:
            raise StoreClosedError(self.path)

    def _close(self) -> None:
        db, self._db = self._db, None
        try:
            for store in self._stores.values():
                store.close()
            for dropped in self._dropped:
                dropped.abandon()
        finally:
            db.close()

    def _wait_for_compactions(self) -> None:
        last_seen = began = time.monotonic()
        running = partial(self._db.property_int_value, "rocksdb.num-running-compactions")
        while (is_running := running()) or any(store.has_compaction_due() for store in self._stores.values()):
            now = time.monotonic()
            if is_running:
                last_seen = now
            elif now - last_seen > _COMPACTION_START_S:
                break
            time.sleep(_COMPACTION_POLL_S)
        took_s = time.monotonic() - began
        if took_s > 1:
            _LOG.info("waited %.1f s for the compaction of %s", took_s, self.path)


class RocksDBByteStore:
    """A ByteStore over one column family of a RocksDBDatabase."""

    def __init__(self, database: RocksDBDatabase, name: str, family: Any) -> None:
        self.name = name
        self._database = database
        self._path = database.path
        self._write_options = database.write_options
        self._family: Any = family
        self._family_name = name
        # Each scan with the RocksDB iterator that it has yet to take: a generator that never ran keeps its arguments
        # when it is closed.
        self._scans: weakref.WeakKeyDictionary[Generator[Pair, None, None], list[Iterator[Pair]]]
        self._scans = weakref.WeakKeyDictionary()

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return self._family is not None

    @property
    def is_scanned(self) -> bool:
        """Whether one of its scans has not ended."""
        return any(getgeneratorstate(scan) != GEN_CLOSED for scan in self._scans)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        try:
            value: bytes | None = self._family.get(key)
        except Exception:
            # Asks again inside the translation of errors: a context manager on each get would cost as much as the get.
            self._require_open()
            with engine_errors(self.name, self._path):
                value = self._family.get(key)
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none; one call of RocksDB for all."""
        self._require_open()
        with engine_errors(self.name, self._path):
            found: list[bytes | None] = self._family.get(list(keys))
        return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        try:
            if value is None:
                self._family.delete(key, self._write_options)
            else:
                self._family.put(key, value, self._write_options)
        except Exception:
            # Repeated in the way that translates errors and waits, as in get().
            self._require_open()
            self._database.write({self._family_name: [(key, value)]})

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order as one atomic write, a value of None deleting its key."""
        self._require_open()
        self._database.write({self._family_name: changes})

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`, as one range delete."""
        self._require_open()
        self._database.delete_below([self._family_name], end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        self._require_open()
        first, last = (end, start) if reverse else (start, end)
        # Made here, not in the generator: RocksDB's iterator is the snapshot.
        try:
            held = [self._family.items(backwards=reverse, from_key=first)]
        except Exception:
            with engine_errors(self.name, self._path):  # as in get()
                held = [self._family.items(backwards=reverse, from_key=first)]
        scan = self._scan(held, first, last, reverse)
        self._scans[scan] = held
        return scan

    def _scan(
        self, held: list[Iterator[Pair]], first: bytes | None, last: bytes | None, reverse: bool
    ) -> Generator[Pair, None, None]:
        items = held.pop()
        pair: Pair | None = None
        if last is None:
            for pair in items:
                yield pair
        elif reverse:
            for pair in items:
                if pair[0] < last:
                    return
                yield pair
        else:
            for pair in items:
                if pair[0] > last:
                    return
                yield pair
        self._check_exhausted(first if pair is None else pair[0], pair is not None, reverse)

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order; one iterator of RocksDB for all."""
        self._require_open()
        with engine_errors(self.name, self._path):
            cursor = self._family.iter()
            found: list[list[Pair]] = []
            # The iterator stands at `place`, the first key that is not before `since`; None is the end.
            since: bytes | None = None
            place: bytes | None = None
            for start, end in ranges:
                if since is None or start < since or (place is not None and place < start):
                    cursor.seek(start)
                    since, place = start, _key_of(cursor)
                pairs: list[Pair] = []
                while place is not None and place <= end:
                    pairs.append((place, cursor.value()))
                    since = place + b"\0"
                    cursor.next()
                    place = _key_of(cursor)
                found.append(pairs)
        return found

    def _check_exhausted(self, place: bytes | None, was_found: bool, reverse: bool) -> None:
        """Raise LocalStateCorruptedError if a scan that ended at `place`, or after what was found there, met damage.

        It repeats only the scan's last step: a store whose segments have expired has much that is deleted at its front,
        which a scan for newer entries must not pass.
        """
        try:
            self._step_again(place, was_found, reverse)
        except Exception:
            with engine_errors(self.name, self._path):  # as in get()
                self._step_again(place, was_found, reverse)

    def _step_again(self, place: bytes | None, was_found: bool, reverse: bool) -> None:
        cursor = self._family.iter()
        if place is None:
            _ = cursor.seek_to_last() if reverse else cursor.seek_to_first()
        else:
            _ = cursor.seek_for_prev(place) if reverse else cursor.seek(place)
            # Not valid if the last entries were deleted meanwhile: a step from there crashes the process.
            if was_found and cursor.valid():
                _ = cursor.prev() if reverse else cursor.next()
        cursor.status()

    def approximate_num_entries(self) -> int:
        """Return RocksDB's estimate of the number of keys."""
        return self._numbers("rocksdb.estimate-num-keys")

    def approximate_size_bytes(self) -> int:
        """Return RocksDB's estimate of live data in tables, as they are compressed, and the size of write buffers."""
        return self._numbers("rocksdb.estimate-live-data-size", "rocksdb.cur-size-all-mem-tables")

    def _numbers(self, *properties: str) -> int:
        self._require_open()
        with engine_errors(self.name, self._path):
            return sum(int(self._family.property_int_value(name) or 0) for name in properties)

    def has_compaction_due(self) -> bool:
        """Return whether RocksDB would compact the family by itself."""
        return bool(self._family.property_int_value("rocksdb.compaction-pending"))

    def flush(self) -> None:
        """Write what is in memory to files."""
        self._require_open()
        with engine_errors(self.name, self._path):
            self._family.flush()

    def ingest(self, table: str, options: Any) -> None:
        """Add a table file to the family."""
        self._require_open()
        with engine_errors(self.name, self._path):
            self._family.ingest_external_file([table], options)

    def close(self) -> None:
        """Close the store and its iterators; the database itself stays open."""
        family = self.abandon()
        if family is not None:
            with engine_errors(self.name, self._path):
                family.close()

    def abandon(self) -> Any:
        """Close the store's iterators and let go of its family, without the flush that a dropped family refuses."""
        family, self._family = self._family, None
        for scan, held in list(self._scans.items()):
            held.clear()
            scan.close()
        return family

    def _require_open(self) -> None:
        if self._family is None:
            raise StoreClosedError(self.name)


def _key_of(cursor: Any) -> bytes | None:
    """Return the key that an iterator of RocksDB stands at; None at the end. Raises what rocksdict does for damage."""
    if cursor.valid():
        key: bytes = cursor.key()
        return key
    cursor.status()
    return None
