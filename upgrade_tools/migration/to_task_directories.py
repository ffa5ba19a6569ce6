"""Migration to Kafka Streams' layout: all is made and verified beside its place, and only then put there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from statestore.bytestore.kafka_streams.layout import (
    CHECKPOINT_FILE,
    changelog_partition,
    database_directory,
    position_file,
    segments_directory,
)
from statestore.bytestore.kafka_streams.task_directory import read_offsets
from statestore.bytestore.upgrades import upgradable
from statestore.errors import FormatError, StoreFormatError
from statestore.errors.new_state import DirectoryDamagedError
from statestore.errors.state import LocalStateCorruptedError, UnknownColumnFamilyError, UnknownEntryError
from statestore.format.offset_checkpoint import encode_offset_checkpoint
from upgrade_tools.errors import MigrationCheckError, MigrationRefusedError, StoreUndecodableError, UnknownKindError
from upgrade_tools.migration.changelog_offsets import application_of, refuse_unused_offsets
from upgrade_tools.migration.disk_space import estimated_bytes, has_room, held_bytes, refuse_without_room
from upgrade_tools.migration.journal import JOURNAL_FILE, TaskJournal, is_vacant, read_journal
from upgrade_tools.migration.locks import exclude_applications, lock_workspace
from upgrade_tools.migration.places import TargetPlace, places_of
from upgrade_tools.migration.planning.fingerprints import request_fingerprint, source_fingerprint
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.migration.publishing import link_tree, sync_entry, sync_tree, write_errors
from upgrade_tools.migration.report import (
    MigrationReport,
    OnProgress,
    StepMeter,
    Tallies,
    unclean_notes,
    unclean_notes_of,
)
from upgrade_tools.migration.task_build import TaskBuild
from upgrade_tools.states.state import OpenStore
from upgrade_tools.states.task import TaskState

_CAN_NOT_GO_ON: Final = (
    DirectoryDamagedError,
    FormatError,
    LocalStateCorruptedError,
    MigrationCheckError,
    StoreFormatError,
    StoreUndecodableError,
    UnknownColumnFamilyError,
    UnknownEntryError,
    UnknownKindError,
)
"""Errors that the same command would end with again. After others, such as a full disk, it can continue."""


def migrate_to_task_directories(plan: Plan, on_progress: OnProgress | None = None) -> MigrationReport:
    """Make the task directories of a plan, and put them in their places.

    Raises MigrationRefusedError, MigrationCheckError, NoRoomError, DirectoryInUseError, and what reading the source
    raises. Unless it returns, what was in a place is unchanged, or replaced as a whole.
    """
    started_s = time.monotonic()
    migration = _Migration(plan, request_fingerprint(plan), on_progress)
    with ExitStack() as held:
        state = plan.state
        places = places_of(plan)
        if isinstance(state, TaskState):
            tasks = [state.task_directory(part).resolve() for part in state.parts]
            held.enter_context(exclude_applications(tasks, create=plan.in_place))
        for place in places:
            with write_errors(place.final.parent):
                place.final.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_workspace(place.workspace))
        migration.run(places)
    return migration.report(places, time.monotonic() - started_s)


@dataclass
class _Migration:
    """One run of a migration."""

    plan: Plan
    request: str
    on_progress: OnProgress | None

    def __post_init__(self) -> None:
        self.tallies = Tallies()
        self.migrated: list[int] = []
        self.replaced: list[TargetPlace] = []
        self.notes: list[str] = []

    def run(self, places: list[TargetPlace]) -> None:
        """Make all of them, then put each in its place."""
        discard_backup = self.plan.request.discard_backup
        to_make = [place for place in places if not self._finish_earlier_run(place)]
        for place in to_make:
            if not place.replaces:
                place.refuse_if_occupied(discard_backup=discard_backup)
        refuse_unused_offsets(self.plan, places)
        self._refuse_without_room(to_make)
        meter = StepMeter(sum(len(place.tasks) for place in to_make), self.on_progress)
        try:
            made = [place for place in to_make if self._make(place, meter)]
        except _CAN_NOT_GO_ON:
            for place in to_make:
                self._discard(place)
            raise
        for place in made:
            place.publish(discard_backup=discard_backup)
            self._count(place)

    def _finish_earlier_run(self, place: TargetPlace) -> bool:
        published = place.finish_earlier_run(self.request, discard_backup=self.plan.request.discard_backup)
        if published is None:
            return False
        for journal in published:
            self.tallies.add_all(journal.entries)
        self._count(place)
        return True

    def _refuse_without_room(self, places: list[TargetPlace]) -> None:
        """Raise NoRoomError if there is no room for what is still to be made."""
        needed_bytes = {
            part: estimated_bytes(self.plan, [part]) - held_bytes([place.workspace / task])
            for place in places
            for part, task in place.tasks.items()
            if not self._is_verified(part, place.workspace / task)
        }
        needed = {part: size_bytes for part, size_bytes in needed_bytes.items() if size_bytes > 0}
        if self.plan.in_place and not has_room(self.plan, sum(needed.values())):
            # Only then, as tasks must be opened to see whether they need an upgrade.
            needed = {part: size_bytes for part, size_bytes in needed.items() if self._needs_upgrade(part)}
        refuse_without_room(self.plan, sum(needed.values()))

    def _is_verified(self, part: int, directory: Path) -> bool:
        journal = self._unfinished_journal(directory, source_fingerprint(self.plan, part))
        return journal is not None and journal.verified

    def _needs_upgrade(self, part: int) -> bool:
        with self.plan.state.open(part, self.plan.reading) as stores:
            return needs_upgrade(self.plan, stores)

    def _count(self, place: TargetPlace) -> None:
        self.migrated += place.tasks
        if place.replaces:
            self.replaced.append(place)

    def _make(self, place: TargetPlace, meter: StepMeter) -> bool:
        """Make what belongs in a place; return whether there was anything to do."""
        made = [self._make_task(place, part, place.workspace / task, meter) for part, task in place.tasks.items()]
        return any(made)

    def _make_task(self, place: TargetPlace, part: int, directory: Path, meter: StepMeter) -> bool:
        source = source_fingerprint(self.plan, part)
        journal = self._unfinished_journal(directory, source)
        if journal is not None and journal.verified:
            self.tallies.add_all(journal.entries)
            self.notes += unclean_notes_of(self.plan, part)
            return True
        with self.plan.state.open(part, self.plan.reading) as stores:
            if place.replaces:
                if not needs_upgrade(self.plan, stores):
                    return False
                place.refuse_if_occupied(discard_backup=self.plan.request.discard_backup)
            if journal is None:
                journal = _begin(directory, TaskJournal(self.request, source))
            steps = 2 * sum(store.bytes.approximate_num_entries() for store in stores.values())
            meter.begin_part(steps)
            build = TaskBuild(self.plan, part, directory, journal, meter)
            self.notes += unclean_notes(self.plan, part, stores)
            for store_plan in self.plan.stores:
                with write_errors(directory):
                    build.build(store_plan, stores[store_plan.name], application_of(self.plan, place), self.tallies)
        if isinstance(self.plan.state, TaskState):
            task = self.plan.state.task_directory(part)
            if place.replaces:
                _copy_other_entries(part, task, directory, stores)
            _copy_positions(task, directory, stores)
        with write_errors(directory):
            sync_tree(directory)
            journal.verified = True
            journal.write(directory)
            sync_entry(directory)
        return True

    def _unfinished_journal(self, directory: Path, source: str) -> TaskJournal | None:
        """Return the journal of an earlier run that can be continued, None if there is none."""
        journal = read_journal(directory)
        if journal is None:
            if not is_vacant(directory):
                raise MigrationRefusedError(
                    str(directory), problem="is in the way", remedy="move it elsewhere, and run this again"
                )
            return None
        if journal.request != self.request:
            raise MigrationRefusedError(
                str(directory),
                problem="is what another migration has begun",
                remedy="run the same command as then, or remove that directory",
            )
        return journal if journal.source == source else None

    def _discard(self, place: TargetPlace) -> None:
        """Remove what this migration has made, as it can't be finished."""
        for task in place.tasks.values():
            journal = read_journal(place.workspace / task)
            if journal is not None and journal.request == self.request:
                shutil.rmtree(place.workspace / task)
        if place.workspace.is_dir() and not any(place.workspace.iterdir()):
            place.workspace.rmdir()

    def report(self, places: list[TargetPlace], elapsed_s: float) -> MigrationReport:
        """Return what was done."""
        plan = self.plan
        backups = [str(place.backup) for place in self.replaced if place.backup.exists()]
        if not self.migrated:
            self.notes.append("there was nothing to be done: no entry is left in an older format")
        target = plan.state.path if plan.in_place else str(places[0].final)
        return replace(
            MigrationReport.of(plan, target, self.tallies, sorted(self.migrated), elapsed_s),
            backups=tuple(backups),
            notes=tuple(self.notes),
        )


def needs_upgrade(plan: Plan, stores: Mapping[str, OpenStore]) -> bool:
    """Return whether a store, or some of its entries, are in an older format than the target's."""
    if any(store.kind is not store.migrated for store in plan.stores):
        return True
    upgrades = (upgradable(store.bytes) for store in stores.values())
    return any(upgrade is not None and not upgrade.upgrade_progress().is_finished for upgrade in upgrades)


def _begin(directory: Path, journal: TaskJournal) -> TaskJournal:
    """Make `directory` empty but for this journal."""
    with write_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        # An old journal is replaced last: until then it marks the directory as a migration's.
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != JOURNAL_FILE:
                entry.unlink()
        journal.write(directory)
    return journal


def _copy_positions(task: Path, directory: Path, stores: Mapping[str, OpenStore]) -> None:
    """Copy the files of Kafka Streams before 4.3, which it reads at each opening, into a task's new directory."""
    with write_errors(directory):
        for name in stores:
            if position_file(task, name).exists():
                shutil.copy2(position_file(task, name), position_file(directory, name))


def _copy_other_entries(part: int, task: Path, directory: Path, stores: Mapping[str, OpenStore]) -> None:
    """Copy what a task's directory has beside the stores that were made anew into the new directory."""
    made_anew = {
        path
        for name in stores
        for path in (database_directory(task, name), segments_directory(task, name), position_file(task, name))
    }
    checkpoint = task / CHECKPOINT_FILE
    with write_errors(directory):
        for entry in _entries_beside(task, made_anew | {checkpoint}):
            target = directory / entry.relative_to(task)
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.is_dir():
                link_tree(entry, target)
            else:
                shutil.copy2(entry, target)
        offsets = read_offsets(checkpoint, CHECKPOINT_FILE)
        for name, store in stores.items():
            if store.application_id is not None:
                offsets.pop(changelog_partition(store.application_id, name, part), None)
        if offsets:
            (directory / CHECKPOINT_FILE).write_bytes(encode_offset_checkpoint(offsets))


def _entries_beside(task: Path, made_anew: set[Path]) -> Iterator[Path]:
    """Yield the entries of a task's directory, and its databases, that do not belong to the stores made anew."""
    databases = database_directory(task, "")
    for entry in sorted(task.iterdir()):
        if entry == databases and entry.is_dir():
            yield from (database for database in sorted(entry.iterdir()) if database not in made_anew)
        elif entry not in made_anew:
            yield entry
