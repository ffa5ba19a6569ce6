"""What is to be said of stores that were not closed cleanly, which hold more than their changelog offsets say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.migration.planning.request import TargetLayout
from upgrade_tools.states.state import OpenStore
from upgrade_tools.states.task import TaskState

_UNCLEAN: Final = {
    TargetLayout.KAFKA_STREAMS: "and still counts as such: an application that processes exactly once restores it from "
    "its changelog",
    TargetLayout.LOCATION: "so it may hold what the application has not committed, and a query that begins at its "
    "committed offsets would do that again: start the application, stop it cleanly, and migrate it then",
}
"""What becomes of a store that was not closed cleanly, by the layout of the target."""


def unclean_notes(plan: Plan, part: int, stores: Mapping[str, OpenStore]) -> list[str]:
    """Return what the user should know of these stores of a part."""
    return [
        f"store {name} of task {part} was not closed cleanly, {_UNCLEAN[plan.layout]}"
        for name, store in stores.items()
        if not store.closed_cleanly
    ]


def unclean_notes_of(plan: Plan, part: int) -> list[str]:
    """Return what the user should know of a part that an earlier run has made, which was cut off before it said so."""
    if not isinstance(plan.state, TaskState):  # nothing else has such a mark
        return []
    with plan.state.open(part, plan.reading) as stores:
        return unclean_notes(plan, part, stores)
