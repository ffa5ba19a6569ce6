"""Aggregates of keys, of records in columns: what `aggregating` does record by record."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.processors.aggregating import AggregatePlan
from statestore.dsl.processors.changes_out import ColumnChanges
from statestore.dsl.processors.planned import Planned
from statestore.format.binary_columns import as_binary_array, is_valid
from statestore.format.key_groups import KeyGroups
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_HEADERS, DROPPED_RECORDS, BatchProcessor
from statestore.stores.codec import HeldColumns


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
    """Return the records that have a key, and a value if one is needed; the others are dropped and counted."""
    is_whole = pc.is_valid(records.key)
    if needs_value:
        is_whole = pc.and_(is_whole, pc.is_valid(records.value))
    whole = int(np.count_nonzero(is_whole)) if len(records) else 0
    if whole == len(records):
        return records
    context.count(DROPPED_RECORDS, len(records) - whole)
    return records.filter(is_whole)


class UpdatedColumns(NamedTuple):
    """The state of the key or window after each record; a row for each record."""

    new: pa.Array
    old: pa.Array
    timestamp_ms: pa.Int64Array
    headers: pa.BinaryArray


class ColumnUpdate:
    """Aggregates columns, for one task."""

    def __init__(self, aggregation: ColumnAggregation, plan: AggregatePlan, context: ProcessorContext) -> None:
        self._aggregation, self._headers = aggregation, plan.headers
        self._is_cached = plan.changes.is_cached
        self._context = context

    def of(self, groups: KeyGroups, held: HeldColumns, records: RecordColumns) -> UpdatedColumns:
        """Return the state after each record, in order; `held` has a row for each group.

        Raises what `ColumnAggregation.run` raises, and FormatError for headers that have to be parsed and can't be.
        """
        assert held.timestamp_ms is not None  # the stores of tables have timestamps and headers
        assert held.headers is not None
        new = self._aggregation.run(groups, records.value, held.value, partial(self._context.fail_on, records))
        is_held = is_valid(held.value)
        times = groups.running(
            np.maximum,
            records.timestamp_ms.to_numpy(),
            pc.fill_null(held.timestamp_ms, 0).to_numpy(),
            is_held,
        )
        headers = self._merged(groups, held.headers, records.headers)
        before = held.value if self._is_cached else self._aggregation.begun(held.value)
        return UpdatedColumns(new, _shifted(groups, before, new), pa.array(times, pa.int64()), headers)

    def _merged(self, groups: KeyGroups, held: pa.BinaryArray, coming: pa.BinaryArray) -> pa.BinaryArray:
        policy = self._headers
        if policy.keeps_none:
            return pa.repeat(pa.scalar(b"", pa.binary()), len(coming))
        if policy.is_of_one_record and policy.fits_all(coming):
            if not policy.keeps_first:
                return coming
            first = pc.coalesce(held, coming.take(pa.array(groups.first_rows)))
            return first.take(pa.array(groups.codes))
        there, merged, dropped_total = held.to_pylist(), [], 0
        for code, headers in zip(groups.codes.tolist(), coming.to_pylist(), strict=True):
            there[code], dropped = policy.merge(there[code], headers)
            merged.append(there[code])
            dropped_total += dropped
        if dropped_total:
            self._context.count(DROPPED_HEADERS, dropped_total)
        return as_binary_array(pa.array(merged, pa.binary()), "headers")


def _shifted(groups: KeyGroups, before: pa.Array, new: pa.Array) -> pa.Array:
    """Return the value before each row: that of the key's row before, or the one that was held."""
    rows = groups.rows_before
    places = np.where(rows < 0, groups.codes, len(before) + rows)
    return pa.concat_arrays([before, new]).take(pa.array(places))
