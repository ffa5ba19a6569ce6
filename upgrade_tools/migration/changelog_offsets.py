"""The changelog offsets that the user gives, each of which must be that of a store that is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from statestore.bytestore.kafka_streams.layout import changelog_partition
from statestore.format.offset_checkpoint import TopicPartition
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.places import TargetPlace
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.states.task import TaskState


def application_of(plan: Plan, place: TargetPlace) -> str:
    """Return the application id for changelog topics where the source has none."""
    is_task = Path() in place.tasks.values()
    return plan.request.application_id or (place.final.parent if is_task else place.final).name


def refuse_unused_offsets(plan: Plan, places: Iterable[TargetPlace]) -> None:
    """Raise MigrationRefusedError if an offset is given for a changelog of no store that is made in `places`."""
    said = {
        TopicPartition(topic, partition)
        for topic, offsets in plan.request.changelog_offsets.items()
        for partition in offsets
    }
    if not said:
        return
    taken = {changelog for place in places for changelog in _changelogs(plan, place)}
    if said <= taken:
        return
    stranger = min(said - taken)
    known = ", ".join(sorted({changelog.topic for changelog in taken})) or "none, as in any state location"
    raise MigrationRefusedError(
        plan.state.path,
        problem=f"has no store to migrate whose changelog is {stranger.topic}, partition {stranger.partition}; "
        f"their changelogs are {known}",
        remedy="leave it out of --changelog-offsets, or name the application with --application-id",
    )


def _changelogs(plan: Plan, place: TargetPlace) -> Iterator[TopicPartition]:
    otherwise = application_of(plan, place)
    for part in place.tasks:
        applications = {store.name: otherwise for store in plan.stores}
        if isinstance(plan.state, TaskState):  # their files may say it
            with plan.state.open(part, plan.reading) as stores:
                applications = {name: store.application_id or otherwise for name, store in stores.items()}
        for name, application in applications.items():
            yield changelog_partition(application, name, part)
