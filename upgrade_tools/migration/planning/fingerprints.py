"""Digests of a migration and of its source, so that a run only continues what belongs to both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from statestore.recovery.location.durable_json import digest
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.states.copy import CopyState
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import StateOptions
from upgrade_tools.states.task import TaskState

_NOT_COUNTED = ("LOCK", "LOG")
"""Files that every opening of a database writes, which are not its content."""


def request_fingerprint(plan: Plan) -> str:
    """Return a digest that stays the same for the same command, however far an earlier run got.

    It covers only the options, as an earlier run may have changed the files in place.
    """
    request = plan.request
    return _digest(
        {
            "source": _absolute(request.source),
            "layout": plan.layout.value,
            "in place": plan.in_place,
            "to": None if request.to is None else request.to.value,
            "downgrade": request.downgrade,
            "stores": sorted(request.stores),
            "said": sorted(_store_options(store, options) for store, options in request.store_options.items()),
            "subtopology": request.subtopology,
            "timestamp_ms": request.timestamp_ms,
            "application_id": request.application_id,
            "changelog_offsets": request.changelog_offsets,
            "shard_by": request.shard_by,
            **({"expiry_headers": dict(request.expiry_headers)} if request.expiry_headers else {}),
        }
    )


def source_fingerprint(plan: Plan, part: int) -> str:
    """Return a digest that stays the same as long as nobody writes to a part of the source."""
    state = plan.state
    if isinstance(state, LocationState):
        return _digest(state.pointers[part].to_json())
    if isinstance(state, TaskState):
        return _digest(_files(state.task_directory(part)))
    assert isinstance(state, CopyState)  # there is no fourth layout
    return _digest(_files(Path(state.path)))


def _files(directory: Path) -> list[list[Any]]:
    """Return name, size and modification time of each file below a directory."""
    found = []
    for parent, _, names in os.walk(directory):
        for name in names:
            if not name.startswith(_NOT_COUNTED):
                path = os.path.join(parent, name)
                status = os.stat(path)
                found.append([os.path.relpath(path, directory), status.st_size, status.st_mtime_ns])
    return sorted(found)


def _store_options(store: str | None, options: StateOptions) -> list[str]:
    """Return the options of a store, or of all others, in a list that can be sorted."""
    kind = None if options.kind is None else options.kind.value
    said = [store, kind, options.window_size_ms, options.retention_ms, options.segment_interval_ms]
    return [json.dumps(value) for value in said]


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _digest(content: Any) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())
