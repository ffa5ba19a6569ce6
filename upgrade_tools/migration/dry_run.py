"""What a migration would do: everything is read, converted and placed, and nothing is written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from statestore.errors.readable import without_secrets
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import refuse_occupied
from upgrade_tools.migration.changelog_offsets import refuse_unused_offsets
from upgrade_tools.migration.databases import databases_of
from upgrade_tools.migration.disk_space import (
    DATABASE_BYTES,
    ENTRY_OVERHEAD_BYTES,
    free_bytes,
    held_bytes,
    refuse_without_room,
)
from upgrade_tools.migration.places import TargetPlace, local_path, places_of
from upgrade_tools.migration.planning.fingerprints import request_fingerprint
from upgrade_tools.migration.planning.plan import Plan, StorePlan
from upgrade_tools.migration.planning.request import TargetLayout
from upgrade_tools.migration.report import MigrationReport, OnProgress, StepMeter, Tallies, unclean_notes
from upgrade_tools.migration.to_location import location_request, metadata_of, placed_writes
from upgrade_tools.migration.to_task_directories import needs_upgrade
from upgrade_tools.states.state import OpenStore

_TOLD_EVERY: Final = 10_000


def dry_run(plan: Plan, on_progress: OnProgress | None = None) -> MigrationReport:
    """Return what would be done. Raises what the migration would raise before it writes, and while it reads."""
    started_s = time.monotonic()
    metadata = metadata_of(plan) if plan.layout is TargetLayout.LOCATION else None
    places = [] if metadata is not None else places_of(plan)
    refuse_unused_offsets(plan, places)
    if metadata is not None:
        refuse_occupied(DurableLocation(plan.request.target or ""), location_request(plan, metadata))
    _refuse_occupied_places(plan, [place for place in places if not place.replaces])
    tallies, databases, parts, notes = Tallies(), 0, [], []
    meter = StepMeter(len(plan.state.parts), on_progress)
    for part in plan.state.parts:
        with plan.state.open(part, plan.reading) as stores:
            if plan.in_place:
                if not needs_upgrade(plan, stores):
                    continue
                _refuse_occupied_places(plan, [place for place in places if part in place.tasks])
            parts.append(part)
            notes += unclean_notes(plan, part, stores)
            meter.begin_part(sum(store.bytes.approximate_num_entries() for store in stores.values()))
            for store in plan.stores:
                if metadata is None:
                    databases += _count_databases(plan, store, stores[store.name], tallies, meter)
                    continue
                for writes in placed_writes(plan, metadata, part, store, stores[store.name], tallies):
                    meter.advance(len(writes))
    entries, size_bytes = sum(tallies.entries.values()), sum(tallies.size_bytes.values())
    needed_bytes = size_bytes + entries * ENTRY_OVERHEAD_BYTES + databases * DATABASE_BYTES
    refuse_without_room(plan, needed_bytes - _unfinished_bytes(plan, places))
    target = without_secrets(plan.request.target or plan.state.path)
    return replace(
        MigrationReport.of(plan, target, tallies, parts, time.monotonic() - started_s),
        dry_run=True,
        size_bytes=size_bytes,
        needed_bytes=needed_bytes,
        free_bytes=free_bytes(plan),
        notes=(*notes, *tallies.notes),
    )


def _refuse_occupied_places(plan: Plan, places: Iterable[TargetPlace]) -> None:
    for place in places:
        if place.published(request_fingerprint(plan)) is None:
            place.refuse_if_occupied(discard_backup=plan.request.discard_backup)


def _unfinished_bytes(plan: Plan, places: Iterable[TargetPlace]) -> int:
    """Return the room that an earlier run of the same command takes, which this run reuses or clears."""
    if plan.layout is TargetLayout.LOCATION:
        location = local_path(plan.request.target or "")
        return 0 if location is None else held_bytes([location])
    return held_bytes(place.workspace for place in places)


def _count_databases(plan: Plan, store_plan: StorePlan, store: OpenStore, tallies: Tallies, meter: StepMeter) -> int:
    """Read the databases that a store would become; return how many there are."""
    sources = databases_of(plan, store_plan, store)
    for source in sources:
        entries = size_bytes = 0
        for key, value in source.entries(None):
            size_bytes += len(key) + len(value)
            entries += 1
            if not entries % _TOLD_EVERY:
                meter.advance(_TOLD_EVERY)
        tallies.add(store_plan.name, entries, size_bytes)
    return len(sources)
