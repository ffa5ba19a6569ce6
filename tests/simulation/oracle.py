"""The oracle: what must be readable after each step, and which refusals and failures there may be."""

from __future__ import annotations

import json
import re
import traceback
from typing import TYPE_CHECKING, Any

from statestore.errors import (
    CheckpointBehindError,
    LocalDirectoryError,
    LocationBusyError,
    LocationError,
    LocationInUseError,
    RunFencedError,
    ShardCountChangedError,
    StateStoreError,
    StoreError,
    TopologyChangedError,
)
from statestore.errors.state import (
    AttemptOutdatedError,
    DurableFileMissingError,
    LocalDiskFullError,
    LocalStateCorruptedError,
    LocationNotWritableError,
    StateUnfinishedError,
)
from statestore.recovery.commit.manifest import Manifest
from statestore.recovery.commit.pointer import CommitPointer, SnapshotRef, initial_pointer
from statestore.recovery.fences.history import Fence, read_fences
from statestore.recovery.location.shard_files import (
    Written,
    delta_directory,
    fence_name,
    parse_delta_name,
    parse_fence_name,
)
from statestore.recovery.making.rescale import RescaleReport
from statestore.recovery.metadata.state_metadata import METADATA_NAME, UNFINISHED_NAME, StateMetadata, read_metadata
from tests.simulation.workload import Reference, differences
from tests.support.recovery import MAX_BYTES

if TYPE_CHECKING:
    from tests.simulation.rescaling import Rescaling
    from tests.simulation.spark import Attempt, Checkpoint, Driver
    from tests.simulation.world import Site, World

_SHOWN = 6


class Oracle:
    """Knows what was committed, by which run, and what it must hold."""

    def __init__(self, world: World, site: Site) -> None:
        self.world = world
        self.site = site
        self.runs: dict[str, Driver] = {}
        self.heads: dict[tuple[int, str], Reference] = {}
        """What a shard must hold at the version that a delta made."""
        self.roots: dict[tuple[str, int], Reference] = {}
        """What shards hold to begin with, of states that were rescaled."""
        self.claims: set[str] = set()
        self.recorded_generation = -1
        """The newest that anybody has seen recorded, whatever a slow start has written since."""
        self.last_committer: Driver | None = None
        self.must_refuse: dict[tuple[int, str], str] = {}
        """By shard and run: why the run must not have entered."""
        self.entered: dict[tuple[int, str], set[int]] = {}
        """By shard and run: the epochs in which it has committed, of all those that it has left fences in."""
        self.makers: dict[str, str] = {}
        """By delta: the run of the attempt that wrote it, whatever the name says."""
        self.appeared: dict[str, int] = {}
        """By fence and delta: how many operations there had been when it was there for the first time."""

    # What was read and made.

    def reference(self, pointer: CommitPointer) -> Reference | None:
        """Return what must be there at a pointer, None if nobody made it."""
        if pointer.head:
            return self.heads.get((pointer.shard, pointer.head))
        began = self.roots.get((pointer.state_id, pointer.shard))
        return began or self.site.workload.reference(pointer.shard, self.site.shards)

    def check_content(self, who: str, pointer: CommitPointer, batch: Any) -> None:
        """Fail unless an opened shard holds what it must."""
        reference = self.reference(pointer)
        if reference is None:
            self._fail(f"{who} was opened at a version that nobody made: {pointer}")
            return
        found = {name: dict(store.bytes.range(None, None)) for name, store in batch.stores.items()}
        wrong = list(differences(reference.content, self.site.workload.shown(found, pointer.store_times_ms)))
        for name, time_ms in pointer.store_times_ms.items():
            if reference.times_ms.get(name, -1) != time_ms:
                wrong.append(f"stream time of {name}: expected {reference.times_ms.get(name)}, found {time_ms}")
        if wrong:
            shown = "\n  ".join(wrong[:_SHOWN])
            self._fail(
                f"wrong content: {who}, shard {pointer.shard} at version {pointer.version} "
                f"(after {', '.join(reference.chain) or 'nothing'}):\n  {shown}"
            )

    def check_way(self, who: str, used: Manifest | None, expected: SnapshotRef | None) -> None:
        """Fail unless a shard was made of the snapshot of which it can be, not of another one in its place."""
        names = [None if used is None else used.name, None if expected is None else expected.manifest.name]
        if names[0] != names[1]:
            self._fail(f"{who} took {names[0]} instead of {names[1]}: one way to restore it is gone")

    def made(self, attempt: Attempt, opened: CommitPointer, committed: CommitPointer) -> None:
        """Take note of the pointer that an attempt returns; fail if it can't be one."""
        shard = committed.shard
        if CommitPointer.from_json(committed.to_json()) != committed:
            self._fail(f"{attempt.name}: the pointer is another one when it is read back: {committed}")
        reference = self.reference(opened)
        assert reference is not None
        if committed.head != opened.head:
            self.heads[shard, committed.head] = self.site.workload.after(reference, attempt)
            self._check_entry(attempt, committed)
            if attempt.fenced_by is not None:
                self._fail(f"{attempt.name} has committed, although {attempt.fenced_by} had taken over before")
            if attempt.built_past:
                self._fail(f"{attempt.name} has committed, although its run had gone on two versions without it")
        elif attempt.records and self.site.workload.always_writes:
            self._fail(f"{attempt.name}: the batch wrote, and made no version")

    def batch_committed(self, driver: Driver, number: int) -> None:
        """Take note of a batch that Spark has committed; fail if what was put out so far can't be."""
        self.last_committer = driver
        checkpoint = driver.start.checkpoint
        for shard in range(self.site.shards):
            problem = self.site.workload.problem(shard, self.site.shards, checkpoint.history(self.site, shard))
            if problem is not None:
                self._fail(f"wrong output: shard {shard} of {checkpoint.name}: {problem}")

    def claimed(self, query_id: str) -> None:
        """Take note of a claim; fail if another query has one."""
        self.claims.add(query_id)
        if len(self.claims) > 1:
            self._fail(f"two queries own the location: {sorted(self.claims)}")

    def started(self, driver: Driver, metadata: StateMetadata, recorded_before: int) -> None:
        """Take note of what a start found or recorded; fail if it should have been refused, or takes something back.

        `recorded_before` is the newest generation that was recorded before it began.
        """
        if metadata.generation < recorded_before:
            told = f"{driver.name} goes on with generation {metadata.generation} of what is recorded"
            self._fail(f"{told}, and {recorded_before} was recorded before it began")
        asked = driver.start.shards
        if asked and asked != metadata.shards:
            self._fail(f"{driver.name} was started with {asked} shards, and {metadata.shards} are recorded")

    # What rescaling makes.

    def _note_begun(self) -> None:
        """Take note of which state a tool has begun here."""
        actor = self.world.scheduler.current
        tool: Rescaling | None = None if actor is None else actor.process.memory.get("rescaling")
        if tool is None:
            return
        with self.world.scheduler.silence():
            data = self.site.location().read(UNFINISHED_NAME, MAX_BYTES)
        tool.state_id = "" if data is None else str(json.loads(data.to_pybytes())["state_id"])

    def _adopt(self, made: StateMetadata) -> None:
        """Look at a state that a tool has made, which is one from now on: fail if it is not what it must be."""
        tool = next((tool for tool in self.site.rescalings if tool.state_id == made.state_id), None)
        if tool is None or made.shards != tool.shards:
            self._fail(f"there is a state that no tool has begun: {made}")
            return
        with self.world.scheduler.silence():
            self.site.shards = made.shards
            for shard in range(made.shards):
                self._adopt_shard(tool, made, shard)

    def _adopt_shard(self, tool: Rescaling, made: StateMetadata, shard: int) -> None:
        who = f"{tool.name} made a state of {made.shards} shards of {len(tool.pointers)}; shard {shard}"
        try:
            pointer = initial_pointer(self.site.location(), made.state_id, shard)
            with self.world.opened_elsewhere(self.site, made, pointer) as batch:
                found = {name: dict(store.bytes.range(None, None)) for name, store in batch.stores.items()}
        except (StateStoreError, OSError) as failure:
            self.unexplained(who, failure)
            return
        stream_time_ms, times_ms = tool.expected_pointer(shard)
        workload = self.site.workload
        wrong = list(workload.rescaled_differences(tool, shard, found, pointer.store_times_ms))
        if (pointer.stream_time_ms, dict(pointer.store_times_ms)) != (stream_time_ms, times_ms):
            wrong.append(f"times: expected {stream_time_ms} and {times_ms}, found {pointer}")
        if wrong:
            shown = "\n  ".join(wrong[:_SHOWN])
            self._fail(f"wrong content: {who}:\n  {shown}")
        began = workload.adopted(pointer, made.shards, workload.shown(found, times_ms))
        self.roots[made.state_id, shard] = began
        self.site.initial[shard] = pointer
        if pointer.head:
            self.heads[shard, pointer.head] = began

    def check_report(self, tool: Rescaling, report: RescaleReport) -> None:
        """Fail unless what a rescaling says of itself is true."""
        with self.world.scheduler.silence():
            there = read_metadata(self.site.location())
        if there is None or (there.state_id, there.shards) != (report.state_id, report.shards):
            self._fail(f"{tool.name} says that it has made state {report.state_id}, and there is {there}")
        for name, told in report.stores.items():
            expected = self.site.workload.rescaled_entries(tool, name, told.entries)
            if told.entries != expected:
                self._fail(f"{tool.name} says that {name} has {told.entries} entries, and {expected} it must be")

    # Who may go on.

    def on_written(self, name: str) -> None:
        """Look at a file that has become visible; called by the location."""
        self.appeared.setdefault(name, self.world.scheduler.operations)
        if name == METADATA_NAME:
            self._note_recorded()
        if name == UNFINISHED_NAME:
            self._note_begun()
        if parse_delta_name(name) is not None:
            self._note_maker(name)
        fence = parse_fence_name(name)
        if fence is None or fence.run not in self.runs:
            return
        shard = int(name.split("/")[-3])
        reason = self._history_given_up(shard, self.runs[fence.run])
        if reason is not None:
            self.must_refuse.setdefault((shard, fence.run), reason)

    def _note_maker(self, name: str) -> None:
        """Take note of which run has written a delta."""
        actor = self.world.scheduler.current
        driver: Driver | None = None if actor is None else getattr(actor.process.busy, "driver", None)
        if driver is not None:
            self.makers[name] = driver.run_id

    def _note_recorded(self) -> None:
        with self.world.scheduler.silence():
            recorded = read_metadata(self.site.location())
        if recorded is not None:
            self.recorded_generation = max(self.recorded_generation, recorded.generation)
            if recorded.initial_state and (recorded.state_id, 0) not in self.roots:
                self._adopt(recorded)

    def taken_over(self, attempt: Attempt) -> str | None:
        """Return which run has a fence in the shard that is newer than that of an attempt's own run, if that has one.

        Asked before an attempt commits: then it must not.
        """
        fences = self._fences(attempt.task.shard)
        mine = attempt.driver.run_id
        entered = any(fence.run == mine for fence in fences)
        return fences[-1].run if entered and fences[-1].run != mine else None

    def built_past(self, attempt: Attempt) -> bool:
        """Return whether an attempt's own run has built on another attempt's commit. Asked before it commits."""
        run = attempt.driver.run_id
        newest = max((fence.epoch for fence in self._fences(attempt.task.shard) if fence.run == run), default=None)
        return any(
            made.epoch == newest and made.version > attempt.pointer.version + 1 and self.makers.get(name) == run
            for name, made in self._written(attempt.task.shard).items()
        )

    def _check_entry(self, attempt: Attempt, committed: CommitPointer) -> None:
        """Fail if a run goes on that should have been refused."""
        key = (attempt.task.shard, attempt.driver.run_id)
        made = parse_delta_name(committed.head)
        assert made is not None
        is_there = key in self.entered
        self.entered.setdefault(key, set()).add(made.epoch)
        if is_there:
            return
        if key in self.must_refuse and not attempt.driver.start.accept_older:
            self._fail(f"{attempt.name} should have been refused: {self.must_refuse[key]}")

    def _history_given_up(self, shard: int, driver: Driver) -> str | None:
        """Return which commits are given up by a run that enters, in words; None if none are that can be known."""
        mine = driver.start.checkpoint
        chain = self._chain(mine, shard)
        fences, writers = self._fences(shard), self._writers(shard)
        since = self._since(mine, shard, [fence for fence in fences if fence.run != driver.run_id])
        for other in self.site.checkpoints:
            if other is mine:
                continue
            epochs = [fence.epoch for fence in fences if self._checkpoint_of(fence.run) is other]
            if not epochs or max(epochs) < since:
                continue
            theirs = self._chain(other, shard)
            fork = next((at for at in range(min(len(chain), len(theirs))) if chain[at] != theirs[at]), None)
            if fork is None:
                fork = min(len(chain), len(theirs))
            # What a run after theirs has given up is not given up by this one.
            count = 0
            for version in range(len(theirs), fork, -1):
                delta = self._delta_of(other, shard, version)
                if delta is None or delta.epoch < since:
                    continue
                given_up = any(
                    fence.epoch > delta.epoch
                    and self._is_without(fence, other, shard, version)
                    and (self._has_entered(shard, fence) or fence.run in writers)
                    for fence in fences
                )
                count += not given_up
            if count >= 2:
                return (
                    f"{count} versions of shard {shard} that {other.name} has committed after version {fork} are not "
                    f"in {mine.name}, which is at {len(chain)}"
                )
        return None

    def _is_without(self, fence: Fence, checkpoint: Checkpoint, shard: int, version: int) -> bool:
        """Return whether who left a fence went on without a version that a checkpoint has committed."""
        if fence.from_version is None or fence.from_version < version:
            return fence.from_version is not None
        # As far on, but on another line.
        return bool(fence.head) and parse_delta_name(fence.head) != self._delta_of(
            checkpoint, shard, fence.from_version
        )

    def may_refuse(self, shard: int, driver: Driver) -> bool:
        """Return whether another copy of the checkpoint was at work in a shard after this one, or has been ahead."""
        mine = driver.start.checkpoint
        fences = self._fences(shard)
        # Its own says nothing: it asks once more when that is there.
        fences = [fence for fence in fences if fence.run != driver.run_id]
        since = self._since(mine, shard, fences)
        if any(self._checkpoint_of(fence.run) is not mine and fence.epoch >= since for fence in fences):
            return True
        if self._was_passed(mine, shard, fences):
            return True
        # A driver that was told to go back, and slept, goes back from what its own checkpoint has committed since.
        made = self._made_by(mine, shard)
        return any(fence.went_back and fence.epoch > made for fence in fences)

    def _was_passed(self, checkpoint: Checkpoint, shard: int, fences: list[Any]) -> bool:
        """Return whether another copy showed after the last entry of this checkpoint what that could not know of.

        That is a delta which was on its way, or a fence that went on from what is not in this checkpoint.
        """
        own = [fence for fence in fences if self._checkpoint_of(fence.run) is checkpoint]
        entries = [self.appeared[fence_name(shard, fence)] for fence in own if self._has_entered(shard, fence)]
        if not entries:
            return False
        known = {"", *self._heads(checkpoint, shard)}
        others = {fence.run for fence in fences} - {fence.run for fence in own}
        names = {fence_name(shard, fence) for fence in fences if fence.run in others and fence.head not in known}
        for name in self._written(shard):
            run = self.makers.get(name)
            if run in self.runs and self._checkpoint_of(run) is not checkpoint:
                names.add(name)
        return any(self.appeared[name] > max(entries) for name in names)

    def _has_entered(self, shard: int, fence: Any) -> bool:
        """Return whether the run of a fence has committed in its epoch, as far as anybody was told."""
        return fence.epoch in self.entered.get((shard, fence.run), ())

    def _since(self, checkpoint: Checkpoint, shard: int, fences: list[Any]) -> int:
        """Return from which epoch on others may have gone on without a checkpoint."""
        # A run that was refused after it had left its fence has decided nothing.
        entered = [fence for fence in fences if self._has_entered(shard, fence)]
        own = [fence.epoch + 1 for fence in entered if self._checkpoint_of(fence.run) is checkpoint]
        # Who has made what is in a copy may have gone on after it was copied.
        return max((self._made_by(checkpoint, shard), *own))

    def _made_by(self, checkpoint: Checkpoint, shard: int) -> int:
        """Return the last epoch that has made what is committed in a checkpoint; 0 if nothing is."""
        heads = map(parse_delta_name, self._heads(checkpoint, shard))
        return max((written.epoch for written in heads if written is not None), default=0)

    def _heads(self, checkpoint: Checkpoint, shard: int) -> list[str]:
        """Return the heads of what is committed in a checkpoint, by batches."""
        batches = range(1, checkpoint.committed + 1)
        return [self.site.committed_pointer(checkpoint, shard, batch).head for batch in batches]

    def _chain(self, checkpoint: Checkpoint, shard: int) -> tuple[str, ...]:
        pointer = self.site.committed_pointer(checkpoint, shard, checkpoint.committed)
        reference = self.reference(pointer)
        return () if reference is None else reference.chain

    def _delta_of(self, checkpoint: Checkpoint, shard: int, version: int) -> Any:
        for batch in range(checkpoint.committed, 0, -1):
            pointer = self.site.committed_pointer(checkpoint, shard, batch)
            if pointer.version == version:
                return parse_delta_name(pointer.head)
        return None

    def _fences(self, shard: int) -> list[Any]:
        with self.world.scheduler.silence():
            location = self.site.location()
            return read_fences(location, location.names(delta_directory(shard)))

    def _writers(self, shard: int) -> set[str]:
        """Return the runs that have written deltas: they have entered, even if nobody was told of it yet."""
        return {self.makers[name] for name in self._written(shard) if name in self.makers}

    def _written(self, shard: int) -> dict[str, Written]:
        with self.world.scheduler.silence():
            names = self.site.location().names(delta_directory(shard))
        return {name: written for name in names if (written := parse_delta_name(name)) is not None}

    def went_back(self, shard: int, checkpoint: Checkpoint) -> int | None:
        """Return to which version the run has gone back after which only this checkpoint was at work.

        From there on all is needed again, whatever others had come to. None if there is no such run.
        """
        found = None
        for fence in self._fences(shard):
            if self._checkpoint_of(fence.run) is not checkpoint:
                found = None
            elif fence.went_back and self._has_entered(shard, fence):
                found = fence.from_version
        return found

    def _checkpoint_of(self, run: str) -> Checkpoint | None:
        driver = self.runs.get(run)
        return None if driver is None else driver.start.checkpoint

    # Which failures are due.

    def judge_start(self, driver: Driver, failure: BaseException) -> None:
        """Fail unless a start had a reason to fail."""
        if isinstance(failure, ShardCountChangedError) and (
            any(other.start.shards for other in self.site.drivers) or self.site.rescalings
        ):
            return
        # It was changed while this start was slow, or who was to change it has not done so yet, or has failed.
        accepts = driver.start.accept_change
        if isinstance(failure, TopologyChangedError) and self.world.topology > 0 and not accepts:
            return
        if isinstance(failure, StateUnfinishedError) and self.site.rescalings:
            return
        with self.world.scheduler.silence():
            # Others may have asked with higher ballots all the time.
            if isinstance(failure, LocationBusyError) and len(self.site.drivers) > 1:
                return
            if self.is_injected(failure):
                return
        self.unexplained(driver.name, failure)

    def judge_rescaling(self, tool: Rescaling, failure: BaseException) -> None:
        """Fail unless a rescaling had a reason to fail."""
        with self.world.scheduler.silence():
            explained = self.is_injected(failure) or tool.explains(failure)
        if not explained:
            self.unexplained(tool.name, failure)

    def judge(self, attempt: Attempt, failure: BaseException) -> None:
        """Fail unless an attempt had a reason to fail."""
        with self.world.scheduler.silence():
            explained = self._explains(attempt, failure)
        if not explained:
            self.unexplained(attempt.name, failure)

    def _explains(self, attempt: Attempt, failure: BaseException) -> bool:
        driver, shard = attempt.driver, attempt.task.shard
        if isinstance(failure, RunFencedError):
            fences = self._fences(shard)
            return (bool(fences) and fences[-1].run != driver.run_id) or self._has_looked_twice(driver)
        if isinstance(failure, AttemptOutdatedError):
            return driver.ended or attempt.number < driver.batch or attempt.task.succeeded
        if isinstance(failure, CheckpointBehindError):
            # Where runs replace each other's pointers, a pointer may be on a line that its own checkpoint has left.
            mixed = driver.start.checkpoint.recorded[self.site].is_mixed(shard)
            return not driver.start.accept_older and (
                mixed or self._is_overtaken(attempt) or self.may_refuse(shard, driver)
            )
        if isinstance(failure, LocationInUseError):
            return any(other.query_id != driver.start.checkpoint.query_id for other in self.site.checkpoints)
        if type(failure).__name__ == "VersionCollectedError" and driver.start.accept_older:
            return True
        if isinstance(failure, DurableFileMissingError) or type(failure).__name__ == "VersionCollectedError":
            return self._is_given_up(attempt)
        # A collection takes what a slow attempt has half written for what a killed one has left.
        if isinstance(failure, LocationNotWritableError) and isinstance(failure.__cause__, FileNotFoundError):
            return self._is_given_up(attempt)
        return self.is_injected(failure)

    def _has_looked_twice(self, driver: Driver) -> bool:
        """Return whether the last two listings of who runs showed another run's fence above one of its own run.

        Another attempt of its run may have left a later one since.
        """
        actor = self.world.scheduler.current
        assert actor is not None
        looks = [sorted(filter(None, map(parse_fence_name, paths))) for paths in actor.listings]
        return len(looks) == 2 and all(
            any(fence.run == driver.run_id for fence in look) and look[-1].run != driver.run_id for look in looks
        )

    def _is_overtaken(self, attempt: Attempt) -> bool:
        """Return whether the same checkpoint has gone on without an attempt."""
        checkpoint = attempt.driver.start.checkpoint
        later = any(
            shard == attempt.task.shard and at > attempt.number for shard, at in checkpoint.recorded[self.site].pointers
        )
        return later or checkpoint.committed >= attempt.number

    def _is_given_up(self, attempt: Attempt) -> bool:
        """Return whether the history that an attempt works on is no longer needed."""
        driver = attempt.driver
        back = self.went_back(attempt.task.shard, driver.start.checkpoint)
        if back is not None and back <= attempt.pointer.version:
            return driver.ended or self._is_overtaken(attempt)
        newest = max(
            self.site.committed_pointer(other, attempt.task.shard, other.committed).version
            for other in self.site.checkpoints
        )
        if driver.start.checkpoint.too_old or attempt.pointer.version < newest - self.world.plan.retained:
            return True
        if driver.ended or self._is_overtaken(attempt):
            return True
        fences = self._fences(attempt.task.shard)
        return bool(fences) and self._checkpoint_of(fences[-1].run) is not driver.start.checkpoint

    def is_injected(self, failure: BaseException) -> bool:
        """Return whether a failure comes from a fault that struck."""
        kinds = (
            LocationError,
            LocationNotWritableError,
            LocalDiskFullError,
            LocalDirectoryError,
            LocalStateCorruptedError,
            StoreError,
            OSError,
        )
        return isinstance(failure, kinds) and "injected fault" in _text(failure)

    def unexplained(self, who: str, failure: BaseException) -> None:
        """Fail because of a failure that had no reason."""
        where = "".join(traceback.format_exception(type(failure), failure, failure.__traceback__))
        self._fail(f"{who} failed, and nothing explains it: {type(failure).__name__}: {failure}\n{where}")

    def _fail(self, problem: str) -> None:
        self.world.scheduler.fail(problem)


def _text(failure: BaseException | None) -> str:
    parts = []
    while failure is not None:
        parts.append(str(failure))
        failure = failure.__cause__ or failure.__context__
    return "\n".join(parts)


def kind_of(problem: str) -> str:
    """Return what kind of problem it is: shrinking must not turn one into another."""
    first = problem.partition("\n")[0]
    if first.startswith("wrong content"):
        return "wrong content"
    error = re.search(r"nothing explains it: (\w+)", first)
    if error:
        return f"unexplained {error[1]}"
    return re.sub(r"[0-9a-f]{32}|\d+", "N", first)[:60]
