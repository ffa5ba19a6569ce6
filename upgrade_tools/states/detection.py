"""Which layout a path or URI has: told by the files that only one layout has, never guessed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from statestore.bytestore.kafka_streams.directory_view import accessible
from statestore.bytestore.kafka_streams.layout import CHECKPOINT_FILE, database_directory
from statestore.bytestore.kafka_streams.task_directory import task_stores
from statestore.errors import FormatError
from statestore.errors.new_state import DirectoryDamagedError, DirectoryNotAccessibleError
from statestore.recovery.local.marker import files_digest, is_damaged, read_marker
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import state_with, states_at
from upgrade_tools.errors import UnknownKindError, UnknownLayoutError
from upgrade_tools.states.copy import CopyState
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import Layout, State, StateOptions
from upgrade_tools.states.task import TASK_NAME, TaskState


def open_state(path: str, options: StateOptions | None = None) -> State:
    """Return the state at a path or URI.

    Raises UnknownLayoutError if there is none, DirectoryDamagedError if a local copy or its marker is damaged, and
    DirectoryNotAccessibleError.
    """
    options = options or StateOptions()
    if options.work_dir is not None and not os.path.isdir(options.work_dir):
        raise DirectoryNotAccessibleError(options.work_dir, cause="it is not a directory")
    directory = None if "://" in path else Path(path)
    if directory is not None:
        with accessible(path):
            try:
                is_directory = stat.S_ISDIR(directory.stat().st_mode)
            except (FileNotFoundError, NotADirectoryError):
                raise UnknownLayoutError(path, found="nothing") from None
            if not is_directory:
                raise UnknownLayoutError(path, found="a file")
            found = _local_state(directory, options)
        if found is not None:
            return found
    location = DurableLocation(path)
    # Outside of `accessible`: a remote one has errors of its own.
    state = state_with(location, options.store)
    if state is not None:
        return LocationState(*state, options)
    raise UnknownLayoutError(path, found="nothing" if directory is None else _entries(directory))


def open_states(path: str, options: StateOptions) -> list[State]:
    """Return the states of a query's stages in their order; of anything else, or if a store is named, the one state.

    Raises what `open_state` raises.
    """
    stages = [] if options.store is not None else states_at(DurableLocation(path))
    if len(stages) < 2:
        return [open_state(path, options)]
    return [LocationState(location, metadata, options) for location, metadata in stages]


def _local_state(directory: Path, options: StateOptions) -> State | None:
    try:
        marker = read_marker(directory)
    except FormatError as cause:
        raise DirectoryDamagedError(str(directory), cause=str(cause)) from cause
    if marker is not None:
        if marker.applying is not None:
            raise DirectoryDamagedError(str(directory), cause="the task that was changing this local copy was killed")
        if is_damaged(directory):
            raise DirectoryDamagedError(str(directory), cause="one of its tables can't be read")
        if marker.files is not None and marker.files != files_digest(directory):
            raise DirectoryDamagedError(str(directory), cause="its files are not those that it was closed with")
        return CopyState(directory, marker, options)
    if task_stores(directory) or (directory / CHECKPOINT_FILE).exists() or database_directory(directory, "").is_dir():
        name = TASK_NAME.fullmatch(directory.name)
        return TaskState(directory, {int(name["partition"]) if name else 0: directory}, Layout.TASK, options)
    tasks = _tasks_of(directory, options.subtopology)
    return TaskState(directory, tasks, Layout.APPLICATION, options) if tasks else None


def _tasks_of(directory: Path, subtopology: int | None) -> dict[int, Path]:
    """Return the task directories of one subtopology of an application, by partition."""
    by_subtopology: dict[int, dict[int, Path]] = {}
    for entry in sorted(directory.iterdir()):
        name = TASK_NAME.fullmatch(entry.name)
        if name is not None and entry.is_dir() and task_stores(entry):
            by_subtopology.setdefault(int(name["subtopology"]), {})[int(name["partition"])] = entry
    if subtopology is not None:
        by_subtopology = {number: tasks for number, tasks in by_subtopology.items() if number == subtopology}
    if len(by_subtopology) > 1:
        raise UnknownKindError(
            str(directory),
            problem="which of its subtopologies is meant",
            remedy=f"name one of {sorted(by_subtopology)} with --subtopology",
        )
    return next(iter(by_subtopology.values()), {})


def _entries(directory: Path) -> str:
    names = sorted(entry.name for entry in directory.iterdir())
    shown = ", ".join(os.fsencode(name).decode(errors="backslashreplace") for name in names[:5])
    return f"{len(names)} entries ({shown}{', ...' if len(names) > 5 else ''})" if names else "nothing"
