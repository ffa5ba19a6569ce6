"""Inner joins of two streams in columns: what `stream_stream_joining` does, for many records of both sides at once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from statestore.dsl.processors.changes_out import as_one_batch, concat
from statestore.dsl.processors.joins.stream_stream_joining import KeepingWindow, StreamJoin, StreamSideJoining
from statestore.errors import TopologyError
from statestore.format.binary_columns import Flags, Integers, is_valid, row_sizes
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import column_of, columns_of
from statestore.headers.record_columns import RecordColumns
from statestore.processor.column_sources import Meeting
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS, BatchProcessor
from statestore.processor.record import Record
from statestore.stores.window import FoundWindows, WindowStore

_PAIRS_MOST: Final = 8192
_BYTES_MOST: Final = 8 << 20
"""So many pairs are joined at once, and about so many bytes of both sides."""
_KEPT_MOST: Final = 1 << 16
"""About so much of what was kept is read at once."""
_ROWS_FIRST: Final = 1 << 14
"""So many records are looked up at once before it is known what they find."""


class _Side:
    """One side of a join: its nodes, and the records that they were handed."""

    joins: StreamSideJoiningColumns
    keeps: KeepingWindowColumns

    def __init__(self) -> None:
        self.handed: list[RecordColumns] = []

    def span(self, times_ms: Integers) -> tuple[Integers, Integers]:
        """Return the first and the last time of records of the other side that records are joined with."""
        before_ms, after_ms = self.joins._before_ms, self.joins._after_ms
        first_ms = np.minimum(times_ms, MAX_TIME_MS + min(before_ms, 0)) - before_ms
        last_ms = np.minimum(times_ms, MAX_TIME_MS - max(after_ms, 0)) + after_ms
        return np.maximum(first_ms, 0), np.maximum(last_ms, 0)

    def take(self) -> RecordColumns | None:
        """Return the records that have keys; None if there are none. Those that can't be joined are counted."""
        handed, self.handed = self.handed, []
        if not handed:
            return None
        records = concat(handed)
        if len(handed) > 1 and records.row is not None:
            records = records.take(np.argsort(records.row.to_numpy(), kind="stable"))
        self.joins._time.advance_many(records)
        has_key = is_valid(records.key)
        dropped = np.count_nonzero(~(has_key & is_valid(records.value)))
        if dropped:
            self.joins._context.count(DROPPED_RECORDS, int(dropped))
        records = records if has_key.all() else records.filter(has_key)
        return records if len(records) else None


class _Rows(NamedTuple):
    """Records of a side, and what was kept of it before that the other side's may find; a row for each record."""

    side: _Side
    records: RecordColumns
    places: Integers
    """When each came, among the input records of both sides."""
    times_ms: Integers
    codes: Integers
    """The number of its key."""
    can_join: Flags
    is_kept: Flags
    kept: FoundWindows
    """By number of the key."""

    def first_visible_ms(self, places: Integers) -> Integers:
        """Return the earliest time of these records that is shown when others come."""
        puts, store = self.is_kept & self.can_join, self.side.keeps._store
        shown = np.append(store.first_visible_ms, store._first_visible_after(self.times_ms[puts]))
        found: Integers = shown[np.searchsorted(self.places[puts], places)]
        return found

    def by_key(self) -> dict[int, list[tuple[int, int]]]:
        """Return time and number of what was kept before, by key, in order of time."""
        found: dict[int, list[tuple[int, int]]] = {}
        times_ms = self.kept.starts_ms.tolist()
        for number, code in enumerate(self.kept.rows.tolist()):
            found.setdefault(code, []).append((times_ms[number], number))
        return found

    def all_times_ms(self) -> Integers:
        """Return the times of what was kept before, and of the records."""
        return np.concatenate([self.kept.starts_ms, self.times_ms])

    def column(self, name: str) -> pa.Array:
        """Return a column of what was kept before, and of the records."""
        return pa.concat_arrays([getattr(self.kept.held, name), getattr(self.records, name)])

    def keep(self) -> None:
        """Keep the records."""
        if self.is_kept.any():
            records = self.records if self.is_kept.all() else self.records.filter(self.is_kept)
            self.side.keeps._store.put_many(records, records.timestamp_ms)


_Pairs: TypeAlias = "list[tuple[int, int, int]]"
"""Which record came last, among the left and then the right records, and both numbers: of what was kept of each side
before, and then of its records."""


class StreamsMeeting(Meeting):
    """Joins the records of two streams, row by row, then keeps them."""

    def __init__(self, join: StreamJoin) -> None:
        assert join.joined_serde is not None  # else records are joined one by one
        self._join, self._joined_serde = join, join.joined_serde
        self._key_columns = columns_of(join.key_serde, "key", TopologyError)
        self._sides = {True: _Side(), False: _Side()}
        self._rows_at_once = _ROWS_FIRST

    def side(self, *, is_left: bool) -> _Side:
        """Return a side, for its nodes to open."""
        return self._sides[is_left]

    def hand(self, records: RecordColumns, *, is_left: bool) -> None:
        """Take records of one side."""
        self._sides[is_left].handed.append(records)
        if not self.waits:
            self.finish()

    def hand_one(self, record: Record[Any, Any], *, is_left: bool) -> bool:
        """Take a single record while others are handed over; return False if they are not, or no column holds it."""
        serdes = self._join.key_serde, self._join.left_serde if is_left else self._join.right_serde
        key, value = map(column_of, serdes, ([record.key], [record.value])) if self.waits else (None, None)
        if key is None or value is None:
            return False
        time_ms, headers = pa.array([record.timestamp_ms], pa.int64()), pa.array([record.headers.to_bytes()])
        origin = self._sides[is_left].joins._context._record_context.origin()
        self.hand(RecordColumns.adopt(key, value, time_ms, headers, origin), is_left=is_left)
        return True

    def finish(self) -> None:
        """Join what was handed over, and keep it."""
        taken = [self._sides[is_left].take() for is_left in (True, False)]
        if taken == [None, None]:
            return
        handed = [self._nothing(is_left=not at) if each is None else each for at, each in enumerate(taken)]
        places = [np.arange(len(each)) if each.row is None or None in taken else each.row.to_numpy() for each in handed]
        order, done = np.sort(np.concatenate(places)), [0, 0]
        while sum(done) < len(order):
            # What one record has become stays together.
            last = order[min(sum(done) + self._rows_at_once, len(order)) - 1]
            stops = [int(np.searchsorted(each, last, "right")) for each in places]
            parts = [slice(*ends) for ends in zip(done, stops, strict=True)]
            left, right = self._rows(handed, places, parts)
            columns = [rows.column(name) for rows in (left, right) for name in ("value", "headers")]
            for pairs in self._pairs(left, right, _pairs_at_once(columns)):
                self._send(left, right, columns, pairs)
            left.keep()
            right.keep()
            # As many rows next time as find about as much as may be read.
            found = max(1, len(left.kept.rows) + len(right.kept.rows))
            self._rows_at_once = max(1, (sum(stops) - sum(done)) * _KEPT_MOST // found)
            done = stops

    def _nothing(self, *, is_left: bool) -> RecordColumns:
        none = pa.array([], pa.binary())
        values = columns_of(self._join.left_serde if is_left else self._join.right_serde, "value", TopologyError)
        times_ms = pa.array([], pa.int64())
        return RecordColumns.adopt(self._key_columns.deserialize(none), values.deserialize(none), times_ms, none, None)

    def _rows(
        self, handed: Sequence[RecordColumns], places: Sequence[Integers], parts: Sequence[slice]
    ) -> tuple[_Rows, _Rows]:
        """Return these parts of what was handed over, with what they may be joined with."""
        records = [each.slice(part.start, part.stop - part.start) for each, part in zip(handed, parts, strict=True)]
        groups = KeyGroups(pa.concat_arrays([self._key_columns.serialize(each.key) for each in records]))
        times = [each.timestamp_ms.to_numpy() for each in records]
        codes = np.split(groups.codes, [len(records[0])])
        joins = [is_valid(each.value) for each in records]
        made = []
        for at, other in ((0, 1), (1, 0)):
            side, own = self._sides[not at], records[at]
            kept = self._kept_for(not at, groups.keys, codes[other][joins[other]], times[other][joins[other]])
            is_kept = side.keeps.takes(own)
            made.append(_Rows(side, own, places[at][parts[at]], times[at], codes[at], joins[at], is_kept, kept))
        return made[0], made[1]

    def _kept_for(self, of_left: bool, keys: pa.BinaryArray, codes: Integers, times_ms: Integers) -> FoundWindows:
        """Return what a side has kept for records of the other one, by the numbers of their keys."""
        by, lasts = np.unique(codes, return_inverse=True)
        first_ms, last_ms = np.full(len(by), MAX_TIME_MS), np.zeros(len(by), np.int64)
        from_ms, to_ms = self._sides[not of_left].span(times_ms)
        np.minimum.at(first_ms, lasts, from_ms)
        np.maximum.at(last_ms, lasts, to_ms)
        store: WindowStore[Any, Any] = self._sides[of_left].keeps._store
        found = store._windows_of_keys(keys.take(pa.array(by)), first_ms, last_ms)
        return found._replace(rows=by[found.rows])

    def _pairs(self, left: _Rows, right: _Rows, at_once: int) -> Iterator[_Pairs]:
        """Yield which records are joined, in the order in which the later one of both came, so many at once."""
        kept, pairs = (left.by_key(), right.by_key()), list[tuple[int, int, int]]()
        for at, code, time_ms, from_ms, to_ms, is_kept, number, row in _joinable(left, right):
            others = kept[1 - at].get(code)
            if others is not None:
                for place in range(bisect_left(others, (from_ms,)), len(others)):
                    other_ms, found = others[place]
                    if other_ms > to_ms:
                        break
                    pairs.append((row, found, number) if at else (row, number, found))
                    if len(pairs) == at_once:
                        yield pairs
                        pairs = []
            if is_kept:
                insort(kept[at].setdefault(code, []), (time_ms, number))
        if pairs:
            yield pairs

    def _send(self, left: _Rows, right: _Rows, columns: Sequence[pa.Array], pairs: _Pairs) -> None:
        """Send on what becomes of pairs. `columns` are values and headers of left and right."""
        by, lefts, rights = np.array(pairs, np.int64).T
        key = pa.concat_arrays([left.records.key, right.records.key]).take(pa.array(by))
        taken = (each.take(pa.array(of)) for each, of in zip(columns, (lefts, lefts, rights, rights), strict=True))
        rows = zip(key.to_pylist(), *(each.to_pylist() for each in taken), strict=True)
        values, headers = self._joined(left, right, by, rows)
        later_ms = pa.array(np.maximum(left.all_times_ms()[lefts], right.all_times_ms()[rights]))
        origins = [rows.records.origin for rows in (left, right) if len(rows.codes)]
        origin = None if None in origins else as_one_batch(origins).take(pa.array(by))
        value, context = column_of(self._joined_serde, values), left.side.joins._context
        made = RecordColumns.adopt(key, key if value is None else value, later_ms, headers, origin)
        if value is None:  # whoever writes them says whether that matters
            context.forward_rows(made, key.to_pylist(), values)
        else:
            context.forward_batch(made)

    def _joined(
        self, left: _Rows, right: _Rows, by: Integers, rows: Iterator[tuple[Any, ...]]
    ) -> tuple[list[Any], pa.BinaryArray]:
        """Return the joined values and their headers."""
        values, headers = [], []
        joined = {True: left.side.joins._joined.joined, False: right.side.joins._joined.joined}
        by_left = (by < len(left.codes)).tolist()
        try:
            for is_left, (key, left_value, left_headers, right_value, right_headers) in zip(by_left, rows, strict=True):
                sides = (left_value, left_headers), (right_value, right_headers)
                value, merged = joined[is_left](key, *sides, left_came_last=is_left)
                headers.append(merged)
                values.append(value)
        except Exception as cause:
            at = len(values)
            came_last = left if by_left[at] else right
            row = int(by[at]) - (0 if by_left[at] else len(left.codes))
            came_last.side.joins._context.fail_on(came_last.records, row, cause)
        return values, pa.array(headers, pa.binary())


def _joinable(left: _Rows, right: _Rows) -> Iterator[tuple[Any, ...]]:
    """Yield the records that may have others of their key, in the order in which they came.

    Of each: 0 for left or 1, number of its key, time, first and last time of those that it finds, whether it is kept,
    its number among what was kept and the records of its side, and that among all records.
    """
    size = 1 + max(int(each.max(initial=0)) for rows in (left, right) for each in (rows.codes, rows.kept.rows))
    columns = []
    for at, (own, other) in enumerate(((left, right), (right, left))):
        first_ms, last_ms = own.side.span(own.times_ms)
        first_ms = np.maximum(first_ms, other.first_visible_ms(own.places))
        others = np.bincount(np.concatenate([other.codes[other.can_join], other.kept.rows]), minlength=size)
        numbers = np.arange(len(own.codes))
        row = [own.places, np.full(len(numbers), at), own.codes, own.times_ms, first_ms, last_ms, own.is_kept]
        row += [numbers + len(own.kept.rows), numbers + at * len(left.codes)]
        is_wanted = own.can_join & (others[own.codes] > 0)
        columns.append([each[is_wanted] for each in row])
    places, *merged = (np.concatenate(each) for each in zip(*columns, strict=True))
    order = np.argsort(places, kind="stable")
    return zip(*(each[order].tolist() for each in merged), strict=True)


def _pairs_at_once(columns: Sequence[pa.Array]) -> int:
    largest = sum(map(_largest, columns))
    return max(1, min(_PAIRS_MOST, _BYTES_MOST // max(largest, 1)))


def _largest(column: pa.Array) -> int:
    """Return the size of the largest item; 0 for numbers."""
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    is_sized = pa.types.is_binary(stored.type) or pa.types.is_string(stored.type)
    return int(row_sizes(stored).max(initial=0)) if is_sized else 0


class KeepingWindowColumns(KeepingWindow, BatchProcessor):
    """Does the same with columns; the meeting keeps them."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._meeting = meeting_of(self._plan.join, context)
        self._meeting.side(is_left=self._plan.is_left).keeps = self

    def process(self, record: Record[Any, Any]) -> None:
        """Send a record on, and keep it."""
        if not self._meeting.hand_one(record, is_left=self._plan.is_left):
            super().process(record)

    def process_batch(self, records: RecordColumns) -> None:
        """Send the records on."""
        self._context.forward_batch(records)

    def takes(self, records: RecordColumns) -> Flags:
        """Return which records are kept: those that had not expired in their key's earlier shard."""
        taken: Flags = self._outlives(records.timestamp_ms.to_numpy(), self._earlier.earlier_many(records))
        return taken


class StreamSideJoiningColumns(StreamSideJoining, BatchProcessor):
    """Does the same with columns."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store of the other side."""
        super().init(context)
        self._meeting = meeting_of(self._plan.join, context)
        self._meeting.side(is_left=self._plan.is_left).joins = self

    def process_batch(self, records: RecordColumns) -> None:
        """Have records joined with those of the other side."""
        self._meeting.hand(records, is_left=self._plan.is_left)


def meeting_of(join: StreamJoin, context: ProcessorContext) -> StreamsMeeting:
    """Return where the nodes of a join meet."""
    return context._meeting(join.node, lambda: StreamsMeeting(join))
