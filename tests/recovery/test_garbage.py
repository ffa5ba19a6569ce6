"""Garbage collection: what goes, what stays, and that every retained version can still be restored."""

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_files import partial_name
from statestore.recovery.location.shard_files import FenceName, fence_name, new_collection_name, new_delta_name
from statestore.recovery.snapshots.garbage import collect_garbage, find_garbage
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

RETAINED = 6
OPTIONS = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000, retained_versions=RETAINED)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path, recovery=OPTIONS)


def run_batches(shard: Shard, pointers: list[CommitPointer], count: int) -> None:
    for _ in range(count):
        number = pointers[-1].version + 1
        changes = {b"%03d" % (number % 5): stored(b"%d" % number), b"last": stored(b"%d" % number)}
        pointers.append(shard.batch(pointers[-1], changes))
    wait_for_uploads()


def content_after(version: int) -> dict[bytes, bytes]:
    keys = {b"%03d" % (number % 5): stored(b"%d" % number) for number in range(1, version + 1)}
    return {**keys, b"last": stored(b"%d" % version)} if version else {}


def on_a_new_disk(shard: Shard, name: str) -> Shard:
    other = Shard(shard.home, recovery=OPTIONS)
    other.state = replace(other.state, local=LocalDirectory(shard.home / name))
    return other


def garbage_names(shard: Shard, pointer: CommitPointer, epoch: int = 1) -> set[str]:
    return {file.name for file in find_garbage(shard.state.location, pointer, epoch, RETAINED).files}


def collected_after(shard: Shard, versions: int) -> tuple[list[CommitPointer], Shard]:
    """Make so many versions and collect garbage; return all pointers, and who restores them on a disk "other"."""
    pointers = [shard.start()]
    run_batches(shard, pointers, versions)
    collect_garbage(shard.state.location, pointers[-1], 1, RETAINED)
    return pointers, on_a_new_disk(shard, "other")


def test_every_retained_version_can_be_restored_and_nothing_older_is_left(shard: Shard) -> None:
    pointers, reader = collected_after(shard, 40)
    for pointer in pointers[-RETAINED - 1 :]:
        shutil.rmtree(shard.home / "other", ignore_errors=True)
        assert reader.content(pointer) == content_after(pointer.version)
    floor = pointers[-1].needed_since(RETAINED)
    assert 40 - RETAINED - 8 < floor < 40 - RETAINED, "about two snapshots behind the oldest retained version"
    names = [Path(name) for name in shard.files()]
    versions = [int(path.name[:12]) for path in names if path.suffix == ".arrow"]
    assert min(versions) == floor + 1
    assert len(versions) == 40 - floor
    assert len([path for path in names if path.name == "manifest.json"]) <= 6
    assert len(pointers[-1].snapshots) <= 6
    directories = list((shard.home / "state/shards/0000/snapshots").iterdir())
    assert all(any(directory.iterdir()) for directory in directories), "none is left empty"


def test_what_is_no_longer_needed_goes_with_the_next_batch(tmp_path: Path) -> None:
    """It used to go with the next snapshot: up to that, the location held more than the retained history."""
    rare = RecoveryOptions(snapshot_every_deltas=10, snapshot_budget_ms=60_000, retained_versions=RETAINED)
    shard = Shard(tmp_path, recovery=rare)
    pointers = [shard.start()]
    removed = 0
    for _ in range(50):
        opened_at = pointers[-1]
        before = shard.files()
        run_batches(shard, pointers, 1)
        removed += len(before - shard.files())
        assert not garbage_names(shard, opened_at), f"after version {pointers[-1].version}"
    assert removed > 20


def test_the_other_way_to_restore_stays_for_every_retained_version(shard: Shard) -> None:
    pointers, reader = collected_after(shard, 30)
    for pointer in pointers[-RETAINED - 1 :]:
        newest = shard.home / "state" / pointer.snapshots[-1].manifest.name
        kept = newest.read_bytes()
        newest.unlink()
        shutil.rmtree(shard.home / "other", ignore_errors=True)
        assert reader.content(pointer) == content_after(pointer.version)
        newest.write_bytes(kept)


def test_attempts_that_failed_are_garbage_once_no_retained_version_is_as_old(shard: Shard) -> None:
    pointers = [shard.start()]
    run_batches(shard, pointers, 4)
    failed = shard.batch(pointers[-2], {b"x": stored(b"failed")})
    partial = shard.home / "state" / partial_name(new_delta_name(0, 4, 1))
    partial.write_bytes(b"cut")
    run_batches(shard, pointers, 4)
    assert {failed.head, str(partial.relative_to(shard.home / "state"))} <= shard.files()
    run_batches(shard, pointers, 12)
    assert failed.head not in shard.files()
    assert not partial.exists()


def test_the_delta_of_an_attempt_stays_while_spark_may_still_take_its_pointer(shard: Shard) -> None:
    """Found with a machine that hung and came back: its Spark was about to write over the winner's state files."""
    pointers = [shard.start()]
    run_batches(shard, pointers, 9)
    late = shard.batch(pointers[-2], {b"004": stored(b"9"), b"last": stored(b"9")})
    collect_garbage(shard.state.location, pointers[-1], 1, RETAINED)
    assert on_a_new_disk(shard, "other").content(late) == content_after(9)


@pytest.mark.parametrize("versions", [1, 2, 4])
def test_attempts_that_lost_keep_both_ways_to_restore_though_they_name_fewer_snapshots(
    shard: Shard, versions: int
) -> None:
    """Found by the simulation: a slow attempt did not see the snapshot that the one that counted had named before it.

    Where attempts replace each other's pointers, the next slow one may go on from there.
    """
    eager = replace(OPTIONS, snapshot_every_deltas=1)
    shard.state = replace(shard.state, recovery=eager)
    pointers = [shard.start()]
    run_batches(shard, pointers, 12)
    elsewhere = Shard(shard.home, recovery=replace(OPTIONS, snapshot_every_deltas=1000))
    elsewhere.state = replace(elsewhere.state, local=LocalDirectory(shard.home / "elsewhere"))
    lost = pointers[-1]
    for _ in range(versions):
        run_batches(shard, pointers, 1)
        number = lost.version + 1
        lost = elsewhere.batch(lost, {b"%03d" % (number % 5): stored(b"%d" % number), b"last": stored(b"%d" % number)})
    assert lost.snapshots[-1].since < pointers[-1].snapshots[-1].since
    run_batches(shard, pointers, RETAINED)
    assert pointers[-1].version - RETAINED == lost.version
    collect_garbage(shard.state.location, pointers[-1], 1, RETAINED)
    for missing in range(2):
        reader = on_a_new_disk(shard, f"without-{missing}")
        if missing:
            (shard.home / "state" / lost.snapshots[-1].manifest.name).unlink()
        assert reader.content(lost) == content_after(lost.version)


def test_garbage_goes_where_every_batch_has_two_attempts(shard: Shard) -> None:
    elsewhere = Shard(shard.home, recovery=replace(OPTIONS, snapshot_every_deltas=1000))
    elsewhere.state = replace(elsewhere.state, local=LocalDirectory(shard.home / "elsewhere"))
    pointers = [shard.start()]
    for _ in range(34):
        run_batches(shard, pointers, 1)
        elsewhere.batch(pointers[-2], {b"last": stored(b"%d" % pointers[-1].version)})
    deltas = [Path(name).name for name in shard.files() if name.endswith(".arrow")]
    assert 34 - RETAINED - 8 - 16 < int(min(deltas)[:12]) < 34 - RETAINED


def test_a_zombie_collects_nothing_that_is_needed(shard: Shard) -> None:
    pointers = [shard.start()]
    run_batches(shard, pointers, 25)
    needed = shard.files()
    judged = 0
    for old in pointers[1:-1]:
        # One whose own snapshots are partly gone judges nothing.
        with suppress(DurableFileMissingError):
            needed -= garbage_names(shard, old)
            judged += 1
    assert judged >= 2
    reader = on_a_new_disk(shard, "other")
    for name in shard.files() - needed:
        (shard.home / "state" / name).unlink()
    for pointer in pointers[-RETAINED - 1 :]:
        shutil.rmtree(shard.home / "other", ignore_errors=True)
        assert reader.content(pointer) == content_after(pointer.version)


def test_what_another_run_may_have_committed_is_kept_while_it_is_retained(shard: Shard) -> None:
    pointers = [shard.start()]
    run_batches(shard, pointers, 3)
    ahead = shard.batch(pointers[-1], {b"x": stored(b"committed in another checkpoint?")})
    successor = Shard(shard.home, recovery=OPTIONS, run_name="run2")
    run_batches(successor, pointers, 2)
    assert ahead.head not in garbage_names(shard, pointers[-1], epoch=2)
    run_batches(successor, pointers, 20)
    assert ahead.head not in shard.files(), "removed by the snapshots' own collections"


def test_files_of_a_later_run_are_not_judged(shard: Shard) -> None:
    pointers = [shard.start()]
    run_batches(shard, pointers, 3)
    forked = Shard(shard.home, recovery=OPTIONS, run_name="run2")
    forked.state = replace(forked.state, accept_older_checkpoint=True)
    other = forked.batch(pointers[1], {b"x": stored(b"fork")})
    assert other.head not in garbage_names(shard, pointers[-1], epoch=1)


def test_an_upload_goes_once_no_pointer_that_is_retained_can_name_it(shard: Shard) -> None:
    pointers = [shard.start()]
    run_batches(shard, pointers, 8)
    newest = pointers[-1].snapshots[-1].version
    name = f"shards/0000/snapshots/{newest + 1:012d}-00000001-{'0' * 32}/000001.sst"
    shard.state.location.write(name, b"table")
    assert name not in garbage_names(shard, pointers[-1])
    run_batches(shard, pointers, 16)
    assert name not in shard.files()


def test_old_fences_go_and_the_last_ones_stay(shard: Shard) -> None:
    pointers = [shard.start()]
    for number in range(20):
        run = Shard(shard.home, recovery=OPTIONS, run_name=f"run{number:02d}")
        run_batches(run, pointers, 1)
    collect_garbage(shard.state.location, pointers[-1], 20, RETAINED)
    fences = sorted(name for name in shard.files() if name.endswith(".fence"))
    assert [name[-10:-6] for name in fences] == [f"un{number:02d}" for number in range(4, 20)]
    left = [partial_name(fence_name(0, FenceName(19, "killed"))), partial_name(new_collection_name(0, 4, 19))]
    under_way = partial_name(fence_name(0, FenceName(21, "starts")))
    for name in (*left, under_way):
        (shard.home / "state" / name).write_bytes(b"")
    collect_garbage(shard.state.location, pointers[-1], 20, RETAINED)
    assert shard.files().intersection([*left, under_way]) == {under_way}
