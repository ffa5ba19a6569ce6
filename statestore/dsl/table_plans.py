"""Plans of tables until the topology is built: where a table is kept, and whether changes carry old values.

Later steps decide both. Source: Kafka's KTableImpl.enableSendingOldValues and valueGetterSupplier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.processors.suppressing import SuppressedView, Suppressing, SuppressPlan
from statestore.dsl.processors.table_views import ComputedView, StoreView, TableView, VersionedView
from statestore.dsl.processors.tables import (
    ComputedTablePlan,
    ReadingTable,
    TableProcessorPlan,
    TableStorePlan,
)
from statestore.errors import TopologyError
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder


class TablePlan(ABC):
    """A table of a program."""

    def __init__(self) -> None:
        self.sends_old = False

    def send_old_values(self, *, even_unkept: bool) -> bool:
        """Have changes carry old values, and return whether they will.

        A table without a store does not know old values; `even_unkept` gives it one.
        """
        if not self.sends_old:
            self.sends_old = self._can_send_old(even_unkept=even_unkept)
        return self.sends_old

    @abstractmethod
    def view(self) -> TableView:
        """Return how others read the table: from its store, or computed from tables that have one."""

    @property
    def history_retention_ms(self) -> int | None:
        """For how long old versions are kept; None if they are not."""
        return None

    @property
    def is_versioned(self) -> bool:
        """Whether old versions are kept."""
        return self.history_retention_ms is not None

    @property
    def sends_versions(self) -> bool:
        """Whether changes may be of versions that are not the latest: in a versioned table, or computed from one."""
        return self.is_versioned

    def _can_send_old(self, *, even_unkept: bool) -> bool:
        return True


class KeptTable(TablePlan):
    """A table that always has a store: an aggregate's."""

    def __init__(self, view: TableView, history_retention_ms: int | None = None) -> None:
        super().__init__()
        self._view = view
        self._history_retention_ms = history_retention_ms
        self.late_inputs: tuple[Serde[Any] | None, Serde[Any] | None] | None = None
        """The serdes of records that may come too late; None if the table has no windows."""
        self.late_child: str | None = None
        """The node that gets the records that came too late for a window, if any."""

    def children_of_changes(self, children: Sequence[str]) -> tuple[str, ...] | None:
        """Return which of its children get the changes; None means all."""
        return None if self.late_child is None else tuple(name for name in children if name != self.late_child)

    @property
    def history_retention_ms(self) -> int | None:
        """For how long old versions are kept; None if they are not."""
        return self._history_retention_ms

    @classmethod
    def of_keys(cls, store: str, history_retention_ms: int | None = None) -> KeptTable:
        """Return the table of a key-value store, or of a versioned one."""
        view = StoreView if history_retention_ms is None else VersionedView
        return cls(view((store,)), history_retention_ms)

    def view(self) -> TableView:
        """Return what reads its store."""
        return self._view


class KeyedTable(TablePlan):
    """A table of one value a key, which has a store if it was given a name or if a later step needs one."""

    def __init__(self, materialized: Materialized, *, is_kept: bool) -> None:
        super().__init__()
        self._materialized = materialized
        self.is_kept = is_kept

    @property
    def history_retention_ms(self) -> int | None:
        """For how long its own store keeps old versions, if it has one."""
        return self._materialized.history_retention_ms if self.is_kept else None

    def stores(self) -> Sequence[StoreBuilder[Any]]:
        """Return the builder of its store, if it has one."""
        return (self._materialized.key_value_builder(),) if self.is_kept else ()

    def _store(self) -> TableStorePlan | None:
        if not self.is_kept:
            return None
        builder = self._materialized.key_value_builder()
        return TableStorePlan(builder.name, builder.key_serde)

    def _store_view(self) -> TableView:
        assert self._materialized.name is not None  # only a named one is kept
        stores = (self._materialized.name,)
        return VersionedView(stores) if self._materialized.is_versioned else StoreView(stores)

    def _changes(self) -> ChangesPlan:
        return ChangesPlan(self.sends_old, self._materialized.holds_back)


class SourceTable(KeyedTable):
    """The table of a topic."""

    def supplier(self) -> ProcessorSupplier:
        """Return what makes the processor."""
        return partial(ReadingTable, TableProcessorPlan(self._store(), self._changes()))

    def view(self) -> TableView:
        """Give the table a store, and return what reads it."""
        self.is_kept = True
        return self._store_view()

    def _can_send_old(self, *, even_unkept: bool) -> bool:
        self.is_kept = self.is_kept or even_unkept
        return self.is_kept


class ComputedTable(KeyedTable):
    """A table that is computed from another one, value by value."""

    def __init__(
        self,
        of: TablePlan,
        function: Callable[[Any, Any], Any],
        materialized: Materialized | None,
        *,
        leaves_out_nothing: bool,
    ) -> None:
        super().__init__(Materialized.of(materialized), is_kept=materialized is not None)
        self._of = of
        self._function = function
        self._leaves_out_nothing = leaves_out_nothing

    @property
    def history_retention_ms(self) -> int | None:
        """For how long old versions are kept, by itself or by the table that it is computed from."""
        return super().history_retention_ms if self.is_kept else self._of.history_retention_ms

    @property
    def computing(self) -> ComputedTablePlan:
        """How it is computed."""
        # In a versioned table every version counts, even one that equals the one before.
        leaves_out_nothing = self._leaves_out_nothing and not self._of.is_versioned
        return ComputedTablePlan(self._store(), self._changes(), self._function, leaves_out_nothing)

    def view(self) -> TableView:
        """Return what reads its store, or computes from the other table."""
        if self.is_kept:
            return self._store_view()
        return ComputedView((of := self._of.view()).stores, of, self._function)

    @property
    def sends_versions(self) -> bool:
        """Whether its own versions, or those of the table that it is computed from, go on."""
        return self.is_versioned if self.is_kept else self._of.sends_versions

    def _can_send_old(self, *, even_unkept: bool) -> bool:
        return self.is_kept or self._of.send_old_values(even_unkept=even_unkept)


class SuppressedTable(TablePlan):
    """A table whose changes are held back."""

    def __init__(self, of: TablePlan, held_back: SuppressPlan) -> None:
        super().__init__()
        self._of = of
        self._held_back = held_back
        # While a key is held back, readers get the old value of its first change.
        of.send_old_values(even_unkept=True)

    def supplier(self) -> ProcessorSupplier:
        """Return what makes the processor. Raises TopologyError for a versioned table, as in Kafka."""
        if self._of.sends_versions:
            raise TopologyError(
                f"suppress() with the store {self._held_back.buffer.store!r} can't hold back a versioned table, whose "
                "changes may be older than those held back: materialize the table without versions"
            )
        return partial(Suppressing, self._held_back)

    def stores(self) -> Sequence[StoreBuilder[Any]]:
        """Return the builder of the store of what is held back."""
        return self._held_back.buffer.builders()[:1]

    def view(self) -> TableView:
        """Return what reads the changes held back, else the table above."""
        of, buffer = self._of.view(), self._held_back.buffer
        return SuppressedView((buffer.store, *of.stores), of, buffer)

    def _can_send_old(self, *, even_unkept: bool) -> bool:
        return self._of.send_old_values(even_unkept=even_unkept)
