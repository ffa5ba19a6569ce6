"""Checkpoints whose history another run has given up: refused, and taken only if that is said and all is there."""

from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors import CheckpointBehindError, VersionCollectedError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.fences.run_fences import RunFences
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.snapshots.garbage import collect_garbage
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

OPTIONS = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000, retained_versions=2)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path)


def run(shard: Shard, name: str, *, accept_older_checkpoint: bool = False) -> Shard:
    """Return another run on the same state, with local copies of its own."""
    other = Shard(shard.home, recovery=shard.recovery, run_name=name)
    local = LocalDirectory(shard.home / f"local-{name}")
    other.state = replace(other.state, local=local, accept_older_checkpoint=accept_older_checkpoint)
    return other


def advance(shard: Shard, pointer: CommitPointer, version: int) -> list[CommitPointer]:
    """Return the pointer and those that follow, each with the value `RUN VERSION`, up to one of `version`."""
    pointers = [pointer]
    while pointers[-1].version < version:
        value = f"{shard.state.run} {pointers[-1].version + 1}".encode()
        pointers.append(shard.batch(pointers[-1], {b"k": stored(value)}))
    wait_for_uploads()
    return pointers


def files(shard: Shard) -> list[str]:
    root = shard.home / "state"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_checkpoint_that_was_given_up_is_refused_although_its_version_is_higher(shard: Shard) -> None:
    first = advance(shard, shard.start(), 20)
    second = advance(run(shard, "run2", accept_older_checkpoint=True), first[5], 11)
    before = files(shard)
    with pytest.raises(CheckpointBehindError, match=r"version 20 .* run run2 .* after version 5") as given_up:
        advance(run(shard, "run3"), first[-1], 21)
    assert (given_up.value.shard, given_up.value.version, given_up.value.since) == (0, 20, 5)
    assert "run run2" in given_up.value.by
    assert files(shard) == before, "nothing was written"
    restarted = run(shard, "run4")
    assert restarted.content(advance(restarted, second[-1], 12)[-1]) == {b"k": stored(b"run4 12")}


def test_a_checkpoint_that_was_given_up_is_taken_if_that_is_said(shard: Shard) -> None:
    first = advance(shard, shard.start(), 20)
    second = advance(run(shard, "run2", accept_older_checkpoint=True), first[5], 11)
    third = advance(run(shard, "run3", accept_older_checkpoint=True), first[-1], 21)
    assert run(shard, "reader").content(third[-1]) == {b"k": stored(b"run3 21")}
    with pytest.raises(CheckpointBehindError, match=r"version 11 .* run run3 .* after version 5"):
        advance(run(shard, "run4"), second[-1], 12)
    with pytest.raises(CheckpointBehindError, match="version 20 was committed here by run run1"):
        advance(run(shard, "run5"), first[19], 20)
    restarted = run(shard, "run6")
    assert restarted.content(advance(restarted, third[-1], 23)[-1]) == {b"k": stored(b"run6 23")}


def test_a_checkpoint_at_the_version_where_another_history_went_on(shard: Shard) -> None:
    first = advance(shard, shard.start(), 10)
    second = advance(run(shard, "run2", accept_older_checkpoint=True), first[5], 10)
    on = advance(run(shard, "run3"), second[-1], 11)
    with pytest.raises(CheckpointBehindError, match=r"run run2 .* after version 5"):
        advance(run(shard, "run4"), first[-1], 11)
    with pytest.raises(CheckpointBehindError, match="version 10 was committed here by run run2"):
        advance(run(shard, "run5"), second[-2], 10)
    assert advance(run(shard, "run6"), on[-1], 12)[-1].version == 12


def test_one_batch_after_going_back_is_enough_to_refuse_what_was_given_up(shard: Shard) -> None:
    first = advance(shard, shard.start(), 6)
    advance(run(shard, "run2", accept_older_checkpoint=True), first[3], 4)
    with pytest.raises(CheckpointBehindError, match="after version 3"):
        advance(run(shard, "run3"), first[-1], 7)


def test_a_run_that_has_gone_back_and_crashed_before_its_first_commit(shard: Shard) -> None:
    first = advance(shard, shard.start(), 6)
    crashed = run(shard, "run2", accept_older_checkpoint=True)
    RunFences(crashed.state.location, "run2", accept_older_checkpoint=True).hold(first[3])
    assert advance(run(shard, "left"), first[6], 7)[-1].version == 7, "it has made nothing that could be lost"
    advance(run(shard, "run3", accept_older_checkpoint=True), first[3], 4)
    assert advance(run(shard, "run4"), first[3], 5)[-1].version == 5, "its batch was not committed, and comes again"


def test_a_run_that_has_gone_back_and_written_nothing_speaks_for_no_other(shard: Shard) -> None:
    first = advance(shard, shard.start(), 6)
    RunFences(shard.state.location, "run2", accept_older_checkpoint=True).hold(first[3])
    with pytest.raises(CheckpointBehindError, match="version 5 was committed here by run run1"):
        advance(run(shard, "run3"), first[3], 4)


def test_a_commit_that_the_next_run_did_not_see_is_no_abandoned_history(shard: Shard) -> None:
    """Two drivers on one checkpoint: the first one commits its batch after the second has left its fence."""
    first = advance(shard, shard.start(), 2)
    in_flight = advance(shard, first[-1], 3)
    advance(run(shard, "run2"), first[-1], 3)
    restarted = run(shard, "run3")
    assert restarted.content(advance(restarted, in_flight[-1], 4)[-1]) == {b"k": stored(b"run3 4")}


def test_fences_of_older_releases_give_up_by_version(shard: Shard) -> None:
    first = advance(shard, shard.start(), 20)
    advance(run(shard, "run2", accept_older_checkpoint=True), first[5], 11)
    for fence in (shard.home / "state/shards/0000/deltas").glob("*.fence"):
        version = 5 if "run2" in fence.name else 0
        fence.write_text(f'{{"format": 1, "run": "x", "version": {version}, "host": "h", "time_ms": 5}}')
    with pytest.raises(CheckpointBehindError, match="after version 5"):
        advance(run(shard, "run3"), first[-1], 21)


@pytest.fixture
def collecting(tmp_path: Path) -> Shard:
    return Shard(tmp_path, recovery=OPTIONS)


@pytest.mark.parametrize("lost", ["delta", "manifest", "table"])
def test_going_back_to_what_was_collected_is_refused_with_the_name_of_the_file(collecting: Shard, lost: str) -> None:
    pointers = advance(collecting, collecting.start(), 12)
    target = pointers[-3]
    snapshot = target.snapshots[-2].manifest.name
    tables = (name for name in files(collecting) if name.startswith(snapshot.rpartition("/")[0]) and "CURRENT" in name)
    name = {"delta": target.deltas[0].name, "manifest": snapshot, "table": next(tables)}[lost]
    (collecting.home / "state" / name).unlink()
    before = files(collecting)
    with pytest.raises(VersionCollectedError, match=name) as collected:
        advance(run(collecting, "run2", accept_older_checkpoint=True), target, target.version + 1)
    assert (collected.value.shard, collected.value.version, collected.value.file) == (0, target.version, name)
    assert files(collecting) == before, "nothing was written"


def test_a_file_that_was_cut_is_not_there(collecting: Shard) -> None:
    pointers = advance(collecting, collecting.start(), 12)
    (collecting.home / "state" / pointers[-3].deltas[0].name).write_bytes(b"cut")
    with pytest.raises(VersionCollectedError, match=pointers[-3].deltas[0].name):
        advance(run(collecting, "run2", accept_older_checkpoint=True), pointers[-3], 11)


def collect(shard: Shard, pointer: CommitPointer) -> int:
    return collect_garbage(shard.state.location, pointer, 1, 2)


class Interrupted(Exception):
    """The collector stands still here."""


def until(shard: Shard, pointer: CommitPointer, step: str, then: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the garbage collection of run 1, and call `then` right before it first does `step` on the location."""
    location = shard.state.location
    original = getattr(location, step)
    done = []

    def interrupted(*arguments: object) -> object:
        if not done:
            done.append(True)
            then()
        return original(*arguments)

    monkeypatch.setattr(location, step, interrupted)
    collect(shard, pointer)
    monkeypatch.setattr(location, step, original)
    assert done


@pytest.fixture
def old_and_new(collecting: Shard) -> tuple[Shard, CommitPointer, CommitPointer]:
    """Return a shard whose garbage stays, a pointer that needs of it, and the last one."""
    collecting.recovery = replace(OPTIONS, retained_versions=1000)
    collecting.state = replace(collecting.state, recovery=collecting.recovery)
    pointers = advance(collecting, collecting.start(), 20)
    return collecting, pointers[8], pointers[20]


def test_a_zombie_collector_removes_nothing_that_a_run_needs_that_went_back(
    old_and_new: tuple[Shard, CommitPointer, CommitPointer], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, old, newest = old_and_new
    back: list[CommitPointer] = []
    successor = run(shard, "run2", accept_older_checkpoint=True)
    until(shard, newest, "write", lambda: back.extend(advance(successor, old, old.version + 1)), monkeypatch)
    assert run(shard, "reader").content(back[-1]) == {b"k": stored(b"run2 9")}
    assert not [name for name in files(shard) if name.endswith(".collecting")]


def test_a_run_does_not_go_back_to_what_a_collector_is_about_to_remove(
    old_and_new: tuple[Shard, CommitPointer, CommitPointer], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, old, newest = old_and_new
    refused: list[VersionCollectedError] = []

    def go_back() -> None:
        with pytest.raises(VersionCollectedError, match=r"deltas/.*\.collecting") as collected:
            advance(run(shard, "run2", accept_older_checkpoint=True), old, old.version + 1)
        refused.append(collected.value)

    until(shard, newest, "delete", go_back, monkeypatch)
    assert refused[0].version == old.version
    assert not [name for name in files(shard) if name.endswith(".collecting")]
    restarted = run(shard, "run3")
    assert restarted.content(advance(restarted, newest, 21)[-1]) == {b"k": stored(b"run3 21")}


def test_what_a_collector_that_died_has_announced_is_collected_and_told_of(
    old_and_new: tuple[Shard, CommitPointer, CommitPointer], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, old, newest = old_and_new
    location = shard.state.location

    def die(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(location, "delete", die)
        with pytest.raises(Interrupted):
            collect(shard, newest)
    (announced,) = [name for name in files(shard) if name.endswith(".collecting")]
    with pytest.raises(VersionCollectedError, match=announced):
        advance(run(shard, "run2", accept_older_checkpoint=True), old, old.version + 1)
    collect(shard, newest)
    assert not [name for name in files(shard) if name.endswith(".collecting")]
    assert run(shard, "reader").content(newest) == {b"k": stored(b"run1 20")}
