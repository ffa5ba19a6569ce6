"""Notes about stores that were not closed cleanly, which may hold more than their changelog offsets say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.migration.planning.request import TargetLayout
from upgrade_tools.states.state import OpenStore
from upgrade_tools.states.task import TaskState

_UNCLEAN: Final = {
    TargetLayout.KAFKA_STREAMS: "and is still marked so: an application that processes exactly once restores it from "
    "its changelog",
    TargetLayout.LOCATION: "so it may hold changes that the application has not committed, and a query that begins at "
    "its committed offsets would make them again: start the application, stop it cleanly, and migrate it then",
}
"""What becomes of a store that was not closed cleanly, by the layout of the target."""


def unclean_notes(plan: Plan, part: int, stores: Mapping[str, OpenStore]) -> list[str]:
    """Return the notes about these stores of a part."""
    return [
        f"store {name} of task {part} was not closed cleanly, {_UNCLEAN[plan.layout]}"
        for name, store in stores.items()
        if not store.closed_cleanly
    ]


def unclean_notes_of(plan: Plan, part: int) -> list[str]:
    """Return the notes about a part that an earlier run made, which was cut off before it printed them."""
    if not isinstance(plan.state, TaskState):  # nothing else has such a mark
        return []
    with plan.state.open(part, plan.reading) as stores:
        return unclean_notes(plan, part, stores)
