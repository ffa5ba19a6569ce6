"""Entries that expire: the layer that hides them when their time has come, and the store of those times.

The store itself is recorded as without. Beside it a key-value store of plain bytes, `<name>-expiry`, is written in the
same batches, so both always agree. It has the time at which an entry expires twice, by key and in order of time: see
`format.keys.due_key`. An entry that it does not know does not expire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.protocol import ByteStore, ByteStoreLayer, Change, Pair, RowChanges, RowStore, takes_rows
from statestore.errors import FormatError
from statestore.format.binary_columns import is_valid
from statestore.format.key_groups import KeyGroups
from statestore.format.keys.due_key import (
    due_bounds,
    due_key,
    expiring_key,
    expiry_bounds,
    expiry_key,
    expiry_keys,
    key_behind_time,
    time_bytes,
    time_of,
)
from statestore.format.keys.time_key_columns import encode_due_keys, encode_expiry_keys
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde_columns import INT64_COLUMNS
from statestore.headers.expiry_header import expiry_in_headers
from statestore.headers.record_columns import RecordColumns
from statestore.stores.supplier import Duration, milliseconds

_LOG = logging.getLogger(__name__)

_DELETED_AT_LEAST, _DELETED_PER_WRITE = 1_000, 2


@dataclass(frozen=True)
class TimeToLive:
    """How long an entry lives, at most, on the wall clock ("processing") or in stream time ("event")."""

    ttl_ms: int | None  # the time from a put on; None means that it does not matter
    clock: str
    header: str | None = None
    """The name of the header that says when its entry expires; None means that no header does."""

    @classmethod
    def of(cls, ttl: Duration | None, clock: str, header: str | None = None) -> TimeToLive:
        """Return a time to live. Raises ValueError for a ttl below 1 ms, an unknown clock and an empty header name."""
        if clock not in _CLOCKS:
            raise ValueError(f"clock must be one of {', '.join(_CLOCKS)}, not {clock!r}")
        if header is not None and not (isinstance(header, str) and header):
            raise ValueError(f"header must be the name of a header, got {header!r}")
        return cls(None if ttl is None else milliseconds("ttl", ttl, least=1), clock, header)


class Clocks(Protocol):
    """The two clocks of a task, in milliseconds since the epoch."""

    @property
    def system_time_ms(self) -> int:
        """The wall clock, as the driver sets it."""

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp so far."""


_CLOCKS: Final[Mapping[str, Callable[[Clocks], Callable[[], int]]]] = {
    "processing": lambda clocks: lambda: clocks.system_time_ms,
    "event": lambda clocks: lambda: clocks.stream_time_ms,
}


@dataclass(frozen=True)
class Expiry:
    """What building a store with a time to live needs beside its own bytes."""

    times: ByteStore  # the outermost layer of the store that its builder's `expiry_store` builds
    clocks: Clocks


class ExpiryTimes:
    """When the entries of a store expire, by key and by time, in milliseconds since the epoch."""

    def __init__(self, store: ByteStore) -> None:
        self._store = store

    def get(self, key: bytes) -> int | None:
        """Return when the entry of `key` expires; None if it does not."""
        stored = self._store.get(expiry_key(key))
        return None if stored is None else time_of(stored)

    def get_many(self, keys: Sequence[bytes]) -> list[int | None]:
        """Return when the entry of each key expires; None if it does not."""
        found = self._store.get_many(expiry_keys(keys))
        return [None if stored is None else time_of(stored) for stored in found]

    def set(self, key: bytes, expiry_ms: int | None) -> None:
        """Set when the entry of `key` expires; None means never, or that there is none."""
        before_ms = self.get(key)
        if before_ms != expiry_ms:
            for place, value in _moved(key, before_ms, expiry_ms):
                self._store.put(place, value)

    @property
    def takes_rows(self) -> bool:
        """Whether `set_rows` may be called."""
        return takes_rows(self._store)

    def set_rows(self, keys: pa.BinaryArray, expiries_ms: pa.Int64Array, records: RecordColumns) -> None:
        """Do what `set` does for each key in turn, null for None, for the record in the row beside it."""
        groups = KeyGroups(keys)
        known_ms = pa.array(self.get_many(groups.keys.to_pylist()), pa.int64())
        rows_before = groups.rows_before
        earlier = np.where(rows_before < 0, groups.codes, len(groups) + rows_before)
        before_ms = pa.concat_arrays([known_ms, expiries_ms]).take(pa.array(earlier))
        was_set, is_set = is_valid(before_ms), is_valid(expiries_ms)
        is_changed = (was_set != is_set) | np.asarray(pc.fill_null(pc.not_equal(before_ms, expiries_ms), False))
        if not is_changed.any():
            return
        left, changed, due = (np.flatnonzero(is_changed & which) for which in (was_set, is_changed, is_set))
        keys_of_left, keys_of_changed, keys_of_due = (keys.take(pa.array(rows)) for rows in (left, changed, due))
        places = [
            encode_due_keys(before_ms.take(pa.array(left)).to_numpy(), keys_of_left),
            encode_expiry_keys(keys_of_changed),
            encode_due_keys(expiries_ms.take(pa.array(due)).to_numpy(), keys_of_due),
        ]
        values = [
            pa.nulls(len(left), pa.binary()),
            INT64_COLUMNS.serialize(expiries_ms.take(pa.array(changed))),
            pa.repeat(pa.scalar(b"", pa.binary()), len(due)),
        ]
        rows = np.concatenate([left, changed, due])
        order = np.argsort(rows, kind="stable")
        merged_places, merged = (pa.concat_arrays(each).take(pa.array(order)) for each in (places, values))
        cast(RowStore, self._store).write_rows(RowChanges(merged_places, merged, records.take(rows[order])))

    def between(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, int]]:
        """Yield keys from `start` to `end`, both inclusive, None = open, with the time of each, as of the call."""
        entries = self._store.range(*expiry_bounds(start, end), reverse=reverse)
        return ((expiring_key(place), time_of(stored)) for place, stored in entries)

    def due(self, now_ms: int) -> Iterator[bytes]:
        """Yield the places of what has expired at `now_ms`, earliest first, as of the call."""
        start, end = due_bounds(now_ms)
        return (place for place, _ in self._store.range(start, end) if place != end)

    def forget(self, places: Sequence[bytes]) -> list[bytes]:
        """Forget the times at these places, which `due` yielded, and return the keys of their entries."""
        keys = list(map(key_behind_time, places))
        self._store.write([(place, None) for place in (*places, *expiry_keys(keys))])
        return keys


class ExpiringLayer(ByteStoreLayer):
    """Hides what has expired, and renews the time of what is put: `headers_of` gives the headers of a stored value."""

    def __init__(
        self,
        inner: ByteStore,
        time_to_live: TimeToLive,
        expiry: Expiry,
        headers_of: Callable[[bytes], bytes] = lambda stored: b"",
    ) -> None:
        super().__init__(inner)
        self._times = ExpiryTimes(expiry.times)
        self._ttl_ms = time_to_live.ttl_ms
        self._header = time_to_live.header
        self._headers_of = headers_of
        self._is_told = False
        self._clock_ms = _CLOCKS[time_to_live.clock](expiry.clocks)
        self._goes_by_stream_time = time_to_live.clock == "event"
        self._writes = 0
        self._watched_by: tuple[Callable[[bytes, bytes | None], None], ...] = ()

    def watch(self, watch: Callable[[bytes, bytes | None], None]) -> None:
        """Have `watch` called with each entry that `delete_expired` deletes, as it is stored, from now on."""
        self._watched_by = (*self._watched_by, watch)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none or has expired."""
        value = self.inner.get(key)
        if value is None:
            return None
        expiry_ms = self._times.get(key)
        return value if expiry_ms is None or expiry_ms > self._clock_ms() else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none, or one that has expired."""
        return self.get_many_at(keys, None)

    def get_many_at(self, keys: Sequence[bytes], stream_times_ms: Sequence[int] | None) -> list[bytes | None]:
        """Do what `get_many` does for each key at the stream time beside it; None is now for all."""
        values = self.inner.get_many(keys)
        held = [place for place, value in enumerate(values) if value is not None]
        nows_ms = self._nows_ms(stream_times_ms, len(keys))
        for place, expiry_ms in zip(held, self._times.get_many([keys[place] for place in held]), strict=True):
            if expiry_ms is not None and expiry_ms <= nows_ms[place]:
                values[place] = None
        return values

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`, to expire when its time has passed from now on; None deletes it."""
        self.inner.put(key, value)
        self._renew(key, value)

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, each as `put` does."""
        pairs = list(changes)
        self.inner.write(pairs)
        for key, value in pairs:
            self._renew(key, value)

    @property
    def takes_rows(self) -> bool:
        """Whether no header says when entries expire: that may be one of the record, which must be the current one."""
        return self._header is None and self._times.takes_rows and super().takes_rows

    def write_rows(self, changes: RowChanges) -> None:
        """Apply all rows, each to expire when its time has passed from the stream time in it on."""
        super().write_rows(changes)
        self._writes += len(changes)
        ttl_ms, times = self._ttl_ms, changes.records.stream_time_ms
        assert ttl_ms is not None  # what expires by no header expires by that
        nows_ms = np.asarray(self._nows_ms(None if times is None else times.to_numpy(), len(changes)), np.int64)
        lives_ms = min(ttl_ms, MAX_TIME_MS)
        expiries_ms = pa.array(np.minimum(nows_ms, MAX_TIME_MS - lives_ms) + lives_ms, mask=~is_valid(changes.values))
        self._times.set_rows(changes.keys, expiries_ms, changes.records)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self.inner.delete_below(end)
        for key, _ in self._times.between(None, end):
            if key < end:
                self._times.set(key, None)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs that have not expired at the call, in key order, as `inner` does."""
        pairs = self.inner.range(start, end, reverse=reverse)
        return _live_pairs(pairs, self._times.between(start, end, reverse=reverse), self._clock_ms(), reverse)

    def delete_expired(self) -> int:
        """Delete entries that have expired, and return how many.

        At most a thousand, or twice as many as were written since the last call: so it catches up in the end, and no
        batch pays for all that expired at once.
        """
        limit = max(_DELETED_AT_LEAST, _DELETED_PER_WRITE * self._writes)
        self._writes = 0
        expired = self._times.forget(list(islice(self._times.due(self._clock_ms()), limit)))
        if self._watched_by:
            for key in expired:
                value = self.inner.get(key)
                for watch in self._watched_by:
                    watch(key, value)
        self.inner.write([(key, None) for key in expired])
        return len(expired)

    def _renew(self, key: bytes, value: bytes | None) -> None:
        self._writes += 1
        self._times.set(key, None if value is None else self._expiry_ms(value))

    def _nows_ms(self, stream_times_ms: Any, count: int) -> Any:
        """Return what the clock shows at each of these stream times; None is now."""
        if stream_times_ms is None or not self._goes_by_stream_time:
            return [self._clock_ms()] * count
        return stream_times_ms

    def _expiry_ms(self, stored: bytes) -> int | None:
        by_header_ms = None if self._header is None else self._time_in_headers(self._header, stored)
        if self._ttl_ms is None:
            return by_header_ms
        by_ttl_ms = _after(self._ttl_ms, self._clock_ms())
        return by_ttl_ms if by_header_ms is None else min(by_header_ms, by_ttl_ms)

    def _time_in_headers(self, header: str, stored: bytes) -> int | None:
        """Return the time in a value's headers; None if there is none, or it is malformed: such an entry lives on."""
        try:
            return expiry_in_headers(self._headers_of(stored), header)
        except FormatError as problem:
            if not self._is_told:
                self._is_told = True
                _LOG.warning("store %s: an entry does not expire by its header %r: %s", self.name, header, problem)
            return None


def _moved(key: bytes, before_ms: int | None, expiry_ms: int | None) -> list[Change]:
    left: list[Change] = [] if before_ms is None else [(due_key(before_ms, key), None)]
    if expiry_ms is None:
        return [*left, (expiry_key(key), None)]
    return [*left, (expiry_key(key), time_bytes(expiry_ms)), (due_key(expiry_ms, key), b"")]


def _after(span_ms: int, time_ms: int) -> int:
    return max(0, min(time_ms + span_ms, MAX_TIME_MS))


class OneTime(NamedTuple):
    """Clocks that stand still."""

    system_time_ms: int
    stream_time_ms: int


def _live_pairs(
    pairs: Iterator[Pair], times: Iterator[tuple[bytes, int]], now_ms: int, reverse: bool
) -> Generator[Pair, None, None]:
    """Yield the pairs that have not expired: both are in the order of keys, so each is read once."""
    time = next(times, None)
    for pair in pairs:
        key = pair[0]
        while time is not None and (time[0] > key if reverse else time[0] < key):
            time = next(times, None)
        if time is None or time[0] != key or time[1] > now_ms:
            yield pair
