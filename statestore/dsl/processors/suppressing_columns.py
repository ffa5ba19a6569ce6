"""Holds changes of a table back, in columns: what `suppressing` does record by record.

A key begins to wait with a change, unless one is held back already, and waits until a record makes it due. Of the
changes in between the last one goes on, or stays in the buffer if the batch ends first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.column_types import change_column
from statestore.dsl.processors.suppressing import Suppressing
from statestore.dsl.processors.suppression_buffer import FROM_NOWHERE
from statestore.errors import TopologyError
from statestore.format.binary_columns import Integers, as_one_array, is_valid
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.time_key_columns import decode_due_keys, encode_due_keys
from statestore.format.serde import columns_of
from statestore.format.values.buffered_columns import (
    BUFFERED,
    counted_bytes_of,
    decode_logged_columns,
    encode_logged_columns,
)
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor


class _Changes(NamedTuple):
    """Changes of keys, as the buffer has them."""

    keys: pa.BinaryArray
    held: pa.RecordBatch
    """Rows of BUFFERED."""

    def take(self, rows: Integers) -> _Changes:
        return _Changes(*(each.take(pa.array(rows)) for each in self))

    def slice(self, start: int, count: int | None = None) -> _Changes:
        return _Changes(*(each.slice(start, count) for each in self))

    @property
    def counted_bytes(self) -> int:
        return counted_bytes_of(self.held, self.keys)


class _Waits:
    """The waits of a batch: first those that began before it, then its own, in the order of their first rows.

    Of each row, `codes` has the number of its key, and `times_ms` the time at which its change would be due. After the
    row, all changes up to `closed_ms` are due, and those of its key up to `of_keys_ms`. `found` are the changes that
    were held back before the batch, `found_codes` the numbers of their keys.
    """

    def __init__(
        self,
        codes: Integers,
        times_ms: Integers,
        closed_ms: Integers,
        of_keys_ms: Integers,
        found_codes: Integers,
        found: _Changes,
    ) -> None:
        found_ms = found.held.column("due_ms").to_numpy()
        dues_ms, ends = found_ms.tolist(), np.searchsorted(closed_ms, found_ms).tolist()
        current = dict(zip(found_codes.tolist(), range(len(ends)), strict=True))
        of_rows = []
        columns = codes, times_ms, np.searchsorted(closed_ms, times_ms), of_keys_ms
        for row, (code, time_ms, end, of_key_ms) in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
            wait = current.get(code, -1)
            if wait < 0 or ends[wait] < row:
                wait = current[code] = len(ends)
                dues_ms.append(time_ms)
                ends.append(max(row, end))
            if dues_ms[wait] <= of_key_ms:
                ends[wait] = row
            of_rows.append(wait)
        self.dues_ms, self.ends = np.array(dues_ms, np.int64), np.array(ends, np.int64)
        """When each is due; and the row that ends it, the number of rows if none does."""
        self.firsts, self.lasts = np.full((2, len(ends)), -1)
        """The first and the last row of each; -1 if it has none."""
        self.lasts[of_rows] = np.arange(len(of_rows))  # of several rows of a wait, the last one stays
        self.firsts[of_rows[::-1]] = np.arange(len(of_rows))[::-1]
        self.is_found = np.arange(len(ends)) < len(found_ms)
        is_over = self.ends < len(codes)
        self.over, self.on = (np.flatnonzero((self.lasts >= 0) & which) for which in (is_over, ~is_over))
        """Those with rows: which end in the batch, and which outlast it."""


class _Taken(NamedTuple):
    """Changes that go on: the row that makes each due, its place in the queue, and the change."""

    rows: Integers
    places: pa.BinaryArray
    changes: _Changes

    def slice(self, start: int, count: int | None = None) -> _Taken:
        stop = None if count is None else start + count
        return _Taken(self.rows[start:stop], self.places.slice(start, count), self.changes.slice(start, count))

    def with_others(self, others: _Taken) -> _Taken:
        """Return these and `others`, in the order of their rows, then of their places."""
        rows, places = np.concatenate([self.rows, others.rows]), pa.concat_arrays([self.places, others.places])
        order = pc.sort_indices(places).to_numpy()
        order = order[np.argsort(rows[order], kind="stable")]
        keys = pa.concat_arrays([self.changes.keys, others.changes.keys])
        held = pa.Table.from_batches([self.changes.held, others.changes.held])
        columns = [as_one_array(each, "changes") for each in held.columns]
        changes = _Changes(keys, pa.record_batch(columns, schema=BUFFERED)).take(order)
        return _Taken(rows[order], places.take(pa.array(order)), changes)


class _Written(NamedTuple):
    """Puts and deletes, in order."""

    order: pa.Int64Array
    """Of each, its index in all puts, then all deletes."""
    keys: pa.BinaryArray
    records: RecordColumns
    """The record that each is made for."""


def _written(
    records: RecordColumns, put_by: Integers, put: pa.BinaryArray, gone_by: Sequence[Integers], gone: pa.BinaryArray
) -> _Written:
    rows = np.concatenate([put_by, *gone_by])
    order = np.argsort(rows, kind="stable")  # a record puts before it takes out
    places = pa.array(order)
    return _Written(places, pa.concat_arrays([put, gone]).take(places), records.take(rows[order]))


class SuppressingColumns(Suppressing, BatchProcessor):
    """Holds changes back, also in columns. The buffer is without bounds, and its serdes have columns."""

    def init(self, context: ProcessorContext) -> None:
        """Open the buffer."""
        super().init(context)
        buffer = self._plan.buffer
        self._keys = columns_of(buffer.key_serde, "key", TopologyError)
        self._values = columns_of(buffer.value_serde, "value", TopologyError)

    def process_batch(self, records: RecordColumns) -> None:
        """Hold changes back, and send on what is due."""
        changes = self._changes(records)
        groups = KeyGroups(changes.keys)
        codes, found = self._found(groups.keys)
        closed_ms = self._closing.advance_many(records)
        of_keys_ms = self._closing.of_keys(records, closed_ms)
        times_ms = records.key.storage.field("end_ms") if self._plan.is_final else records.timestamp_ms
        waits = _Waits(groups.codes, times_ms.to_numpy(), closed_ms, of_keys_ms, codes, found)
        over, on = waits.over, waits.on
        ended = changes.take(waits.lasts[over])
        ready = _Taken(waits.ends[over], encode_due_keys(waits.dues_ms[over], ended.keys), ended)
        gone = []
        for taken in self._take(closed_ms, ready, ready.places.filter(pa.array(waits.is_found[over]))):
            self._send(records, taken)
            gone.append((taken.rows, taken.places, taken.changes.keys))
        gone_by, *places_and_keys = zip(*gone, strict=True)
        gone_places, gone_keys = (pa.concat_arrays(each) for each in places_and_keys)

        priors = pa.concat_arrays([found.held.column("prior"), changes.held.column("old")])
        firsts = np.where(waits.is_found, np.arange(len(waits.ends)), len(codes) + waits.firsts)
        kept = changes.take(waits.lasts[on])
        waiting = [*kept.held.columns[:-2], priors.take(pa.array(firsts[on])), pa.array(waits.dues_ms[on])]
        kept = _Changes(kept.keys, pa.record_batch(waiting, schema=BUFFERED))
        self._count(kept, 1)
        self._count(found.take(np.flatnonzero(waits.lasts[: len(codes)] >= 0)), -1)
        of_kept = _written(records, waits.lasts[on], kept.keys, gone_by, gone_keys)
        stored = pa.concat_arrays([encode_logged_columns(kept.held), pa.nulls(len(gone_keys), pa.binary())])
        self._buffer.store.put_many(of_kept.records.with_columns(key=of_kept.keys, value=stored.take(of_kept.order)))
        begun = on[~waits.is_found[on]]
        places = encode_due_keys(waits.dues_ms[begun], changes.keys.take(pa.array(waits.firsts[begun])))
        of_begun = _written(records, waits.firsts[begun], places, gone_by, gone_places)
        self._buffer.queue.put_many(of_begun.keys, of_begun.order.to_numpy() < len(begun), of_begun.records)

    def _changes(self, records: RecordColumns) -> _Changes:
        """Return the changes as rows of BUFFERED, with `prior` and `due_ms` null."""
        values, origin, count = records.value.storage, records.origin, len(records)
        if origin is None:
            topic, partition, offset = (pa.repeat(each, count) for each in FROM_NOWHERE)
        else:
            topic, partition, offset = origin.columns[:3]
        new, old = (self._values.serialize(values.field(name)) for name in ("new", "old"))
        nothing = pa.nulls(count, pa.binary()), pa.nulls(count, pa.int64())
        columns = [records.timestamp_ms, new, records.headers, topic, partition, offset, old, *nothing]
        typed = [each.cast(type_) for each, type_ in zip(columns, BUFFERED.types, strict=True)]
        return _Changes(self._keys.serialize(records.key), pa.record_batch(typed, schema=BUFFERED))

    def _found(self, keys: pa.BinaryArray) -> tuple[Integers, _Changes]:
        """Return the indexes of keys that are held back, and their changes."""
        stored = self._buffer.store.get_many(keys).value
        places = np.flatnonzero(is_valid(stored))
        return places, _Changes(keys.take(pa.array(places)), decode_logged_columns(stored.drop_null()))

    def _take(self, closed_ms: Integers, ready: _Taken, of_ready: pa.BinaryArray) -> Iterator[_Taken]:
        """Yield what is due by the batch, in order: what is `ready`, and other changes that were held back before."""
        ready = ready.slice(0, 0).with_others(ready)
        for due in self._buffer.queue.due(int(closed_ms[-1])):
            places = pa.array(due, pa.binary())
            times_ms, keys = decode_due_keys(places)
            rows = np.searchsorted(closed_ms, times_ms)
            others = np.flatnonzero(~np.asarray(pc.is_in(places, of_ready)))
            which, changes = self._found(keys.take(pa.array(others)))
            for missing in np.delete(others, which).tolist():  # something else has deleted it from the store
                self._buffer.queue.remove(int(times_ms[missing]), keys[missing].as_py())
            others = others[which]
            self._count(changes, -1)
            is_next = np.asarray(pc.less_equal(ready.places, places[-1]))
            count = int(np.count_nonzero((ready.rows < rows[-1]) | ((ready.rows == rows[-1]) & is_next)))
            yield _Taken(rows[others], places.take(pa.array(others)), changes).with_others(ready.slice(0, count))
            ready = ready.slice(count)
        yield ready

    def _send(self, records: RecordColumns, taken: _Taken) -> None:
        rows, (keys, held) = pa.array(taken.rows), taken.changes
        new, old = (self._values.deserialize(held.column(name)) for name in ("new", "old"))
        times_ms = records.stream_time_ms
        if times_ms is None:
            times_ms = pa.repeat(self._context.current_stream_time_ms, len(records))
        topics, zeros = held.column("topic").dictionary_encode(), pa.repeat(0, len(rows))
        due_by = zeros if records.row is None else records.row.take(rows)
        origin = [topics, held.column("partition"), held.column("offset"), times_ms.take(rows), zeros, due_by]
        sent = RecordColumns.adopt(
            self._keys.deserialize(keys),
            change_column(new, old),
            held.column("timestamp_ms"),
            held.column("header_bytes"),
            pa.record_batch(
                [each.cast(type_) for each, type_ in zip(origin, ORIGIN.types, strict=True)], schema=ORIGIN
            ),
        )
        # As with records, no deletion of a window goes on.
        self._context.forward_batch(sent.filter(pc.is_valid(new)) if self._plan.is_final else sent)

    def _count(self, changes: _Changes, times: int) -> None:
        self._buffer.records += times * len(changes.keys)
        self._buffer.size_bytes += times * changes.counted_bytes
