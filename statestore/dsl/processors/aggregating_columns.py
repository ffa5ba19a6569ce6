"""Aggregates of keys, of records in columns: what `aggregating` does record by record."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.processors.aggregating import AggregatePlan
from statestore.dsl.processors.column_changes import ColumnChanges
from statestore.dsl.processors.column_updates import ColumnUpdate
from statestore.dsl.processors.planned import Planned
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS
from statestore.processor.processor import BatchProcessor


class AggregatingColumns(Planned[AggregatePlan], BatchProcessor):
    """Keeps one aggregate a key, with the latest timestamp of its records."""

    def __init__(self, plan: AggregatePlan, aggregation: ColumnAggregation) -> None:
        super().__init__(plan)
        self._aggregation = aggregation

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        plan = self._plan
        self._store = context.state_store(plan.store)
        self._changes = ColumnChanges(plan.changes, context)
        self._update = ColumnUpdate(self._aggregation, plan, context)

    def process_batch(self, records: RecordColumns) -> None:
        """Add records to the aggregates of their keys."""
        records = with_keys(records, self._context, needs_value=True)
        if not len(records):
            return
        groups = records.by_key
        updated = self._update.of(groups, self._store.get_many(groups.keys), records)
        made = records.with_columns(value=updated.new, timestamp_ms=updated.timestamp_ms, headers=updated.headers)
        self._store.put_many(made.take(np.sort(groups.last_rows)))
        self._changes.send(made, updated.old, groups)

    def finish_batch(self) -> None:
        """Send on what was held back."""
        self._changes.finish()


def with_keys(records: RecordColumns, context: ProcessorContext, *, needs_value: bool) -> RecordColumns:
    """Return the records that have a key, and a value if one is needed; the others are counted."""
    is_whole = pc.is_valid(records.key)
    if needs_value:
        is_whole = pc.and_(is_whole, pc.is_valid(records.value))
    whole = int(np.count_nonzero(is_whole)) if len(records) else 0
    if whole == len(records):
        return records
    context.count(DROPPED_RECORDS, len(records) - whole)
    return records.filter(is_whole)
