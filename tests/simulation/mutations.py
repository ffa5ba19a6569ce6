"""Breaks the protocol on purpose, and says how many plans it takes to notice: `python -m tests.simulation.mutations`.

A mutation changes one line of one function. A plan that fails without it too does not count.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.oracle import kind_of
from tests.simulation.simulations import PLANS, simulate


class Mutation(NamedTuple):
    """One change: in a function of a module, from one text to another."""

    name: str
    module: str
    """Its name in `statestore.recovery`, or, as `middleware...`, `spark...` and the like, in `statestore`."""
    function: str
    old: str
    new: str
    covered_by: str = ""
    """What else sees to it that nothing can come of it; empty if a plan can notice it."""

    @property
    def code(self) -> Any:
        """The module."""
        rooms = ("dsl.", "middleware.", "processor.", "spark.", "stores.", "view.")
        room = "" if self.module.startswith(rooms) else "recovery."
        return importlib.import_module(f"statestore.{room}{self.module}")


MUTATIONS = (
    Mutation(
        "fences are not looked at",
        "fences.run_fences",
        "RunFences._enter",
        'max(_fence_names(names), default=FenceName(0, "")) <= FenceName(epoch, self.run)',
        "True",
    ),
    Mutation(
        "a batch that was committed without it is not looked at",
        "fences.run_fences",
        "RunFences.hold",
        "found.version > pointer.version + 1",
        "False",
    ),
    Mutation(
        "what was there meanwhile is not looked at",
        "fences.run_fences",
        "RunFences.hold",
        "if head.epoch != epoch:",
        "if False:",
    ),
    Mutation(
        "two runs share an epoch", "fences.run_fences", "_is_shared", "return len(fences) > 1 and", "return False and"
    ),
    Mutation(
        "of two runs of one epoch both may have written",
        "fences.history",
        "Histories._fences_of_writers",
        "self._writers.get(epoch, ())",
        "()",
    ),
    Mutation(
        "what is beyond the checkpoint is not looked at",
        "fences.run_fences",
        "RunFences._check_entry",
        "if judgement is None:",
        "if judgement is None or isinstance(judgement, Behind):",
    ),
    Mutation(
        "what was given up is not looked at",
        "fences.run_fences",
        "RunFences._check_entry",
        "if judgement is None:",
        "if judgement is None or not isinstance(judgement, Behind):",
    ),
    Mutation(
        "who goes back looks for no files",
        "fences.run_fences",
        "RunFences._check_entry",
        "check_needed_files(self.location, pointer, names)",
        "pass",
    ),
    Mutation(
        "a fence is not written",
        "fences.run_fences",
        "RunFences._leave_fence",
        "write_fence(self.location, pointer.shard, fence)",
        "names.append(fence_name(pointer.shard, FenceName(epoch, self.run)))",
    ),
    Mutation(
        "a collection is not announced",
        "snapshots.garbage",
        "announce_collection",
        '    location.write(announcement, b"")\n',
        "",
    ),
    Mutation(
        "a collection does not look for later runs",
        "snapshots.garbage",
        "collect_garbage",
        "if any(",
        "if False and any(",
    ),
    Mutation(
        "all attempts write the same file",
        "location.shard_files",
        "new_delta_name",
        "unique = uuid.uuid4().hex",
        'unique = f"{0:032x}"',
    ),
    Mutation(
        "a catch-up leaves no intent",
        "local.local_copy",
        "LocalCopy._announce",
        "write_marker(self.path, self.intent, durably=True)",
        "pass",
    ),
    Mutation("an intent is not synced", "local.local_copy", "LocalCopy._announce", "durably=True", "durably=False"),
    Mutation(
        "a copy is marked before it is flushed",
        "local.local_copy",
        "_close",
        "        copy.database.close(compacted=copy.is_whole)\n        if copy.is_whole:",
        "        if copy.is_whole:",
    ),
    Mutation(
        "a copy that failed to catch up is marked",
        "local.local_copy",
        "LocalCopy.catch_up",
        "opening, pointer = self.opening, self.pointer",
        "opening, pointer, self.is_whole = self.opening, self.pointer, True",
    ),
    Mutation(
        "any copy is taken to be on the chain",
        "local.marker",
        "LocalMarker.count_applied",
        "if self.delta not in chain:\n            return None",
        "if self.delta not in chain:\n            return len(chain) - 1",
    ),
    Mutation(
        "an interrupted catch-up counts as none",
        "local.marker",
        "LocalMarker.count_applied",
        "if self.applying is not None and not",
        "if False and not",
    ),
    Mutation(
        "versions are put again after a kill",
        "local.marker",
        "LocalMarker.count_applied",
        "not (self.repeatable and self.applying in chain)",
        "self.applying not in chain",
    ),
    Mutation(
        "the chain begins at the wrong snapshot",
        "commit.pointer",
        "CommitPointer.chain",
        "self.snapshots[-2].delta",
        "self.snapshots[-1].delta",
    ),
    Mutation(
        "a snapshot is kept one delta short",
        "commit.pointer",
        "CommitPointer.with_snapshot",
        "self.deltas[begin - self.base_version :]",
        "self.deltas[begin - self.base_version + 1 :]",
    ),
    Mutation(
        "the garbage floor is the newest snapshot",
        "commit.pointer",
        "CommitPointer.needed_since",
        "known[-2].version",
        "known[-1].version",
    ),
    Mutation(
        "the garbage floor is one too high",
        "commit.pointer",
        "CommitPointer.needed_since",
        "known[-2].version",
        "known[-2].version + 1",
    ),
    Mutation(
        "retained versions are one too few",
        "commit.pointer",
        "CommitPointer.needed_since",
        "snapshot.since < self.version - retained_versions - beside",
        "snapshot.since <= self.version - retained_versions - beside + 1",
    ),
    Mutation(
        "an attempt that lost has the snapshots of the one that counts",
        "commit.pointer",
        "CommitPointer.needed_since",
        "snapshot.since < self.version",
        "snapshot.since <= self.version",
    ),
    Mutation(
        "no attempt is built on one that lost",
        "snapshots.garbage",
        "_count_beside",
        "return next(alone, 0)",
        "return 0",
    ),
    Mutation(
        "shared files are garbage",
        "snapshots.garbage",
        "find_garbage",
        "needed.update(file.durable.name for file in manifest.files)",
        "pass",
    ),
    Mutation(
        "garbage of later runs is removed",
        "snapshots.garbage",
        "find_garbage",
        "written.epoch <= epoch and",
        "",
        "a file of a later run was found, so its fence was there before: whoever removes lists again, and leaves all",
    ),
    Mutation(
        "any snapshot fits any pointer",
        "snapshots.planned",
        "UploadPlan.fits",
        "pointer.chain[place] == self.delta",
        "True",
    ),
    Mutation(
        "a snapshot's base need not be retained",
        "snapshots.planned",
        "UploadPlan.fits",
        "self.base is None or",
        "True or",
    ),
    Mutation(
        "a file counts as uploaded before it is",
        "snapshots.upload",
        "SnapshotUpload._upload",
        "                self._location.write_file(durable.name, path)\n                planned.note_upload(durable)",
        "                planned.note_upload(durable)\n                self._location.write_file(durable.name, path)",
        "what is noted and not in the location is uploaded again; files get there whole or not at all",
    ),
    Mutation(
        "files that were shared are not looked for",
        "snapshots.upload",
        "SnapshotUpload._find_files_to_reuse",
        "if (file.name, file.size_bytes) in there",
        "",
        "the base of what is shared must be retained still when a pointer names the snapshot, and files of one "
        "that is under way are newer than all garbage: it is for files that somebody has removed by hand",
    ),
    Mutation(
        "two uploads at once",
        "snapshots.upload",
        "SnapshotUpload.held",
        "if not lock.acquire():",
        "if not lock.acquire() and False:",
    ),
    Mutation(
        "an image of memory is taken as it is",
        "local.local_copy",
        "take_memory_image",
        "and image.head in pointer.chain",
        "",
    ),
    Mutation(
        "an image of memory is said to be newer",
        "local.local_copy",
        "open_memory_image",
        "pointer.chain.index(image.head)",
        "len(pointer.deltas)",
    ),
    Mutation(
        "versions are replayed without their stream time",
        "restore.restore",
        "_apply",
        "delta.logged_store(name).stream_time_ms for",
        "-1 for",
    ),
    Mutation(
        "one delta is left out",
        "restore.restore",
        "restore",
        "missing = pointer.deltas[applied:]",
        "missing = pointer.deltas[applied + (applied > 1) :]",
    ),
    Mutation(
        "who has lost a location ends a state there",
        "making.new_state",
        "NewState.complete",
        "claimed is None or claimed.state_id != state_id or _is_state(self.location)",
        "False",
    ),
    Mutation(
        "what tools have written counts as committed",
        "fences.run_fences",
        "RunFences._check_entry",
        "_deltas(filterfalse(is_of_tool, names))",
        "_deltas(names)",
    ),
    Mutation(
        "versions after stream time are put with the others",
        "making.rescale",
        "_Move._parts",
        "if not self.old.initial_state or",
        "if True or",
    ),
    Mutation(
        "the stream time of a rescaled store is the latest",
        "making.carry_over",
        "store_times",
        "times[name] = min(put)",
        "times[name] = max(put)",
    ),
    Mutation(
        "a target that others have begun is not cleared",
        "making.new_state",
        "NewState.claim",
        "if earlier is not None:",
        "if False:",
        "deltas of tools count for nothing, initial pointers are written again, and neither is named before",
    ),
    Mutation(
        "a claim is not looked at again",
        "metadata.agreement",
        "claim",
        "            _refuse_others(location, query_id, set().union(*_claims(location)))\n",
        "            pass\n",
    ),
    Mutation(
        "every start has its own identity",
        "metadata.state_metadata",
        "agree_on_metadata",
        "    recorded = read_metadata(location)\n",
        "    recorded = None\n",
    ),
    Mutation(
        "a file is not synced",
        "location.durable_files",
        "LocalDisk.write_durably",
        "                self.sync_file(file)\n",
        "",
    ),
    Mutation(
        "the name of a file is not synced",
        "location.durable_files",
        "LocalDisk.write_durably",
        "        self.sync_directory(directory)\n",
        "",
    ),
    Mutation(
        "directories that were made are not synced",
        "location.durable_files",
        "LocalDisk.make_durable_directories",
        "            self.sync_directory(parent)\n",
        "            pass\n",
    ),
    Mutation(
        "a record is accepted as often as it comes",
        "middleware.security.signing",
        "Signing.__init__",
        "refuse_replays and verify",
        "False",
    ),
    Mutation(
        "a message is glued of slices that are not all there",
        "middleware.size.slicing.open_messages",
        "OpenMessages.add",
        "message.received + 1 == message.count",
        "message.received + 1 >= message.count - (message.count > 2)",
    ),
    Mutation(
        "slices of a message are given up while more of it come",
        "middleware.size.slicing.open_messages",
        "OpenMessages._set",
        "        message.changed_ms = now_ms\n",
        "        message.changed_ms = message.changed_ms or now_ms\n",
    ),
    Mutation(
        "what has expired is read as long as it is there",
        "stores.layers.expiring",
        "ExpiringLayer.get",
        "expiry_ms > self._clock_ms()",
        "True",
    ),
    Mutation(
        "an entry goes before its time",
        "stores.layers.expiring",
        "ExpiringLayer.delete_expired",
        "self._times.due(self._clock_ms())",
        "self._times.due(self._clock_ms() + 50)",
    ),
    Mutation(
        "what a process has counted is charged again",
        "middleware.lineage.chargeback",
        "Chargeback.init",
        "        self._usage = {}\n",
        "",
    ),
    Mutation(
        "a run goes on from the head of the batch before, whoever made it",
        "heads.publishing",
        "HeadPublisher._before",
        "written.isdisjoint(call.went_on_from for call in calls)",
        "False",
    ),
    Mutation(
        "a lost event is not missed",
        "heads.publishing",
        "HeadPublisher.take",
        "batch == self._batch + 1 and self._known",
        "self._known",
    ),
    Mutation(
        "a view goes on in one shard only",
        "view.open_shards",
        "OpenShards.go_on",
        "self.pointers = pointers",
        "self.pointers = [*pointers[:1], *self.pointers[1:]]",
    ),
    Mutation(
        "a view leaves a delta out",
        "view.open_shards",
        "OpenShard.go_on",
        "self._copy.go_on(pointer, deltas)",
        "self._copy.go_on(pointer, deltas[-1:])",
    ),
    Mutation(
        "a view keeps what it built on the batch before",
        "view.open_shards",
        "OpenShard.go_on",
        "self.built.clear()",
        "pass",
    ),
    Mutation(
        "a view keeps stream times of the batch before",
        "view.routed_reads",
        "RoutedReads.go_on",
        "self._take_shards()",
        "pass",
    ),
)


OF_EVENT_TIME = (
    Mutation(
        "what old shards had seen is not known",
        "making.carry_over",
        "carry_over",
        "beyond(joined([*before, own]), begun.seen)",
        "()",
    ),
    Mutation(
        "what shards had seen before the last rescaling is not known",
        "making.carry_over",
        "carry_over",
        "joined([*before, own])",
        "joined([own])",
    ),
    Mutation(
        "a new shard begins with the latest stream time",
        "making.carry_over",
        "carry_over",
        "stream_time_ms=min(pointer.stream_time_ms",
        "stream_time_ms=max(pointer.stream_time_ms",
    ),
    Mutation(
        "a new shard begins with the latest time of nodes",
        "making.carry_over",
        "processor_metadata",
        "name: min(pointer.processor_metadata[name] for pointer in used)",
        "name: max(pointer.processor_metadata[name] for pointer in used)",
    ),
    Mutation(
        "a shard that has seen nothing has no say",
        "making.carry_over",
        "processor_metadata",
        "old if name.endswith(TIME_SUFFIX) else used",
        "used",
    ),
    Mutation(
        "what is known of old shards goes with the first batch",
        "commit.pointer",
        "CommitPointer.advance",
        "earlier=beyond(self.earlier, counted.seen)",
        "earlier=()",
    ),
)
"""What `event_time` finds: `MUTATIONS` are found by plans."""


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Have the mutation in the code, until the end of the block."""
    module = owner = mutation.code
    *path, last = mutation.function.split(".")
    for name in path:
        owner = getattr(owner, name)
    found = inspect.getattr_static(owner, last)
    inner = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(inner)))
    old, new = (
        text if path == [] else textwrap.dedent(text) if "\n" not in text else text
        for text in (mutation.old, mutation.new)
    )
    if path and "\n" in old:
        # The source of a method was moved to the left by one level.
        old, new = ("\n".join(line.removeprefix("    ") for line in text.split("\n")) for text in (old, new))
    if source.count(old) != 1:
        raise ValueError(f"{mutation.name}: {source.count(old)} times in {mutation.function}")
    namespace: dict[str, Any] = {}
    exec(
        compile("from __future__ import annotations\n" + source.replace(old, new), module.__file__ or "", "exec"),
        module.__dict__,
        namespace,
    )
    patched = namespace[inner.__name__]
    # Who has imported a function has it under the same name.
    owners = [owner] if path else [other for other in list(sys.modules.values()) if _has(other, last, found)]
    with ExitStack() as patches:
        for holder in owners:
            patches.enter_context(patch.object(holder, last, patched))
        yield


def _has(module: Any, name: str, value: Any) -> bool:
    return getattr(module, "__dict__", {}).get(name) is value


class Found(NamedTuple):
    """When a mutation was noticed."""

    mutation: str
    plans: int
    seed: int | None
    """None: it was not."""
    problem: str
    seconds: float


def look_for(arguments: tuple[Mutation, str, int, int]) -> Found:
    """Run plans with a mutation until one finds it."""
    mutation, of, seed, runs = arguments
    plans = PLANS[of]
    started_s = time.process_time()
    for tried in range(runs):
        plan = plans.draw(seed + tried)
        with mutated(mutation):
            problem = simulate(plan).problem
        if problem is not None and simulate(plan).problem is None:
            return Found(mutation.name, tried + 1, seed + tried, kind_of(problem), time.process_time() - started_s)
    return Found(mutation.name, runs, None, "", time.process_time() - started_s)


def mutations_of(what: str) -> Sequence[Mutation]:
    """Return the mutations of what is simulated, by its name."""
    if what == "state":
        return MUTATIONS
    module = importlib.import_module(f"tests.simulation.{what}.mutations")
    found: Sequence[Mutation] = module.SINK_MUTATIONS if what == "sink" else module.STAGE_MUTATIONS
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Look for mutations, by plans of what they are in; return how many were not found that can be."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description=__doc__)
    parser.add_argument("--of", default="state", choices=PLANS, help="what is broken")
    parser.add_argument("--runs", type=int, default=2000, help="how many plans to try for each mutation")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="part of the names of those to look for")
    asked = parser.parse_args(arguments)
    mutations = mutations_of(asked.of)
    work = [(mutation, asked.of, asked.seed, asked.runs) for mutation in mutations if asked.only in mutation.name]
    missed = 0
    with get_context("fork").Pool(asked.processes) as pool:
        for found in pool.imap_unordered(look_for, work):
            covered_by = next(mutation.covered_by for mutation in mutations if mutation.name == found.mutation)
            missed += found.seed is None and not covered_by
            not_found = f"covered: {covered_by}" if covered_by else "NOT FOUND"
            said = f"{found.plans} plans, seed {found.seed}: {found.problem}" if found.seed else not_found
            print(f"{found.mutation}: {said} ({found.seconds:.0f} s)", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
