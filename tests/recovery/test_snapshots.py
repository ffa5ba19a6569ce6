"""Snapshots: when they are made, what they share, and that a shard is restored from them."""

import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statestore.errors.state import (
    DurableFileCorruptedError,
    DurableFileMissingError,
    LocationNotWritableError,
    SnapshotFormatError,
)
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.location.durable_files import Content
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.recovery.snapshots.planned import PlannedSnapshot
from tests.support.recovery.restore_calls import RestoreCalls
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

EVERY_3 = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000, retained_versions=4)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path, recovery=EVERY_3)


def run_batches(shard: Shard, pointer: CommitPointer, numbers: range) -> CommitPointer:
    """Each batch writes its number under `last`, and under a key of its own."""
    for number in numbers:
        value = stored(b"%d" % number, number)
        pointer = shard.batch(pointer, {b"last": value, b"key-%04d" % number: value})
    wait_for_uploads()
    return pointer


def content_after(number: int) -> dict[bytes, bytes]:
    keys = {b"key-%04d" % n: stored(b"%d" % n, n) for n in range(1, number + 1)}
    return {**keys, b"last": stored(b"%d" % number, number)}


def test_a_snapshot_is_made_after_so_many_deltas_and_named_by_a_later_pointer(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 5))
    assert pointer.snapshots == (), "the batch that was opened at version 3 begins it"
    pointer = run_batches(shard, pointer, range(5, 6))
    assert [(made.version, made.since) for made in pointer.snapshots] == [(3, 5)]
    assert pointer.snapshots[0].delta == pointer.deltas[2].name
    assert len(pointer.deltas) == 5, "with one snapshot, the deltas from nothing on are the other way to restore"
    pointer = run_batches(shard, pointer, range(6, 9))
    assert [(made.version, made.since) for made in pointer.snapshots] == [(3, 5), (6, 8)]
    assert pointer.base_version == 3
    assert len(pointer.deltas) == 5
    assert CommitPointer.from_json(pointer.to_json()) == pointer
    assert shard.content(pointer) == content_after(8)


def test_a_snapshot_is_made_after_so_many_bytes(tmp_path: Path) -> None:
    shard = Shard(tmp_path, recovery=RecoveryOptions(snapshot_every_bytes=4_000, snapshot_budget_ms=60_000))
    pointer = run_batches(shard, shard.start(), range(1, 9))
    size = pointer.deltas[0].size_bytes
    made = pointer.snapshots[0]
    assert made.version < 8 < RecoveryOptions().snapshot_every_deltas
    assert (made.version - 1) * size < 4_000 <= (made.version + 1) * size


def test_a_lost_disk_is_restored_from_the_snapshot_and_the_deltas_since(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 6))
    shutil.rmtree(shard.home / "local")
    for delta in pointer.deltas[:3]:
        (shard.home / "state" / delta.name).unlink()
    assert shard.content(pointer) == content_after(5)


def test_unchanged_tables_are_not_sent_again(shard: Shard) -> None:
    many = {b"%06d" % number: stored(b"v" * 100) for number in range(5_000)}
    pointer = run_batches(shard, shard.batch(shard.start(), many), range(1, 15))
    location = shard.state.location
    manifests = [read_manifest(location, pointer, made) for made in pointer.snapshots]
    assert len(manifests) >= 2
    first, second = manifests[-2:]
    shared = {file.durable for file in first.files} & {file.durable for file in second.files}
    assert max(file.size_bytes for file in shared) > 500_000, "the table with the many entries"
    names = [path.name for path in (shard.home / "state/shards/0000/snapshots").rglob("*.sst")]
    assert len(names) == len({*names}), "no table was sent twice"


def test_a_snapshot_that_was_finished_in_an_attempt_that_did_not_count_is_not_lost(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 5))
    first = run_batches(shard, pointer, range(5, 6))
    again = run_batches(shard, pointer, range(5, 6))
    assert first.snapshots == again.snapshots != ()
    assert run_batches(shard, again, range(6, 7)).snapshots == again.snapshots


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "manifest missing", "manifest flipped"])
def test_a_damaged_snapshot_is_done_without(shard: Shard, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 9))
    older, newest = pointer.snapshots
    shared, files = (
        {file.durable.name for file in read_manifest(shard.state.location, pointer, made).files}
        for made in (older, newest)
    )
    name = newest.manifest.name if damage.startswith("manifest") else min(files - shared)
    path = shard.home / "state" / name
    whole = path.read_bytes()
    spoil(path, damage.rpartition(" ")[2])
    shutil.rmtree(shard.home / "local")
    with caplog.at_level(logging.WARNING):
        assert shard.content(pointer) == content_after(8)
    assert str(name) in caplog.text
    # What is made from now on shares nothing with the damaged one.
    pointer = run_batches(shard, pointer, range(9, 15))
    path.write_bytes(b"spoilt for good")
    shutil.rmtree(shard.home / "local")
    assert newest not in pointer.snapshots[-1:]
    assert shard.content(pointer) == content_after(14)
    assert whole


def spoil(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def test_if_no_way_is_left_the_file_is_named(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 9))
    shutil.rmtree(shard.home / "local")
    older, newer = (shard.home / "state" / made.manifest.name for made in pointer.snapshots)
    kept = older.read_bytes(), newer.read_bytes()
    newer.unlink()
    older.write_bytes(kept[0][:-1])
    with pytest.raises(DurableFileCorruptedError, match=older.parent.name):
        shard.content(pointer)
    older.unlink()
    with pytest.raises(DurableFileMissingError, match=older.parent.name):
        shard.content(pointer)
    newer.write_bytes(kept[1])
    assert shard.content(pointer) == content_after(8)


def rewrite_manifest(shard: Shard, pointer: CommitPointer, changed: dict[str, Any]) -> CommitPointer:
    """Return a pointer whose only snapshot has a manifest with other fields, signed as if it were right."""
    (made,) = pointer.snapshots
    path = shard.home / "state" / made.manifest.name
    data = json.dumps({**json.loads(path.read_bytes()), **changed}).encode()
    path.write_bytes(data)
    fields = json.loads(pointer.to_json())
    fields["snapshots"][0][1:4] = DurableFile(made.manifest.name, len(data), digest(data))
    return CommitPointer.from_json(json.dumps(fields))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"format": 2}, SnapshotFormatError),
        ({"shard": 1}, DurableFileCorruptedError),
        ({"state_id": "other"}, DurableFileCorruptedError),
        ({"version": 4}, DurableFileCorruptedError),
        ({"files": [["../escaped", "x", 1, "y"]]}, DurableFileCorruptedError),
        ({"files": [["/etc/passwd", "x", 1, "y"]]}, DurableFileCorruptedError),
        ({"files": None}, DurableFileCorruptedError),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(shard: Shard, changed: dict[str, Any], error: type) -> None:
    pointer = rewrite_manifest(shard, run_batches(shard, shard.start(), range(1, 6)), changed)
    with pytest.raises(error, match=r"manifest\.json"):
        read_manifest(shard.state.location, pointer, pointer.snapshots[0])


def test_a_snapshot_of_a_newer_format_is_done_without_or_names_the_way(shard: Shard) -> None:
    pointer = rewrite_manifest(shard, run_batches(shard, shard.start(), range(1, 6)), {"format": 2})
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == content_after(5), "the deltas are all there"


class NoRoomForSnapshots(DurableLocation):
    """Refuses to write snapshots while there is a file `full` beside it."""

    def _write(self, name: str, content: Content) -> None:
        if "/snapshots/" in name and Path(self.uri.removeprefix("file://")).with_name("full").exists():
            raise LocationNotWritableError(self.uri, cause="no room for snapshots")
        super()._write(name, content)


def test_batches_go_on_while_no_snapshot_can_be_written_and_the_same_one_is_taken_up(
    shard: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    shard.state = dataclasses.replace(shard.state, location=NoRoomForSnapshots(shard.home / "state"))
    full = shard.home / "full"
    full.touch()
    pointer = run_batches(shard, shard.start(), range(1, 9))
    wait_for_uploads()
    assert pointer.snapshots == ()
    assert "no room for snapshots" in caplog.text
    full.unlink()
    pointer = run_batches(shard, pointer, range(9, 11))
    assert [made.version for made in pointer.snapshots] == [3], "the checkpoint that was waiting"
    assert shard.content(pointer) == content_after(10)


UPLOAD_AND_DIE = """
import os, signal, sys
from pathlib import Path
from tests.support.recovery.shards import Shard, wait_for_uploads
from statestore import DurableLocation
from statestore.recovery.snapshots.planned import PlannedSnapshot
from statestore.recovery.commit.pointer import CommitPointer
from tests.recovery.test_snapshots import EVERY_3, run_batches
import dataclasses

class DiesWhenATableIsThere(DurableLocation):
    def write_file(self, name, path):
        planned = PlannedSnapshot(Path(path).parents[2])
        if any(file.name.endswith(".sst") for file in planned.uploads()):
            os.kill(os.getpid(), signal.SIGKILL)
        super().write_file(name, path)

shard = Shard(Path(sys.argv[1]), recovery=EVERY_3)
shard.state = dataclasses.replace(shard.state, location=DiesWhenATableIsThere(shard.home / "state"))
pointer = CommitPointer.from_json(sys.argv[2])
run_batches(shard, pointer, range(4, 5))  # no more: another batch might be committed before the upload dies
wait_for_uploads()
"""


def test_an_upload_cut_off_by_a_kill_is_taken_up_where_it_was(shard: Shard) -> None:
    pointer = run_batches(shard, shard.start(), range(1, 4))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", UPLOAD_AND_DIE, shard.home, pointer.to_json()], env=environment, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (begun,) = (shard.home / "state/shards/0000/snapshots").iterdir()
    tables = [file.name for file in PlannedSnapshot(shard.copy.parent).uploads() if file.name.endswith(".sst")]
    sent = {Path(name).name: (shard.home / "state" / name).stat().st_ino for name in tables}
    assert sent
    pointer = run_batches(shard, pointer, range(4, 6))
    assert [made.version for made in pointer.snapshots] == [3]
    assert Path(pointer.snapshots[0].manifest.name).parent.name == begun.name
    assert sent.items() <= {path.name: path.stat().st_ino for path in begun.iterdir()}.items(), "not sent again"
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == content_after(5)


def test_a_listener_is_told_of_restores_and_not_of_single_deltas(tmp_path: Path) -> None:
    listener = RestoreCalls()
    options = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000, restore_listener=listener)
    shard = Shard(tmp_path, recovery=options)
    pointer = run_batches(shard, shard.start(), range(1, 6))
    assert listener.calls == []
    shutil.rmtree(tmp_path / "local")
    shard.content(pointer)
    assert listener.calls == [
        ("start", 0, "totals", 0, 5),
        ("batch", 0, "totals", 3, 6),  # an estimate: `last` was written three times
        ("batch", 0, "totals", 4, 2),
        ("batch", 0, "totals", 5, 2),
        ("end", 0, "totals", 10),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"snapshot_every_deltas": 0},
        {"snapshot_every_bytes": 0},
        {"snapshot_budget_ms": -1},
        {"retained_versions": 0},
        {"warn_after_deltas": -1},
        {"warn_after_deltas": 50},
        {"stop_after_deltas": -1},
        {"stop_after_deltas": 50},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RecoveryOptions(**options)
