"""Leaves out records that came before, of records in columns: what `deduplicating` does record by record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.processors.aggregating_columns import with_keys
from statestore.dsl.processors.deduplicating import ColumnIdentity, Deduplicating
from statestore.dsl.processors.windows.closing import ShardTime, WindowClosing
from statestore.errors import TopologyError
from statestore.format.binary_columns import Flags, Integers, is_valid
from statestore.format.entry_key import map_entry_keys
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import columns_of
from statestore.format.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.batch_processor import BatchProcessor
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, DUPLICATE_RECORDS, LATE_RECORDS


@dataclass(frozen=True)
class DeduplicatingColumns:
    """Makes the processor. The plan's identity is a ColumnIdentity, and its serde of keys has columns."""

    plan: Deduplicating

    def __call__(self) -> BatchProcessor:
        """Return a new processor."""
        return _ColumnDeduplicate(self.plan)


class _ColumnDeduplicate(BatchProcessor):
    def __init__(self, plan: Deduplicating) -> None:
        assert isinstance(plan.identity, ColumnIdentity)
        self._identity = plan.identity
        self._keys = columns_of(plan.key_serde, "key", TopologyError)
        self._store_name = plan.store
        self._within_ms = min(plan.within_ms, MAX_TIME_MS)
        self._closes_after_ms = plan.closes_after_ms

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._time = ShardTime(context)
        self._closing = WindowClosing(self._time, self._closes_after_ms)
        self._store = context.state_store(self._store_name)

    def process_batch(self, records: RecordColumns) -> None:
        records = with_keys(records, self._context, needs_value=False)
        if not len(records):
            return
        identities = self._identity.of_columns(records)
        stream_times = self._time.advance_many(records)
        has_identity = is_valid(identities)
        is_late = has_identity & (records.timestamp_ms.to_numpy() <= self._closing.advance_many(records))
        self._count(is_late, DROPPED_RECORDS, LATE_RECORDS)
        goes_on = ~is_late
        known = np.flatnonzero(has_identity & goes_on)
        if len(known):
            rows = pa.array(known)
            passes = self._pass(records.take(rows), identities.take(rows), stream_times[known])
            self._count(~passes, DUPLICATE_RECORDS)
            goes_on[known] = passes
        self._context.forward_batch(records if goes_on.all() else records.filter(goes_on))

    def _pass(self, records: RecordColumns, identities: pa.BinaryArray, stream_times_ms: Integers) -> Flags:
        """Return which records pass, all of which have an identity, and keep what does."""
        keys = map_entry_keys(self._keys.serialize(records.key), identities)
        groups = KeyGroups(keys)
        held = self._store.get_many(groups.keys, stream_times_ms[groups.first_rows]).timestamp_ms
        before, is_before = pc.fill_null(held, 0).to_numpy(), is_valid(held)
        passes = passing(groups, records.timestamp_ms.to_numpy(), before, is_before, self._within_ms)
        nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(records))
        self._store.put_many(records.with_columns(key=keys, value=nothing).filter(passes))
        return passes

    def _count(self, rows: Flags, *as_what: str) -> None:
        number = int(np.count_nonzero(rows))
        for what in as_what if number else ():
            self._context.count(what, number)


def passing(groups: KeyGroups, times_ms: Integers, before_ms: Integers, is_before: Flags, within_ms: int) -> Flags:
    """Return for each row whether it is further than `within_ms` from the row of its group that passed last before it.

    `before_ms` has the time of the one before all rows, for each group; it counts where `is_before`.
    """
    codes = groups.codes
    far = np.flatnonzero(~is_before[codes] | (np.abs(times_ms - before_ms[codes]) > within_ms))
    first = np.full(len(groups), len(codes))
    first[codes[far[::-1]]] = far[::-1]  # of several for one place, the last one stays
    passed = first[first < len(codes)]
    passes = np.zeros(len(codes), np.bool_)
    passes[passed] = True
    latest_ms = before_ms.copy()
    latest_ms[codes[passed]] = times_ms[passed]
    # Mostly that is all: who comes behind the first one of its group that passes is near it.
    is_behind = np.arange(len(codes)) > first[codes]
    is_far = is_behind & (np.abs(times_ms - latest_ms[codes]) > within_ms)
    if is_far.any():
        is_open = np.zeros(len(groups), np.bool_)
        is_open[codes[is_far]] = True
        rows = np.flatnonzero(is_behind & is_open[codes])
        _pass_in_turn(passes, rows, codes[rows], times_ms[rows], latest_ms, within_ms)
    return passes


def _pass_in_turn(
    passes: Flags, rows: Integers, codes: Integers, times_ms: Integers, latest_ms: Integers, within_ms: int
) -> None:
    """Set in `passes` which of the rows pass, each after those before it; `latest_ms` is what passed last, by group."""
    latest = dict(zip(codes.tolist(), latest_ms[codes].tolist(), strict=True))
    for row, code, time_ms in zip(rows.tolist(), codes.tolist(), times_ms.tolist(), strict=True):
        if abs(time_ms - latest[code]) > within_ms:
            passes[row] = True
            latest[code] = time_ms
