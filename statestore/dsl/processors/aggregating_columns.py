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
from statestore.format.binary_columns import Flags, Integers, as_binary_array, is_valid
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
        while len(records):
            keys = records.by_key
            updated = self._update.of(keys, self._store.get_many(keys.keys), records, np.arange(len(records)))
            self._store.put_many(updated.stored)
            self._changes.send(updated.made, updated.old, updated.groups)
            records = records.slice(len(updated.made))

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
    """The state of keys or windows after each row."""

    groups: KeyGroups
    """Which rows have the same key or window."""
    made: RecordColumns
    """A null value deletes what was held."""
    old: pa.Array
    has_begun: Flags
    """At which rows nothing was held."""
    records: RecordColumns
    """The record of each row."""

    @property
    def last_rows(self) -> Integers:
        """The last row of each key or window, in their order."""
        return np.sort(self.groups.last_rows)

    @property
    def stored(self) -> RecordColumns:
        """What to store of these rows; deletions are logged with timestamp and headers of the record."""
        made = self.made.take(self.last_rows)
        if not made.value.null_count:
            return made
        records, is_there = self.records.take(self.last_rows), pc.is_valid(made.value)
        return made.with_columns(
            timestamp_ms=pc.if_else(is_there, made.timestamp_ms, records.timestamp_ms),
            headers=pc.if_else(is_there, made.headers, records.headers),
        )


class ColumnUpdate:
    """Aggregates columns, for one task."""

    def __init__(self, aggregation: ColumnAggregation, plan: AggregatePlan, context: ProcessorContext) -> None:
        self._aggregation, self._headers = aggregation, plan.headers
        self._is_cached = plan.changes.is_cached
        self._tells_begun = plan.changes.send_old and not plan.changes.is_cached
        self._context = context

    def of(self, groups: KeyGroups, held: HeldColumns, records: RecordColumns, rows: Integers) -> UpdatedColumns:
        """Return the state after each row, in order: `rows` has its record, `held` what is held of each group.

        Of large aggregates, only the first rows may be done, up to a record. Raises what `ColumnAggregation.run` does.
        """
        assert held.timestamp_ms is not None  # the stores of tables have timestamps and headers
        assert held.headers is not None
        fail = partial(self._context.fail_on, records)
        new, begun = self._aggregation.run(groups, records, rows, held.value, fail, tells_begun=self._tells_begun)
        if len(new) < len(rows):
            rows, groups = rows[: len(new)], KeyGroups(pa.array(groups.codes[: len(new)]))
            held = held.take(groups.keys)
        if not np.array_equal(rows, np.arange(len(records))):
            records = records.take(rows)
        old = _shifted(groups, held.value, new)
        has_begun = ~is_valid(old)
        lives, held = _lives(groups, held, has_begun) if new.null_count else (groups, held)
        times_ms = lives.running(
            np.maximum,
            records.timestamp_ms.to_numpy(),
            pc.fill_null(held.timestamp_ms, 0).to_numpy(),
            is_valid(held.timestamp_ms),
        )
        if self._is_cached and new.null_count:  # as `Update` has it
            times_ms = np.where(is_valid(new), times_ms, records.timestamp_ms.to_numpy())
        headers = self._merged(lives, held.headers, records)
        if self._tells_begun and begun is not None:
            old = _filled(old, has_begun, begun)
        made = records.with_columns(value=new, timestamp_ms=pa.array(times_ms, pa.int64()), headers=headers)
        return UpdatedColumns(groups, made, old, has_begun, records)

    def _merged(self, groups: KeyGroups, held: pa.BinaryArray, records: RecordColumns) -> pa.BinaryArray:
        policy, coming = self._headers, records.headers
        if policy.keeps_none:
            return pa.repeat(pa.scalar(b"", pa.binary()), len(coming))
        if policy.is_of_one_record and policy.fits_all(coming):
            if not policy.keeps_first:
                return coming
            first = pc.coalesce(held, coming.take(pa.array(groups.first_rows)))
            return first.take(pa.array(groups.codes))
        there, merged, dropped_total = held.to_pylist(), [], 0
        try:
            for code, headers in zip(groups.codes.tolist(), coming.to_pylist(), strict=True):
                there[code], dropped = policy.merge(there[code], headers)
                merged.append(there[code])
                dropped_total += dropped
        except Exception as cause:
            self._context.fail_on(records, len(merged), cause)
        if dropped_total:
            self._context.count(DROPPED_HEADERS, dropped_total)
        return as_binary_array(pa.array(merged, pa.binary()), "headers")


def _lives(groups: KeyGroups, held: HeldColumns, has_begun: Flags) -> tuple[KeyGroups, HeldColumns]:
    """Return which rows of a group have no deletion between them, and what was held before the first of them."""
    nothing = np.zeros(len(groups), np.int64)
    numbers = groups.running(np.add, has_begun.astype(np.int64), nothing, nothing != 0)
    lives = KeyGroups(pa.array(groups.codes * (int(numbers.max()) + 1) + numbers))
    firsts = lives.first_rows
    return lives, held.take(pa.array(groups.codes[firsts], mask=has_begun[firsts]))


def _filled(old: pa.Array, has_begun: Flags, begun: pa.Array | pa.Scalar) -> pa.Array:
    """Return old values with those that rows began with."""
    if not isinstance(old, pa.ExtensionArray):
        return pc.replace_with_mask(old, pa.array(has_begun), begun)
    return pa.ExtensionArray.from_storage(
        old.type, pc.replace_with_mask(old.storage, pa.array(has_begun), begun.storage)
    )


def _shifted(groups: KeyGroups, before: pa.Array, new: pa.Array) -> pa.Array:
    """Return the value before each row: that of the key's row before, or the one that was held."""
    rows = groups.rows_before
    places = np.where(rows < 0, groups.codes, len(before) + rows)
    return pa.concat_arrays([before, new]).take(pa.array(places))
