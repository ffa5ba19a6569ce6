"""A local copy whose process was killed while it was caught up holds, when it is used again, what a clean one holds."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from statestore import Serdes, Stores, ValueAndTimestamp, Windowed
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local import local_copy
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.recovery.test_changed_stores import HEADED, Shard

STRING = Serdes.string()
SEEDS = range(8)
RETENTION_MS, INTERVAL_MS = 40, 10
PLAIN_VERSIONS = Stores.versioned_key_value_store_builder(
    Stores.persistent_versioned_key_value_store("versions", RETENTION_MS, INTERVAL_MS), STRING, STRING
)
VERSIONS = Stores.versioned_key_value_store_with_headers_builder(
    Stores.persistent_versioned_key_value_store_with_headers("versions", RETENTION_MS, INTERVAL_MS), STRING, STRING
)
TOTALS = Stores.key_value_store_builder(Stores.persistent_key_value_store("totals"), STRING, STRING)
TIMED = Stores.timestamped_key_value_store_builder(
    Stores.persistent_timestamped_key_value_store("totals"), STRING, STRING
)
WINDOWS = Stores.window_store_builder(
    Stores.persistent_window_store("windows", RETENTION_MS, 5, False, INTERVAL_MS), STRING, STRING
)
DUPLICATES = Stores.window_store_builder(
    Stores.persistent_window_store("duplicates", RETENTION_MS, 5, True, INTERVAL_MS), STRING, STRING
)
SESSIONS = Stores.session_store_builder(Stores.persistent_session_store("sessions", RETENTION_MS), STRING, STRING)
REPEATABLE = (TOTALS, WINDOWS, DUPLICATES, SESSIONS)
"""Stores of which a delta can be applied again."""


def begin(stores: dict[str, Any], batch: Any) -> None:
    stores["versions"].put("k", "A", 30)
    stores["versions"].delete("k", 50)


def go_on(stores: dict[str, Any], batch: Any) -> None:
    for value, time_ms in (("L", 42), ("N", 129), ("B", 157)):
        stores["versions"].put("k", value, time_ms)


def nothing(stores: dict[str, Any], batch: Any) -> None:
    """Open the shard, which brings its copy up to date."""


def version_at_125(shard: Shard, pointer: CommitPointer) -> Any:
    found: list[Any] = []
    shard.batch(pointer, lambda stores, batch: found.append(stores["versions"].get("k", 125)))
    return found[0]


KILLED = """
import os, signal, sys
from pathlib import Path
from statestore.recovery.local import local_copy
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.snapshots.upload import SnapshotUpload
from tests.recovery.test_replay_after_kill import PLAIN_VERSIONS, Shard, begin, every_delta, nothing

def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

def restore(location, pointer, applied, stores, *others):
    real_restore(location, pointer, applied, stores, *others)
    stores["versions"].bytes.flush()
    die()

shard = every_delta(Shard(Path(sys.argv[1]), PLAIN_VERSIONS))
real_restore, real_write = local_copy.restore, local_copy.write_marker
moment, use = sys.argv[3], nothing
if moment == "while catching up":
    local_copy.restore = restore
elif moment == "after close":
    local_copy.write_marker = lambda path, marker, **named: (
        real_write(path, marker, **named) if marker.files is None or marker.applying else die()
    )
else:
    SnapshotUpload.start = die
    use = begin
shard.batch(CommitPointer.from_json(sys.argv[2]), use)
"""


def every_delta(shard: Shard) -> Shard:
    """Have a shard make a snapshot whenever it can."""
    recovery = RecoveryOptions(snapshot_every_deltas=1, snapshot_budget_ms=60_000)
    shard.state = dataclasses.replace(shard.state, recovery=recovery)
    return shard


@pytest.mark.parametrize("moment", ["while catching up", "after close", "after the flush of a checkpoint"])
def test_a_kill_never_changes_which_version_was_valid(tmp_path: Path, moment: str) -> None:
    shard = Shard(tmp_path, PLAIN_VERSIONS)
    first = shard.batch(None, begin)
    second = shard.batch(first, go_on)
    shard.batch(first, nothing)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(tmp_path), second.to_json(), moment]
    assert subprocess.run(command, env=environment, check=False, timeout=120).returncode == -signal.SIGKILL
    assert version_at_125(shard, second) is None
    shutil.rmtree(tmp_path / "local")
    assert version_at_125(shard, second) is None, "a clean copy"


class WithoutCompactions(LocalDirectory):
    """Databases whose files change when they are told to, and at no other time: they can be copied as they are."""

    def open_database(self, path: Path, families: Any) -> RocksDBDatabase:
        return RocksDBDatabase(str(path), families, memory=self.memory.database, compacting=False)


class Killed:
    """A shard whose local directory can be set back to what a kill would have left of it."""

    def __init__(self, home: Path, *builders: Any) -> None:
        self.home = home
        self.give(*builders)

    def give(self, *builders: Any) -> None:
        """Have these stores from now on."""
        self.shard = Shard(self.home, *builders)
        self.shard.state = dataclasses.replace(self.shard.state, local=WithoutCompactions(self.home / "local"))

    def content(self, pointer: CommitPointer) -> dict[str, dict[bytes, bytes]]:
        """Return all that the stores hold, byte by byte."""
        found: dict[str, dict[bytes, bytes]] = {}

        def read(stores: dict[str, Any], batch: Any) -> None:
            found.update({name: dict(store.bytes.range(None, None)) for name, store in batch.stores.items()})

        self.shard.batch(pointer, read)
        return found

    def clean_content(self, pointer: CommitPointer) -> dict[str, dict[bytes, bytes]]:
        """Return what a copy that is made of all deltas at once holds."""
        with self.elsewhere():
            return self.content(pointer)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        local = self.home / "local"
        aside = local.with_name("aside")
        if local.exists():
            local.rename(aside)
        try:
            yield
        finally:
            shutil.rmtree(local, ignore_errors=True)
            if aside.exists():
                aside.rename(local)

    def die_at(self, pointer: CommitPointer, kill: Callable[[Any], None]) -> None:
        """Catch up to `pointer`; `kill` does what happened in the database until the process was killed."""
        left = self.home / "left-by-a-kill"

        def use(stores: dict[str, Any], batch: Any) -> None:
            kill(batch)
            shutil.copytree(self.home / "local", left)

        self.shard.batch(pointer, use)
        shutil.rmtree(self.home / "local")
        left.rename(self.home / "local")

    def die_after_close(self, pointer: CommitPointer, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catch up to `pointer`, close, and be killed before the marker says so."""
        real_write = local_copy.write_marker
        with monkeypatch.context() as patch:

            def write(path: Path, marker: Any, *, durably: bool) -> None:
                if durably or marker.files is None:
                    real_write(path, marker, durably=durably)

            patch.setattr(local_copy, "write_marker", write)
            self.shard.batch(pointer, nothing)


def random_batch(rng: random.Random, now_ms: int) -> Callable[[dict[str, Any], Any], None]:
    """Return the writes of a batch at about `now_ms`, many of them late."""

    def use(stores: dict[str, Any], batch: Any) -> None:
        for number in range(rng.randrange(2, 7)):
            time_ms = max(0, now_ms - rng.choice((0, 8, 20, 35, 45)))
            key, value = "k", rng.choice((None, f"{now_ms}-{number}"))
            if "versions" in stores:
                stores["versions"].put(key, value, time_ms)
            if "totals" in stores:
                stores["totals"].put(rng.choice("ab"), value)
            if "windows" in stores:
                stores["windows"].put(key, value, time_ms)
                stores["duplicates"].put(key, value, time_ms)
                stores["sessions"].put(Windowed(key, max(0, time_ms - 4), time_ms), value)

    return use


def history(killed: Killed, rng: random.Random, batches: int) -> list[CommitPointer]:
    """Commit batches without a local copy to speak of: it is left at version 0."""
    pointers = [killed.shard.state.pointer(0, None)]
    now_ms = 30
    with killed.elsewhere():
        for _ in range(batches):
            now_ms += rng.choice((8, 30, 50))
            pointers.append(killed.shard.batch(pointers[-1], random_batch(rng, now_ms)))
    return pointers


def flush_some(rng: random.Random) -> Callable[[Any], None]:
    """Return what flushes the families of some stores, as RocksDB does when it is short of memory."""

    def kill(batch: Any) -> None:
        for name in batch.copy.database.families:
            if rng.random() < 0.6:
                batch.copy.database.family(name).flush()

    return kill


def checkpoint(batch: Any) -> None:
    """Flush as a snapshot does."""
    path = batch.copy.path.parent / "checkpoint"
    batch.copy.checkpoint(str(path))
    shutil.rmtree(path)


def kill_somewhere(killed: Killed, pointer: CommitPointer, rng: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Catch up to `pointer` in a process that is killed at one of the moments that differ."""
    moment = rng.randrange(4)
    if moment == 0:
        killed.die_after_close(pointer, patch)
    else:
        killed.die_at(pointer, (lambda batch: None, flush_some(rng), checkpoint)[moment - 1])


@pytest.mark.parametrize(
    ("builders", "seed"),
    [
        *(pytest.param((VERSIONS,), seed, id=f"versions-{seed}") for seed in SEEDS),
        *(pytest.param(REPEATABLE, seed, id=f"repeatable-{seed}") for seed in SEEDS),
    ],
)
def test_a_copy_that_was_killed_holds_what_a_clean_one_holds(
    tmp_path: Path, builders: tuple[Any, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    killed = Killed(tmp_path, *builders)
    pointers = history(killed, rng, 4)
    at = rng.randrange(2)
    killed.content(pointers[at])
    for _ in range(rng.randrange(1, 3)):
        # Several in a row, each of which got to another version, one of them an older one.
        at = max(0, min(len(pointers) - 1, at + rng.choice((-1, 0, 1, 2))))
        kill_somewhere(killed, pointers[at], rng, monkeypatch)
    pointer = rng.choice(pointers)
    assert killed.content(pointer) == killed.clean_content(pointer)


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_that_was_killed_while_its_entries_moved_holds_what_a_clean_one_holds(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    killed = Killed(tmp_path, PLAIN_VERSIONS, TOTALS)
    pointers = history(killed, rng, 3)
    killed.content(pointers[2])
    killed.give(VERSIONS, TIMED)
    for pointer in rng.choices(pointers[2:], k=2):
        kill_somewhere(killed, pointer, rng, monkeypatch)
    pointer = rng.choice(pointers[2:])
    assert killed.content(pointer) == killed.clean_content(pointer)


@pytest.mark.parametrize("builder", [VERSIONS, TIMED], ids=["versions", "upgrade"])
@pytest.mark.parametrize("kill", [lambda batch: None, checkpoint], ids=["nothing flushed", "checkpoint"])
def test_a_kill_costs_no_rebuild_if_it_is_known_what_is_on_the_disk(
    tmp_path: Path, builder: Any, kill: Callable[[Any], None]
) -> None:
    killed = Killed(tmp_path, VERSIONS if builder is VERSIONS else TOTALS)
    pointers = history(killed, random.Random(1), 3)
    killed.content(pointers[2])
    killed.give(builder)
    wanted = {at: killed.clean_content(pointers[at]) for at in (2, 3)}
    killed.die_at(pointers[3], kill)
    for delta in pointers[2].deltas:
        (tmp_path / "state" / delta.name).unlink()
    if kill is not checkpoint:
        assert killed.content(pointers[2]) == wanted[2]
    assert killed.content(pointers[3]) == wanted[3]


def test_killed_twice_before_anything_was_certain(tmp_path: Path) -> None:
    """What the first of them left is there, though the second one wrote nothing."""
    killed = Killed(tmp_path, TOTALS)
    first = killed.shard.batch(None, lambda stores, batch: stores["totals"].put("a", "1"))
    second = killed.shard.batch(first, lambda stores, batch: stores["totals"].put("a", "2"))
    killed.content(first)
    killed.die_at(second, lambda batch: batch.copy.database.flush())
    killed.die_at(second, lambda batch: None)
    assert killed.content(first) == {"totals": {b"a": b"1"}}


def test_killed_when_entries_moved_after_a_checkpoint(tmp_path: Path) -> None:
    killed = Killed(tmp_path, TOTALS)
    first = killed.shard.batch(None, lambda stores, batch: stores["totals"].put_all([("a", "1"), ("b", "2")]))
    second = killed.shard.batch(first, lambda stores, batch: stores["totals"].put("c", "3"))
    killed.content(first)
    killed.give(TIMED)
    wanted = killed.clean_content(second)

    def kill(batch: Any) -> None:
        checkpoint(batch)
        assert batch.stores["totals"].bytes.get(b"a") is not None
        # The half of the move that deletes.
        batch.copy.database.family("totals:default").flush()

    killed.die_at(second, kill)
    assert killed.content(second) == wanted


def test_killed_after_entries_of_a_snapshot_moved_through_two_formats(tmp_path: Path) -> None:
    killed = Killed(tmp_path, TOTALS)
    pointer = killed.shard.batch(None, lambda stores, batch: stores["totals"].put_all([("a", "1"), ("b", "2")]))
    killed.content(pointer)
    killed.give(TIMED)
    every_delta(killed.shard)
    while not pointer.snapshots or pointer.snapshots[-1].version < 2:
        pointer = killed.shard.batch(
            pointer, lambda stores, batch: stores["totals"].put("c", ValueAndTimestamp("1", 1))
        )
    shutil.rmtree(tmp_path / "local")
    killed.give(HEADED)
    wanted = killed.clean_content(pointer)
    killed.die_at(pointer, lambda batch: None)
    assert killed.content(pointer) == wanted
    assert len(wanted["totals"]) == 3
