"""Window stores, over any byte store. Source: Kafka's WindowStore; with headers: KIP-1271.

A window is known by its key and start; its size is the store's. All times are milliseconds since the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from operator import index
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, overload

import numpy as np
import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.bytestore.protocol import Pair
from statestore.errors import DeserializationError, FormatError
from statestore.format.binary_columns import Integers
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.time_key_columns import encode_window_keys, window_starts
from statestore.format.keys.window_key import MAX_SEQUENCE, MAX_TIME_MS, check_time, encode_window_key, split_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.stores.codec import HeldColumns
from statestore.stores.holders import ValueAndTimestamp, ValueTimestampHeaders
from statestore.stores.iterator import StoreIterator, Windowed
from statestore.stores.readable_store import ReadForms, SegmentedParts, SegmentedReadableStore
from statestore.stores.segment_columns import (
    get_segmented,
    put_segmented,
    scan_segmented,
    times_of,
    upper_bound,
)
from statestore.stores.supplier import Duration, in_milliseconds
from statestore.stores.typed_store import HeadersBytesStore, TypedStore

K = TypeVar("K")
V = TypeVar("V")

_START = struct.Struct(">q")
_SEQUENCE = struct.Struct(">i")
_OF_KEY, _OF_KEYS = ("key", "from_ms", "to_ms"), ("from_key", "to_key", "from_ms", "to_ms")
_FETCH = ReadForms("fetch", ("key", "time_ms"), _OF_KEY, _OF_KEYS)
_BACKWARD_FETCH = ReadForms("backward_fetch", _OF_KEY, _OF_KEYS)


class FoundWindows(NamedTuple):
    """The windows of several keys, a row for each: key by key, and for each in order of time."""

    rows: Integers
    """The place of the window's key among those that were asked for."""
    starts_ms: Integers
    held: HeldColumns


class ReadOnlyWindowStore(SegmentedReadableStore, Generic[K, V]):
    """Values by key and window, which can only be read.

    Windows that start the retention or more before the stream time are not shown. Entries come segment by segment:
    within one, in the order of the serialized keys and then of time. With duplicates, in the order in which they were
    put.
    """

    _FORMS: ClassVar = {"fetch": _FETCH, "backward_fetch": _BACKWARD_FETCH}

    def __init__(self, parts: SegmentedParts) -> None:
        super().__init__(parts)
        self._retain_duplicates = parts.spec.retain_duplicates

    @overload
    def fetch(self, key: K, time_ms: Duration) -> V | None: ...

    @overload
    def fetch(self, key: K, from_ms: Duration, to_ms: Duration) -> StoreIterator[tuple[int, V]]: ...

    @overload
    def fetch(
        self, from_key: K | None, to_key: K | None, from_ms: Duration, to_ms: Duration
    ) -> StoreIterator[tuple[Windowed, V]]: ...

    def fetch(self, *given: Any, **named: Any) -> Any:
        """Return or yield what the store holds, all ends inclusive.

        fetch(key, start_ms): of one window; None if nothing. Of duplicates, the one that was put last.
        fetch(key, from_ms, to_ms): of the windows of a key that start in that time, as (start_ms, value).
        fetch(from_key, to_key, from_ms, to_ms): of a range of keys, None = open, as (Windowed, value).
        Times are milliseconds, or timedeltas, since the epoch; arguments can be given by name.
        """
        if len(given) == 2 and not named and given[1].__class__ is int:  # most reads
            return self._fetch_window(*given)
        if len(given) == 3 and not named and given[1].__class__ is given[2].__class__ is int:  # what joins read
            return self._windows_of_key(self._require_key(given[0]), given[1], given[2], reverse=False)
        arguments = _FETCH.arguments(given, named)
        if len(arguments) == 2:
            return self._fetch_window(*arguments)
        return self._fetch(arguments, reverse=False)

    def fetch_many(self, keys: Any, window_start_ms: Any) -> HeldColumns:
        """Return what the store holds of each key of a column in the window that starts at the time beside it.

        Keys are an Arrow or numpy column of the type that the key serde has, times one of whole numbers. Raises what
        `KeyValueStore.get_many` raises, and ValueError for a time that no window starts at.
        """
        columns = self._columns()
        raw_keys = columns.key_bytes(keys)
        starts_ms = times_of("window_start_ms", window_start_ms, len(raw_keys))
        if self._retain_duplicates:
            found = map(self._stored_window, raw_keys.to_pylist(), starts_ms.tolist())
            return self._held(columns, pa.array(list(found), pa.binary()))
        return self._held(columns, get_segmented(self._parts, encode_window_keys(raw_keys, starts_ms), starts_ms))

    def _windows_of_keys(self, keys: pa.BinaryArray, from_ms: Integers, to_ms: Integers) -> FoundWindows:
        """Return the windows of each key, in bytes, that start in the time beside it, both ends inclusive.

        Also those that the retention hides by now: see `_visible`.
        """
        self._require_open()
        bounds = list(zip(map(_START.pack, from_ms.tolist()), map(_suffix, to_ms.tolist()), strict=True))
        rows, windows, stored = scan_segmented(self._parts, keys.to_pylist(), bounds, self._segments.ids_of(from_ms))
        return FoundWindows(rows, window_starts(windows), self._held(self._columns(), stored))

    def _first_visible_after(self, put_times_ms: Integers) -> Integers:
        """Return the first time that is shown after each of some puts at these times, one after the other."""
        return np.maximum(self._segments.stream_times(put_times_ms) - self._segments.retention_ms + 1, 0)

    @overload
    def backward_fetch(self, key: K, from_ms: Duration, to_ms: Duration) -> StoreIterator[tuple[int, V]]: ...

    @overload
    def backward_fetch(
        self, from_key: K | None, to_key: K | None, from_ms: Duration, to_ms: Duration
    ) -> StoreIterator[tuple[Windowed, V]]: ...

    def backward_fetch(self, *given: Any, **named: Any) -> Any:
        """Yield what `fetch` yields of several windows, in the opposite order."""
        return self._fetch(_BACKWARD_FETCH.arguments(given, named), reverse=True)

    def fetch_all(self, from_ms: Duration, to_ms: Duration) -> StoreIterator[tuple[Windowed, V]]:
        """Yield the windows of all keys that start in that time, both ends inclusive."""
        return self._windows(None, None, in_milliseconds(from_ms), in_milliseconds(to_ms), reverse=False)

    def backward_fetch_all(self, from_ms: Duration, to_ms: Duration) -> StoreIterator[tuple[Windowed, V]]:
        """Yield what `fetch_all` yields, in the opposite order."""
        return self._windows(None, None, in_milliseconds(from_ms), in_milliseconds(to_ms), reverse=True)

    def all(self) -> StoreIterator[tuple[Windowed, V]]:
        """Yield all windows of all keys."""
        return self._windows(None, None, 0, MAX_TIME_MS, reverse=False)

    def backward_all(self) -> StoreIterator[tuple[Windowed, V]]:
        """Yield all windows of all keys, in the opposite order."""
        return self._windows(None, None, 0, MAX_TIME_MS, reverse=True)

    def _fetch_window(self, key: K, start_ms: int) -> V | None:
        key_bytes = self._require_key(key)
        check_time("time_ms", start_ms)
        stored = self._stored_window(key_bytes, start_ms)
        return None if stored is None else self._decode(stored)

    def _stored_window(self, key_bytes: bytes, start_ms: int) -> bytes | None:
        if start_ms < self._segments.first_visible_ms:
            self._require_open()
            return None
        prefix = segment_prefix(self._segments.id_of(start_ms))
        if not self._retain_duplicates:
            return self._inner.get(prefix + encode_window_key(key_bytes, start_ms))
        pair = self._last_duplicate(prefix, key_bytes, start_ms)
        return None if pair is None else pair[1]

    def _last_duplicate(self, prefix: bytes, key: bytes, start_ms: int) -> Pair | None:
        first = prefix + encode_window_key(key, start_ms)
        last = prefix + encode_window_key(key, start_ms, MAX_SEQUENCE)
        return next(self._inner.range(first, last, reverse=True), None)

    def _fetch(self, arguments: tuple[Any, ...], *, reverse: bool) -> StoreIterator[Any]:
        if len(arguments) == 3:
            key, from_ms, to_ms = arguments
            return self._windows_of_key(self._require_key(key), from_ms, to_ms, reverse=reverse)
        from_key, to_key, from_ms, to_ms = arguments
        return self._windows(from_key, to_key, from_ms, to_ms, reverse=reverse)

    def _windows(
        self, from_key: K | None, to_key: K | None, from_ms: int, to_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed, V]]:
        lower, upper = self._bound(from_key), self._bound(to_key)
        first_ms, last_ms = self._visible(from_ms, to_ms)

        def is_wanted(key: bytes, start_ms: int, _: int) -> bool:
            return (
                first_ms <= start_ms <= last_ms and (lower is None or key >= lower) and (upper is None or key <= upper)
            )

        bound = None if upper is None else upper_bound(upper, _suffix(last_ms))
        scans = self._scans((first_ms, last_ms), (lower, bound), reverse=reverse)
        return self._iterate(self._windowed(scans, split_window_key, is_wanted))

    def _windows_of_key(self, key: bytes, from_ms: int, to_ms: int, *, reverse: bool) -> StoreIterator[tuple[int, V]]:
        first_ms, last_ms = self._visible(from_ms, to_ms)
        bounds = (key + _START.pack(min(first_ms, MAX_TIME_MS)), key + _suffix(last_ms))
        scans = self._scans((first_ms, last_ms), bounds, reverse=reverse)
        return StoreIterator(self.name, self._starts_of_key(scans, key, first_ms, last_ms))

    def _starts_of_key(
        self, scans: list[Iterator[Pair]], key: bytes, first_ms: int, last_ms: int
    ) -> Generator[tuple[int, V], None, None]:
        """Yield start and value of the key's windows: scan and `_guard` in one, for the reads of joins."""
        decode = self._decode_raw
        try:
            for scan in scans:
                for stored_key, stored in scan:
                    # Between them are windows of longer keys with this prefix.
                    raw_key, start_ms, _ = split_window_key(stored_key[SEGMENT_ID_SIZE:])
                    if raw_key == key and first_ms <= start_ms <= last_ms:
                        yield start_ms, decode(stored)
        except (FormatError, DeserializationError) as cause:
            raise self._unreadable(cause) from cause
        self._require_open()

    def _visible(self, from_ms: int, to_ms: int) -> tuple[int, int]:
        return max(index(from_ms), self._segments.first_visible_ms), min(index(to_ms), MAX_TIME_MS)


class WindowStore(ReadOnlyWindowStore[K, V], TypedStore):
    """Values by key and window."""

    kind = StoreKind.WINDOW
    value_format = StoreFormat.PLAIN

    _sequence = 0

    def hold_stream_time(self, latest_ms: int) -> None:
        """Keep puts from advancing the stream time beyond `latest_ms`, until the next call."""
        self._segments.latest_ms = latest_ms

    def put(self, key: K, value: V | None, window_start_ms: int) -> None:
        """Set the value of a key in the window that starts at `window_start_ms`; None deletes it.

        A store that retains duplicates keeps what was put before, and None changes nothing in it, not even its stream
        time. A window whose segment has expired is not stored. Raises ValueError unless the start is 0 to 2^63 - 1.
        """
        key_bytes, stored = self._to_put(key, value)
        check_time("window_start_ms", window_start_ms)
        self._put_stored(key_bytes, window_start_ms, stored)

    def put_many(self, records: RecordColumns, window_start_ms: Any) -> None:
        """Set each record's key to its value, in order, in the window that starts at the time beside it.

        A null value deletes. Times are a column of whole numbers. All else is as with `KeyValueStore.put_many`; raises
        ValueError, too, for a time that no window starts at.
        """
        columns = self._columns()
        keys, stored = columns.key_bytes(records.key), columns.stored(records)
        starts_ms = times_of("window_start_ms", window_start_ms, len(records))
        self._watch_many(stored)
        sequences: Integers | int | None = 0
        if self._retain_duplicates:  # of which a deletion is none, nor does it bring stream time
            sequences = None if stored.null_count else self._next_sequences(keys, starts_ms)
        if sequences is None or not put_segmented(
            self._parts, encode_window_keys(keys, starts_ms, sequences), starts_ms, stored, records
        ):
            self._put_one_by_one(self._put_stored, records, keys.to_pylist(), starts_ms.tolist(), stored.to_pylist())
        elif isinstance(sequences, np.ndarray) and len(sequences):
            self._sequence = int(sequences[-1])

    def _put_stored(self, key_bytes: bytes, window_start_ms: int, stored: bytes | None) -> None:
        if stored is not None or not self._retain_duplicates:
            self._segments.advance(window_start_ms)
        segment_id = self._segments.id_of(window_start_ms)
        prefix = segment_prefix(segment_id)
        sequence = self._next_sequence(prefix, key_bytes, window_start_ms) if self._retain_duplicates else 0
        self._inner.put(prefix + encode_window_key(key_bytes, window_start_ms, sequence), stored)
        if stored is not None:
            self._segments.note_use(segment_id)

    def read_only(self) -> ReadOnlyWindowStore[K, V]:
        """Return a view of the store that has its methods to read, and no other ones."""
        return ReadOnlyWindowStore(self._parts)

    def _next_sequence(self, prefix: bytes, key: bytes, start_ms: int) -> int:
        """Return the number of the next duplicate: one more than the last, in this store or of this window.

        Kafka counts from 1 again after a restart, over what was there before; so the window is looked at too.
        """
        present = self._last_duplicate(prefix, key, start_ms)
        highest = 0 if present is None else split_window_key(present[0])[2]
        self._sequence = max(self._sequence, highest) + 1 & MAX_SEQUENCE
        return self._sequence

    def _next_sequences(self, keys: pa.BinaryArray, starts_ms: Integers) -> Integers | None:
        """Return what `_next_sequence` would for puts one after the other; None if the numbers start anew."""
        segments, last = self._segments, _SEQUENCE.pack(MAX_SEQUENCE)
        groups = KeyGroups(layout_of(self._parts.spec).physical_keys(encode_window_keys(keys, starts_ms)))
        ranges = [(window, window[: -_SEQUENCE.size] + last) for window in groups.keys.to_pylist()]
        found = self._inner.range_many(ranges)
        lasts = [split_window_key(pairs[-1][0])[2] if pairs else 0 for pairs in found]
        highest = np.array(lasts, np.int64)[groups.codes]
        # Of segments that expire on the way, nothing is found.
        highest[segments.ids_of(starts_ms) < segments.first_live_at(segments.stream_times(starts_ms))] = 0
        numbers = np.arange(len(keys))
        sequences: Integers = np.maximum.accumulate(np.maximum(highest - numbers, self._sequence)) + numbers + 1
        return None if len(sequences) and sequences[-1] > MAX_SEQUENCE else sequences


class TimestampedWindowStore(WindowStore[K, ValueAndTimestamp[V]]):
    """Values by key and window, each with the timestamp it was written with."""

    value_format = StoreFormat.TIMESTAMPED

    def put_value(self, key: K, value: V | None, window_start_ms: int, *, timestamp_ms: int | None = None) -> None:
        """Put a value with the timestamp of the record that is being processed, unless one is given; None deletes."""
        self.put(key, ValueAndTimestamp.make(value, self._timestamp_to_put(timestamp_ms)), window_start_ms)


class TimestampedWindowStoreWithHeaders(WindowStore[K, ValueTimestampHeaders[V]], HeadersBytesStore):
    """Values by key and window, each with the timestamp and headers it was written with."""

    value_format = StoreFormat.TIMESTAMPED_WITH_HEADERS

    def put_value(
        self,
        key: K,
        value: V | None,
        window_start_ms: int,
        *,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Put a value with timestamp and headers of the record that is being processed, unless they are given.

        A value of None deletes. To write no headers, give empty ones.
        """
        time_ms = self._timestamp_to_put(timestamp_ms)
        held = None if value is None else ValueTimestampHeaders(value, time_ms, self._headers_to_put(headers))
        self.put(key, held, window_start_ms)


def _suffix(start_ms: int) -> bytes:
    """Return the greatest that can follow a key in a window that starts at `start_ms` at the latest."""
    return _START.pack(max(0, start_ms)) + b"\x7f\xff\xff\xff"
