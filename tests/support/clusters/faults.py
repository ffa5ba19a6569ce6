"""What goes wrong on an executor, at a named moment: code that runs in the Python workers of a cluster.

A fault strikes once, in whichever process comes to its moment first. A machine's disk is a directory that only its
executors use, so a shard that moves to another machine finds nothing there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import pyarrow as pa
from pyspark import TaskContext

from orders import RunningTotal, running_total_topology
from statestore import Record, Topology
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_files import Content, LocalDisk
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.clusters.processes import all_processes

DISK_VARIABLE: Final = "CLUSTER_TEST_DISK"
"""Names the disk of a worker's machine; without it, each executor has one of its own, in its working directory."""

PROCESS: Final = "process"
DELTA: Final = "*/deltas/*.arrow*"
SNAPSHOT_FILE: Final = "*/snapshots/*/*.sst*"
SNAPSHOT_MANIFEST: Final = "*/snapshots/*/manifest.json*"

_POLL_INTERVAL_S: Final = 0.02


@dataclass(frozen=True)
class Fault:
    """What is done at a moment of a batch.

    `moment` is PROCESS or a pattern of the names of written files, such as DELTA; `when` is "before", "middle" or
    "after" it. What is known of it stands in `directory`, its own. `action` says what is ended with SIGKILL:

        kill                the whole executor
        kill worker         this Python process of it
        kill feeder         its JVM, so that this process goes on, and sees the stream of its rows end
        kill application    the driver and all executors

    "hold" keeps the task there until it is released.
    """

    directory: str
    moment: str
    when: str = "before"
    action: str = "kill"
    first_batch: int = 1
    """The first batch in which it may strike: there is state to lose before it."""

    def strike(self, moment: str, when: str) -> bool:
        """Do what is to be done, if this is the moment and nobody was here before; return whether it was."""
        if when != self.when or not fnmatch(moment, self.moment) or batch_id() < self.first_batch:
            return False
        try:
            Path(self.directory, "claimed").touch(exist_ok=False)
        except FileExistsError:
            return False
        self._tell("struck.json", {"moment": moment, "batch": batch_id(), **asdict(this_executor())})
        if self.action in _KILLS:
            _KILLS[self.action](this_executor())
            return True
        while not Path(self.directory, "release").exists():
            time.sleep(_POLL_INTERVAL_S)
        return True

    def struck(self) -> dict[str, Any] | None:
        """Return where and when it has struck: moment, batch, and the fields of Executor. None if it has not."""
        return self._told("struck.json")

    def release(self) -> None:
        """Let the task go on that is held."""
        Path(self.directory, "release").touch()

    def wrote(self, name: str) -> None:
        """Note that the task that was held has since written the file `name`."""
        self._tell("wrote.json", {"name": name})

    def written(self) -> dict[str, Any] | None:
        """Return the `name` of what the task that was held has since written, None if it has not."""
        return self._told("wrote.json")

    def _tell(self, name: str, facts: dict[str, Any]) -> None:
        partial = Path(self.directory, f"{name}.partial")
        partial.write_text(json.dumps(facts))
        partial.rename(Path(self.directory, name))

    def _told(self, name: str) -> dict[str, Any] | None:
        try:
            facts: dict[str, Any] = json.loads(Path(self.directory, name).read_text())
        except FileNotFoundError:
            return None
        return facts


@dataclass(frozen=True)
class Executor:
    """The processes of an executor: Spark's JVM, pyspark's daemon, and the worker that the daemon has forked."""

    executor: str
    worker_pid: int
    daemon_pid: int
    jvm_pid: int

    def kill(self) -> NoReturn:
        """End all of it at once, as the loss of a machine does."""
        os.kill(self.jvm_pid, signal.SIGKILL)
        os.killpg(self.daemon_pid, signal.SIGKILL)  # its workers, this process among them, are of its group
        raise AssertionError("survived SIGKILL")


def _kill_worker(executor: Executor) -> None:
    os.kill(executor.worker_pid, signal.SIGKILL)


def _kill_application(executor: Executor) -> None:
    others = [pid for pid, session, _ in all_processes() if session == os.getsid(0) and pid != executor.worker_pid]
    for pid in [*others, executor.worker_pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_feeder(executor: Executor) -> None:
    # The daemon says so to its workers when the JVM is gone: what if it comes too late?
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.kill(executor.jvm_pid, signal.SIGKILL)


_KILLS: Final = {
    "kill": Executor.kill,
    "kill worker": _kill_worker,
    "kill application": _kill_application,
    "kill feeder": _kill_feeder,
}


def this_executor() -> Executor:
    """Return the executor whose Python worker this process is."""
    daemon_pid = os.getppid()
    jvm_pid = _parent(daemon_pid)
    command = Path(f"/proc/{jvm_pid}/cmdline").read_text()
    if "CoarseGrainedExecutorBackend" not in command:
        raise AssertionError(f"process {jvm_pid} is not an executor: {command}")
    # Spark's workers start an executor in a directory of its own, named by its number.
    return Executor(Path.cwd().name, os.getpid(), daemon_pid, jvm_pid)


def batch_id() -> int:
    """Return the number of the micro-batch that this process works at; a high one between two, where uploads go on."""
    context = TaskContext.get()
    if context is None:
        return sys.maxsize
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])


class MachineDisk(LocalDirectory):
    """Local copies on the disk of the machine that asks; notes which executor took which shard in which batch."""

    def __init__(self, placements: Path) -> None:
        super().__init__()
        self.placements = placements

    def shard(self, state_id: str, shard: int) -> Path:
        self.placements.mkdir(exist_ok=True)
        (self.placements / f"{batch_id()}-{shard}-{this_executor().executor}").touch()
        return Path(os.environ.get(DISK_VARIABLE, "disk")).absolute() / state_id / f"shard-{shard:04d}"


class FaultyLocation(DurableLocation):
    """A local durable location on whose way the faults lie."""

    def __init__(self, location: str | Path, faults: Sequence[Fault]) -> None:
        super().__init__(location, disk=FaultyDisk(faults))
        self.faults = tuple(faults)

    def _write(self, name: str, content: Content) -> None:
        held = [fault for fault in self.faults if fault.strike(name, "before")]
        super()._write(name, content)
        for fault in self.faults:
            fault.strike(name, "after")
        for fault in held:
            fault.wrote(name)


class FaultyDisk(LocalDisk):
    """A disk that may see half of a file's content, and no more."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__()
        self.faults = tuple(faults)

    def append(self, file: BinaryIO, data: bytes | pa.Buffer) -> None:
        content = memoryview(data)
        half = len(content) // 2
        super().append(file, content[:half].tobytes())
        file.flush()
        for fault in self.faults:
            fault.strike(file.name, "middle")
        super().append(file, content[half:].tobytes())


class FaultyTotal(RunningTotal):
    """A running total that comes to the faults' moment after it has written to the store."""

    faults: tuple[Fault, ...]

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        super().process(record)
        for fault in self.faults:
            fault.strike(PROCESS, fault.when)


def faulty_topology(faults: Sequence[Fault]) -> Topology:
    """Return the order topology with the faults in its processor."""
    topology = running_total_topology()
    topology.processors["total"].supplier = type("Faulty", (FaultyTotal,), {"faults": tuple(faults)})
    return topology
