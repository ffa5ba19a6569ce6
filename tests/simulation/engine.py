"""A database that dies as RocksDB does without a write-ahead log, and takes a hundredth of its time.

    CURRENT            names the manifest
    MANIFEST-NNNNNN    JSON: families, with their tables, oldest first
    NNNNNN.sst         what one flush of one family wrote: a checksum, then the changes in order

What was written since a family's last flush is lost when the process dies. Families are flushed one after the other:
when the database is closed, before a checkpoint, and whenever the memory is said to be full. A flush is on the disk
when it is through. Tables never change; a checkpoint shares them as hard links.
"""

from __future__ import annotations

import errno
import json
import marshal
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import GEN_CLOSED, getgeneratorstate
from pathlib import Path
from typing import Any

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.protocol import Change, Pair
from statestore.errors.state import (
    LocalDiskFullError,
    LocalStateCorruptedError,
    LocalStateLockedError,
    StoreClosedError,
)
from tests.simulation.decisions import DB_CHECKPOINT, DB_CLOSE, DB_OPEN, DB_WRITE, Effect
from tests.simulation.scheduler import Process, Scheduler

_COMPACTED_AT = 4


class EngineFaults:
    """Lets faults strike at a database of either engine."""

    def __init__(self, scheduler: Scheduler, path: str) -> None:
        self.scheduler = scheduler
        self.path = path

    def at(self, point: str, effects: tuple[Effect, ...], what: str = "") -> Effect | None:
        """Be at an operation; return what the caller is to do."""
        scheduler = self.scheduler
        effect = scheduler.op(point, what or "/".join(self.path.split("/")[-3:]), effects)
        if effect is Effect.CORRUPT:
            text = scheduler.fault(_current(scheduler), effect, point)
            raise LocalStateCorruptedError("local copy", path=self.path, cause=f"Corruption: {text}")
        if effect is Effect.NO_SPACE:
            text = scheduler.fault(_current(scheduler), effect, point)
            raise LocalDiskFullError("local copy", path=self.path, cause=f"No space left on device: {text}")
        return effect

    def after(self, effect: Effect | None) -> None:
        """Be behind an operation."""
        if effect is Effect.KILL_AFTER:
            self.scheduler.kill(_current(self.scheduler).process)

    def close(self, flush: Callable[[], None], forget: Callable[[], None]) -> None:
        """Close a database: `flush` what is in memory, and `forget` the rest, whatever strikes before."""
        try:
            flush()
            self.after(self.at("db.close", DB_CLOSE))
        finally:
            forget()
        # Before the next that its owner does.
        self.after(self.at("db.closed", (Effect.KILL,)))


def _current(scheduler: Scheduler) -> Any:
    assert scheduler.current is not None
    return scheduler.current


class SimulatedFamily(MemoryByteStore):
    """One family: what is in tables and what was written since, together."""

    def __init__(self, database: SimulatedDatabase, name: str) -> None:
        super().__init__(name)
        self._database = database
        self._family_name = name
        self.unflushed: list[Change | bytes] = []

    @property
    def is_scanned(self) -> bool:
        """Whether one of its scans has not ended."""
        return any(getgeneratorstate(scan) != GEN_CLOSED for scan in self._scans)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.write([(key, value)])

    def write(self, changes: Iterable[Change]) -> None:
        effect = self._database.faults.at("db.write", DB_WRITE, self._family_name)
        for key, value in changes:
            self._set(key, value)
        if effect is Effect.FLUSH:
            self._database.flush_largest()

    def delete_below(self, end: bytes) -> None:
        effect = self._database.faults.at("db.write", DB_WRITE, self._family_name)
        super().delete_below(end)
        self.unflushed.append(end)
        if effect is Effect.FLUSH:
            self._database.flush_largest()

    def replay(self, changes: list[Change | bytes]) -> None:
        """Take in what a table holds."""
        for change in changes:
            if isinstance(change, bytes):
                super().delete_below(change)
            else:
                super().put(*change)

    def _set(self, key: bytes, value: bytes | None) -> None:
        super().put(key, value)
        self.unflushed.append((key, value))

    def flush(self) -> None:
        self._database.flush_family(self._family_name)

    def pairs(self) -> list[Pair]:
        """Return all that is there."""
        return sorted(self._pairs.items())

    def abandon(self) -> None:
        super().close()


class SimulatedDatabase(RocksDBDatabase):
    """An open database."""

    def __init__(self, scheduler: Scheduler, process: Process, path: str, families: Sequence[str]) -> None:
        # Not RocksDB's own: there is no RocksDB in this one.
        self.path = path
        self.faults = EngineFaults(scheduler, path)
        self._process = process
        self._open_here: dict[str, Process] = process.machine.open_databases
        holder = self._open_here.get(path)
        if holder is not None and not holder.dead:
            raise LocalStateLockedError(path, path=path)
        self.faults.at("db.open", DB_OPEN)
        with scheduler.silence():
            manifest = _read_manifest(path)
            self._tables: dict[str, list[str]] = manifest["families"]
            self._next: int = manifest["next"]
            self._manifest_name: str = manifest["name"]
            self.found = tuple(sorted(self._tables)) if manifest["exists"] else ()
            for name in ("default", *families):
                self._tables.setdefault(name, [])
            self._stores: dict[str, SimulatedFamily] = {}  # type: ignore[assignment]
            for name, tables in self._tables.items():
                family = self._stores[name] = SimulatedFamily(self, name)
                for table in tables:
                    family.replay(read_table(Path(path, table)))
            self._write_manifest()
        self._open_here[path] = process
        self._is_open = True

    def write(self, changes: Mapping[str, Iterable[Change]]) -> None:
        for name, pairs in changes.items():
            self._stores[name].write(pairs)

    def delete_below(self, families: Sequence[str], end: bytes) -> None:
        for name in families:
            self._stores[name].delete_below(end)

    def drop_family(self, name: str) -> None:
        self._require_open()
        self._stores.pop(name)
        self._tables.pop(name)
        with self.faults.scheduler.silence():
            self._write_manifest()

    def flush(self) -> None:
        self._require_open()
        for name in sorted(self._stores):
            if self._stores[name].unflushed:
                self.flush_family(name)

    def flush_largest(self) -> None:
        """Flush the family that has most to flush, as RocksDB does when its memory is full."""
        name = max(sorted(self._stores), key=lambda name: len(self._stores[name].unflushed))
        self._write_table(name)

    def flush_family(self, name: str) -> None:
        effect = self.faults.at("db.flush", DB_CLOSE, name)
        self._write_table(name)
        self.faults.after(effect)

    def checkpoint(self, path: str) -> None:
        self._require_open()
        effect = self.faults.at("db.checkpoint", DB_CHECKPOINT)
        self.flush()
        with self.faults.scheduler.silence():
            os.mkdir(path)
            for name in sorted({"CURRENT", self._manifest_name, *(t for ts in self._tables.values() for t in ts)}):
                if name.endswith(".sst"):
                    os.link(Path(self.path, name), Path(path, name))
                else:
                    Path(path, name).write_bytes(Path(self.path, name).read_bytes())
        self.faults.after(effect)

    def close(self, *, compacted: bool = False) -> None:
        # A table that is written is compacted at once here.
        if not self._is_open:
            return
        if self._process.dead:
            return
        self.faults.close(self.flush, self._forget)

    def _forget(self) -> None:
        self._is_open = False
        self._open_here.pop(self.path, None)
        for family in self._stores.values():
            family.abandon()

    def ingest(self, family: str, table: str) -> None:
        raise NotImplementedError("nothing is ingested here")

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosedError(self.path)

    def _write_table(self, name: str) -> None:
        family = self._stores[name]
        if not family.unflushed:
            return
        with self.faults.scheduler.silence():
            before = self._tables[name]
            if len(before) + 1 >= _COMPACTED_AT:
                self._tables[name], content = [], list(family.pairs())
            else:
                content = family.unflushed
            table = f"{self._next:06d}.sst"
            self._next += 1
            write_table(Path(self.path, table), content)
            self._tables[name] = [*self._tables[name], table]
            self._write_manifest()
            family.unflushed = []
            for old in before:
                if old not in self._tables[name]:
                    os.remove(Path(self.path, old))

    def _write_manifest(self) -> None:
        old, self._manifest_name = self._manifest_name, f"MANIFEST-{self._next:06d}"
        self._next += 1
        content = json.dumps({"families": self._tables, "next": self._next})
        Path(self.path, self._manifest_name).write_text(content)
        Path(self.path, "CURRENT").write_text(self._manifest_name)
        if old:
            os.remove(Path(self.path, old))


def _read_manifest(path: str) -> dict[str, Any]:
    try:
        current = Path(path, "CURRENT").read_text()
    except FileNotFoundError:
        return {"families": {}, "next": 1, "exists": False, "name": ""}
    try:
        return {**json.loads(Path(path, current).read_text()), "exists": True, "name": current}
    except (OSError, ValueError, TypeError) as damage:
        raise LocalStateCorruptedError(path, path=path, cause=f"Corruption: {damage!r}") from damage


def families_of(path: str) -> tuple[str, ...]:
    """Return the families of the database at `path`, none if there is no database."""
    return tuple(sorted(_read_manifest(path)["families"]))


def write_table(path: Path, changes: Sequence[Any]) -> None:
    """Write a table."""
    data = marshal.dumps(list(changes), 2)
    path.write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)


def read_table(path: Path) -> list[Any]:
    """Return the changes of a table. Raises LocalStateCorruptedError."""
    try:
        data = path.read_bytes()
        if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise ValueError("its checksum is wrong")
        changes: list[Any] = marshal.loads(data[4:])
        return changes
    except (OSError, ValueError, EOFError, TypeError) as damage:
        if isinstance(damage, OSError) and damage.errno not in (errno.ENOENT, None):
            raise
        raise LocalStateCorruptedError(str(path), path=str(path), cause=f"Corruption: {damage!r}") from damage


def unreadable(tables: Iterable[Path]) -> list[str]:
    """Return the names of the tables that can't be read."""
    return [path.name for path in tables if not _is_readable(path)]


def _is_readable(path: Path) -> bool:
    try:
        read_table(path)
    except LocalStateCorruptedError:
        return False
    return True


def scan(family: Any) -> Iterator[Pair]:
    """Yield what is in a family."""
    yield from family.range(None, None)
