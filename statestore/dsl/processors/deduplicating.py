"""Leaves out records that came before. Kafka Streams has no such step (KIP-655 proposes one).

What has passed is kept by key and identity: the record that did last, with its timestamp and headers, and the times of
those before it that may still have the same come near them. Of records out of order there are several.

    record ── identity (key, header, columns or function) ──> has it passed within the time? ── no ──> on, kept
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import ShardTime, WindowClosing
from statestore.errors import InputError
from statestore.format.serde import Serde, Serdes
from statestore.format.values.passed_times import decode_passed_times, encode_passed_times
from statestore.headers.record_columns import RecordColumns
from statestore.operators.keyed_state import KeyScope, MapState
from statestore.processor.context import ProcessorContext
from statestore.processor.counted import DROPPED_RECORDS, DUPLICATE_RECORDS, LATE_RECORDS
from statestore.processor.record import Record


class Identity(Protocol):
    """What two records of a key have in common if they are the same; None of one that is never left out."""

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return it of a record."""
        ...


@runtime_checkable
class ColumnIdentity(Identity, Protocol):
    """An identity that columns of records can be asked for."""

    def of_columns(self, records: RecordColumns) -> pa.BinaryArray:
        """Return it of each record."""
        ...


@dataclass(frozen=True)
class DeduplicationPlan:
    """What is the same, and for how long. Travels to the executors."""

    store: str
    key_serde: Serde[Any]
    within_ms: int
    grace_ms: int
    identity: Identity

    @property
    def closes_after_ms(self) -> int:
        """How far the shard's stream time must be past a record's for it to come too late."""
        return self.within_ms + self.grace_ms + 1

    @property
    def lifetime_ms(self) -> int:
        """For how long of the shard's stream time what has passed is kept: as long as the same may still come."""
        # It may be that much later than what passed, and come that much too late.
        return self.within_ms + self.closes_after_ms


class Deduplicating(Planned[DeduplicationPlan]):
    """Lets a record pass unless the same has passed."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        time = ShardTime(context)
        self._closing = WindowClosing(time, self._plan.closes_after_ms)
        self._forgetting = WindowClosing(time, self._plan.lifetime_ms)
        self._scope: KeyScope[Any] = KeyScope(self._plan.key_serde, context)
        self._passed: MapState[bytes, bytes] = MapState(
            self._scope, context.state_store(self._plan.store), Serdes.bytes()
        )

    def process(self, record: Record[Any, Any]) -> None:
        """Let a record pass, or not."""
        plan, context = self._plan, self._context
        if record.key is None:
            context.count(DROPPED_RECORDS)
            return
        identity = plan.identity(record)
        if identity is not None:
            if record.timestamp_ms <= self._closing.advance(record):
                # What passed then may be forgotten, so nobody knows whether this did.
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
    """Return whether one of the times, which ascend, is within that of a time, before or after it."""
    place = bisect_left(times_ms, time_ms - within_ms)
    return place < len(times_ms) and times_ms[place] <= time_ms + within_ms


@dataclass(frozen=True)
class OfKey:
    """Nothing: all records of a key are the same."""

    def __call__(self, record: Record[Any, Any]) -> bytes:
        """Return what is the same of all."""
        return b""

    def of_columns(self, records: RecordColumns) -> pa.BinaryArray:
        """Return it of each record."""
        return pa.repeat(pa.scalar(b"", pa.binary()), len(records))


@dataclass(frozen=True)
class OfHeader:
    """The last value of a header; records without it are all different."""

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
    """Some columns of a value that is a dict, in JSON, null where it has none; records without a value all pass."""

    columns: tuple[str, ...]

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return the bytes. Raises InputError for a value that is no dict."""
        value = record.value
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(
                f"columns {', '.join(map(repr, self.columns))} are asked of a value that is "
                f"{type(value).__name__}, not a dict: give deduplicate() a function in `by`"
            )
        return Serdes.json().serialize([value.get(column) for column in self.columns])


@dataclass(frozen=True)
class OfFunction:
    """What a function of key and value returns, in JSON; None where it returns None."""

    function: Callable[[Any, Any], Any]

    def __call__(self, record: Record[Any, Any]) -> bytes | None:
        """Return the bytes."""
        found = self.function(record.key, record.value)
        return None if found is None else Serdes.json().serialize(found)
