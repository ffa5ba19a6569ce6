"""Leaves out records that came before, of records in columns: what `deduplicating` does record by record."""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.processors.aggregating_columns import with_keys
from statestore.dsl.processors.deduplicating import ColumnIdentity, DeduplicationPlan, has_passed
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import ShardTime, WindowClosing
from statestore.errors import TopologyError
from statestore.format.binary_columns import Flags, Integers, is_valid
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.entry_key import map_entry_keys
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import columns_of
from statestore.format.values.passed_times import decode_passed_columns, encode_passed_columns
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, DUPLICATE_RECORDS, LATE_RECORDS
from statestore.processor.processor import BatchProcessor
from statestore.stores.entries.entry_columns import HeldColumns


class DeduplicatingColumns(Planned[DeduplicationPlan], BatchProcessor):
    """Lets records pass. The plan's identity is a ColumnIdentity, and its serde of keys has columns."""

    def __init__(self, plan: DeduplicationPlan) -> None:
        super().__init__(plan)
        assert isinstance(plan.identity, ColumnIdentity)
        self._identity = plan.identity
        self._keys = columns_of(plan.key_serde, "key", TopologyError)
        self._within_ms = min(plan.within_ms, MAX_TIME_MS)

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._time = ShardTime(context)
        self._closing = WindowClosing(self._time, self._plan.closes_after_ms)
        self._forgetting = WindowClosing(self._time, self._plan.lifetime_ms)
        self._store = context.state_store(self._plan.store)

    def process_batch(self, records: RecordColumns) -> None:
        """Let records pass, or not."""
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
        held = Passed.of(self._store.get_many(groups.keys, stream_times_ms[groups.first_rows]))
        times_ms = records.timestamp_ms.to_numpy()
        passes = passing(groups, times_ms, held, self._within_ms)
        rows = np.flatnonzero(passes)
        last_rows = np.full(len(groups), -1)
        last_rows[groups.codes[rows]] = rows  # of several for one place, the last one stays
        before = rows[last_rows[groups.codes[rows]] != rows]
        passed = held.with_times(groups.codes[before], times_ms[before])
        changed = np.flatnonzero(last_rows >= 0)
        forgotten_ms = self._forgetting.advance_many(records)[last_rows]
        kept = passed.kept(changed, forgotten_ms).take(pa.array(np.searchsorted(changed, groups.codes[rows])))
        # All of a key, though the last one stays: each has the entry expire later, and log that.
        put = pa.array(rows)
        self._store.put_many(records.take(put).with_columns(key=keys.take(put), value=kept))
        return passes

    def _count(self, rows: Flags, *as_what: str) -> None:
        number = int(np.count_nonzero(rows))
        for what in as_what if number else ():
            self._context.count(what, number)


class Passed(NamedTuple):
    """The times that have passed of some keys and identities: the place of each, and when it was."""

    codes: Integers
    times_ms: Integers

    @classmethod
    def of(cls, held: HeldColumns) -> Passed:
        """Return those that a store holds of each row. Raises FormatError for values that are no times."""
        assert held.timestamp_ms is not None  # the store has timestamps
        places = np.flatnonzero(is_valid(held.timestamp_ms))
        last_ms = pc.drop_null(held.timestamp_ms).to_numpy()
        return cls(places, last_ms).with_times(*decode_passed_columns(held.value))

    def with_times(self, codes: Integers, times_ms: Integers) -> Passed:
        """Return these and further ones."""
        return Passed(np.concatenate((self.codes, codes)), np.concatenate((self.times_ms, times_ms)))

    def kept(self, codes: Integers, forgotten_ms: Integers) -> pa.BinaryArray:
        """Return what is to be kept of these places: what is later than what is forgotten, which has all places."""
        is_asked = np.zeros(len(forgotten_ms), np.bool_)
        is_asked[codes] = True
        wanted = is_asked[self.codes] & (self.times_ms > forgotten_ms[self.codes])
        places, times_ms = self.codes[wanted], self.times_ms[wanted]
        counts = np.bincount(places, minlength=len(forgotten_ms))[codes]
        return encode_passed_columns(counts, times_ms[np.lexsort((times_ms, places))])


def passing(groups: KeyGroups, times_ms: Integers, held: Passed, within_ms: int) -> Flags:
    """Return for each row whether nothing of its group has passed within that of it, in the rows before or as held."""
    codes, counts = groups.codes, np.bincount(held.codes, minlength=len(groups))
    before_ms = np.zeros(len(groups), np.int64)
    before_ms[held.codes] = held.times_ms
    is_far = (counts[codes] == 0) | (np.abs(times_ms - before_ms[codes]) > within_ms)
    far = np.flatnonzero(is_far)
    first = np.full(len(groups), len(codes))
    first[codes[far[::-1]]] = far[::-1]  # of several for one place, the last one stays
    passed = first[first < len(codes)]
    passes = np.zeros(len(codes), np.bool_)
    passes[passed] = True
    # Mostly that is all: one time is held, and who comes behind the first one of its group that passes is near it.
    is_open = counts > 1
    first_ms = before_ms.copy()
    first_ms[codes[passed]] = times_ms[passed]
    is_open[
        codes[is_far & (np.arange(len(codes)) > first[codes]) & (np.abs(times_ms - first_ms[codes]) > within_ms)]
    ] = True
    if is_open.any():
        rows = np.flatnonzero(is_open[codes])
        passes[rows] = _passing_in_turn(codes[rows], times_ms[rows], held, within_ms)
    return passes


def _passing_in_turn(codes: Integers, times_ms: Integers, held: Passed, within_ms: int) -> list[bool]:
    """Return which rows pass, each after those before it."""
    passed: dict[int, list[int]] = {code: [] for code in codes.tolist()}
    for code, time_ms in zip(held.codes.tolist(), held.times_ms.tolist(), strict=True):
        if code in passed:
            insort(passed[code], time_ms)
    passes = []
    for code, time_ms in zip(codes.tolist(), times_ms.tolist(), strict=True):
        passes.append(not has_passed(passed[code], time_ms, within_ms))
        if passes[-1]:
            insort(passed[code], time_ms)
    return passes
