"""Local copies whose databases fail, fill the disk, report damage and die in the middle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from statestore.bytestore.engines.rocksdb import RocksDBByteStore, RocksDBDatabase
from statestore.bytestore.protocol import Change, Pair, Range
from statestore.errors import StoreError
from statestore.errors.state import LocalDiskFullError, LocalStateCorruptedError
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.testing.faults.fault import Effect, Fault, Point
from statestore.testing.faults.injector import Injector, MakeError


class FaultyLocalDirectory(LocalDirectory):
    """A LocalDirectory whose databases are struck by the faults of a plan. Picklable."""

    def __init__(self, path: str | os.PathLike[str], injector: Injector) -> None:
        super().__init__(path)
        self._injector = injector

    def open_database(self, path: Path, families: Sequence[str]) -> RocksDBDatabase:
        """Open a database, which may fail, now or later."""
        with _struck(self._injector, str(path), str(path), Point.OPEN_DATABASE):
            return FaultyDatabase(super().open_database(path, families), self._injector)


class FaultyDatabase(RocksDBDatabase):
    """An open database, struck by the faults of a plan."""

    def __init__(self, database: RocksDBDatabase, injector: Injector) -> None:
        # The same database, looked at as one of this class: handles, stores and locks are shared, not copied.
        self.__dict__ = database.__dict__
        self._injector = injector

    def family(self, name: str, store: str | None = None) -> RocksDBByteStore:
        """Return the byte store over a family, which may fail."""
        return FaultyByteStore(super().family(name, store), self._injector, self.path)

    def close(self, *, compacted: bool = False) -> None:
        """Close the database. Whatever it reports, it is closed: a lock must not outlive it."""
        if self._db is None:
            return
        try:
            with self._injector.at(Point.CLOSE_DATABASE, self.path, error=_failure(self.path)) as fault:
                super().close(compacted=compacted)
                _raise_for(fault, self._injector, self.path)
        finally:
            super().close()


class FaultyByteStore(RocksDBByteStore):
    """A byte store of an open database, struck by the faults of a plan."""

    def __init__(self, store: RocksDBByteStore, injector: Injector, path: str) -> None:
        self.__dict__ = store.__dict__
        self._struck: Callable[[Point], AbstractContextManager[None]] = partial(_struck, injector, path, self.name)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, unless a fault strikes."""
        with self._struck(Point.READ_DATABASE):
            return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, unless a fault strikes."""
        with self._struck(Point.READ_DATABASE):
            return super().get_many(keys)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs, unless a fault strikes."""
        with self._struck(Point.READ_DATABASE):
            return super().range(start, end, reverse=reverse)

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, unless a fault strikes."""
        with self._struck(Point.READ_DATABASE):
            return super().range_many(ranges)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`, unless a fault strikes."""
        with self._struck(Point.WRITE_DATABASE):
            super().put(key, value)

    def write(self, changes: Iterable[Change]) -> None:
        """Apply changes, unless a fault strikes."""
        with self._struck(Point.WRITE_DATABASE):
            super().write(changes)


def _failure(store: str) -> MakeError:
    """Return what makes the error that RocksDB's own failures become."""
    return lambda text: StoreError(store, f"RocksDB: IO error: {text}")


@contextmanager
def _struck(injector: Injector, path: str, store: str, point: Point) -> Iterator[None]:
    with injector.at(point, path, error=_failure(store)) as fault:
        _raise_for(fault, injector, path)
        yield


def _raise_for(fault: Fault | None, injector: Injector, path: str) -> None:
    if fault is None:
        return
    if fault.effect is Effect.CORRUPT:
        raise LocalStateCorruptedError("local copy", path=path, cause=f"Corruption: {injector.text(fault)}")
    if fault.effect is Effect.NO_SPACE:
        raise LocalDiskFullError("local copy", path=path, cause=f"No space left on device: {injector.text(fault)}")
