"""How much room a migration needs, and how much there is: without enough, it is refused before it writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from statestore.bytestore.kafka_streams.task_directory import task_stores
from upgrade_tools.errors import NoRoomError
from upgrade_tools.migration.places import local_path
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.states.task import TaskState, size_of

ENTRY_OVERHEAD_BYTES: Final = 16
"""Approximate overhead of an entry in a table, with index and bloom filter."""
DATABASE_BYTES: Final = 256 << 10
"""Approximate size of an empty database."""
_GROWTH: Final = 1.5
"""At most how much a state of small values grows: each gets a timestamp and the number of its headers."""


def refuse_without_room(plan: Plan, needed_bytes: int) -> None:
    """Raise NoRoomError if the target's disk is known to have less room than is needed."""
    free = free_bytes(plan)
    if free is not None and free < needed_bytes:
        raise NoRoomError(str(_disk_of(plan)), needed_bytes=needed_bytes, free_bytes=free)


def has_room(plan: Plan, needed_bytes: int) -> bool:
    """Return whether the target's disk has room enough, or its room is unknown."""
    free = free_bytes(plan)
    return free is None or free >= needed_bytes


def estimated_bytes(plan: Plan, parts: Iterable[int]) -> int:
    """Return about the room that these parts need, by the size of their files; 0 if stores share files.

    Then only a dry run can say it.
    """
    if not isinstance(plan.state, TaskState):
        return 0
    names = {store.name for store in plan.stores}
    tasks = [plan.state.task_directory(part) for part in parts]
    databases = [
        path for task in tasks for files in task_stores(task) if files.name in names for path in files.databases
    ]
    return sum(int(size_of(path) * _GROWTH) + DATABASE_BYTES for path in databases)


def held_bytes(directories: Iterable[Path]) -> int:
    """Return the room that unfinished directories take already; hard links take none."""
    found = 0
    for directory in directories:
        for parent, _, names in os.walk(directory):
            for name in names:
                with suppress(FileNotFoundError):  # a dry run takes no lock, so another run may be at work
                    status = os.stat(os.path.join(parent, name))
                    found += status.st_size if status.st_nlink == 1 else 0
    return found


def free_bytes(plan: Plan) -> int | None:
    """Return the free room on the target's disk, None if it is not on this machine."""
    disk = _disk_of(plan)
    return None if disk is None else shutil.disk_usage(disk).free


def _disk_of(plan: Plan) -> Path | None:
    """Return an existing directory on the disk of the target."""
    path = local_path(plan.request.target or plan.state.path)
    return None if path is None else next(parent for parent in (path, *path.parents) if parent.is_dir())
