"""Processes killed, and calls failing, at the lines where it hurts most."""

import dataclasses
import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from statestore.format.values.store_format import StoreFormat
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local import local_copy
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.recovery.snapshots.planned import PlannedSnapshot
from statestore.recovery.snapshots.upload import SnapshotUpload
from tests.recovery.test_snapshots import EVERY_3, content_after, rewrite_manifest, run_batches
from tests.support.recovery.shards import TOTALS, Shard, stored, wait_for_uploads

OTHER = dataclasses.replace(TOTALS, name="other")
PREAMBLE = """
import dataclasses, os, sys
from pathlib import Path
from tests.support.recovery.shards import TOTALS, Shard, stored
from statestore.recovery.local import local_copy
from statestore import DurableLocation
from statestore.recovery.commit.pointer import CommitPointer
from tests.recovery.test_snapshots import EVERY_3, run_batches
from tests.recovery.test_kills_and_failed_calls import OTHER, with_stores

home = Path(sys.argv[1])
pointer = CommitPointer.from_json(sys.argv[2])

def die(*arguments, **named):
    os._exit(9)
"""


def with_stores(shard: Shard, *specs: Any) -> Shard:
    shard.state = dataclasses.replace(shard.state, stores=specs)
    return shard


def run_script(script: str, home: Path, pointer: CommitPointer) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PREAMBLE + script, str(home), pointer.to_json()]
    return subprocess.run(command, env=environment, check=False, timeout=120).returncode


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path, recovery=EVERY_3)


@pytest.mark.parametrize("moment", ["open_store", "finish_older_upgrades", "write_marker"])
def test_killed_while_entries_move_through_two_formats(tmp_path: Path, moment: str) -> None:
    plain = dataclasses.replace(TOTALS, format=StoreFormat.PLAIN)
    timed = dataclasses.replace(TOTALS, format=StoreFormat.TIMESTAMPED)
    many = {b"k%05d" % number: b"v" * 100 for number in range(3_000)}
    shard = with_stores(Shard(tmp_path), plain)
    pointer = shard.batch(shard.start(), many)
    shard.content(pointer)
    with_stores(shard, timed)
    pointer = shard.batch(pointer, {b"k00000": bytes(8) + b"new"})
    assert len(shard.content(pointer)) == 3_000, "both families have entries now"
    script = f"""
local_copy.{moment} = die
Shard(home).content(pointer)
"""
    assert run_script(script, tmp_path, pointer) == 9
    found = Shard(tmp_path).content(pointer)
    assert len(found) == 3_000
    assert found[b"k00000"] == stored(b"new", 0)


def test_killed_when_it_was_found_that_a_copy_lacks_a_store(tmp_path: Path) -> None:
    shard = with_stores(Shard(tmp_path), TOTALS, OTHER)

    def put(batch: Any) -> Any:
        batch.stores["totals"].put(b"k", stored(b"1"))
        batch.stores["other"].put(b"o", stored(b"1"))
        return batch.commit()

    pointer = shard.run(shard.run(shard.start(), put), put)
    with_stores(Shard(tmp_path), TOTALS).content(pointer)  # a release that kept `other` in memory alone
    script = """
local_copy.discard = die
with_stores(Shard(home), TOTALS, OTHER).content(pointer)
"""
    assert run_script(script, tmp_path, pointer) == 9
    other = shard.run(pointer, lambda batch: dict(batch.stores["other"].range(None, None)))
    assert other == {b"o": stored(b"1")}


def test_a_checkpoint_that_lost_files_is_not_uploaded(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 4))
    with monkeypatch.context() as killed:
        killed.setattr(SnapshotUpload, "start", lambda *arguments: None)  # right after it was begun
        pointer = run_batches(shard, pointer, range(4, 5))
    checkpoint = PlannedSnapshot(shard.copy.parent).checkpoint
    for table in checkpoint.glob("*.sst"):
        table.unlink()
    pointer = run_batches(shard, pointer, range(5, 10))
    assert pointer.snapshots[0].version > 3, "a later one"
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == content_after(9)


def test_a_snapshot_whose_database_does_not_open_is_done_without(
    shard: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 6))
    spoilt = rewrite_manifest(shard, pointer, {"files": []})
    shutil.rmtree(shard.home / "local")
    assert shard.content(spoilt) == content_after(5)
    fields = ["CURRENT", "shards/0000/deltas/" + Path(pointer.deltas[0].name).name, *pointer.deltas[0][1:]]
    spoilt = rewrite_manifest(shard, pointer, {"files": [fields]})
    shutil.rmtree(shard.home / "local")
    assert shard.content(spoilt) == content_after(5)
    assert "going on without the snapshot of 3" in caplog.text


def test_snapshots_go_on_when_the_newest_one_is_gone(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 6))
    (lost,) = pointer.snapshots
    (shard.home / "state" / lost.manifest.name).unlink()
    pointer = run_batches(shard, pointer, range(6, 16))
    assert len(pointer.snapshots) >= 3
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == content_after(15)


class FailsOnce:
    """A listener whose first call raises."""

    calls = 0

    def on_restore_start(self, *facts: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("the metrics gateway is away")

    def on_batch_restored(self, *facts: Any) -> None:
        self.calls += 1

    def on_restore_end(self, *facts: Any) -> None:
        self.calls += 1


def test_a_listener_that_raises_leaves_no_database_open(tmp_path: Path) -> None:
    shard = Shard(tmp_path, recovery=RecoveryOptions(restore_listener=FailsOnce()))
    pointer = run_batches(shard, shard.start(), range(1, 3))
    shard.content(pointer)
    elsewhere = Shard(tmp_path)
    elsewhere.state = dataclasses.replace(elsewhere.state, local=LocalDirectory(tmp_path / "elsewhere"))
    pointer = run_batches(elsewhere, pointer, range(3, 7))
    with pytest.raises(ConnectionError):
        shard.content(pointer)
    assert shard.content(pointer) == content_after(6)
    assert [path.name for path in sorted(shard.copy.parent.glob("copy-*")) if path.is_dir()] == ["copy-0"]


def test_a_machine_without_a_thread_to_spare_costs_no_batch(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 4))
    real_start = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("statestore-snapshot"):
            raise RuntimeError("can't start new thread")
        real_start(thread)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        pointer = run_batches(shard, pointer, range(4, 6))
    pointer = run_batches(shard, pointer, range(6, 8))
    assert [made.version for made in pointer.snapshots] == [3]


def test_a_disk_that_is_full_when_the_copy_is_closed_costs_the_copy(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 2))
    real_digest = local_copy.files_digest

    def full(path: Path) -> str:
        if sys._getframe(1).f_code.co_name == "_close":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_digest(path)

    with monkeypatch.context() as disk:
        disk.setattr(local_copy, "files_digest", full)
        pointer = run_batches(shard, pointer, range(2, 3))
    assert "discarding the local copy" in caplog.text
    assert shard.content(pointer) == content_after(2)


def test_a_process_that_ends_in_the_middle_of_an_upload_ends_well(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 4))
    script = """
import concurrent.futures.thread, threading, time
begun = threading.Event()

class Waits(DurableLocation):
    def write_file(self, name, path):
        begun.set()
        while not concurrent.futures.thread._shutdown:
            time.sleep(0.01)
        super().write_file(name, path)

shard = Shard(home, recovery=dataclasses.replace(EVERY_3, snapshot_budget_ms=0))
shard.state = dataclasses.replace(shard.state, location=Waits(home / "state"))
shard.batch(pointer, {b"last": stored(b"4", 4), b"key-0004": stored(b"4", 4)})
assert begun.wait(60)
"""
    assert run_script(script, shard.home, pointer) == 0
    (begun,) = (shard.home / "state/shards/0000/snapshots").iterdir()
    checkpoint = PlannedSnapshot(shard.copy.parent).checkpoint
    assert 0 < len(list(begun.iterdir())) < len(list(checkpoint.iterdir())), "what was begun was ended, and no more"
    pointer = run_batches(shard, pointer, range(4, 6))
    wait_for_uploads()
    assert [made.version for made in pointer.snapshots] == [3], "taken up where it was"
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == content_after(5)
