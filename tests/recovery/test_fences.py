"""Who may write to a shard: restarts, zombies, copied checkpoints, older checkpoints."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors import CheckpointBehindError, LocationError, RunFencedError
from statestore.errors.state import AttemptOutdatedError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.fences.history import Fence, read_fences, write_fence
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import delta_directory, parse_delta_name, parse_fence_name
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.hdfs_like import HdfsLikeLocation
from tests.support.recovery.shards import Shard, stored


@pytest.fixture(params=[DurableLocation, HdfsLikeLocation])
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> Shard:
    return Shard(tmp_path, kind=request.param)


def again(shard: Shard, run: str, *, accept_older_checkpoint: bool = False) -> Shard:
    """Return another run on the same state, with local copies of its own."""
    other = Shard(shard.home, run_name=run, kind=shard.kind)
    local = type(shard.state.local)(shard.home / f"local-{run}")
    other.state = replace(other.state, local=local, accept_older_checkpoint=accept_older_checkpoint)
    return other


def put(shard: Shard, pointer: CommitPointer, value: bytes) -> CommitPointer:
    return shard.batch(pointer, {b"k": stored(value)})


def files(shard: Shard) -> list[str]:
    return sorted(path.name for path in (shard.home / "state/shards/0000/deltas").iterdir())


def test_a_run_leaves_one_fence_and_its_epoch_in_the_names(shard: Shard) -> None:
    pointer = put(shard, put(shard, shard.start(), b"1"), b"2")
    assert [name for name in files(shard) if parse_fence_name(name)] == ["00000001-run1.fence"]
    restarted = again(shard, "run2")
    put(restarted, pointer, b"3")
    assert [name for name in files(shard) if parse_fence_name(name)] == ["00000001-run1.fence", "00000002-run2.fence"]
    written = sorted(found for name in files(shard) if (found := parse_delta_name(name)))
    assert [(found.version, found.epoch) for found in written] == [(1, 1), (2, 1), (3, 2)]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_machine_that_has_not_mounted_the_location_commits_nothing(shard: Shard, is_new: bool) -> None:
    """It finds an empty directory: what it wrote there would be committed, and no other machine would find it."""
    pointer = shard.start()
    if not is_new:
        pointer = put(shard, pointer, b"1")
        assert shard.content(pointer), "its local copy is at that version"
    (shard.home / "state").rename(shard.home / "mounted elsewhere")
    with pytest.raises(
        LocationError, match=r"has no statestore\.json on \S+, though .*Mount it on the driver and every"
    ):
        put(shard, pointer, b"2")
    assert not (shard.home / "state").exists(), "nothing was written"


def test_the_run_before_a_restart_is_stopped_at_its_next_commit(shard: Shard) -> None:
    pointer = put(shard, shard.start(), b"1")
    restarted = again(shard, "run2")
    after = put(restarted, pointer, b"2")
    before = files(shard)
    with pytest.raises(RunFencedError, match="shard 0 was taken over from run run1 by run run2") as fenced:
        put(shard, pointer, b"zombie")
    assert (fenced.value.shard, fenced.value.run) == (0, "run1")
    assert files(shard) == before, "nothing was written"
    assert restarted.content(put(restarted, after, b"3")) == {b"k": stored(b"3")}


def test_an_attempt_of_the_same_run_that_comes_too_late(shard: Shard) -> None:
    pointer = put(shard, shard.start(), b"1")
    newer = put(shard, pointer, b"2")
    # Next to one that was committed, it can't be told from a retry: Spark decides.
    assert put(shard, pointer, b"twin").version == 2
    newest = put(shard, newer, b"3")
    with pytest.raises(AttemptOutdatedError, match="version 1 for this attempt, and version 3") as late:
        put(shard, pointer, b"late")
    assert (late.value.version, late.value.found) == (1, 3)
    assert shard.content(newest) == {b"k": stored(b"3")}


def in_two_epochs(shard: Shard) -> CommitPointer:
    """Return what the first attempt of a batch has committed; another one has left a fence of a later epoch."""
    pointer = put(shard, shard.start(), b"1")
    write_fence(shard.state.location, 0, Fence(2, "run1", 0, head="", went_back=False))
    return pointer


def test_a_run_whose_attempts_are_in_two_epochs_can_be_restarted(shard: Shard) -> None:
    pointer = in_two_epochs(shard)
    for _ in range(2):
        put(shard, pointer, b"not committed")
    fences = [name for name in files(shard) if parse_fence_name(name)]
    assert fences == ["00000001-run1.fence", "00000002-run1.fence", "00000003-run1.fence"]
    restarted = again(shard, "run2")
    assert restarted.content(put(restarted, pointer, b"2")) == {b"k": stored(b"2")}


def test_a_run_whose_attempts_are_in_two_epochs_is_stopped_by_a_restart(shard: Shard) -> None:
    pointer = in_two_epochs(shard)
    put(again(shard, "run2"), pointer, b"2")
    before = files(shard)
    with pytest.raises(RunFencedError):
        put(shard, pointer, b"zombie")
    assert files(shard) == before, "nothing was written"


def test_a_checkpoint_that_is_behind_is_refused_until_it_is_accepted(shard: Shard) -> None:
    old = put(shard, shard.start(), b"1")
    newer = put(shard, put(shard, old, b"2"), b"3")
    before = files(shard)
    with pytest.raises(CheckpointBehindError, match="version 1 in the Spark checkpoint, but version 2") as behind:
        put(again(shard, "run2"), old, b"fork")
    assert (behind.value.version, behind.value.found) == (1, 2)
    assert "run run1" in behind.value.by
    assert files(shard) == before
    accepted = again(shard, "run3", accept_older_checkpoint=True)
    forked = put(accepted, old, b"fork")
    assert accepted.content(forked) == {b"k": stored(b"fork")}
    assert shard.content(newer) == {b"k": stored(b"3")}, "the other history is still there"
    restarted = again(shard, "run4")
    assert put(restarted, forked, b"on").version == 3, "what was given up is not in the way of later runs"


def test_a_crash_right_before_the_commit_is_no_fork(shard: Shard) -> None:
    pointer = put(shard, shard.start(), b"1")
    put(shard, pointer, b"never committed")
    restarted = again(shard, "run2")
    assert restarted.content(put(restarted, pointer, b"2")) == {b"k": stored(b"2")}


def test_runs_that_take_over_from_each_other_damage_nothing(shard: Shard) -> None:
    """One checkpoint copied, both started: each goes on until the other has committed two batches."""
    common = put(shard, shard.start(), b"common")
    first, second = again(shard, "a"), again(shard, "b")
    of_first = put(first, common, b"a1")
    of_second = put(second, common, b"b1")
    with pytest.raises(RunFencedError, match="run b"):
        put(first, of_first, b"a2")
    of_second = put(second, put(second, of_second, b"b2"), b"b3")
    with pytest.raises(CheckpointBehindError, match="run b"):
        put(again(shard, "c"), of_first, b"c1")
    chosen = again(shard, "d", accept_older_checkpoint=True)
    of_chosen = put(chosen, of_first, b"d1")
    for run in (first, second, chosen):
        shutil.rmtree(Path(run.state.local.path or ""), ignore_errors=True)
    assert chosen.content(of_chosen) == {b"k": stored(b"d1")}
    assert second.content(of_second) == {b"k": stored(b"b3")}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": -1}'])
def test_a_fence_that_cannot_be_read_still_fences(shard: Shard, content: bytes) -> None:
    pointer = put(shard, shard.start(), b"1")
    put(again(shard, "run2"), pointer, b"2")
    (shard.home / "state/shards/0000/deltas/00000002-run2.fence").write_bytes(content)
    with pytest.raises(RunFencedError, match="its fence can't be read"):
        put(shard, pointer, b"zombie")


@pytest.mark.parametrize("content", [b"", b'{"version": 0}'])
def test_a_fence_that_cannot_be_read_lets_no_stale_checkpoint_pass(shard: Shard, content: bytes) -> None:
    old = put(shard, shard.start(), b"1")
    newest = put(shard, put(shard, old, b"2"), b"3")
    (shard.home / "state/shards/0000/deltas/00000002-died.fence").write_bytes(content)
    with pytest.raises(CheckpointBehindError, match="version 2 was committed here by run run1"):
        put(again(shard, "run3"), old, b"fork")
    assert put(again(shard, "run4"), newest, b"4").version == 4


def test_what_a_later_run_gave_up_stays_given_up_whoever_came_in_between(shard: Shard) -> None:
    pointers = [shard.start()]
    for number in range(5):
        pointers.append(put(shard, pointers[-1], b"%d" % number))
    put(again(shard, "run2"), pointers[5], b"a restart as usual")
    back = put(again(shard, "run3", accept_older_checkpoint=True), pointers[1], b"back")
    restarted = again(shard, "run4")
    on = put(restarted, back, b"on")
    assert restarted.content(on) == {b"k": stored(b"on")}
    further = put(restarted, on, b"further")
    with pytest.raises(CheckpointBehindError, match="version 3 was committed here by run run4"):
        put(again(shard, "run5"), back, b"behind what went on")
    assert put(again(shard, "run6"), further, b"and on").version == 5


def test_a_run_records_how_many_versions_it_retains(shard: Shard) -> None:
    put(shard, shard.start(), b"1")
    state = replace(shard.state, run="run2", recovery=RecoveryOptions(retained_versions=7))
    shard.state = state
    put(shard, put(shard, shard.start(), b"1"), b"2")
    location = shard.state.location
    fences = read_fences(location, location.names(delta_directory(0)))
    assert [(fence.run, fence.retained_versions) for fence in fences] == [("run1", 100), ("run2", 7)]
    (shard.home / "state/shards/0000/deltas/00000003-older.fence").write_text(
        '{"format": 1, "run": "older", "version": 2, "host": "h", "time_ms": 5}'
    )
    fence = read_fences(location, location.names(delta_directory(0)))[-1]
    assert (fence.from_version, fence.retained_versions) == (2, None), "as older releases wrote it"


def test_the_last_epoch_is_refused_and_not_gone_beyond(shard: Shard) -> None:
    pointer = put(shard, shard.start(), b"1")
    last = shard.home / "state/shards/0000/deltas/99999999-x.fence"
    last.write_bytes(b"")
    before = files(shard)
    with pytest.raises(LocationError, match=r"99999999-x\.fence has the highest possible epoch"):
        put(again(shard, "run2"), pointer, b"2")
    assert files(shard) == before
    last.rename(last.with_name("99999998-x.fence"))
    put(again(shard, "run2"), pointer, b"2")
    with pytest.raises(RunFencedError, match="by run run2"):
        put(shard, pointer, b"zombie")
