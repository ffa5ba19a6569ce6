"""RocksDB through rocksdict: a database of several column families, and the byte store over one of them.

Facts that shape this module:
- a live iterator or column family handle keeps the database's lock after `close`, so all of them are tracked and
  dropped first;
- rocksdict's fast iterators end silently where a block is damaged, so the end of every scan is checked;
- options are for a database that is opened for one micro-batch and closed again: no compression, reads through mmap,
  a bloom filter, and no write-ahead log (what is committed lives in the deltas). Families are flushed one after the
  other when the database is closed: after a crash one may hold a write that another one lost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import rocksdict

from statestore.bytestore.protocol import Change, Pair
from statestore.errors import LocalStateCorruptedError, LocalStateLockedError, StoreClosedError, StoreError

_BLOOM_BITS_PER_KEY = 10
# How RocksDB says that files are damaged, cut, gone or of another layout. "No space left", "Too many open files" and
# the like are not among them: to throw the copy away would not help.
_DAMAGE = (
    "Corruption",
    "No such file or directory",
    "larger than file length",
    "Column families not opened",
    "does not exist",
)


def _options() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_allow_mmap_reads(True)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    table = rocksdict.BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    options.set_block_based_table_factory(table)
    return options


def _write_options() -> Any:
    options: Any = rocksdict.WriteOptions()  # its type stub takes the property for a method
    options.disable_wal = True
    return options


@contextmanager
def _engine_errors(store: str, path: str) -> Iterator[None]:
    """Turn rocksdict's errors, which are plain Exceptions told apart by their text, into ours."""
    try:
        yield
    except rocksdict.DbClosedError as cause:
        raise StoreClosedError(store) from cause
    except Exception as cause:
        if type(cause) is not Exception:
            raise
        text = str(cause)
        if "lock hold by current process" in text or "While lock file" in text:
            raise LocalStateLockedError(store, path=path) from cause
        if any(sign in text for sign in _DAMAGE):
            raise LocalStateCorruptedError(store, path=path, cause=text) from cause
        raise StoreError(store, f"RocksDB at {path}: {text}") from cause


class RocksDBDatabase:
    """One RocksDB database, open for reading and writing by this process alone, until `close`.

    Every family named is created if it is missing. Raises LocalStateLockedError, LocalStateCorruptedError, or
    StoreError for what else RocksDB refuses.
    """

    def __init__(self, path: str, families: Sequence[str]) -> None:
        self.path = path
        self._stores: dict[str, RocksDBByteStore] = {}
        self._write_options = _write_options()
        with _engine_errors(path, path):
            self._db: Any = rocksdict.Rdict(path, _options(), column_families={name: _options() for name in families})
            for name in ("default", *families):
                self._stores[name] = RocksDBByteStore(self, name, self._db.get_column_family(name))

    def family(self, name: str, store: str | None = None) -> RocksDBByteStore:
        """Return the byte store over the family `name`, called `store` in errors from now on."""
        family = self._stores[name]
        family.name = store or family.name
        return family

    def write(self, changes: Mapping[str, Iterable[Change]]) -> None:
        """Apply the changes of several families as one atomic write."""
        if self._db is None:
            raise StoreClosedError(self.path)
        with _engine_errors(self.path, self.path):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for name, pairs in changes.items():
                handle = self._db.get_column_family_handle(name)
                put, delete = batch.put, batch.delete
                for key, value in pairs:
                    if value is None:
                        delete(key, handle)
                    else:
                        put(key, value, handle)
            self._db.write(batch, self._write_options)

    def close(self) -> None:
        """Flush what was written, close every store and iterator, and release the lock. Twice is harmless."""
        db, self._db = self._db, None
        if db is None:
            return
        with _engine_errors(self.path, self.path):
            try:
                for store in self._stores.values():
                    store.close()
            finally:
                db.close()


class RocksDBByteStore:
    """A ByteStore over one column family of a RocksDBDatabase."""

    def __init__(self, database: RocksDBDatabase, name: str, family: Any) -> None:
        self.name = name
        self._path = database.path
        self._family: Any = family
        self._family_name = name
        self._write: Callable[[Mapping[str, Iterable[Change]]], None] = database.write
        # Each scan with the RocksDB iterator that it has yet to take: closing a generator that never ran does not make
        # it let go of its arguments.
        self._scans: weakref.WeakKeyDictionary[Generator[Pair, None, None], list[Iterator[Pair]]]
        self._scans = weakref.WeakKeyDictionary()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        try:
            value: bytes | None = self._family.get(key)
        except Exception:
            # The slow path asks again inside the translation of errors; a context manager on each get would cost as
            # much as the get.
            self._require_open()
            with _engine_errors(self.name, self._path):
                value = self._family.get(key)
        return value

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        self.write([(key, value)])

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order as one atomic write, a value of None deleting its key."""
        self._require_open()
        self._write({self._family_name: changes})

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        self._require_open()
        first, last = (end, start) if reverse else (start, end)
        with _engine_errors(self.name, self._path):
            # Made here, not in the generator: RocksDB's iterator is the snapshot.
            held = [self._family.items(backwards=reverse, from_key=first)]
        scan = self._scan(held, last, reverse)
        self._scans[scan] = held
        return scan

    def _scan(self, held: list[Iterator[Pair]], last: bytes | None, reverse: bool) -> Generator[Pair, None, None]:
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
        self._check_exhausted(pair, reverse)

    def _check_exhausted(self, pair: Pair | None, reverse: bool) -> None:
        """Raise LocalStateCorruptedError if a scan that ended after `pair` ended at a damaged block."""
        with _engine_errors(self.name, self._path):
            cursor = self._family.iter()
            if pair is None:
                _ = cursor.seek_to_last() if reverse else cursor.seek_to_first()
            elif reverse:
                cursor.seek_for_prev(pair[0])
                cursor.prev()
            else:
                cursor.seek(pair[0])
                cursor.next()
            cursor.status()

    def approximate_num_entries(self) -> int:
        """Return RocksDB's estimate of the number of keys."""
        self._require_open()
        with _engine_errors(self.name, self._path):
            return int(self._family.property_int_value("rocksdb.estimate-num-keys") or 0)

    def close(self) -> None:
        """Close the store and its iterators; the database itself stays open."""
        family, self._family = self._family, None
        if family is None:
            return
        for scan, held in list(self._scans.items()):
            held.clear()
            scan.close()
        with _engine_errors(self.name, self._path):
            family.close()

    def _require_open(self) -> None:
        if self._family is None:
            raise StoreClosedError(self.name)
