"""What a migration would do: everything is read, converted and placed, and nothing is written."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from statestore.errors import NoRoomError, TargetNotEmptyError
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import METADATA_NAME
from upgrade_tools.migration.databases import databases_of
from upgrade_tools.migration.fingerprints import request_fingerprint
from upgrade_tools.migration.places import Place, places_of
from upgrade_tools.migration.plan import Plan, StorePlan
from upgrade_tools.migration.report import Meter, MigrationReport, OnProgress, StoreMigration, Tallies
from upgrade_tools.migration.request import TargetLayout
from upgrade_tools.migration.to_location import metadata_of, placed_writes
from upgrade_tools.migration.to_task_directories import needs_upgrade
from upgrade_tools.states import OpenStore

_ENTRY_OVERHEAD_BYTES: Final = 16
"""About what a table takes for an entry beside its key and value, with index and bloom filter."""
_DATABASE_BYTES: Final = 256 << 10
"""About what a database takes that has no entries."""
_GROWTH: Final = 1.5
"""By how much a state of small values at most gets larger: each gets a timestamp and the number of its headers."""
_TOLD_EVERY: Final = 10_000


def dry_run(plan: Plan, on_progress: OnProgress | None = None) -> MigrationReport:
    """Return what would be done. Raises what the migration would raise before it writes, and for what it reads."""
    started_s = time.monotonic()
    metadata = metadata_of(plan) if plan.layout is TargetLayout.LOCATION else None
    places = [] if metadata is not None else places_of(plan)
    _refuse_taken_target(plan, [place for place in places if not place.replaces])
    tallies, databases, parts = Tallies(), 0, []
    meter = Meter(len(plan.state.parts), on_progress)
    for part in plan.state.parts:
        with plan.state.open(part, plan.reading) as stores:
            if plan.in_place:
                if not needs_upgrade(plan, stores):
                    continue
                _refuse_taken_target(plan, [place for place in places if part in place.tasks])
            parts.append(part)
            meter.begin_part(sum(store.bytes.approximate_num_entries() for store in stores.values()))
            for store in plan.stores:
                if metadata is None:
                    databases += _count_databases(plan, store, stores[store.name], tallies, meter)
                    continue
                for writes in placed_writes(plan, metadata, part, store, stores[store.name], tallies):
                    meter.advance(len(writes))
    entries, size_bytes = sum(tallies.entries.values()), sum(tallies.size_bytes.values())
    return MigrationReport(
        plan.state.path,
        plan.request.target or plan.state.path,
        plan.layout.value,
        tuple(
            StoreMigration(store.name, store.kind, store.migrated, tallies.entries.get(store.name, 0))
            for store in plan.stores
        ),
        plan.left_out,
        tuple(parts),
        time.monotonic() - started_s,
        dry_run=True,
        size_bytes=size_bytes,
        needed_bytes=size_bytes + entries * _ENTRY_OVERHEAD_BYTES + databases * _DATABASE_BYTES,
        free_bytes=free_bytes(plan),
        notes=tuple(tallies.notes),
    )


def _refuse_taken_target(plan: Plan, places: Iterable[Place]) -> None:
    if plan.layout is TargetLayout.LOCATION:
        location = DurableLocation(plan.request.target or "")
        if location.read(METADATA_NAME) is not None:
            raise TargetNotEmptyError(str(location), found=f"a state ({METADATA_NAME})")
    for place in places:
        if place.published(request_fingerprint(plan)) is None:
            place.refuse_if_taken(discard_backup=plan.request.discard_backup)


def refuse_without_room(plan: Plan, needed_bytes: int) -> None:
    """Raise NoRoomError if the target's disk is known to have less room than is needed."""
    free = free_bytes(plan)
    if free is not None and free < needed_bytes:
        raise NoRoomError(str(_disk_of(plan)), needed_bytes=needed_bytes, free_bytes=free)


def about_needed_bytes(plan: Plan) -> int:
    """Return about the room that the target takes, by the size of the source's files alone; 0 if that does not tell.

    It tells where stores have files of their own. Of anything else only a dry run knows it.
    """
    names = {store.name for store in plan.stores}
    found = [store for store in plan.state.found_stores() if store.name in names]
    return sum(int(store.size_bytes * _GROWTH) + store.databases * _DATABASE_BYTES for store in found)


def free_bytes(plan: Plan) -> int | None:
    """Return the room that there is where the target will be, None if it is not on a disk of this machine."""
    disk = _disk_of(plan)
    return None if disk is None else shutil.disk_usage(disk).free


def _disk_of(plan: Plan) -> Path | None:
    """Return a directory that is there, on the disk of the target."""
    target = plan.request.target or plan.state.path
    parts = urlsplit(DurableLocation(target).uri)
    if parts.scheme != "file":
        return None
    path = Path(os.path.abspath(unquote(parts.path)))
    return next(parent for parent in (path, *path.parents) if parent.is_dir())


def _count_databases(plan: Plan, store_plan: StorePlan, store: OpenStore, tallies: Tallies, meter: Meter) -> int:
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
