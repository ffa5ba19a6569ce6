"""The one place where what the seed must decide is taken from the world: names, times, and what a process keeps.

Inside, all of it belongs to the actor that runs. Operations on local files are seen through Python's audit events:
opening for writing, renaming, removing and making directories are operations of the simulation, and have no effect
once the process is dead.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import sys
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Any, ClassVar
from unittest.mock import patch

from statestore.recovery.commit.delta import Delta, changelog_records
from statestore.recovery.local import local_copy
from statestore.recovery.location.durable_json import digest
from statestore.recovery.making import logical_writes
from statestore.recovery.metadata import agreement
from statestore.recovery.restore import restore
from statestore.recovery.snapshots import step as snapshot_step
from statestore.recovery.snapshots import upload as snapshot_upload
from statestore.spark.shards import shard_call
from statestore.view import state_view
from tests.simulation.decisions import LOCAL_FILE, Effect
from tests.simulation.machines import SimulatedLocalDirectory
from tests.simulation.scheduler import Killed, Process, Scheduler

_WRITES = os.O_WRONLY | os.O_RDWR
_CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"})


class _World:
    """The simulation that is going on."""

    scheduler: Scheduler | None = None
    seed = 0
    root = ""
    power_off: Any = None
    hooked = False
    processes: ClassVar[list[Process]] = []
    """Those that had to say their number."""


class _OfProcess:
    """A dict of a module, one for each simulated process."""

    def __init__(self, name: str, make: Any) -> None:
        self._name = name
        self._make = make

    def _held(self) -> Any:
        scheduler = _World.scheduler
        assert scheduler is not None
        assert scheduler.current is not None
        return scheduler.current.process.memory.setdefault(self._name, self._make())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._held()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._held()[key] = value

    def __contains__(self, key: Any) -> bool:
        return key in self._held()

    def __len__(self) -> int:
        return len(self._held())


class _ReadDelta(Delta):
    """A delta of which all is decoded when it is first read: restores read the same bytes again and again."""

    known: ClassVar[dict[str, _ReadDelta]] = {}

    def __init__(self, source: Any, where: str) -> None:
        super().__init__(source, where)
        self._read = list(super().batches())
        self._changes: dict[Any, Any] = {}

    def batches(self) -> Any:
        return iter(self._read)

    def changes(self, spec: Any, batch: Any) -> Any:
        key = spec, id(batch)
        if key not in self._changes:
            self._changes[key] = list(super().changes(spec, batch))
        return iter(self._changes[key])


def _delta(source: Any, where: str) -> Delta:
    key = digest(source)
    if key not in _ReadDelta.known:
        _ReadDelta.known[key] = _ReadDelta(source, where)
    return _ReadDelta.known[key]


def _changelog_records(batch: Any) -> Any:
    known = _records.get(id(batch))
    if known is None:
        known = _records[id(batch)] = changelog_records(batch)
    return known


_records: dict[int, Any] = {}


def unique() -> bytes:
    """Return 16 bytes that are drawn once for the actor that runs."""
    scheduler = _World.scheduler
    assert scheduler is not None
    actor = scheduler.current
    if actor is None:
        return random.Random(_World.seed).randbytes(16)
    drawn = actor.drawn = getattr(actor, "drawn", 0) + 1
    return blake2b(f"{_World.seed} {actor.name} {drawn}".encode(), digest_size=16).digest()


_real_sleep = time.sleep


def _sleep(seconds: float) -> None:
    scheduler = _World.scheduler
    assert scheduler is not None
    if scheduler.current is None or scheduler.current.thread is not threading.current_thread():
        _real_sleep(seconds)  # a thread that was there before, such as one of an earlier test's Spark
        return
    scheduler.now_ns += int(seconds * 1e9)
    scheduler.op("sleep")


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * int.from_bytes(unique()[:4], "big") / 2**32


def _fsync(descriptor: int) -> None:
    scheduler = _World.scheduler
    if scheduler is not None and scheduler.current is not None and scheduler.current.process.machine is not None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(_World.root) and os.path.isfile(path):
            _local_operation(scheduler, "local.sync", path)
            scheduler.current.process.machine.unsynced.synced(path)


def _list_families(path: str) -> tuple[str, ...]:
    scheduler = _World.scheduler
    assert scheduler is not None
    assert scheduler.current is not None
    found: tuple[str, ...] = scheduler.current.process.machine.list_families(path)
    return found


def _current() -> Process:
    scheduler = _World.scheduler
    assert scheduler is not None
    assert scheduler.current is not None
    return scheduler.current.process


class _ProcessNumbers:
    """What stands for the parts of `os` that tell processes."""

    def getpid(self) -> int:
        process = _current()
        if process not in _World.processes:
            _World.processes.append(process)
        return 1 + _World.processes.index(process)

    def kill(self, pid: int, signal: int) -> None:
        if _named(pid) is None:
            raise ProcessLookupError(pid)


class _TurnTime:
    """What stands for `time` where a turn is waited for: others go on meanwhile."""

    gmtime = staticmethod(time.gmtime)
    strftime = staticmethod(time.strftime)

    def time_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        scheduler = _World.scheduler
        assert scheduler is not None
        scheduler.now_ns += int(seconds * 1e9)
        scheduler.op("sleep")
        scheduler.rest(1 + int(seconds * 20))


def _named(pid: int) -> Process | None:
    """Return the process of a number on the machine of who asks, None if there is none any more."""
    process = _World.processes[pid - 1] if pid <= len(_World.processes) else None
    return None if process is None or process.dead or process.machine is not _current().machine else process


def _machine() -> str:
    machine = _current().machine
    return f"{machine.name}-{machine.boots}"


def _process_name(pid: int) -> str | None:
    return None if _named(pid) is None else f"{_machine()}/{pid}"


def _local_directory(path: str, memory: object = None) -> SimulatedLocalDirectory:
    scheduler = _World.scheduler
    assert scheduler is not None
    return SimulatedLocalDirectory(scheduler, _current(), path)


@contextmanager
def _temporary_directory(prefix: str, dir: str) -> Iterator[str]:
    path = f"{dir}/{prefix}{unique().hex()}"
    process = _current()
    os.makedirs(path)
    try:
        yield path
    finally:
        if not process.dead:
            shutil.rmtree(path)


@contextmanager
def substituted(scheduler: Scheduler, seed: int, root: str, power_off: Any) -> Iterator[None]:
    """Have all of it decided by the simulation, until the end of the block."""
    if not _World.hooked:
        _World.hooked = True
        sys.addaudithook(_audit)
    _World.scheduler, _World.seed, _World.root, _World.power_off = scheduler, seed, root, power_off
    with ExitStack() as patched:
        for module, name, substitute in (
            (uuid, "uuid4", lambda: uuid.UUID(bytes=unique(), version=4)),
            (time, "sleep", _sleep),
            (time, "monotonic", lambda: scheduler.now_ns / 1e9),
            (time, "time_ns", lambda: scheduler.now_ns),
            (random, "uniform", _uniform),
            (socket, "gethostname", lambda: "simulated"),
            (os, "fsync", _fsync),
            (snapshot_upload, "_running", _OfProcess("running", dict)),
            (snapshot_step, "_collected_up_to", _OfProcess("collected", dict)),
            (local_copy, "_images", _OfProcess("images", OrderedDict)),
            (local_copy, "list_families", _list_families),
            (agreement, "os", _ProcessNumbers()),
            (agreement, "time", _TurnTime()),
            (agreement, "_machine", _machine),
            (agreement, "_process", _process_name),
            (logical_writes, "LocalDirectory", _local_directory),
            (state_view, "LocalDirectory", _local_directory),
            (logical_writes, "TemporaryDirectory", _temporary_directory),
            (shard_call, "_claimed", _OfProcess("claimed", set)),
            (restore, "Delta", _delta),
            (restore, "changelog_records", _changelog_records),
        ):
            patched.enter_context(patch.object(module, name, substitute))
        try:
            yield
        finally:
            _World.scheduler = None
            _World.processes.clear()
            _ReadDelta.known.clear()
            _records.clear()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    scheduler = _World.scheduler
    if scheduler is None or scheduler.current is None or scheduler.quiet:
        return
    if event == "open":
        path, mode, flags = arguments
        if not isinstance(path, str) or not path.startswith(_World.root) or not (flags or 0) & _WRITES:
            return
        if mode is not None and "a" in mode and path.endswith(".lock"):
            if scheduler.current.process.dead:
                raise Killed
            return
        scheduler.current.process.machine.unsynced.opened(path)
        _local_operation(scheduler, "local.open", path)
    elif event in _CHANGES:
        path = os.fspath(arguments[0])
        if not isinstance(path, str):
            return
        if not path.startswith(_World.root):
            # What rmtree removes is relative to a directory that it has open, and has another name by then.
            if not path.startswith("/") and scheduler.current.process.dead:
                raise Killed
            return
        _local_operation(scheduler, event, path)
        if event == "os.rename":
            scheduler.current.process.machine.unsynced.renamed(path, os.fspath(arguments[1]))


def _local_operation(scheduler: Scheduler, point: str, path: str) -> None:
    actor = scheduler.current
    assert actor is not None
    if actor.process.dead:
        raise Killed
    if actor.process.machine is None:
        return
    effect = scheduler.op(f"local.{point.removeprefix('local.')}", "/".join(path.split("/")[-2:]), LOCAL_FILE)
    if effect is Effect.POWER:
        _World.power_off(scheduler.decisions.taken[-1].amount)
    if effect is Effect.NO_SPACE and point == "local.open":
        raise OSError(errno.ENOSPC, f"No space left on device: {scheduler.fault(actor, effect, point)}")
