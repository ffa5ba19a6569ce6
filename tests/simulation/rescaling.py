"""Rescaling as a tool does it: a process that makes, in a location of its own, a state of another number of shards.

What each of the new shards must hold is worked out from what the oracle knows of the old ones: by the hash of the
record's key, which is computed here, and of versions by what a store answers for each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.errors import LocationBusyError, StateStoreError, TargetNotEmptyError
from statestore.errors.state import DurableFileMissingError, LocationNotWritableError
from statestore.format.keys.window_key import SESSION_SUFFIX_SIZE, WINDOW_SUFFIX_SIZE
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.making.placement import record_keys
from statestore.recovery.making.rescale import RescaleReport, committed_pointers, rescale, state_to_rescale
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.simulation.scheduler import Actor, Process
from tests.simulation.workload import KEYS_BY_HASH, RETENTION_MS, SPECS, Pairs, Reference, build, live, place

if TYPE_CHECKING:
    from tests.simulation.spark import Checkpoint
    from tests.simulation.world import Site, World

FAILURE = (StateStoreError, OSError)
_AHEAD_MS = 80
"""How far beyond its stream time a store is asked."""


class Rescaling:
    """One run of the tool, on one of the machines."""

    actor: Actor

    def __init__(self, world: World, checkpoint: Checkpoint, batch: int, target: Site, shards: int) -> None:
        self.world = world
        self.source = checkpoint.sites[target.stage]
        self.target = target
        self.checkpoint = checkpoint
        self.batch = batch
        """After which batch the state is taken."""
        self.shards = shards
        self.name = f"rescale{len(world.rescalings)}"
        self.state_id = ""
        """Which state it makes, once it has said so in the location."""
        self.pointers: list[CommitPointer] = []
        self.report: RescaleReport | None = None
        self.failure: BaseException | None = None
        self.done = False
        machine = world.machine_for(self.name)
        self.process = Process(self.name, machine)
        self.process.busy = self
        self.process.memory["rescaling"] = self
        machine.processes.append(self.process)
        self.work_dir = machine.path / "tools"
        self.actor = world.scheduler.spawn(self.name, self.process, self._run)

    @property
    def ended(self) -> bool:
        return self.done or self.process.dead

    @property
    def others(self) -> list[Rescaling]:
        """The other runs that have the same target."""
        return [other for other in self.world.rescalings if other is not self and other.target is self.target]

    def _run(self) -> None:
        try:
            self._rescale()
        except FAILURE as failure:
            self.failure = failure
            self.target.oracle.judge_rescaling(self, failure)
        self.done = True
        self.process.dead = True

    def _rescale(self) -> None:
        source, target = self.source.location(), self.target.location()
        recorded = [
            self.checkpoint.recorded[self.source].pointer(shard, self.batch) for shard in range(self.source.shards)
        ]
        known = [CommitPointer.from_json(text) for text in recorded if text is not None]
        metadata = state_to_rescale(source)
        self.pointers = committed_pointers(source, metadata, known, complete=True)
        self.report = rescale(
            source,
            target,
            shards=self.shards,
            pointers=self.pointers,
            key_of=record_keys(metadata),
            trust_keys=True,
            work_dir=str(self.work_dir),
            memory_bytes=1 if self.world.plan.seed % 3 == 0 else 1 << 20,
        )
        self.target.oracle.check_report(self, self.report)

    # What must come of it.

    @property
    def keeps_shards(self) -> bool:
        return self.shards == len(self.pointers)

    def expected_pointer(self, shard: int) -> tuple[int, dict[str, int]]:
        """Return the stream time of a new shard, and of its stores: the earliest of those that its keys were in."""
        if self.keeps_shards:
            return self.pointers[shard].stream_time_ms, dict(self.pointers[shard].store_times_ms)
        old = len(self.pointers)
        hashes = [number for number in range(old * self.shards) if number % self.shards == shard]
        sources = [self.pointers[number] for number in sorted({number % old for number in hashes})]
        times_ms: dict[str, int] = {}
        for name, kind in ((spec.name, spec.kind) for spec in self.source.workload.specs):
            found = [pointer.store_times_ms.get(name, -1) for pointer in sources]
            if kind is StoreKind.VERSIONED:
                found = [time_ms for time_ms in found if time_ms >= 0]
            if min(found, default=-1) >= 0:
                times_ms[name] = min(found)
        return min(pointer.stream_time_ms for pointer in sources), times_ms

    def differences(self, shard: int, found: Mapping[str, Pairs], times_ms: Mapping[str, int]) -> Iterator[str]:
        """Yield in words what is wrong with the content of a new shard."""
        references = [self._reference(pointer) for pointer in self.pointers]
        for name in self.world.plan.stores:
            if SPECS[name].kind is StoreKind.VERSIONED:
                yield from self._other_answers(name, shard, references, found.get(name, {}), times_ms)
                continue
            expected = {
                key: value
                for old, reference in enumerate(references)
                for key, value in self._shown(name, reference).items()
                if self._place(name, key, old) == shard
            }
            got = live({name: found.get(name, {})}, times_ms)[name]
            for key in sorted({*expected, *got}):
                if expected.get(key) != got.get(key):
                    yield f"{name} {key!r}: expected {expected.get(key)!r}, found {got.get(key)!r}"

    def entries(self, name: str, shard: int) -> int:
        """Return how many entries of a store, not of versions, belong to a new shard."""
        contents = [self._shown(name, self._reference(pointer)) for pointer in self.pointers]
        return sum(self._place(name, key, old) == shard for old, pairs in enumerate(contents) for key in pairs)

    def _reference(self, pointer: CommitPointer) -> Reference:
        found = self.source.oracle.reference(pointer)
        assert found is not None
        return found

    def _shown(self, name: str, reference: Reference) -> Pairs:
        """Return the entries of a store that reads show, for as long as its segments are there."""
        pairs, kind = reference.content.get(name, {}), SPECS[name].kind
        if self.keeps_shards or kind not in (StoreKind.WINDOW, StoreKind.SESSION):
            return pairs
        hidden_ms = reference.times_ms.get(name, -1) - RETENTION_MS
        size = WINDOW_SUFFIX_SIZE if kind is StoreKind.WINDOW else SESSION_SUFFIX_SIZE
        return {key: value for key, value in pairs.items() if int.from_bytes(key[-size:][:8], "big") > hidden_ms}

    def _place(self, name: str, key: bytes, old: int) -> int:
        if self.keeps_shards:
            return old
        kind = SPECS[name].kind
        if kind is StoreKind.WINDOW:
            key = key[SEGMENT_ID_SIZE:-WINDOW_SUFFIX_SIZE]
        elif kind is StoreKind.SESSION:
            key = key[SEGMENT_ID_SIZE:-SESSION_SUFFIX_SIZE]
        return place(key, self.shards)

    def _other_answers(
        self, name: str, shard: int, references: Sequence[Reference], found: Pairs, times_ms: Mapping[str, int]
    ) -> Iterator[str]:
        """Yield where a versioned store says of a key and a time something else than the old shard's."""
        new = _versioned(name, found, times_ms)
        of_shard = {key for key in KEYS_BY_HASH if place(key, self.shards) == shard}
        for old, reference in enumerate(references):
            before = _versioned(name, reference.content.get(name, {}), reference.times_ms)
            now_ms = reference.times_ms.get(name, -1)
            held = {key for key in KEYS_BY_HASH if place(key, len(references)) == old}
            for key in sorted(held & of_shard):
                # Older than that the old shard says nothing, whatever it has.
                for time_ms in range(max(0, now_ms - RETENTION_MS), now_ms + _AHEAD_MS, 3):
                    expected, got = before.get(key, time_ms), new.get(key, time_ms)
                    if _said(expected) != _said(got):
                        yield f"{name} {key!r} as of {time_ms}: expected {expected}, found {got}"
                if _said(before.get(key)) != _said(new.get(key)):
                    yield f"{name} {key!r}: expected {before.get(key)}, found {new.get(key)}"
        strangers = {key for key in KEYS_BY_HASH if key not in of_shard and new.get(key) is not None}
        for key in sorted(strangers):
            yield f"{name} {key!r} is in shard {shard}, and belongs to {place(key, self.shards)}"

    # Which failures are due.

    def explains(self, failure: BaseException) -> bool:
        """Return whether there is a reason for a failure other than a fault."""
        if isinstance(failure, LocationBusyError):
            return bool(self.others)
        if isinstance(failure, LocationNotWritableError):
            # Who has taken it over removes what is half written, too.
            return isinstance(failure.__cause__, FileNotFoundError) and bool(self.others)
        if isinstance(failure, TargetNotEmptyError):
            # Somebody else has taken it, or a query has begun there.
            return bool(self.others) or bool(self.target.drivers)
        if isinstance(failure, DurableFileMissingError):
            at_target = str(self.target.location()) in str(failure) and self.target.root in str(failure)
            if at_target and self.others:
                return True
            return self._is_collected()
        return False

    def _is_collected(self) -> bool:
        """Return whether the source has gone on so far that what was to be read is no longer retained."""
        committed = self.checkpoint.site.checkpoints
        for pointer in self.pointers:
            newest = max(
                self.source.committed_pointer(other, pointer.shard, other.committed).version for other in committed
            )
            if pointer.version < newest - self.world.plan.retained or self.checkpoint.too_old:
                return True
        with self.world.scheduler.silence():
            is_there = read_metadata(self.source.location()) is not None
        return not is_there


def _versioned(name: str, pairs: Pairs, times_ms: Mapping[str, int]) -> Any:
    database = MemoryDatabase([name])
    database.family(name).write(pairs.items())
    return build({name: database.family(name)}, times_ms, TaskRecordContext(-1, 0))[name]


def _said(record: Any) -> Any:
    if record is None:
        return None
    return record.value, record.timestamp_ms, [(header.key, header.value) for header in record.headers]
