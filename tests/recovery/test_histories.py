"""Lines of history, without databases: random runs from random checkpoints, and collections beside them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.errors import CheckpointBehindError, LocationError, RunFencedError, VersionCollectedError
from statestore.recovery.commit.manifest import Manifest, SnapshotFile
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.fences.history import Abandoned, Fence, Histories
from statestore.recovery.fences.run_fences import RunFences
from statestore.recovery.location.durable_files import DurableEntry
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import Written, new_delta_name, parse_fence_name
from statestore.recovery.metadata.state_metadata import METADATA_NAME, StateMetadata
from statestore.recovery.snapshots.garbage import collect_garbage
from tests.support.recovery.interleavings import Ended, Files, Interleavings, Operation, perform
from tests.support.recovery.raced_fences import RacedFences

RECORDED = {METADATA_NAME: StateMetadata("s", 1, "key", (0,), stores=(), topology=()).to_json().encode()}


class MemoryLocation(DurableLocation):
    """The operations that fences need, on files in memory."""

    def __init__(self) -> None:
        super().__init__("/memory")
        self.files: Files = frozenset(RECORDED.items())

    def _do(self, *operation: object) -> object:
        self.files, answer = perform(self.files, Operation(*operation))
        return answer

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        data = self._do("read", name)
        return None if data is None else pa.py_buffer(data)

    def write(self, name: str, data: bytes) -> None:
        self._do("write", name, data)

    def entries(self, directory: str) -> list[DurableEntry]:
        return [DurableEntry(*entry, None) for entry in self._do("list", directory)]


@dataclass(eq=False)
class Commit:
    """A version, and what it was built on."""

    parent: "Commit | None" = None
    pointer: CommitPointer = field(default_factory=lambda: CommitPointer("s", 0))
    is_proven: bool = False
    """Whether something was built on it, or a run went on from it."""
    is_given_up: bool = False

    def history(self) -> Iterator["Commit"]:
        commit: Commit | None = self
        while commit is not None:
            yield commit
            commit = commit.parent


@dataclass(eq=False)
class Run:
    fences: RunFences
    at: Commit
    gives_up: list[Commit] = field(default_factory=list)
    """What it leaves behind on purpose, once it has written something."""
    has_decided: bool = True
    """Whether it speaks for the next one from there: not if it went back, and has written nothing."""


class World:
    """A shard, and an oracle that knows of each commit what it was built on."""

    def __init__(self) -> None:
        self.location = MemoryLocation()
        self.commits = [Commit()]
        self.runs: list[Run] = []
        self.entered: list[Run] = []
        self.failed = False

    def start(self, at: Commit, *, accept: bool) -> None:
        fences = RunFences(self.location, f"run{len(self.runs)}", accept_older_checkpoint=accept)
        run = Run(fences, at)
        history = set(at.history())
        lost = [c for c in self.commits if c.is_proven and not c.is_given_up and c not in history]
        try:
            fences.hold(at.pointer)
        except CheckpointBehindError:
            assert not accept
            elsewhere = [c for c in self.commits if c not in history and c is not self.commits[0]]
            # What an attempt wrote that Spark did not take looks like a commit.
            assert elsewhere or self.failed, "refused although there is nothing else"
            is_newest = self.entered and self.entered[-1].at is at and self.entered[-1].has_decided
            assert not is_newest, "the newest commit can always be gone on from"
            return
        assert accept or not lost, "what was committed was given up in silence"
        self.runs.append(run)
        self.entered.append(run)
        if accept:
            run.has_decided = False
            run.gives_up = [commit for commit in self.commits if commit not in history]
        at.is_proven = True

    def commit(self, run: Run, *, counts: bool) -> None:
        pointer = run.at.pointer
        try:
            epoch = run.fences.hold(pointer)
        except RunFencedError:
            assert run is not self.entered[-1]
            return
        assert run is self.entered[-1]
        name = new_delta_name(0, pointer.version + 1, epoch)
        self.location.write(name, b"")
        for commit in run.gives_up:
            commit.is_given_up = True
        for commit in run.at.history():
            commit.is_given_up = False
        run.gives_up, run.has_decided = [], True
        if not counts:
            self.failed = True
            return
        file = DurableFile(name, 0, "")
        made = replace(pointer, version=pointer.version + 1, deltas=(*pointer.deltas, file))
        run.at.is_proven = True
        run.at = Commit(run.at, made)
        self.commits.append(run.at)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_start_gives_up_in_silence_what_was_committed(data: st.DataObject) -> None:
    world = World()
    world.start(world.commits[0], accept=False)
    for _ in range(data.draw(st.integers(1, 25), "steps")):
        kind = data.draw(st.sampled_from(["start", "newest", "commit", "commit", "commit", "zombie", "fail"]))
        if kind == "start":
            world.start(data.draw(st.sampled_from(world.commits)), accept=data.draw(st.booleans()))
        elif kind == "newest":
            world.start(world.entered[-1].at, accept=False)
        else:
            run = data.draw(st.sampled_from(world.runs)) if kind == "zombie" else world.entered[-1]
            world.commit(run, counts=kind != "fail")
    # What the steps must not do is asserted in them. In the end, the run that entered last holds the shard.
    fences = [fence for name in world.location.names("shards/0000/deltas") if (fence := parse_fence_name(name))]
    assert max(fences).run == world.entered[-1].fences.run
    assert {fence.run for fence in fences} == {run.fences.run for run in world.runs}


def _snapshot(version: int, table: DurableFile, delta: str) -> tuple[SnapshotRef, Manifest]:
    name = f"shards/0000/snapshots/{version:012d}-00000001-{version:032x}/manifest.json"
    files = (SnapshotFile("CURRENT", replace_name(table, version)), SnapshotFile("1.sst", table))
    manifest = Manifest("s", 0, version, delta, None, {}, files)
    data = manifest.to_json()
    return SnapshotRef(version, DurableFile(name, len(data), digest(data)), delta, version), manifest


def replace_name(file: DurableFile, version: int) -> DurableFile:
    return DurableFile(f"shards/0000/snapshots/{version:012d}-00000001-{version:032x}/CURRENT", 0, file.digest)


def _collected_shard() -> tuple[dict[str, bytes], list[CommitPointer]]:
    """Return the files of a shard at version 6 of run 1, with snapshots of 1, 2, 4 and 5, and its pointers."""
    files = dict(RECORDED)
    pointer = CommitPointer("s", 0)
    pointers = [pointer]
    snapshots: tuple[SnapshotRef, ...] = ()
    for version in range(1, 7):
        name = f"shards/0000/deltas/{version:012d}-00000001-{version:032x}.arrow"
        files[name] = b""
        deltas = (*pointer.deltas, DurableFile(name, 0, ""))
        if version in (1, 2, 4, 5):
            table = DurableFile(f"shards/0000/snapshots/{version:012d}-00000001-{version:032x}/1.sst", 0, "")
            made, manifest = _snapshot(version, table, name)
            snapshots = (*snapshots, made)
            files[made.manifest.name] = manifest.to_json()
            files.update({file.durable.name: b"" for file in manifest.files})
        base = snapshots[-2].version if len(snapshots) > 1 else 0
        pointer = CommitPointer("s", 0, version, deltas[len(deltas) - (version - base) :], snapshots=snapshots)
        pointers.append(CommitPointer.from_json(pointer.to_json()))
    files["shards/0000/deltas/00000001-run1.fence"] = (
        b'{"format": 1, "run": "run1", "version": 0, "head": "", "went_back": false, "host": "h", "time_ms": 5}'
    )
    return files, pointers


def test_at_no_moment_does_a_collection_remove_what_a_run_needs_that_has_gone_back() -> None:
    files, pointers = _collected_shard()
    back = pointers[2]
    needed = {file.name for file in back.deltas} | {snapshot.manifest.name for snapshot in back.snapshots[-2:]}

    def collector(location: DurableLocation) -> int:
        return collect_garbage(location, pointers[6], 1, 1)

    def goes_back(location: DurableLocation) -> int:
        return RunFences(location, "run2", accept_older_checkpoint=True).hold(back)

    outcomes = set()
    states = 0
    for state in Interleavings([collector, goes_back], files).states():
        states += 1
        names = {name for name, _ in state.files}
        entered = state.ended[1]
        if entered is not None:
            assert isinstance(entered, Ended)
            assert entered.error is None or isinstance(entered.error, VersionCollectedError)
            outcomes.add((entered.error is None, state.ended[0] is not None, needed <= names))
            assert entered.error is not None or needed <= names
        if all(state.ended):
            assert not [name for name in names if name.endswith(".collecting")]
    assert {(True, True, True), (False, True, False)} <= outcomes, "either of both may come first"
    assert states > 100


def test_of_runs_that_enter_at_once_one_goes_on_and_no_epoch_is_shared() -> None:
    head = CommitPointer("s", 0)

    def enters(run: str):
        def task(location: DurableLocation) -> int:
            epoch = RunFences(location, run).hold(head)
            location.write(new_delta_name(0, 1, epoch), run.encode())
            return epoch

        return task

    finals = 0
    for state in Interleavings([enters("a"), enters("b")], RECORDED).states():
        if all(state.ended):
            finals += 1
            assert all(end.error is None or isinstance(end.error, LocationError) for end in state.ended)
            assert any(end.error is None for end in state.ended)
            epochs = [end.value for end in state.ended if end.error is None]
            assert len(set(epochs)) == len(epochs)
    assert finals > 1


def test_runs_that_share_an_epoch_are_told_apart_by_what_each_went_on_from() -> None:
    def delta(version: int, epoch: int) -> str:
        return f"{version:012d}-{epoch:08d}-{version:016x}{epoch:016x}.arrow"

    began = [(1, "a", 0, ""), (2, "b", 6, delta(6, 1)), (2, "c", 5, delta(5, 1)), (3, "d", 6, delta(6, 1))]
    histories = Histories(Fence(epoch, run, version, head=head, went_back=False) for epoch, run, version, head in began)
    deltas = [*(Written(version, 1) for version in range(1, 7)), Written(7, 2)]
    # The one that went on from 6 has made 7, and nothing is known of what the last one did.
    assert histories.judge(Written(7, 2), deltas, delta(6, 1)) is None
    # Had it gone on from 5, its own 6 would not be the one that others have built on.
    found = histories.judge(Written(7, 2), deltas, delta(5, 1))
    assert isinstance(found, Abandoned)
    assert found.since == 5
    assert isinstance(histories.judge(Written(7, 2), deltas), Abandoned)


class RacedLocation(RacedFences, MemoryLocation):
    """A location in memory, whose fences are raced."""


def committed(location: MemoryLocation, run: str, pointer: CommitPointer, **options: bool) -> CommitPointer:
    """Commit a version in the name of a run, and return its pointer."""
    epoch = RunFences(location, run, **options).hold(pointer)
    name = new_delta_name(0, pointer.version + 1, epoch, run)
    location.write(name, b"")
    made = DurableFile(name, 0, "")
    return replace(pointer, version=pointer.version + 1, deltas=(*pointer.deltas, made))


@pytest.mark.parametrize("is_later", [True, False])
def test_a_run_that_was_refused_in_an_epoch_of_two_gives_up_nothing(is_later: bool) -> None:
    """Found by the simulation: its fence was taken for that of the one who had written in their epoch."""
    location = RacedLocation()
    pointers = [CommitPointer("s", 0)]
    for _ in range(3):
        pointers.append(committed(location, "r1", pointers[-1]))
    made: list[CommitPointer] = []
    location.before_fence = lambda: made.append(committed(location, "r5", pointers[3]))
    with pytest.raises((CheckpointBehindError, RunFencedError)):
        committed(location, "r9" if is_later else "r2", pointers[2])
    # Spark has not taken what was written, or has.
    assert RunFences(location, "restart").hold(pointers[3]) == 3
    assert RunFences(location, "again").hold(made[0]) == 4


@pytest.mark.parametrize("is_later", [True, False])
def test_of_two_copies_of_a_checkpoint_that_enter_at_once_the_one_that_writes_goes_on(is_later: bool) -> None:
    """Found by the simulation: both were refused from then on, each for the fence of the other."""
    location = RacedLocation()
    of_one, of_other = (committed(location, run, CommitPointer("s", 0)) for run in ("one", "other"))
    made: list[CommitPointer] = []
    location.before_fence = lambda: made.append(committed(location, "r5", of_other))
    with pytest.raises((CheckpointBehindError, RunFencedError)):
        committed(location, "r9" if is_later else "r2", of_one)
    with pytest.raises(CheckpointBehindError, match="run other"):
        committed(location, "again", of_one)
    # Spark has not taken what was written, or has.
    assert RunFences(location, "restart").hold(of_other) == 4
    assert RunFences(location, "restarted").hold(made[0]) == 5


def test_a_run_is_not_refused_for_what_it_wrote_itself_in_an_epoch_that_another_one_took_too() -> None:
    location = RacedLocation()
    first = committed(location, "r1", CommitPointer("s", 0))
    second = committed(location, "r1", first)
    third = committed(location, "r1", second)
    committed(location, "r1", third)
    location.before_fence = lambda: committed(location, "r7", third)
    with pytest.raises(RunFencedError):
        committed(location, "r5", first, accept_older_checkpoint=True)
    # Another attempt of the same batch: its run takes the next epoch.
    assert RunFences(location, "r7").hold(third) == 3
