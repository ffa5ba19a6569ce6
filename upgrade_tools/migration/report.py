"""Progress, notes and result of a migration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from statestore.bytestore.kinds.store_spec import StoreType
from upgrade_tools.migration.planning.plan import Plan
from upgrade_tools.migration.planning.request import TargetLayout
from upgrade_tools.states.state import OpenStore
from upgrade_tools.states.task import TaskState

OnProgress = Callable[[int, int], None]
"""Is told how many steps are done, and of how many; writing and reading back an entry are a step each."""
_UNCLEAN: Final = {
    TargetLayout.KAFKA_STREAMS: "and is still marked so: an application that processes exactly once restores it from "
    "its changelog",
    TargetLayout.LOCATION: "so it may hold changes that the application has not committed, and a query that begins at "
    "its committed offsets would make them again: start the application, stop it cleanly, and migrate it then",
}
"""What becomes of a store that was not closed cleanly, by the layout of the target."""


class StepMeter:
    """Counts the steps of a migration of `parts` parts."""

    def __init__(self, parts: int, on_progress: OnProgress | None) -> None:
        self._parts = parts
        self._total = self._done = 0
        self._on_progress = on_progress

    def begin_part(self, steps: int) -> None:
        """Begin a part of about this many steps; later parts are assumed to be as large."""
        self._total = self._done + steps * self._parts
        self._parts -= 1

    def advance(self, steps: int) -> None:
        """Count steps, and tell."""
        self._done += steps
        if self._on_progress is not None:
            self._on_progress(self._done, max(self._total, self._done))


@dataclass
class Tallies:
    """The number of entries of each store, and their size where that was counted."""

    entries: dict[str, int] = field(default_factory=dict)
    size_bytes: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    """How many expired entries were left behind, in all stores."""

    @property
    def notes(self) -> list[str]:
        """What the user should know of it."""
        if not self.expired:
            return []
        return [f"{self.expired:,} entries had expired by the latest time in their store, and were left behind"]

    def add(self, store: str, entries: int, size_bytes: int = 0) -> None:
        """Count entries of a store."""
        self.entries[store] = self.entries.get(store, 0) + entries
        self.size_bytes[store] = self.size_bytes.get(store, 0) + size_bytes

    def add_expired(self, entries: int) -> None:
        """Count entries that were left behind."""
        self.expired += entries

    def add_all(self, entries: Mapping[str, int]) -> None:
        """Count entries of several stores."""
        for store, count in entries.items():
            self.add(store, count)


@dataclass(frozen=True)
class StoreMigration:
    """What became of one store."""

    name: str
    kind: StoreType
    migrated: StoreType
    entries: int
    """Of versioned stores in a location: versions and tombstones."""


@dataclass(frozen=True)
class MigrationReport:
    """What was done, or after a dry run would be."""

    source: str
    target: str
    layout: str
    stores: tuple[StoreMigration, ...]
    left_out: tuple[str, ...]
    """Stores that were not asked for: in place they are not changed, a copy does not have them."""
    parts: tuple[int, ...]
    """The tasks or shards that were migrated, without those that had nothing to convert."""
    elapsed_s: float
    dry_run: bool = False
    size_bytes: int | None = None
    """Size of all keys and values; only a dry run counts it."""
    needed_bytes: int | None = None
    """About the room that the target needs."""
    free_bytes: int | None = None
    """The free room; None if that is unknown, as of an object store."""
    state_id: str | None = None
    """The identity of a new state location."""
    backups: tuple[str, ...] = ()
    """After a migration in place, the directories that were replaced."""
    notes: tuple[str, ...] = ()
    """What the user should know, one sentence each."""

    @classmethod
    def of(cls, plan: Plan, target: str, tallies: Tallies, parts: Iterable[int], elapsed_s: float) -> MigrationReport:
        """Return what every migration reports."""
        stores = tuple(
            StoreMigration(store.name, store.kind, store.migrated, tallies.entries.get(store.name, 0))
            for store in plan.stores
        )
        return cls(plan.state.path, target, plan.layout.value, stores, plan.left_out, tuple(parts), elapsed_s)

    @property
    def entries(self) -> int:
        """How many entries there are in all stores."""
        return sum(store.entries for store in self.stores)


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
