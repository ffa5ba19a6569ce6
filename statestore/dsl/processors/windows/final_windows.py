"""Windows that are emitted once, when they close. Source: Kafka's EmitStrategy.onWindowClose (KIP-825).

A second store beside that of the windows, `<name>-ends`, has the end, start and key of each window, in this order, as
Kafka's stores in order of time. So a record that closes nothing reads nothing, and one that closes windows reads only
these.

Columns are aggregated as a whole. Windows that close on the way are emitted as they were then: no window gets a record
after it has closed, and the earlier states of sessions are known. Emitting them in order of their ends is the right
order, as windows that close later also end later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.dsl.column_types import windowed_column
from statestore.dsl.processors.aggregating import AggregatePlan
from statestore.dsl.processors.changes_out import ChangesOut, ColumnChanges, concat
from statestore.dsl.processors.time_queue import TimeQueue
from statestore.format.binary_columns import Flags, Integers, is_valid
from statestore.format.key_groups import are_last
from statestore.format.keys.due_key import ENDS_SUFFIX, WINDOW_END_KEYS, start_and_key, started_key
from statestore.format.keys.time_key_columns import WindowEnds, decode_window_ends, encode_window_ends
from statestore.format.serde import Serde, Serdes
from statestore.format.serde_columns import ColumnSerde
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.stores.builder import PartStore
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import ValueTimestampHeaders
from statestore.stores.iterator import Windowed
from statestore.stores.stores import Stores


def store_of_ends(windows: str, *, is_persistent: bool) -> PartStore:
    """Return the store of the ends of another store's windows."""
    make = Stores.persistent_key_value_store if is_persistent else Stores.in_memory_key_value_store
    builder = Stores.key_value_store_builder(make(f"{windows}{ENDS_SUFFIX}"), Serdes.bytes(), Serdes.bytes())
    return PartStore(builder, WINDOW_END_KEYS)


def open_ends(
    context: ProcessorContext, store: str, key_serde: Serde[Any], windows: Callable[[], Iterable[Windowed]]
) -> TimeQueue:
    """Return the queue of the ends of a store's windows; if its content is unknown, it is filled with `windows`."""
    queue = TimeQueue(context, f"{store}{ENDS_SUFFIX}")
    if queue.is_unknown:
        for window in windows():
            queue.put(window.end_ms, started_key(window.start_ms, key_serde.serialize(window.key)))
    return queue


class FinalWindows:
    """Emits windows that have closed, earliest first, each once over batches and restarts.

    `read` returns what is held of a window, `windows` returns all windows in any order.
    """

    def __init__(
        self,
        context: ProcessorContext,
        store: str,
        key_serde: Serde[Any],
        read: Callable[[Windowed], ValueTimestampHeaders[Any] | None],
        windows: Callable[[], Iterable[Windowed]],
    ) -> None:
        self._key_bytes, self._key = key_serde.serialize, key_serde.deserialize
        self._read = read
        self._queue = open_ends(context, store, key_serde, windows)

    def note(self, window: Windowed) -> None:
        """Note a new window."""
        self._queue.put(window.end_ms, started_key(window.start_ms, self._key_bytes(window.key)))

    def forget(self, window: Windowed) -> None:
        """Forget a window that is gone."""
        self._queue.remove(window.end_ms, started_key(window.start_ms, self._key_bytes(window.key)))

    def emit(self, closed_ms: int, changes: ChangesOut) -> None:
        """Send on the windows that end by `closed_ms`, in order of end, start and serialized key."""
        for end_ms, place in self._queue.take(lambda time_ms: time_ms <= closed_ms):
            start_ms, key_bytes = start_and_key(place)
            window = Windowed(self._key(key_bytes), start_ms, end_ms)
            held = self._read(window)
            if held is not None:
                changes.send(window, held.value, None, held.timestamp_ms, held.header_bytes)

    def record(self) -> None:
        """Have the earliest end committed with the batch."""
        self._queue.record()


class Closing(NamedTuple):
    """Records, and the windows that they close."""

    records: RecordColumns
    closed_ms: Integers
    """The latest window end that has closed by each record."""

    def rows(self, ends_ms: Integers) -> Integers:
        """Return which record closes each window; all are closed by the last one."""
        return np.searchsorted(self.closed_ms, ends_ms)

    def slice(self, start: int, count: int | None = None) -> Closing:
        """Return `count` records from row `start` on, None = all, and the windows that they close."""
        return Closing(self.records.slice(start, count), self.closed_ms[start:][:count])


class FinalWindowColumns:
    """Emits windows that have closed, earliest first, each once over batches and restarts."""

    def __init__(
        self,
        context: ProcessorContext,
        plan: AggregatePlan,
        changes: ColumnChanges,
        read: Callable[[pa.Array, Integers, Integers], HeldColumns],
        windows: Callable[[], Iterable[Windowed]],
    ) -> None:
        assert plan.key_serde.columns is not None  # else records do not come in columns
        self._keys: ColumnSerde = plan.key_serde.columns
        self._read, self._changes = read, changes
        self._queue = open_ends(context, plan.store, plan.key_serde, windows)
        self._due: list[pa.BinaryArray] = []
        """The places of the windows that were emitted last."""

    def places(self, keys: pa.Array, starts_ms: Integers, ends_ms: Integers) -> pa.BinaryArray:
        """Return the place of each window in the queue of ends."""
        return encode_window_ends(WindowEnds(self._keys.serialize(keys), starts_ms, ends_ms))

    def note(self, closing: Closing, places: pa.BinaryArray, rows: Integers, are_there: Flags) -> None:
        """Note which windows there are: the records in `rows` make or delete those at `places`, in order.

        Those that `emit` found closed are deleted, too, each before its record makes another one.
        """
        closed_by = np.searchsorted(closing.closed_ms, decode_window_ends(places).ends_ms)
        before = np.flatnonzero((rows < closed_by) & (closed_by < len(closing.records)))
        lasts = before[are_last(places.take(pa.array(before)))]
        closed, gone = (places.take(pa.array(lasts[which])) for which in (are_there[lasts], ~are_there[lasts]))
        due = pa.concat_arrays([pa.array([], pa.binary()), *self._due])
        closed = pc.unique(pa.concat_arrays([due.filter(pc.invert(pc.is_in(due, gone))), closed]))
        closed = closed.take(pc.sort_indices(closed))
        rows = np.concatenate([closing.rows(decode_window_ends(closed).ends_ms), rows])
        are_there = np.concatenate([np.zeros(len(closed), np.bool_), are_there])
        order = np.argsort(rows, kind="stable")
        changed = pa.concat_arrays([closed, places]).take(pa.array(order))
        self._queue.put_many(changed, are_there[order], closing.records.take(rows[order]))
        self._due = []

    def are_noted(self, places: pa.BinaryArray) -> Flags:
        """Return which windows are in the queue of ends."""
        return self._queue.has_many(places)

    def emit(self, closing: Closing, made: RecordColumns) -> None:
        """Send on the windows that have closed, in order of end, start and serialized key.

        `made` has the new state of those that got records, by their places; null is deleted. Call this before storing
        them, which may advance the store to a time at which it hides others.
        """
        made = made.take(pc.sort_indices(made.key))
        for due in self._queue.due(int(closing.closed_ms[-1])):
            places = pa.array(due, pa.binary())
            self._due.append(places)
            count = int(np.count_nonzero(pc.less_equal(made.key, places[-1])))
            among, made = made.slice(0, count), made.slice(count)
            others = places.filter(pc.invert(pc.is_in(places, among.key)))
            ready = concat([among, self._held(others)])
            self._send(closing, ready.take(pc.sort_indices(ready.key)))
        self._send(closing, made)

    def record(self) -> None:
        """Have the earliest end committed with the batch."""
        self._queue.record()

    def _held(self, places: pa.BinaryArray) -> RecordColumns:
        """Return what is held of windows, by their places."""
        windows = decode_window_ends(places)
        held = self._read(self._keys.deserialize(windows.keys), windows.starts_ms, windows.ends_ms)
        # The timestamp of a session is its end.
        times_ms = pa.array(windows.ends_ms) if held.timestamp_ms is None else held.timestamp_ms
        found = RecordColumns.adopt(places, held.value, times_ms, held.headers, None)
        return found.filter(is_valid(held.value))

    def _send(self, closing: Closing, windows: RecordColumns) -> None:
        windows = windows.filter(is_valid(windows.value))
        keys, starts_ms, ends_ms = decode_window_ends(windows.key)
        origin = closing.records.origin
        self._changes.send_at_once(
            RecordColumns.adopt(
                windowed_column(self._keys.deserialize(keys), starts_ms, ends_ms),
                windows.value,
                windows.timestamp_ms,
                windows.headers,
                None if origin is None else origin.take(pa.array(closing.rows(ends_ms))),
            ),
            None,
        )
