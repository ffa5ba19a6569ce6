"""Machines: their processes, their local directories, and the databases in there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from statestore.bytestore.engines.rocksdb import RocksDBByteStore, RocksDBDatabase, list_families
from statestore.bytestore.engines.table_files import unreadable_tables
from statestore.bytestore.protocol import Change
from statestore.recovery.local.local_directory import LocalDirectory
from tests.simulation.decisions import DB_CHECKPOINT, DB_CLOSE, DB_OPEN, DB_WRITE, JOIN, Effect
from tests.simulation.disks import Unsynced
from tests.simulation.engine import EngineFaults, SimulatedDatabase, families_of, unreadable
from tests.simulation.scheduler import Actor, Process, Scheduler


class Machine:
    """A machine that runs tasks, with a local disk."""

    def __init__(self, name: str, path: Path, engine: str) -> None:
        self.name = name
        self.path = path
        self.engine = engine
        self.open_databases: dict[str, Process] = {}
        self.unsynced = Unsynced()
        self.processes: list[Process] = []
        self.boots = 0
        """How often it was switched on again."""
        path.mkdir(parents=True)

    def free_process(self) -> Process:
        """Return a Python worker that has nothing to do; Spark starts another one if there is none."""
        for process in self.processes:
            if not process.dead and process.busy is None:
                return process
        process = Process(f"{self.name}.{len(self.processes)}", self)
        self.processes.append(process)
        return process

    def list_families(self, path: str) -> tuple[str, ...]:
        """Return the families of a database here."""
        return families_of(path) if self.engine == "simulated" else list_families(path)

    def lose_unsynced(self, seed: int) -> None:
        """Forget what was not synced, as far as the seed says. No process of it may be alive."""
        self.boots += 1
        self.unsynced.lose(random.Random(seed))

    def lose_all(self) -> None:
        """Lose the disk. No process of it may be alive."""
        shutil.rmtree(self.path)
        self.path.mkdir()
        self.unsynced.files.clear()


class SimulatedLocalDirectory(LocalDirectory):
    """The local directory of a machine, as one of its processes sees it."""

    def __init__(self, scheduler: Scheduler, process: Process, path: str | None = None) -> None:
        self.machine: Machine = process.machine
        super().__init__(path or self.machine.path)
        self._scheduler = scheduler
        self._process = process
        self._threads = 0

    def open_database(self, path: Path, families: Sequence[str]) -> RocksDBDatabase:
        if self.machine.engine == "simulated":
            return SimulatedDatabase(self._scheduler, self._process, str(path), families)
        faults = EngineFaults(self._scheduler, str(path))
        faults.at("db.open", DB_OPEN)
        with self._scheduler.silence():
            return RealDatabase(super().open_database(path, families), faults, self._process)

    def unreadable_tables(self, tables: Sequence[Path], scratch: Path) -> list[str]:
        with self._scheduler.silence():
            return unreadable(tables) if self.machine.engine == "simulated" else unreadable_tables(tables, scratch)

    def start_thread(self, name: str, run: Callable[[], None]) -> ActorThread:
        self._threads += 1
        actor = self._scheduler.spawn(f"{self._process.name}.upload{self._threads}", self._process, run)
        return ActorThread(self._scheduler, actor)


class ActorThread:
    """An actor, as who started it sees it."""

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        self._scheduler = scheduler
        self._actor = actor

    def join(self, timeout: float | None = None) -> None:
        if self._scheduler.op("thread.join", self._actor.name, JOIN) is not Effect.IMPATIENT:
            self._scheduler.wait(lambda: self._actor.done)

    def is_alive(self) -> bool:
        return not self._actor.done


class RealDatabase(RocksDBDatabase):
    """RocksDB itself, struck by the same faults at the same operations.

    What a killed process leaves is the directory as it was at the kill: closing it, which must be done as its files are
    mapped and its lock is held, would flush.
    """

    def __init__(self, database: RocksDBDatabase, faults: EngineFaults, process: Process) -> None:
        self.__dict__ = database.__dict__
        self.faults = faults
        self._process = process
        process.machine.open_databases[self.path] = process
        process.memory.setdefault("databases", []).append(self)

    def family(self, name: str, store: str | None = None) -> RocksDBByteStore:
        return RealFamily(super().family(name, store), self)

    def drop_family(self, name: str) -> None:
        with self.faults.scheduler.silence():
            super().drop_family(name)

    def flush(self) -> None:
        for name in sorted(self._stores):
            self._flush_family(name)

    def flush_largest(self) -> None:
        with self.faults.scheduler.silence():
            for name in sorted(self._stores)[:2]:
                self._stores[name].flush()

    def checkpoint(self, path: str) -> None:
        effect = self.faults.at("db.checkpoint", DB_CHECKPOINT)
        self.flush()
        with self.faults.scheduler.silence():
            super().checkpoint(path)
        self.faults.after(effect)

    def close(self, *, compacted: bool = False) -> None:
        # Not waited for: simulated processes take turns, and compactions take none.
        if self._db is None or self._process.dead:
            return
        self.faults.close(self.flush, self._close_unless_dead)

    def _close_unless_dead(self) -> None:
        if not self._process.dead:
            self._close_for_good()

    def _close_for_good(self) -> None:
        with self.faults.scheduler.silence():
            super().close()
        self._process.machine.open_databases.pop(self.path, None)

    def die(self) -> None:
        """Close it, and leave the directory as it is."""
        if self._db is None:
            return
        kept = f"{self.path}.kept"
        shutil.copytree(self.path, kept)
        self._close_for_good()
        shutil.rmtree(self.path)
        os.rename(kept, self.path)

    def _flush_family(self, name: str) -> None:
        effect = self.faults.at("db.flush", DB_CLOSE, name)
        with self.faults.scheduler.silence():
            self._stores[name].flush()
        self.faults.after(effect)


class RealFamily(RocksDBByteStore):
    """A family of a RealDatabase."""

    def __init__(self, store: RocksDBByteStore, database: RealDatabase) -> None:
        self.__dict__ = store.__dict__
        self._real = database

    def put(self, key: bytes, value: bytes | None) -> None:
        self._real.faults.at("db.write", DB_WRITE, self._family_name)
        super().put(key, value)

    def write(self, changes: Any) -> None:
        effect = self._real.faults.at("db.write", DB_WRITE, self._family_name)
        held: list[Change] = list(changes)
        super().write(held)
        if effect is Effect.FLUSH:
            self._real.flush_largest()

    def delete_below(self, end: bytes) -> None:
        effect = self._real.faults.at("db.write", DB_WRITE, self._family_name)
        super().delete_below(end)
        if effect is Effect.FLUSH:
            self._real.flush_largest()
