"""Turns a state with n shards into one with m, in a location of its own, and checks it entry by entry.

Every entry of every old shard is written to its new shard as a delta's record. Then each new shard is restored as by a
query, and compared with what was read. Shards are restored one after the other into a temporary directory; memory does
not grow with the state. The old location is only read.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, TypeAlias

from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors.new_state import StatePointersError
from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.pointer import CommitPointer, initial_pointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import delta_directory, is_of_tool, parse_delta_name, parse_fence_name
from statestore.recovery.making.carry_over import carry_over
from statestore.recovery.making.logical_writes import LogicalWrite, Tally, open_shard, store_writes
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.placement import KeyOf, Placement
from statestore.recovery.making.state_filling import DEFAULT_MEMORY_BYTES, FilledShard, ShardFilling
from statestore.recovery.metadata.state_metadata import (
    METADATA_NAME,
    StateMetadata,
    new_state_id,
    read_metadata,
    refuse_too_many_shards,
    routing_numbers,
)
from statestore.recovery.shard_batch import ShardBatch

_LOG = logging.getLogger(__name__)
_PROGRESS_EVERY_S, _LOGGED_EVERY_S = 1.0, 10.0


class RescaleProgress(NamedTuple):
    """How far one of the phases, "reading" and "checking", is."""

    phase: str
    shards_done: int
    shards: int
    entries: int
    """In all shards so far."""
    elapsed_s: float

    @property
    def entries_per_s(self) -> float:
        """The mean rate so far."""
        return self.entries / self.elapsed_s if self.elapsed_s else 0.0

    def __str__(self) -> str:
        return (
            f"{self.phase}: {self.shards_done} of {self.shards} shards, {self.entries:,} entries, "
            f"{self.entries_per_s:,.0f}/s"
        )


OnProgress: TypeAlias = Callable[[RescaleProgress], None]


class Meter:
    """Counts entries and shards, and reports now and then."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._log_next_s = self._tell_next_s = 0.0
        self.begin("reading", 0)

    def begin(self, phase: str, shards: int) -> None:
        """Begin a phase of so many shards."""
        self._phase, self._shards = phase, shards
        self._shards_done = self._entries = 0
        self._started_s = time.monotonic()
        self._log_next_s = self._started_s + _LOGGED_EVERY_S

    def add(self, entries: int) -> None:
        """Count entries."""
        self._entries += entries
        now_s = time.monotonic()
        if now_s >= self._tell_next_s:
            self._tell(now_s)

    def shard_done(self) -> None:
        """Count a shard, and report."""
        self._shards_done += 1
        self._tell(time.monotonic())

    def _tell(self, now_s: float) -> None:
        self._tell_next_s = now_s + _PROGRESS_EVERY_S
        progress = RescaleProgress(self._phase, self._shards_done, self._shards, self._entries, now_s - self._started_s)
        if now_s >= self._log_next_s:
            self._log_next_s = now_s + _LOGGED_EVERY_S
            _LOG.info("rescaling: %s", progress)
        if self._on_progress is not None:
            self._on_progress(progress)


class StoreReport(NamedTuple):
    """What a store has in each new shard: entries (of a versioned store its puts), and bytes of keys and values."""

    entries: tuple[int, ...]
    size_bytes: tuple[int, ...]


@dataclass(frozen=True)
class RescaleReport:
    """What was made of a state; after a dry run `state_id` is None, and it says what would be."""

    from_state_id: str
    from_shards: int
    state_id: str | None
    shards: int
    stores: Mapping[str, StoreReport]
    deltas: int
    elapsed_s: float

    def to_json(self) -> str:
        """Return it as JSON for `from_json`: to send it to another process, not to keep it."""
        return json.dumps({**asdict(self), "stores": {name: list(store) for name, store in self.stores.items()}})

    @classmethod
    def from_json(cls, text: str) -> RescaleReport:
        """Return what `to_json` gave."""
        fields = json.loads(text)
        stores = {name: StoreReport(*map(tuple, report)) for name, report in fields.pop("stores").items()}
        return cls(**fields, stores=stores)

    @property
    def entries(self) -> int:
        """How many entries there are in all shards."""
        return sum(sum(store.entries) for store in self.stores.values())

    @property
    def size_bytes(self) -> tuple[int, ...]:
        """The bytes of keys and values in each new shard."""
        return tuple(sum(store.size_bytes[shard] for store in self.stores.values()) for shard in range(self.shards))

    @property
    def skew(self) -> float:
        """The largest shard's size over the mean; 1.0 is even, and so is an empty state."""
        sizes = self.size_bytes
        return max(sizes) * self.shards / sum(sizes) if sum(sizes) else 1.0

    def __str__(self) -> str:
        made = "dry run, nothing was written" if self.state_id is None else f"state {self.state_id}, checked"
        lines = [
            f"{self.from_shards} shards to {self.shards}: {made}; {self.entries:,} entries, largest shard "
            f"{self.skew:.2f} x the mean, {self.elapsed_s:.1f} s"
        ]
        for shard, size_bytes in enumerate(self.size_bytes):
            counts = ", ".join(f"{name} {store.entries[shard]:,}" for name, store in self.stores.items())
            lines.append(f"  shard {shard}: {size_bytes:,} bytes; {counts}")
        return "\n".join(lines)


class Part(NamedTuple):
    """The versions of a shard that begin after `after_ms`, and at `up_to_ms` or before; None is no limit."""

    shard: int
    after_ms: int | None = None
    up_to_ms: int | None = None

    def of(self, writes: list[LogicalWrite]) -> list[LogicalWrite]:
        """Return the versions among `writes` that belong to the part."""
        _, after_ms, up_to_ms = self
        if after_ms is not None:
            writes = [write for write in writes if write.timestamp_ms is not None and write.timestamp_ms > after_ms]
        if up_to_ms is not None:
            writes = [write for write in writes if write.timestamp_ms is not None and write.timestamp_ms <= up_to_ms]
        return writes


def parts(
    shard: int, stream_time_ms: int, retention_ms: int, versions: Iterable[list[LogicalWrite]]
) -> list[tuple[int, Part]]:
    """Return the parts in which a shard's versions are put, each with its latest time, so that no version is lost.

    A delta lets versions expire that ended before its latest version by the retention or more. So the latest part comes
    first: what is there when a delta is applied ended after all that it lets expire. Versions up to stream time did not
    expire by that, so they are one part. A state that was rescaled before has later ones, as its stream time is the
    earliest of its shards': they are put before, in more parts.
    """
    latest_ms = stream_time_ms
    ended: dict[int, int] = {}
    """When the last of the versions after stream time began, by when they ended in steps of the retention."""
    step_ms = max(1, retention_ms)
    before: LogicalWrite | None = None

    def end(began: LogicalWrite, end_ms: int) -> None:
        began_ms = began.timestamp_ms or 0
        if began_ms > stream_time_ms:
            ended[end_ms // step_ms] = max(began_ms, ended.get(end_ms // step_ms, began_ms))

    for writes in versions:
        for write in writes:
            time_ms = write.timestamp_ms or 0
            latest_ms = max(latest_ms, time_ms)
            if write.stored is None:
                end(write, time_ms)  # the segment of its own time has it
            if before is not None and before.key == write.key and before.stored is not None:
                end(before, time_ms)
            before = write
    if latest_ms == stream_time_ms:
        return [(stream_time_ms, Part(shard))]
    cuts_ms = [latest_ms]
    while expiring := [began for at, began in ended.items() if at * step_ms < cuts_ms[-1] - retention_ms]:
        cuts_ms.append(max(expiring))
    limits = zip(cuts_ms, [*cuts_ms[1:], stream_time_ms], strict=True)
    ahead = [(up_to_ms, Part(shard, after_ms, up_to_ms)) for up_to_ms, after_ms in limits]
    return [*ahead, (stream_time_ms, Part(shard, None, stream_time_ms))]


def state_to_rescale(location: DurableLocation) -> StateMetadata:
    """Return the metadata of the state in `location`. Raises DurableFileMissingError if there is none."""
    metadata = read_metadata(location)
    if metadata is None:
        raise DurableFileMissingError(location.path(METADATA_NAME), needed_by="rescaling")
    return metadata


def committed_pointers(
    location: DurableLocation, metadata: StateMetadata, recorded: Iterable[CommitPointer], *, complete: bool
) -> list[CommitPointer]:
    """Return the pointer of each shard, from what Spark's checkpoint has recorded of this state and of others.

    A shard without a record is where it began. Unless `complete` says that the checkpoint has no more, the location
    must show that nothing of such a shard was committed. Raises StatePointersError.
    """
    found: dict[int, CommitPointer] = {}
    for pointer in recorded:
        if pointer.state_id == metadata.state_id:
            if pointer.shard in found:
                raise StatePointersError(str(location), problem=f"there are two pointers of shard {pointer.shard}")
            if pointer.shard >= metadata.shards:
                problem = f"there is a pointer of shard {pointer.shard}, but there are only {metadata.shards} shards"
                raise StatePointersError(str(location), problem=problem)
            found[pointer.shard] = pointer
    if not found:
        problem = f"none of the commit pointers given is of state {metadata.state_id}, which is there"
        raise StatePointersError(str(location), problem=problem)
    for shard in range(metadata.shards):
        if shard not in found:
            found[shard] = where_it_began(location, metadata, shard)
            if not complete:
                _check_unwritten(location, found[shard])
    return [found[shard] for shard in range(metadata.shards)]


def where_it_began(location: DurableLocation, metadata: StateMetadata, shard: int) -> CommitPointer:
    """Return the pointer that a shard without a record starts from. Raises what `initial_pointer` raises."""
    if metadata.initial_state:
        return initial_pointer(location, metadata.state_id, shard)
    return CommitPointer(metadata.state_id, shard)


def where_all_begin(location: DurableLocation, metadata: StateMetadata) -> list[CommitPointer] | None:
    """Return the pointers that shards start from, where that is all: a tool made the state, and no run has entered it.

    None if it was made otherwise, or a run has left a fence, as it does in a shard before it commits there. Raises what
    `initial_pointer` raises.
    """
    shards = range(metadata.shards)
    if not metadata.initial_state or any(
        parse_fence_name(name) for shard in shards for name in location.names(delta_directory(shard))
    ):
        return None
    return [initial_pointer(location, metadata.state_id, shard) for shard in shards]


def _check_unwritten(location: DurableLocation, began: CommitPointer) -> None:
    for name in location.names(delta_directory(began.shard)):
        written = parse_delta_name(name)
        if written is not None and written.version > began.version and not is_of_tool(name):
            raise StatePointersError(
                str(location),
                problem=f"no commit pointer of shard {began.shard} is given, but there is the delta {name}. Print the "
                "pointers again; if Spark's checkpoint really has none of that shard, add this line: "
                f"{began.to_json()}",
            )


def rescale(
    source: DurableLocation,
    target: DurableLocation,
    *,
    shards: int,
    pointers: Sequence[CommitPointer],
    key_of: Mapping[str, KeyOf],
    trust_keys: bool = False,
    routing: Sequence[int] | None = None,
    work_dir: str | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    on_progress: OnProgress | None = None,
    dry_run: bool = False,
) -> RescaleReport:
    """Make in `target`, which must be empty, a state with `shards` shards of the one that `pointers` have in `source`.

    `pointers` are as `committed_pointers` returns them, `key_of` and `trust_keys` as Placement takes them. `routing` is
    Spark's group key of each new shard; None is one for each of as many state partitions. `work_dir` and `memory_bytes`
    are as of NewState; `on_progress` is called about once a second. `dry_run` reads all, proves where it belongs, and
    writes nothing. Raises NewStateError, RecoveryError, LocationError, and ValueError for illegal arguments. Unless it
    returns, `target` holds no state.
    """
    if type(shards) is not int or shards < 1:
        raise ValueError(f"shards must be a whole number of at least 1, not {shards!r}")
    refuse_too_many_shards(shards)
    started_s = time.monotonic()
    old = state_to_rescale(source)
    placement = Placement(old, shards, key_of, trust_keys, keeps_shards=shards == old.shards)
    placement.check()
    numbers = routing_numbers(shards, shards) if routing is None else tuple(routing)
    if len(set(numbers)) != shards:
        raise ValueError(f"routing must be {shards} different numbers, not {numbers}")
    new = replace(old, state_id=new_state_id(), shards=shards, routing=numbers, initial_state=True)
    made_from = f"state {old.state_id} with {old.shards} shards"
    made = None if dry_run else NewState.claim(target, new, made_from, work_dir=work_dir, memory_bytes=memory_bytes)
    filling = ShardFilling(None, new) if made is None else made.filling()
    move = _Move(old, new, placement, work_dir, Meter(on_progress))
    move.read(source, pointers, filling)
    filled = [filling.shard(shard) for shard in range(shards)]
    if made is not None:
        versioned = {spec.name for spec in old.stores if LAYOUTS[spec.kind].keeps_versions}
        deltas = [shard.start.deltas for shard in filled]
        starts = carry_over(pointers, new.state_id, deltas, old.shard_by, versioned)
        filled = [replace(shard, start=start) for shard, start in zip(filled, starts, strict=True)]
        move.check(made, filled)
        made.complete(filled)
    report = RescaleReport(
        old.state_id,
        old.shards,
        None if made is None else new.state_id,
        shards,
        {spec.name: _store_report(spec, filled) for spec in old.stores},
        sum(len(shard.start.deltas) for shard in filled),
        time.monotonic() - started_s,
    )
    _LOG.info("%s", report)
    return report


def _store_report(spec: StoreSpec, filled: Sequence[FilledShard]) -> StoreReport:
    tallies = [shard.tallies.get(spec.name, Tally()) for shard in filled]
    return StoreReport(tuple(tally.entries for tally in tallies), tuple(tally.size_bytes for tally in tallies))


class _Pass(NamedTuple):
    """Some of the stores, and the order in which their old shards are read; those of versions part by part."""

    parts: tuple[Part, ...]
    stores: list[StoreSpec]


@dataclass(frozen=True)
class _Move:
    old: StateMetadata
    new: StateMetadata
    placement: Placement
    work_dir: str | None
    meter: Meter

    def read(self, source: DurableLocation, pointers: Sequence[CommitPointer], filling: ShardFilling) -> None:
        copies: dict[str, list[Tally]] = {name: [] for name in self.old.global_stores}
        passes = self._passes(source, pointers)
        self.meter.begin("reading", sum(len(each.parts) for each in passes))
        for order, specs in passes:
            for part in order:
                with open_shard(source, self.old, pointers[part.shard], self.work_dir) as batch:
                    for spec in specs:
                        if not LAYOUTS[spec.kind].keeps_versions and part.after_ms is not None:
                            continue  # it is read with the last part of the shard
                        if spec.name in copies:
                            self._read_global(spec, batch, copies[spec.name], filling)
                        else:
                            self._read_store(spec, batch, part, filling)
                # In one delta with versions of another shard, these would expire by that one's time.
                filling.flush()
                self.meter.shard_done()

    def check(self, made: NewState, filled: Sequence[FilledShard]) -> None:
        self.meter.begin("checking", len(filled))
        for shard in filled:
            made.check(shard, lambda _, entries: self.meter.add(entries), self._prove_place)
            self.meter.shard_done()

    def _prove_place(self, spec: StoreSpec, shard: int, writes: list[LogicalWrite]) -> None:
        if spec.name not in self.new.global_stores:
            self.placement.check_new(spec, shard, writes)

    def _passes(self, source: DurableLocation, pointers: Sequence[CommitPointer]) -> list[_Pass]:
        """Return the order in which old shards are read for which stores, so that replaying loses no version."""
        passes: dict[tuple[Part, ...], _Pass] = {}
        in_any_order = []
        for spec in self.old.stores:
            if not LAYOUTS[spec.kind].keeps_versions:
                in_any_order.append(spec)
                continue
            found = [part for pointer in pointers for part in self._parts(spec, source, pointer)]
            order = tuple(part for _, part in sorted(found, key=lambda each: -each[0]))
            passes.setdefault(order, _Pass(order, [])).stores.append(spec)
        first = next(iter(passes), tuple(Part(shard) for shard in range(len(pointers))))
        passes.setdefault(first, _Pass(first, [])).stores.extend(in_any_order)
        return list(passes.values())

    def _parts(self, spec: StoreSpec, source: DurableLocation, pointer: CommitPointer) -> list[tuple[int, Part]]:
        """Return the parts of a shard's versions, which are read for that only if the state was rescaled before."""
        stream_time_ms = pointer.store_times_ms.get(spec.name, NO_STREAM_TIME)
        if not self.old.initial_state or spec.name in self.old.global_stores:
            return [(stream_time_ms, Part(pointer.shard))]
        with open_shard(source, self.old, pointer, self.work_dir) as batch:
            return parts(pointer.shard, stream_time_ms, spec.retention[0], store_writes(batch, spec))

    def _read_store(self, spec: StoreSpec, batch: ShardBatch, part: Part, filling: ShardFilling) -> None:
        for chunk in self._writes(spec, batch):
            writes = part.of(chunk) if LAYOUTS[spec.kind].keeps_versions else self._shown(spec, batch, chunk)
            for target, own_writes in self.placement.by_shard(spec, batch.pointer.shard, writes).items():
                filling.put(target, spec.name, own_writes)

    def _shown(self, spec: StoreSpec, batch: ShardBatch, writes: list[LogicalWrite]) -> list[LogicalWrite]:
        """Return the entries that reads show: a new shard, whose time is earlier, would show the others too."""
        if self.placement.keeps_shards or not spec.kind.is_segmented:
            return writes
        layout, stream_time_ms = layout_of(spec), batch.pointer.store_times_ms.get(spec.name, NO_STREAM_TIME)
        first_ms = Segments(batch.stores[spec.name].bytes, *spec.retention, stream_time_ms).first_visible_ms
        return [write for write in writes if layout.put_time_ms(write.key) >= first_ms]

    def _read_global(self, spec: StoreSpec, batch: ShardBatch, copies: list[Tally], filling: ShardFilling) -> None:
        """Give all new shards what the first shard has; the others must have the same."""
        copy = Tally()
        for writes in self._writes(spec, batch):
            copy.add(writes)
            if not copies:
                for target in range(self.new.shards):
                    filling.put(target, spec.name, writes)
        copies.append(copy)
        copies[0].require(copy, spec.name, batch.pointer.shard)

    def _writes(self, spec: StoreSpec, batch: ShardBatch) -> Iterator[list[LogicalWrite]]:
        for writes in store_writes(batch, spec):
            yield writes
            self.meter.add(len(writes))
