"""Drops duplicates. Kafka Streams has no such step (KIP-655 proposes one).

What has passed is kept by key and identity: the record that passed last, with its timestamp and headers, and the times
of earlier ones that a duplicate may still come near. There are several of these only if records come out of order.

    record ── identity (key, header, columns or function) ──> has it passed within the time? ── no ──> on, kept
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.processors.aggregating_columns import with_keys
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import ShardTime, WindowClosing
from statestore.errors import InputError, TopologyError
from statestore.format.binary_columns import Flags, Integers, is_valid
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.entry_key import map_entry_keys
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import Serde, Serdes, columns_of
from statestore.format.values.passed_times import (
    decode_passed_columns,
    decode_passed_times,
    encode_passed_columns,
    encode_passed_times,
)
from statestore.headers.record_columns import RecordColumns
from statestore.operators.keyed_state import KeyedMap, KeyScope
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS, DUPLICATE_RECORDS, LATE_RECORDS, BatchProcessor
from statestore.processor.record import Record
from statestore.stores.codec import HeldColumns

Identity: TypeAlias = "Callable[[Record[Any, Any]], bytes | None]"
"""Returns what a record has in common with its duplicates of the same key; None for a record that always passes."""


@runtime_checkable
class ColumnIdentity(Protocol):
    """An identity that can be computed for columns of records."""

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return that of a record."""
        ...

    def of_columns(self, records: RecordColumns) -> pa.BinaryArray:
        """Return that of each record."""
        ...


@dataclass(frozen=True)
class DeduplicationPlan:
    """Which records are duplicates, and for how long. Travels to the executors."""

    store: str
    key_serde: Serde[Any]
    within_ms: int
    grace_ms: int
    identity: Identity

    @property
    def closes_after_ms(self) -> int:
        """How far the shard's stream time must be past a record's time for it to come too late."""
        return self.within_ms + self.grace_ms + 1

    @property
    def lifetime_ms(self) -> int:
        """How long, in the shard's stream time, what has passed is kept: as long as a duplicate may still come."""
        # A duplicate may be `within` later, and come that much too late.
        return self.within_ms + self.closes_after_ms


class Deduplicating(Planned[DeduplicationPlan]):
    """Drops a record if the same has passed."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        time = ShardTime(context)
        self._closing = WindowClosing(time, self._plan.closes_after_ms)
        self._forgetting = WindowClosing(time, self._plan.lifetime_ms)
        self._scope: KeyScope[Any] = KeyScope(self._plan.key_serde, context)
        self._passed: KeyedMap[bytes, bytes] = KeyedMap(
            self._scope, context.state_store(self._plan.store), Serdes.bytes()
        )

    def process(self, record: Record[Any, Any]) -> None:
        """Forward a record, or drop it."""
        plan, context = self._plan, self._context
        if record.key is None:
            context.count(DROPPED_RECORDS)
            return
        identity = plan.identity(record)
        if identity is not None:
            if record.timestamp_ms <= self._closing.advance(record):
                # What passed then may be forgotten, so this may be a duplicate.
                context.count(DROPPED_RECORDS)
                context.count(LATE_RECORDS)
                return
            with self._scope.of(record.key):
                before = self._passed.entry(identity)
                times_ms: list[int] = []
                if before is not None:
                    times_ms = decode_passed_times(before.value)
                    insort(times_ms, before.timestamp_ms)
                if has_passed(times_ms, record.timestamp_ms, plan.within_ms):
                    context.count(DUPLICATE_RECORDS)
                    return
                forgotten_ms = self._forgetting.advance(record)
                kept = encode_passed_times([time_ms for time_ms in times_ms if time_ms > forgotten_ms])
                self._passed.update_value(identity, kept, timestamp_ms=record.timestamp_ms, headers=record.headers)
        context.forward(record)


def has_passed(times_ms: list[int], time_ms: int, within_ms: int) -> bool:
    """Return whether one of the ascending times is within `within_ms` of a time, before or after it."""
    place = bisect_left(times_ms, time_ms - within_ms)
    return place < len(times_ms) and times_ms[place] <= time_ms + within_ms


@dataclass(frozen=True)
class OfKey:
    """All records of a key are the same."""

    def __call__(self, record: Record[Any, Any]) -> bytes:
        """Return the same bytes for every record."""
        return b""

    def of_columns(self, records: RecordColumns) -> pa.BinaryArray:
        """Return the same bytes for every record."""
        return pa.repeat(pa.scalar(b"", pa.binary()), len(records))


@dataclass(frozen=True)
class OfHeader:
    """The last value of a header; records without it always pass."""

    header: str

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return the value."""
        found = record.headers.last_header(self.header)
        return None if found is None else found.value

    def of_columns(self, records: RecordColumns) -> pa.BinaryArray:
        """Return the value of each record."""
        return records.header(self.header)


@dataclass(frozen=True)
class OfColumns:
    """Columns of a value that is a dict, in JSON; missing ones are null. Records without a value always pass."""

    columns: tuple[str, ...]

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return the bytes. Raises InputError for a value that is not a dict."""
        value = record.value
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(
                f"deduplicate() reads columns {', '.join(map(repr, self.columns))}, but the value is "
                f"{type(value).__name__}, not a dict: give it a function as `by`"
            )
        return Serdes.json().serialize([value.get(column) for column in self.columns])


@dataclass(frozen=True)
class OfFunction:
    """What a function of key and value returns, in JSON; records for which it returns None always pass."""

    function: Callable[[Any, Any], Any]

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return the bytes."""
        found = self.function(record.key, record.value)
        return None if found is None else Serdes.json().serialize(found)


class DeduplicatingColumns(Planned[DeduplicationPlan], BatchProcessor):
    """Drops duplicates in columns. The plan's identity is a ColumnIdentity, and its key serde has columns."""

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
        """Forward records, or drop them."""
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
        """Return which records pass, and keep those; all of them have an identity."""
        keys = map_entry_keys(self._keys.serialize(records.key), identities)
        groups = KeyGroups(keys)
        held = Passed.of(self._store.get_many(groups.keys, stream_times_ms[groups.first_rows]))
        times_ms = records.timestamp_ms.to_numpy()
        passes = passing(groups, times_ms, held, self._within_ms)
        rows = np.flatnonzero(passes)
        last_rows = np.full(len(groups), -1)
        last_rows[groups.codes[rows]] = rows  # the last of several values for one index stays
        before = rows[last_rows[groups.codes[rows]] != rows]
        passed = held.with_times(groups.codes[before], times_ms[before])
        changed = np.flatnonzero(last_rows >= 0)
        forgotten_ms = self._forgetting.advance_many(records)[last_rows]
        kept = passed.kept(changed, forgotten_ms).take(pa.array(np.searchsorted(changed, groups.codes[rows])))
        # Put each, not only the last of a key: each extends the entry's life, and logs that.
        put = pa.array(rows)
        self._store.put_many(records.take(put).with_columns(key=keys.take(put), value=kept))
        return passes

    def _count(self, rows: Flags, *as_what: str) -> None:
        number = int(np.count_nonzero(rows))
        for what in as_what if number else ():
            self._context.count(what, number)


class Passed(NamedTuple):
    """The times of records that have passed: for each its group of key and identity, and the time."""

    codes: Integers
    times_ms: Integers

    @classmethod
    def of(cls, held: HeldColumns) -> Passed:
        """Return those that a store holds for each row. Raises FormatError for malformed values."""
        assert held.timestamp_ms is not None  # the store has timestamps
        places = np.flatnonzero(is_valid(held.timestamp_ms))
        last_ms = pc.drop_null(held.timestamp_ms).to_numpy()
        return cls(places, last_ms).with_times(*decode_passed_columns(held.value))

    def with_times(self, codes: Integers, times_ms: Integers) -> Passed:
        """Return these times and more."""
        return Passed(np.concatenate((self.codes, codes)), np.concatenate((self.times_ms, times_ms)))

    def kept(self, codes: Integers, forgotten_ms: Integers) -> pa.BinaryArray:
        """Return what to keep for these groups: times later than `forgotten_ms`, which has a row for every group."""
        is_asked = np.zeros(len(forgotten_ms), np.bool_)
        is_asked[codes] = True
        wanted = is_asked[self.codes] & (self.times_ms > forgotten_ms[self.codes])
        places, times_ms = self.codes[wanted], self.times_ms[wanted]
        counts = np.bincount(places, minlength=len(forgotten_ms))[codes]
        return encode_passed_columns(counts, times_ms[np.lexsort((times_ms, places))])


def passing(groups: KeyGroups, times_ms: Integers, held: Passed, within_ms: int) -> Flags:
    """Return which rows pass: those near which no row before and no held time of their group has passed."""
    codes, counts = groups.codes, np.bincount(held.codes, minlength=len(groups))
    before_ms = np.zeros(len(groups), np.int64)
    before_ms[held.codes] = held.times_ms
    is_far = (counts[codes] == 0) | (np.abs(times_ms - before_ms[codes]) > within_ms)
    far = np.flatnonzero(is_far)
    first = np.full(len(groups), len(codes))
    first[codes[far[::-1]]] = far[::-1]  # the last of several values for one index stays
    passed = first[first < len(codes)]
    passes = np.zeros(len(codes), np.bool_)
    passes[passed] = True
    # Mostly that is all: at most one time is held, and rows after the first that passes are near it.
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
