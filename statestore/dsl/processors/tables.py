"""Tables of topics, and tables computed from others. Source: Kafka's KTableSource, KTableFilter and KTableMapValues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.kinds.versioned_rows import NOT_PUT, VALID_TO_UNDEFINED
from statestore.dsl.change import Change
from statestore.dsl.column_types import change_column
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.processors.planned import Planned
from statestore.format.serde import Serde, column_of
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS, BatchProcessor, Processor
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders
from statestore.stores.versioned import VersionedKeyValueStore


@dataclass(frozen=True)
class TableStorePlan:
    """Where a table is kept. Travels to the executors."""

    store: str
    key_serde: Serde[Any]


class TableStore:
    """The store of a table of one value a key."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: Any) -> ValueTimestampHeaders[Any] | None:
        """Return what is held of a key."""
        held: ValueTimestampHeaders[Any] | None = self._store.get(key)
        return held

    def put(self, key: Any, value: Any, record: Record[Any, Any]) -> bool | None:
        """Set a key to a value, with the record's timestamp and headers; a value of None deletes it.

        Returns whether no version of the key is later; None if nothing was stored, as the record came too late.
        """
        return self.hold(key, ValueTimestampHeaders(value, record.timestamp_ms, record.headers.to_bytes()))

    def hold(self, key: Any, held: ValueTimestampHeaders[Any]) -> bool | None:
        """Set a key to a value, timestamp and headers; a value of None deletes it. Returns what `put` returns."""
        self._store.put(key, None if held.value is None else held)
        return True


class VersionedTableStore(TableStore):
    """The store of a table that keeps old versions."""

    def get(self, key: Any) -> ValueTimestampHeaders[Any] | None:
        """Return the latest version of a key."""
        found = self._store.get(key)
        return None if found is None else ValueTimestampHeaders(found.value, found.timestamp_ms, found.header_bytes)

    def hold(self, key: Any, held: ValueTimestampHeaders[Any]) -> bool | None:
        """Add a version of a key, likewise."""
        valid_to_ms = self._store.put(key, held.value, held.timestamp_ms, held.headers)
        return None if valid_to_ms == NOT_PUT else valid_to_ms == VALID_TO_UNDEFINED


def table_store(store: Any) -> TableStore:
    """Return the store of a table, versioned or not."""
    return VersionedTableStore(store) if isinstance(store, VersionedKeyValueStore) else TableStore(store)


class CopiedTable(Processor):
    """Fills the copy of a table's store from what another stage has written to it."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        """Open the copy."""
        self._table = table_store(context.state_store(self._name))

    def process(self, record: Record[Any, Any]) -> None:
        """Write what was written there."""
        self._table.put(record.key, record.value, record)


@dataclass(frozen=True)
class TableProcessorPlan:
    """A table that may be kept in a store, and how its changes go on. Travels to the executors."""

    store: TableStorePlan | None
    """None if the table has no store: then its changes go on as they are made."""
    changes: ChangesPlan


TablePlanT = TypeVar("TablePlanT", bound=TableProcessorPlan)


class TableProcessor(Planned[TablePlanT]):
    """What the processors of all tables share: each change is stored, if the table has a store, and goes on."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store, if there is one."""
        super().init(context)
        store = self._plan.store
        self._store = None if store is None else table_store(context.state_store(store.store))
        self._changes = None if store is None else self._plan.changes.open(context, store.key_serde)

    def finish_batch(self) -> None:
        """Send on what was held back."""
        if self._changes is not None:
            self._changes.finish()

    def _held(self, key: Any) -> Any:
        """Return the value that is kept of a key; None if there is none."""
        held = None if self._store is None else self._store.get(key)
        return None if held is None else held.value

    def _change(self, record: Record[Any, Any], change: Change) -> None:
        """Store the change that a record makes, and send it on unless it is too late to be stored."""
        if self._store is None or self._changes is None:
            self._context.forward(record.with_value(change))
            return
        key, new, old, _ = record.key, *change
        if self._plan.changes.is_cached:
            old = self._held(key)  # of what was never put out, no deletion goes on
        is_latest = self._store.put(key, new, record)
        if is_latest is not None:
            self._changes.send(key, new, old, record.timestamp_ms, record.headers.to_bytes(), is_latest=is_latest)


class ReadingTable(TableProcessor[TableProcessorPlan]):
    """The processor of a table of a topic; without a store it passes values on as changes."""

    def process(self, record: Record[Any, Any]) -> None:
        """Keep a value, and send on what has changed."""
        if record.key is None:
            self._context.count(DROPPED_RECORDS)
        else:
            self._change(record, Change(record.value, self._held(record.key)))


@dataclass(frozen=True)
class ComputedTablePlan(TableProcessorPlan):
    """How a table is computed from another one, value by value."""

    function: Callable[[Any, Any], Any]
    """Of key and value; returns None to delete the key. Not called for deleted keys."""
    leaves_out_nothing: bool = False
    """Whether a change from None to None is dropped if old values are known: by a filter."""


class ComputingTable(TableProcessor[ComputedTablePlan]):
    """The processor of a table that is computed from another one."""

    def process(self, record: Record[Any, Any]) -> None:
        """Compute the change to send on."""
        key, change, plan = record.key, record.value, self._plan
        new, old = self._computed(key, change.new), None
        if plan.changes.send_old:
            old = self._computed(key, change.old) if self._store is None else self._held(key)
            if plan.leaves_out_nothing and new is None and old is None:
                return
        self._change(record, Change(new, old, change.is_latest))

    def _computed(self, key: Any, value: Any) -> Any:
        return None if value is None else self._plan.function(key, value)


class ComputingTableColumns(ComputingTable, BatchProcessor):
    """Does the same with columns, for a table without a store; its values have a serde with columns."""

    def __init__(self, plan: ComputedTablePlan, values: Serde[Any]) -> None:
        super().__init__(plan)
        self._values = values

    def process_batch(self, records: RecordColumns) -> None:
        """Compute the changes to send on."""
        changes, plan = records.value.storage, self._plan
        keys = records.key.to_pylist()
        new = self._all_computed(records, keys, changes.field("new"))
        old = self._all_computed(records, keys, changes.field("old")) if plan.changes.send_old else [None] * len(new)
        columns = [column_of(self._values, each) for each in (new, old)]
        if columns[0] is None or columns[1] is None:  # whoever writes them says whether that matters
            self._context.forward_rows(records, keys, [*map(Change, new, old)])
            return
        values = change_column(*columns)
        made = RecordColumns.adopt(records.key, values, records.timestamp_ms, records.headers, records.origin)
        if plan.changes.send_old and plan.leaves_out_nothing:
            made = made.filter(pc.or_(columns[0].is_valid(), columns[1].is_valid()))
        self._context.forward_batch(made)

    def _all_computed(self, records: RecordColumns, keys: Sequence[Any], values: pa.Array) -> list[Any]:
        made: list[Any] = []
        try:
            for key, value in zip(keys, values.to_pylist(), strict=True):
                made.append(self._computed(key, value))
        except Exception as cause:
            self._context.fail_on(records, len(made), cause)
        return made
