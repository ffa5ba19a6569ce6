"""The contract of every ordered map of bytes to bytes; many writes at once, in rows; and a layer over a store."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import Flags, Integers
from statestore.format.key_groups import are_last
from statestore.headers.record_columns import RecordColumns

_RECORDS_AT_ONCE: Final = 4_096
"""How many records of rows are Python objects at a time."""


class RecordContext(Protocol):
    """The record that a store is written for: changelog records carry its timestamp and headers."""

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp, in milliseconds since the epoch."""

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""


class ProcessingContext(RecordContext, Protocol):
    """A RecordContext of a task, which can be brought to each of many records in turn."""

    def rows(self, records: RecordColumns) -> Generator[int, None, None]:
        """Make each record the current one in turn, and yield its row. Closing it restores the one before."""


class NoRecord:
    """Stands for the record where nothing is being processed."""

    timestamp_ms = -1
    header_bytes = b""

    def rows(self, records: RecordColumns) -> Generator[int, None, None]:
        """Yield the row of each record."""
        yield from range(len(records))


class WrittenRow(NamedTuple):
    """The record that one row of columns is written for."""

    timestamp_ms: int
    header_bytes: bytes


class RowChanges:
    """Writes in rows, in order, each for the record in the same row. Never changed.

    keys, logged_keys    where the store keeps each entry, and what its changelog calls it
    values               stored bytes; null deletes
    times_ms             the stream time that each row brings to a store of windows or sessions; None for other stores
    """

    def __init__(
        self,
        keys: pa.BinaryArray,
        values: pa.BinaryArray,
        records: RecordColumns,
        *,
        logged_keys: pa.BinaryArray | None = None,
        times_ms: Integers | None = None,
    ) -> None:
        self.keys = keys
        self.logged_keys = keys if logged_keys is None else logged_keys
        self.values = values
        self.records = records
        self.times_ms = times_ms

    def __len__(self) -> int:
        return len(self.keys)

    def filter(self, mask: Flags) -> RowChanges:
        """Return the rows for which `mask` is true."""
        where = pa.array(mask)
        keys, values, logged = (column.filter(where) for column in (self.keys, self.values, self.logged_keys))
        times_ms = None if self.times_ms is None else self.times_ms[mask]
        return RowChanges(keys, values, self.records.filter(where), logged_keys=logged, times_ms=times_ms)

    @cached_property
    def last(self) -> dict[bytes, bytes | None]:
        """The last write of each key, in their order: what a store and a compacted log keep of the rows."""
        return dict(zip(self._lasts_of(self.keys), self._lasts_of(self.values), strict=True))

    @property
    def last_logged(self) -> dict[bytes, bytes | None]:
        """The same by logged keys."""
        if self.logged_keys is self.keys:
            return self.last
        return dict(zip(self._lasts_of(self.logged_keys), self.last.values(), strict=True))

    def written_for(self) -> Iterator[WrittenRow]:
        """Return the record that each of `last` is written for."""
        return map(WrittenRow, self.of_last(self.records.timestamp_ms), self.of_last(self.records.headers))

    def of_last(self, column: pa.Array) -> Iterator[Any]:
        """Yield what a column of the records has for each of `last`."""
        rows = self._last_rows
        for start in range(0, len(rows), _RECORDS_AT_ONCE):
            yield from column.take(pa.array(rows[start : start + _RECORDS_AT_ONCE])).to_pylist()

    @cached_property
    def _last_rows(self) -> Integers:
        if self.keys is self.records.key:
            return np.sort(self.records.by_key.last_rows)
        return np.flatnonzero(are_last(self.logged_keys))

    def _lasts_of(self, column: pa.BinaryArray) -> list[Any]:
        rows = self._last_rows
        lasts: list[Any] = (column if len(rows) == len(self) else column.take(pa.array(rows))).to_pylist()
        return lasts


Pair = tuple[bytes, bytes]
Change = tuple[bytes, "bytes | None"]
Range = tuple[bytes, bytes]  # the first and the last key, both inclusive


class ByteReader(Protocol):
    """An ordered map of bytes to bytes, to be read; order is unsigned bytewise, as RocksDB's and Kafka's.

    Every method raises StoreClosedError once the store is closed.
    """

    @property
    def name(self) -> str:
        """The store's name, for errors and metrics."""

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none: the same as `get`, one by one."""

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open.

        Sees the store as it is at the call, not at the first `next`. Start beyond end yields nothing. Ends early if the
        store is closed meanwhile: only `is_open` tells.
        """

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order: the same as `range`, one by one. Ascending ones are fastest."""

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value, never negative."""


class ByteStore(ByteReader, Protocol):
    """Such a map that can be changed."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`: how whole time segments expire."""

    def approximate_size_bytes(self) -> int:
        """Return about how much room the entries take where they are held, never negative."""

    def close(self) -> None:
        """Close the store and every iterator that it handed out. Closing twice is harmless."""


class RowStore(ByteStore, Protocol):
    """A ByteStore that is written to in rows too: a write set, and each layer of a typed store."""

    @property
    def takes_rows(self) -> bool:
        """Whether it and all below take many writes at once; else each is to be made while its record is current."""

    def write_rows(self, changes: RowChanges) -> None:
        """Do what `put` does of each row while its record is the current one. Not unless it `takes_rows`."""


def takes_rows(store: ByteStore) -> TypeGuard[RowStore]:
    """Return whether a store says that it can be written to in rows."""
    return getattr(store, "takes_rows", False) is True


_WRITES: Final = frozenset({"put", "write", "write_rows"})


class ByteStoreLayer:
    """A RowStore that passes everything to `inner`.

    If a subclass overrides only `put` or only `write`, the changes of the other one go through it, too. If it overrides
    either, but not `write_rows`, it gets no rows. So no change passes a layer by.
    """

    def __init__(self, inner: ByteStore) -> None:
        self.name = inner.name
        self.inner = inner
        if type(self).get is ByteStoreLayer.get:
            # Most reads go through several layers that do nothing about them: a call less for each.
            self.get = inner.get  # type: ignore[method-assign]
        if type(self).range is ByteStoreLayer.range:
            self.range = inner.range  # type: ignore[method-assign]

    @property
    def is_open(self) -> bool:
        """Whether the store below is open."""
        return self.inner.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        return self.inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        # A layer that has a get() of its own has to be asked for each.
        changed = type(self).get is not ByteStoreLayer.get
        return [self.get(key) for key in keys] if changed else self.inner.get_many(keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        if type(self).write is ByteStoreLayer.write:
            self.inner.put(key, value)
        else:
            self.write([(key, value)])

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        if type(self).put is ByteStoreLayer.put:
            self.inner.write(changes)
        else:
            for key, value in changes:
                self.put(key, value)

    @property
    def takes_rows(self) -> bool:
        """Whether it and all below can take many writes at once: not if `put` or `write` is overridden without rows."""
        says_last = next(own for known in type(self).__mro__ if (own := _WRITES & vars(known).keys()))
        return "write_rows" in says_last and takes_rows(self.inner)

    def write_rows(self, changes: RowChanges) -> None:
        """Do what `put` does of each row while its record is the current one. Not unless it `takes_rows`."""
        cast(RowStore, self.inner).write_rows(changes)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self.inner.delete_below(end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        return self.inner.range(start, end, reverse=reverse)

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        # As with get_many().
        changed = type(self).range is not ByteStoreLayer.range
        return [list(self.range(*each)) for each in ranges] if changed else self.inner.range_many(ranges)

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value."""
        return self.inner.approximate_num_entries()

    def approximate_size_bytes(self) -> int:
        """Return about how much room the entries take where they are held."""
        return self.inner.approximate_size_bytes()

    def close(self) -> None:
        """Close the store below."""
        self.inner.close()
