"""How changes of a table go on: one by one or, with caching, only the last of each key and micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.change import Change
from statestore.dsl.column_types import change_column
from statestore.format.binary_columns import as_one_array
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import Serde
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.record import Record, RecordMetadata


@dataclass(frozen=True)
class ChangesPlan:
    """How a table's changes go on. Travels to the executors."""

    send_old: bool = False
    """Whether a node below wants old values."""
    is_cached: bool = False
    children: Sequence[str] | None = None
    """The nodes that get them; None means all children."""
    held_below: bool = False
    """Whether a node below holds them back, as several nodes change the table; it gets all old values."""

    def open(self, context: ProcessorContext, key_serde: Serde[Any], *, has_windows: bool = False) -> ChangesOut:
        """Return what sends changes on, for one task; `key_serde` writes their keys, or what has windows around it."""
        return _CachedChanges(self, context, key_serde, has_windows) if self.holds_back else ChangesOut(self, context)

    @property
    def holds_back(self) -> bool:
        """Whether the node itself sends on only the last change of each key."""
        return self.is_cached and not self.held_below


class ChangesOut:
    """Sends each change on as it is made."""

    def __init__(self, plan: ChangesPlan, context: ProcessorContext) -> None:
        self._context = context
        self._send_old = plan.send_old
        self._children = plan.children

    def send(
        self, key: Any, new: Any, old: Any, timestamp_ms: int, header_bytes: bytes, *, is_latest: bool = True
    ) -> None:
        """Send on the change of a key. `old` is left out if no node below wants it."""
        change = Change(new, old if self._send_old else None, is_latest)
        self._forward(Record.adopt(key, change, timestamp_ms, Headers.from_bytes(header_bytes)))

    def finish(self) -> None:
        """Send on what was held back of the batch."""

    def _forward(self, record: Record[Any, Any]) -> None:
        if self._children is None:
            self._context.forward(record)
        else:
            for child in self._children:
                self._context.forward(record, child)


class _CachedChanges(ChangesOut):
    """Holds changes back until the batch ends, in the order in which their keys first changed."""

    def __init__(self, plan: ChangesPlan, context: ProcessorContext, key_serde: Serde[Any], has_windows: bool) -> None:
        super().__init__(plan, context)
        self._has_windows = has_windows
        self._key_bytes: Callable[[Any], bytes] = key_serde.serialize
        self._held: dict[Hashable, tuple[Record[Any, Any], Any, RecordMetadata | None]] = {}
        """For each key, what goes on, the old value that was sent last, and the origin of the record."""

    def send(
        self, key: Any, new: Any, old: Any, timestamp_ms: int, header_bytes: bytes, *, is_latest: bool = True
    ) -> None:
        place = self._place(key)
        before = self._held.get(place)
        told = old if before is None else before[1]
        change = Change(new, told if self._send_old else None, is_latest)
        record = Record.adopt(key, change, timestamp_ms, Headers.from_bytes(header_bytes))
        self._held[place] = record, told, self._context.record_metadata

    def finish(self) -> None:
        held, self._held = self._held, {}
        for record, told, metadata in held.values():
            if record.value.new is not None or told is not None:  # no deletion of what was never sent
                with self._context.resumed(record, metadata):
                    self._forward(record)

    def _place(self, key: Any) -> Hashable:
        if self._has_windows:
            return self._key_bytes(key.key), key.start_ms, key.end_ms
        return self._key_bytes(key)


class _Holding(Processor):
    _changes: ChangesOut | ColumnChanges

    def __init__(self, plan: ChangesPlan, key_serde: Serde[Any], *, has_windows: bool) -> None:
        self._plan, self._key_serde, self._has_windows = plan, key_serde, has_windows

    def finish_batch(self) -> None:
        """Send on the last change of each key."""
        self._changes.finish()


class HoldingBack(_Holding):
    """Holds back the changes of a table that several nodes make."""

    _changes: ChangesOut

    def init(self, context: ProcessorContext) -> None:
        """Open what holds them."""
        self._changes = self._plan.open(context, self._key_serde, has_windows=self._has_windows)

    def process(self, record: Record[Any, Change]) -> None:
        """Hold a change back."""
        new, old, _ = record.value
        self._changes.send(record.key, new, old, record.timestamp_ms, record.headers.to_bytes())


class HoldingBackColumns(_Holding, BatchProcessor):
    """Does the same with columns."""

    _changes: ColumnChanges

    def init(self, context: ProcessorContext) -> None:
        """Open what holds them."""
        self._changes = ColumnChanges(self._plan, context)

    def process_batch(self, records: RecordColumns) -> None:
        """Hold changes back."""
        new, old = (records.value.storage.field(name) for name in ("new", "old"))
        columns = records.timestamp_ms, records.headers, records.origin
        self._changes.send(RecordColumns.adopt(records.key, new, *columns), old, records.by_key)


_MERGED_FROM: Final = 1 << 18
"""So many changes may be held apart from each other."""


class _Part(NamedTuple):
    """The last change of each key, or window, of some records, and what it was before them."""

    records: RecordColumns
    old: pa.Array


class ColumnChanges:
    """Sends changes on, for one task, in columns of Change."""

    def __init__(self, plan: ChangesPlan, context: ProcessorContext) -> None:
        self._plan, self._context = plan, context
        self._held: list[_Part] = []

    def send(self, made: RecordColumns, old: pa.Array, groups: KeyGroups) -> None:
        """Send on changes of keys or windows, grouped by `groups`; `old` has the value before each row."""
        if not self._plan.holds_back:
            self.send_at_once(made, old)
            return
        self._held.append(_part(made, old, groups))
        # Several parts may have changes of the same keys: so no more is held than three times what will go on.
        if sum(len(each.records) for each in self._held[1:]) > max(_MERGED_FROM, 2 * len(self._held[0].records)):
            self._held = [_merged(self._held)]

    def send_at_once(self, made: RecordColumns, old: pa.Array | None) -> None:
        """Send on changes of keys or windows, even with caching; an `old` of None is unknown."""
        value = change_column(made.value, old if self._plan.send_old else None)
        changes = RecordColumns.adopt(made.key, value, made.timestamp_ms, made.headers, made.origin)
        if self._plan.children is None:
            self._context.forward_batch(changes)
        else:
            for child in self._plan.children:
                self._context.forward_batch(changes, child)

    def finish(self) -> None:
        """Send on what was held back of the batch, in the order in which keys first changed."""
        held, self._held = self._held, []
        if not held:
            return
        records, old = held[0] if len(held) == 1 else _merged(held)
        if records.value.null_count:
            # No deletion goes on of what was never sent.
            is_told = pc.or_(pc.is_valid(records.value), pc.is_valid(old))
            records, old = records.filter(is_told), old.filter(is_told)
        self.send_at_once(_as_of(records, self._context.current_stream_time_ms), old)


def _as_of(records: RecordColumns, stream_time_ms: int) -> RecordColumns:
    """Return records that were held back as they are now, at a stream time: what `ProcessorContext.resumed` does."""
    if records.origin is None:
        return records
    now = [pa.repeat(pa.scalar(number, pa.int64()), len(records)) for number in (stream_time_ms, 0, 0)]
    origin = pa.record_batch([*records.origin.columns[:3], *now], schema=ORIGIN)
    return RecordColumns.adopt(records.key, records.value, records.timestamp_ms, records.headers, origin)


def _part(made: RecordColumns, old: pa.Array, groups: KeyGroups) -> _Part:
    """Return the last change of each key or window, in the order in which they first changed."""
    order = groups.by_first_row
    return _Part(made.take(groups.last_rows[order]), old.take(pa.array(groups.first_rows[order])))


def _merged(parts: list[_Part]) -> _Part:
    records = concat([part.records for part in parts])
    return _part(records, pa.concat_arrays([part.old for part in parts]), records.by_key)


def concat(parts: list[RecordColumns]) -> RecordColumns:
    """Return the records of all parts, in order."""
    names = ("key", "value", "timestamp_ms", "headers")
    key, value, times, headers = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in names)
    origins = [part.origin for part in parts]
    if any(origin is None for origin in origins):
        return RecordColumns.adopt(key, value, times, headers, None)
    return RecordColumns.adopt(key, value, times, headers, as_one_batch(origins))


def as_one_batch(origins: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches of ORIGIN, in order."""
    table = pa.Table.from_batches(origins, schema=ORIGIN)
    return pa.record_batch([as_one_array(column, "origins") for column in table.columns], schema=ORIGIN)
