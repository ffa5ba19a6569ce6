"""Joins of two tables. Source: Kafka's KTableKTableInnerJoin, -LeftJoin, -RightJoin, -OuterJoin and -JoinMerger.

A change of one side is joined with what the other one holds of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statestore.dsl.change import Change
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.processors.joins.joining import JoinedHeaders, Joiner
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.table_views import Getter, Held, TableView
from statestore.dsl.processors.tables import TableProcessor, TableProcessorPlan
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders


@dataclass(frozen=True)
class TableJoin:
    """How two tables are joined. Travels to the executors."""

    joiner: Joiner
    headers: HeaderPolicy
    needs_left: bool
    """Whether a key without a left value has no result."""
    needs_right: bool
    """Whether a key without a right value has no result."""

    def value(self, left: Any, right: Any) -> Any:
        """Return what the joiner makes of both values; None if there is no result."""
        if (left is None and (self.needs_left or right is None)) or (right is None and self.needs_right):
            return None
        return self.joiner(left, right)


@dataclass(frozen=True)
class TableSidePlan:
    """How the changes of one side are joined with the other table. Travels to the executors."""

    join: TableJoin
    is_left: bool
    """Whether the changes are those of the left table."""
    other: TableView
    send_old: bool
    is_versioned: bool
    """Whether the changes are those of a versioned table: then those out of order are dropped and counted."""


class TableSideJoining(Planned[TableSidePlan]):
    """Joins the changes of one side with the other table."""

    def init(self, context: ProcessorContext) -> None:
        """Open the other table."""
        super().init(context)
        plan = self._plan
        self._needs_other = plan.join.needs_right if plan.is_left else plan.join.needs_left
        self._get = plan.other.open(context)
        self._headers = JoinedHeaders(plan.join.headers, context)

    def process(self, record: Record[Any, Any]) -> None:
        """Join a change."""
        plan, change = self._plan, record.value
        if record.key is None or (plan.is_versioned and not change.is_latest):
            self._context.count(DROPPED_RECORDS)
            return
        other = self._get(record.key)
        if other is None and (self._needs_other or (change.new is None and change.old is None)):
            return
        other_value = None if other is None else other.value
        joined = Change(
            self._value(change.new, other_value),
            self._value(change.old, other_value) if plan.send_old else None,
            change.is_latest,
        )
        timestamp_ms = record.timestamp_ms if other is None else max(record.timestamp_ms, other.timestamp_ms)
        headers = self._merged(record.headers.to_bytes(), None if other is None else other.header_bytes)
        self._context.forward(Record.adopt(record.key, joined, timestamp_ms, headers))

    def _value(self, this: Any, other: Any) -> Any:
        join = self._plan.join
        return join.value(this, other) if self._plan.is_left else join.value(other, this)

    def _merged(self, this: bytes, other: bytes | None) -> Headers:
        left, right = (this, other) if self._plan.is_left else (other, this)
        return Headers.from_bytes(self._headers.of(left, right, left_came_last=self._plan.is_left))


class MergingTable(TableProcessor[TableProcessorPlan]):
    """Takes the changes of both sides, and keeps them if the joined table has a store."""

    def process(self, record: Record[Any, Any]) -> None:
        """Keep a change, and send it on."""
        change = record.value
        self._change(record, change if self._plan.changes.send_old else change._replace(old=None))


@dataclass(frozen=True)
class JoinedView(TableView):
    """The join of two tables, computed when a key is read."""

    join: TableJoin
    left: TableView
    right: TableView

    def open(self, context: ProcessorContext) -> Getter:
        """Return what reads both tables and joins."""
        join, left_of, right_of = self.join, self.left.open(context), self.right.open(context)
        headers = JoinedHeaders(join.headers, context)

        def get_joined(key: Any) -> Held:
            left, right = left_of(key), right_of(key)
            value = join.value(None if left is None else left.value, None if right is None else right.value)
            if value is None:
                return None
            left_ms, right_ms = (-1 if held is None else held.timestamp_ms for held in (left, right))
            merged = headers.of(
                None if left is None else left.header_bytes,
                None if right is None else right.header_bytes,
                left_came_last=left_ms > right_ms,
            )
            return ValueTimestampHeaders(value, max(left_ms, right_ms), merged)

        return get_joined
