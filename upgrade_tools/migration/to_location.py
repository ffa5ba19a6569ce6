"""Migration to a state location: part n becomes shard n, each filled, read back as a query would, and recorded."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from statestore.bytestore.chunks import key_and_value_sizes
from statestore.errors.new_state import KeyPlacementError
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.carry_over import carry_over
from statestore.recovery.making.logical_writes import LogicalWrite
from statestore.recovery.making.new_state import NewState, refuse_occupied
from statestore.recovery.making.placement import Placement
from statestore.recovery.making.state_filling import FilledShard, with_expiry_stores
from statestore.recovery.metadata.state_metadata import (
    StateMetadata,
    metadata_of_stores,
    new_state_id,
    refuse_too_many_shards,
)
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.changelog_offsets import refuse_unused_offsets
from upgrade_tools.migration.disk_space import estimated_bytes, refuse_without_room
from upgrade_tools.migration.locks import exclude_applications, lock_location
from upgrade_tools.migration.places import local_path
from upgrade_tools.migration.planning.conversions import converted_writes
from upgrade_tools.migration.planning.fingerprints import request_fingerprint, source_fingerprint
from upgrade_tools.migration.planning.plan import Plan, StorePlan
from upgrade_tools.migration.report import (
    MigrationReport,
    OnProgress,
    StepMeter,
    Tallies,
    unclean_notes,
    unclean_notes_of,
)
from upgrade_tools.rows.expiry import live_writes
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import OpenStore
from upgrade_tools.states.task import TaskState


def migrate_to_location(plan: Plan, on_progress: OnProgress | None = None) -> MigrationReport:
    """Make a state of the source in the location that `plan` names.

    Raises TargetNotEmptyError, MigrationRefusedError, KeyPlacementError, StateCheckError, LocationError, and what
    reading the source raises. Unless it returns, the location holds no state.
    """
    started_s = time.monotonic()
    assert plan.request.target is not None  # the plan has refused that
    location = DurableLocation(plan.request.target)
    state = plan.state
    with ExitStack() as held:
        if isinstance(state, TaskState):
            held.enter_context(exclude_applications(map(state.task_directory, state.parts), create=False))
        metadata = metadata_of(plan)
        refuse_unused_offsets(plan, ())
        directory = local_path(plan.request.target)
        if directory is not None:
            held.enter_context(lock_location(directory))
        made = replace(_claim(plan, metadata, location), expiry_headers=plan.request.expiry_headers)
        filling = _PartFilling(plan, made, StepMeter(len(state.parts), on_progress), Tallies())
        if not made.is_complete:
            for shard in range(metadata.shards):
                if shard not in made.kept:
                    made.keep(filling.fill(shard))
            made.complete(None)
        for part in made.kept.intersection(state.parts):
            filling.notes.extend(unclean_notes_of(plan, part))
    notes = sorted(filling.notes) + filling.tallies.notes
    if made.kept:
        before = f"shards {', '.join(map(str, sorted(made.kept)))} were finished by an earlier run of this command"
        notes.append(f"{before}: their entries are not counted here")
    return replace(
        MigrationReport.of(plan, str(location), filling.tallies, state.parts, time.monotonic() - started_s),
        state_id=made.metadata.state_id,
        notes=tuple(notes),
    )


def metadata_of(plan: Plan) -> StateMetadata:
    """Return the metadata of the state that is to be made. Raises MigrationRefusedError, TooManyShardsError."""
    state, request = plan.state, plan.request
    try:
        written = (store.written for store in plan.stores if store.written is not None)
        specs = with_expiry_stores(written, request.expiry_headers)
    except ValueError as cause:
        raise MigrationRefusedError(state.path, problem=str(cause), remedy="leave out --expiry-header") from cause
    if isinstance(state, LocationState):
        if request.shards not in (None, state.metadata.shards):
            raise MigrationRefusedError(
                state.path,
                problem=f"has {state.metadata.shards} shards, and a migration keeps them",
                remedy="leave out --shards, or use the command rescale",
            )
        # The first query on a location that a tool made records the rest.
        return replace(state.metadata, state_id=new_state_id(), stores=specs, topology=(), initial_state=True)
    shards = max(state.parts) + 1 if request.shards is None else request.shards
    refuse_too_many_shards(shards)
    missing = sorted(set(range(shards)) - set(state.parts))
    if max(state.parts) >= shards:
        raise MigrationRefusedError(
            state.path,
            problem=f"has a partition {max(state.parts)}, but --shards says {shards}",
            remedy="give with --shards how many partitions there are",
        )
    if missing and not request.missing_are_empty:
        raise MigrationRefusedError(
            state.path,
            problem=f"has only {sorted(state.parts)} of the partitions 0 to {shards - 1}",
            remedy=f"bring the others, {missing}, from the application's other instances; or, if they have no state, "
            "give --missing-are-empty",
        )
    return metadata_of_stores(specs, shards, request.shard_by)


def location_request(plan: Plan, metadata: StateMetadata) -> str:
    """Return a digest that stays the same for the same command and an unchanged source."""
    parts = [source_fingerprint(plan, part) for part in plan.state.parts]
    # The placement of keys was checked for this number of shards.
    return digest("".join([request_fingerprint(plan), f"{metadata.shards} shards", *parts]).encode())


def _claim(plan: Plan, metadata: StateMetadata, location: DurableLocation) -> NewState:
    """Claim an empty location, or continue what an earlier run has left in it."""
    request, work_dir = location_request(plan, metadata), plan.request.work_dir
    begun = NewState.resume(location, metadata, request, work_dir=work_dir)
    if begun is not None:
        refuse_without_room(plan, estimated_bytes(plan, set(plan.state.parts).difference(begun.kept)))
        return begun
    refuse_occupied(location, request)
    refuse_without_room(plan, estimated_bytes(plan, plan.state.parts))
    made_from = f"the {plan.state.layout.value} {plan.state.path}"
    return NewState.claim(location, metadata, made_from, request=request, work_dir=work_dir)


@dataclass(frozen=True)
class _PartFilling:
    """Fills shards of a new state from the parts of the source."""

    plan: Plan
    made: NewState
    meter: StepMeter
    tallies: Tallies
    notes: list[str] = field(default_factory=list)
    """What the user should know of the parts that were read."""

    def fill(self, shard: int) -> FilledShard:
        """Fill a shard, and check it."""
        filling = self.made.filling()
        if shard not in self.plan.state.parts:
            return filling.shard(shard)
        with _without_garbage_collection():
            state, metadata = self.plan.state, self.made.metadata
            with state.open(shard, self.plan.reading) as stores:
                self.notes.extend(unclean_notes(self.plan, shard, stores))
                self.meter.begin_part(2 * sum(store.bytes.approximate_num_entries() for store in stores.values()))
                for store in self.plan.stores:
                    for writes in placed_writes(self.plan, metadata, shard, store, stores[store.name], self.tallies):
                        filling.put(shard, store.name, writes)
                        self.meter.advance(len(writes))
            filled = filling.shard(shard)
            if isinstance(state, LocationState):
                (start,) = carry_over([state.pointers[shard]], metadata.state_id, [filled.start.deltas])
                filled = replace(filled, start=start)
            self.made.check(filled, lambda _, entries: self.meter.advance(entries))
            return filled


def placed_writes(
    plan: Plan, metadata: StateMetadata, shard: int, store_plan: StorePlan, store: OpenStore, tallies: Tallies
) -> Iterator[list[LogicalWrite]]:
    """Yield the converted writes that make a store of a shard, and count them in `tallies`.

    Raises MigrationRefusedError if one does not belong to the shard.
    """
    placement = Placement(metadata, metadata.shards, {})
    for writes in live_writes(store, store_plan.written, tallies.add_expired):
        try:
            if isinstance(plan.state, TaskState):  # other sources have shards, which stay the same
                placement.check_new(store_plan.reading, shard, writes)
        except KeyPlacementError as cause:
            raise MigrationRefusedError(
                plan.state.path,
                problem=f"has the key 0x{cause.key} of store {store_plan.name!r} in partition {shard}, but records "
                f"with this key go to shard {cause.expected_shard}, so the store is not keyed like its records, or a "
                "custom partitioner has placed them",
                remedy='give --shard-by partition, and start the query with shard_by="partition"',
            ) from cause
        converted = converted_writes(store_plan, writes, plan.request.timestamp_ms)
        tallies.add(store_plan.name, len(converted), sum(key_and_value_sizes(converted)))
        yield converted


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collector, which would take half of the time on millions of tuples without cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
