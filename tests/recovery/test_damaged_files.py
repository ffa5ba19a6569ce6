"""Whatever happens to a file, of the local copy or the durable location: the right state, or an error that names it."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.errors import LocalDirectoryError, StateStoreError
from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError, LocalStateCorruptedError
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

OPTIONS = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000)
MANY = {b"%05d" % number: stored(b"v" * 50) for number in range(2_000)}


def missing(path: Path, other: bytes) -> None:
    path.unlink()


def cut(path: Path, other: bytes) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path, other: bytes) -> None:
    path.write_bytes(b"")


def flipped(path: Path, other: bytes) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 4
    path.write_bytes(content)


def foreign(path: Path, other: bytes) -> None:
    path.write_bytes(other)


DAMAGES = [missing, cut, emptied, flipped, foreign]
Damage = Callable[[Path, bytes], None]


def batches(shard: Shard, pointer: CommitPointer, count: int) -> CommitPointer:
    for _ in range(count):
        pointer = shard.batch(pointer, {b"last": stored(b"%d" % (pointer.version + 1))})
    wait_for_uploads()
    return pointer


def expected(pointer: CommitPointer) -> dict[bytes, bytes]:
    return {**MANY, b"last": stored(b"%d" % pointer.version)}


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path, recovery=OPTIONS)


@pytest.fixture
def pointer(shard: Shard) -> CommitPointer:
    """Make a state with two snapshots, deltas, and a local copy that is up to date."""
    made = batches(shard, shard.batch(shard.start(), MANY), 7)
    assert len(made.snapshots) == 2
    assert shard.content(made) == expected(made)
    return made


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_local_copy_with_any_file_damaged(shard: Shard, pointer: CommitPointer, damage: Damage) -> None:
    kept = shard.home / "kept"
    shutil.copytree(shard.copy, kept)
    table = next(kept.glob("*.sst")).read_bytes()
    for name in sorted(path.name for path in kept.iterdir() if path.name not in ("LOCK", "LOG")):
        shutil.rmtree(shard.copy)
        shutil.copytree(kept, shard.copy)
        damage(shard.copy / name, b"nothing of ours" if name.endswith(".sst") else table)
        found = None
        for _ in range(2):  # damage that shows in the middle fails the attempt, and the next one has a new copy
            try:
                found = shard.content(pointer)
                break
            except LocalStateCorruptedError:
                continue
        assert found == expected(pointer), f"{name} {damage.__name__}"


def indispensable(shard: Shard, pointer: CommitPointer) -> set[str]:
    """Return the files that both ways to the version need: tables that snapshots share, and deltas after the newest."""
    manifests = [read_manifest(shard.state.location, pointer, snapshot) for snapshot in pointer.snapshots[-2:]]
    older, newer = ({file.durable.name for file in manifest.files} for manifest in manifests)
    return {delta.name for delta in pointer.deltas_since_snapshot} | (older & newer)


@pytest.mark.parametrize("damage", [missing, flipped, foreign])
def test_any_one_file_of_the_location_damaged(shard: Shard, pointer: CommitPointer, damage: Damage) -> None:
    """With one file spoilt there is another way, or an error that names the file; and the way back is to restore it."""
    root = shard.home / "state"
    other = (root / pointer.deltas[0].name).read_bytes()
    needed = indispensable(shard, pointer)
    assert {Path(name).suffix for name in needed} == {".arrow", ".sst"}
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        damage(path, b"nothing of ours" if path.suffix == ".arrow" else other)
        shutil.rmtree(shard.home / "local", ignore_errors=True)
        if name in needed:
            with pytest.raises((DurableFileMissingError, DurableFileCorruptedError), match=path.name):
                shard.content(pointer)
        else:
            assert shard.content(pointer) == expected(pointer), name
        path.write_bytes(content)
    shutil.rmtree(shard.home / "local", ignore_errors=True)
    assert shard.content(pointer) == expected(pointer)


@pytest.mark.parametrize("damage", [missing, cut, flipped])
@pytest.mark.parametrize("name", ["plan.json", "uploaded.jsonl", "result.json", "../digests.json"])
def test_what_is_kept_of_an_upload_damaged(shard: Shard, pointer: CommitPointer, name: str, damage: Damage) -> None:
    while not (shard.copy.parent / "snapshot" / "result.json").exists():
        pointer = batches(shard, pointer, 1)
    damage(shard.copy.parent / "snapshot" / name, b'{"nothing": "of ours"}')
    before = pointer.snapshots
    for _ in range(8):
        pointer = batches(shard, pointer, 1)
    assert pointer.snapshots[-1] not in before, "snapshots go on"
    for way in (pointer.snapshots[-1].manifest.name, None):
        shutil.rmtree(shard.home / "local")
        assert shard.content(pointer) == expected(pointer)
        if way is not None:
            (shard.home / "state" / way).unlink()


def test_a_clock_that_goes_backwards_changes_nothing(
    shard: Shard, pointer: CommitPointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.time_ns()
    for hours_back in (1, 24 * 365, 24 * 365 * 60):
        monkeypatch.setattr(time, "time_ns", lambda back=hours_back: max(0, now_ns - back * 3_600 * 10**9))
        later = Shard(shard.home, recovery=OPTIONS, run_name=f"later{hours_back}")
        pointer = batches(later, pointer, 4)
        with pytest.raises(StateStoreError, match="was taken over"):
            batches(shard, pointer, 1)
    assert later.content(pointer) == expected(pointer)


def test_a_local_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("a file where a directory should be")
    shard = Shard(tmp_path)
    with pytest.raises(LocalDirectoryError, match="local_dir") as unusable:
        shard.content(shard.start())
    assert str(tmp_path / "local") in unusable.value.path
