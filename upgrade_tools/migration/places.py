"""Where the tasks of a migration are made, and how they are put in their places: whole, in one step each.

    FINAL.migrating           what is being made, until all of it is verified and on the disk
    FINAL.before-migration    what was there before, of a migration in place

Kafka Streams ignores entries with such names beside a task's directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from urllib.parse import unquote_to_bytes, urlsplit

from statestore.recovery.location.durable_location import DurableLocation
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.journal import TaskJournal, forget_journal, read_journal
from upgrade_tools.migration.locks import lock_workspace
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.migration.planning.request import TargetLayout
from upgrade_tools.migration.publishing import exchange, sync_entry, write_errors
from upgrade_tools.states.state import Layout
from upgrade_tools.states.task import TASK_NAME, TaskState

_MIGRATING = ".migrating"
_BACKUP = ".before-migration"


@dataclass(frozen=True)
class TargetPlace:
    """What is put in its place in one step: a task's directory, or that of an application with all its tasks."""

    final: Path
    tasks: Mapping[int, Path]
    """By part, its task's directory relative to `final`; `Path()` is `final` itself."""
    replaces: bool
    """Whether it replaces an existing directory."""

    @property
    def workspace(self) -> Path:
        """Where it is made."""
        return self.final.with_name(f"{self.final.name}{_MIGRATING}")

    @property
    def backup(self) -> Path:
        """Where the replaced directory is kept."""
        return self.final.with_name(f"{self.final.name}{_BACKUP}")

    def published(self, request: str) -> list[TaskJournal] | None:
        """Return the journals that its tasks still have, if the same command has put it in its place and was cut off.

        A journal there proves that it is whole: it is put there with its journals, after all of it was verified.
        """
        journals = [read_journal(self.final / task) for task in self.tasks.values()]
        found = [journal for journal in journals if journal is not None and journal.request == request]
        return found or None

    def finish_earlier_run(self, request: str, *, discard_backup: bool) -> list[TaskJournal] | None:
        """Finish an earlier run that was cut off after it had put this in its place.

        Return the journals of its tasks if that was the same command, None if there is still something to do.
        """
        published = self.published(request)
        if published is not None:
            self.tidy(discard_backup=discard_backup)
        elif self.replaces and read_journal(self.final) is not None:
            self.tidy(discard_backup=False)
        return published

    def refuse_if_occupied(self, *, discard_backup: bool) -> None:
        """Raise MigrationRefusedError if its place, or that of its backup, is taken."""
        if self.replaces:
            if self.backup.exists() and not discard_backup:
                raise MigrationRefusedError(
                    str(self.final),
                    problem=f"has been migrated before, and {self.backup.name} is its backup",
                    remedy="remove the backup if you do not need it, or let --discard-backup remove it",
                )
        elif self.final.exists() and (not self.final.is_dir() or any(self.final.iterdir())):
            raise MigrationRefusedError(
                str(self.final), problem="exists already", remedy="name a TARGET that does not exist, or is empty"
            )

    def publish(self, *, discard_backup: bool) -> None:
        """Put what is in the workspace in its place."""
        with write_errors(self.final):
            if self.replaces:
                if discard_backup and self.backup.exists():
                    shutil.rmtree(self.backup)
                if not exchange(self.workspace, self.final):
                    # Two steps: if this is cut off, the next run does the second.
                    os.rename(self.final, self.backup)
                    os.rename(self.workspace, self.final)
            else:
                os.rename(self.workspace, self.final)
            sync_entry(self.final)
        self.tidy(discard_backup=discard_backup)

    def tidy(self, *, discard_backup: bool) -> None:
        """Clean up once it is in its place: name the backup, and remove the journals."""
        with write_errors(self.final):
            if self.replaces and self.workspace.exists():
                if self.backup.exists():
                    shutil.rmtree(self.backup)
                os.rename(self.workspace, self.backup)
            for task in self.tasks.values():
                forget_journal(self.final / task)
            sync_entry(self.final)
            if discard_backup and self.backup.exists():
                shutil.rmtree(self.backup)


def places_of(plan: Plan) -> list[TargetPlace]:
    """Return what a migration to Kafka Streams' layout makes."""
    state, target = plan.state, plan.request.target
    if target is None:
        assert isinstance(state, TaskState)  # the plan refuses others in place
        tasks = {part: state.task_directory(part).resolve() for part in state.parts}
        return [TargetPlace(task, {part: Path()}, replaces=True) for part, task in tasks.items()]
    final = Path(os.path.abspath(target))
    if state.layout is Layout.TASK:
        assert isinstance(state, TaskState)
        (part,) = state.parts
        if not TASK_NAME.fullmatch(final.name):
            final /= _task_name(plan, part)
        return [TargetPlace(final, {part: Path()}, replaces=False)]
    return [TargetPlace(final, {part: Path(_task_name(plan, part)) for part in state.parts}, replaces=False)]


def finish_renames(source: str) -> None:
    """Finish a migration in place that was cut off between its two last renames, with nothing in its place."""
    path = Path(source).resolve()
    beside = [path.with_name(f"{path.name}{_MIGRATING}")]
    for workspace in [*beside, *(path.glob(f"*{_MIGRATING}") if path.is_dir() else ())]:
        final = workspace.with_name(workspace.name.removesuffix(_MIGRATING))
        if final.exists() or read_journal(workspace) is None:
            continue
        with lock_workspace(workspace):  # else a run is doing that right now
            journal = None if final.exists() else read_journal(workspace)
            if journal is not None and journal.verified and final.with_name(f"{final.name}{_BACKUP}").exists():
                with write_errors(final):
                    os.rename(workspace, final)
                    sync_entry(final)


def _task_name(plan: Plan, part: int) -> str:
    if isinstance(plan.state, TaskState):
        name = plan.state.task_directory(part).name
        if TASK_NAME.fullmatch(name):
            return name
    return f"{plan.request.subtopology or 0}_{part}"


def local_path(place: str) -> Path | None:
    """Return where a path or URI leads to on this machine, through all links; None if it leads elsewhere."""
    parts = urlsplit(DurableLocation(place).uri)
    return Path(os.path.realpath(os.fsdecode(unquote_to_bytes(parts.path)))) if parts.scheme == "file" else None


def refuse_overlap(plan: Plan) -> None:
    """Raise MigrationRefusedError if a target is the source, is in it, or contains it."""
    if plan.request.target is None:
        return
    state = plan.state
    sources = [state.path]
    if isinstance(state, TaskState):  # may be links to tasks elsewhere
        sources += [str(state.task_directory(part)) for part in state.parts]
    is_location = plan.layout is TargetLayout.LOCATION
    targets = [plan.request.target] if is_location else [str(place.final) for place in places_of(plan)]
    for target in targets:
        for source in sources:
            if _overlap(_root_and_path(target), _root_and_path(source)):
                raise MigrationRefusedError(
                    target,
                    problem=f"is the source {source}, is in it, or contains it",
                    remedy="name a TARGET that has nothing in common with the source",
                )


def _root_and_path(place: str) -> tuple[str, PurePath]:
    path = local_path(place)
    if path is not None:
        return "", path
    parts = urlsplit(str(DurableLocation(place)))  # without secrets, which either may lack
    return f"{parts.scheme}://{parts.netloc}", PurePosixPath("/", parts.path.strip("/"))


def _overlap(one: tuple[str, PurePath], other: tuple[str, PurePath]) -> bool:
    if one[0] != other[0]:
        return False
    return one[1].is_relative_to(other[1]) or other[1].is_relative_to(one[1])
