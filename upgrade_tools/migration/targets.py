"""Where a migration writes, which must not be where it reads."""

from __future__ import annotations

import os
from pathlib import Path, PurePath, PurePosixPath
from urllib.parse import unquote_to_bytes, urlsplit

from statestore.recovery.location.durable_location import DurableLocation
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.places import places_of
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.migration.planning.request import TargetLayout
from upgrade_tools.states.task import TaskState


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
