"""Which entries have a header with a value: an index of some headers, in a column family beside the entries.

    index_key := [segment_id:i64_be] name_size:varint name:u8[name_size] value_size:varint content key
    content   := value:u8[value_size]; if it is longer than 64 bytes, the BLAKE2b-128 digest of it
    key       := the entry's key, without its segment
    state_row := 80 -> (nothing, if all entries are indexed) | indexed:i64_be next_key

An index key has no value. The segment comes first, so that what deletes a segment deletes its part of the index. The
state row sorts behind all segments that expire, and is shorter than every other key. All entries below `next_key` are
indexed, some `indexed` ones; without a state row, none are.

The index is derived: whatever is written to the entries of a copy comes through `IndexedByteStore`, which compares the
headers of the entry before with those of the entry after. Of a versioned store the latest versions are indexed. A hit
is a candidate, whose headers the reader must look at: after a crash the index may have more than the entries.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain, islice, takewhile
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.engines.scans import pairs_with_prefix, prefix_end
from statestore.bytestore.kinds.entry_scan import EntryBounds, SegmentEnd, pairs_in_segment, segment_prefixes
from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, SEGMENT_ID_SIZE, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec, index_family
from statestore.bytestore.protocol import ByteStore, ByteStoreLayer, Change, Pair
from statestore.bytestore.upgrades import Upgradable, UpgradeProgress
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import FormatError
from statestore.format.binary_columns import END_OF_ROW, join_rows, row_sizes, varint_array
from statestore.format.records.header_bytes import header_values
from statestore.format.records.header_columns import decode_header_column
from statestore.format.values.stored_columns import split_stored_columns
from statestore.format.values.versioned_row import LATEST_TIME_SIZE
from statestore.format.varint import decode_varint, encode_varint

_LOG = logging.getLogger(__name__)

_STATE_KEY: Final = b"\x80"
_COUNT: Final = struct.Struct(">q")
_MOST_VALUE_BYTES: Final = 64  # a trace id or a W3C traceparent is shorter
_INDEXED_AT_ONCE: Final = 500  # entries: a slice of some milliseconds
_READ_AT_ONCE: Final = 64  # entries that were found, with one call
_FEW: Final = 32  # entries: of fewer, headers are read one by one faster than in columns
_LATEST_PREFIX: Final = segment_prefix(LATEST_SEGMENT)


class HeaderKeys:
    """The index keys of one store's entries."""

    def __init__(self, spec: StoreSpec) -> None:
        self.names = spec.indexed_headers
        self.segment_size = SEGMENT_ID_SIZE if spec.kind.is_segmented else 0
        self.latest_only = LAYOUTS[spec.kind].keeps_versions
        self._header_start = LATEST_TIME_SIZE if self.latest_only else 0
        self._wanted = {name.encode(): encode_varint(len(name.encode())) + name.encode() for name in self.names}
        self._name_column = pa.array(self.names, pa.string())
        self._begin_column = pa.array(self._wanted.values(), pa.binary())
        self._format = spec.format
        self._store = spec.name
        self._is_told = False

    def prefix(self, name: str, value: bytes, segment: bytes = b"") -> bytes:
        """Return the prefix of the index keys of a segment's entries that have a header with this value."""
        return segment + self._wanted[name.encode()] + _content(value)

    def headers(self, stored: bytes | None) -> bytes:
        """Return the header bytes of an entry; empty for None, and for one that is malformed."""
        if stored is None:
            return b""
        try:
            size, start = decode_varint(stored, self._header_start, "size of headers")
            if not 0 <= size <= len(stored) - start:
                raise FormatError("size of headers", f"{size} of {len(stored) - start} bytes")
        except FormatError as problem:
            self._tell(problem)
            return b""
        return stored[start : start + size]

    def has(self, stored: bytes, name: str, value: bytes) -> bool:
        """Return whether an entry has a header with this value; not if its headers are malformed."""
        return (name.encode(), value) in self._found(self.headers(stored))

    def of(self, key: bytes, header_bytes: bytes) -> list[bytes]:
        """Return the index keys of an entry with these headers."""
        segment, rest = key[: self.segment_size], key[self.segment_size :]
        wanted = self._wanted
        return [segment + wanted[name] + _content(value) + rest for name, value in self._found(header_bytes)]

    def of_entry(self, key: bytes, stored: bytes) -> list[bytes]:
        """Return the index keys of an entry; an older version has none."""
        if self.latest_only and not key.startswith(_LATEST_PREFIX):
            return []
        return self.of(key, self.headers(stored))

    def header_column(self, stored: Sequence[bytes | None]) -> pa.BinaryArray:
        """Return `headers` of each entry."""
        column = pa.array(stored, pa.binary())
        if self.latest_only:
            column = pc.binary_slice(column, LATEST_TIME_SIZE, END_OF_ROW)
        try:
            return pc.fill_null(split_stored_columns(self._format, column).header_bytes, b"")
        except FormatError:
            return pa.array(map(self.headers, stored), pa.binary())

    def of_columns(self, keys: pa.BinaryArray, header_bytes: pa.BinaryArray) -> list[bytes]:
        """Return the index keys of entries with these headers, as `of` does for one."""
        try:
            headers = decode_header_column(header_bytes)
        except FormatError:
            pairs = zip(keys.to_pylist(), header_bytes.to_pylist(), strict=True)
            return [row for key, each in pairs for row in self.of(key, each)]
        found = headers.flatten()
        number = pc.index_in(found.field("key"), self._name_column)
        is_wanted = pc.and_(number.is_valid(), found.field("value").is_valid())
        values = found.field("value").filter(is_wanted)
        keys = keys.take(pc.list_parent_indices(headers).filter(is_wanted))
        sizes = row_sizes(values)
        if sizes.max(initial=0) > _MOST_VALUE_BYTES:
            values = pa.array(map(_held, values.to_pylist()), pa.binary())
        parts = [self._begin_column.take(number.filter(is_wanted)), varint_array(sizes), values, keys]
        if size := self.segment_size:
            parts = [pc.binary_slice(keys, 0, size), *parts[:-1], pc.binary_slice(keys, size, END_OF_ROW)]
        rows: list[bytes] = join_rows(parts, "keys of an index").to_pylist()
        return rows

    def _found(self, header_bytes: bytes) -> Sequence[tuple[bytes, bytes]]:
        if not header_bytes:
            return ()
        try:
            return header_values(header_bytes, self._wanted)
        except FormatError as problem:
            self._tell(problem)
            return ()

    def _tell(self, problem: FormatError) -> None:
        if not self._is_told:
            self._is_told = True
            remedy = "`upgrade-tools verify` lists such entries"
            _LOG.warning(
                "store %s: the index leaves out an entry with malformed headers (%s). %s", self._store, problem, remedy
            )


def _content(value: bytes) -> bytes:
    return encode_varint(len(value)) + _held(value)


def _held(value: bytes) -> bytes:
    return value if len(value) <= _MOST_VALUE_BYTES else blake2b(value, digest_size=16).digest()


@runtime_checkable
class HeaderIndex(Protocol):
    """Finds entries by the headers that it indexes."""

    header_keys: HeaderKeys

    def keys_with_header(self, name: str, value: bytes, segment: bytes = b"") -> Iterator[bytes]:
        """Yield the keys of a segment's entries that may have a header with this value, ascending, as of the call."""


def header_index(store: ByteStore) -> HeaderIndex | None:
    """Return what finds the entries of `store` by their headers; None without an index, or if it misses writes."""
    below: object = store
    while not isinstance(below, HeaderIndex):
        below = None if isinstance(below, WriteSet) and below.is_changed else getattr(below, "inner", None)
        if below is None:
            return None
    return below


def key_finder(
    store: ByteStore, headers: Iterable[tuple[str, bytes | None]]
) -> Callable[[bytes], Iterator[bytes] | None]:
    """Return what yields a segment's keys that may have one of these headers; None for a segment without an index."""
    index = header_index(store)
    for name, value in headers:
        if index is not None and value is not None and name in index.header_keys.names:
            return partial(_keys_in_segment, index, name, value)
    return lambda _: None


def _keys_in_segment(index: HeaderIndex, name: str, value: bytes, segment: bytes) -> Iterator[bytes] | None:
    is_indexed = not index.header_keys.latest_only or segment == _LATEST_PREFIX
    return index.keys_with_header(name, value, segment) if is_indexed else None


def pairs_of(store: ByteStore, keys: Iterator[bytes]) -> Iterator[Pair]:
    """Yield those of the keys that have a value, with it."""
    while at_once := list(islice(keys, _READ_AT_ONCE)):
        for key, stored in zip(at_once, store.get_many(at_once), strict=True):
            if stored is not None:
                yield key, stored


def found_pairs(
    layout: KindLayout,
    store: ByteStore,
    bounds: EntryBounds,
    headers: Iterable[tuple[str, bytes | None]],
    segment_end: SegmentEnd = SegmentEnd.INTERVAL,
) -> Iterator[Iterable[Pair]]:
    """Yield, by segment, the pairs that may hold entries within `bounds` with these headers, in the store's order.

    There may be others among them. Segments that have an index are not read, unless keys are listed.
    """
    find = key_finder(store, headers if bounds.keys is None else ())
    for segment in segment_prefixes(layout, store, bounds, segment_end):
        keys = find(segment)
        yield pairs_in_segment(layout, store, segment, bounds) if keys is None else pairs_of(store, keys)


class IndexedByteStore(ByteStoreLayer):
    """A layer that keeps the index of its entries' headers in step with what is written to it.

    `entries` has the entries in the format of `spec`; those that `inner` still has in an older one have no headers.
    If the copy is not `exact`, a crash may have lost writes to one of the two, and they are applied again: then all
    headers of what is written go into the index, even if the entry seems to have had them before.
    """

    def __init__(
        self, spec: StoreSpec, inner: ByteStore, entries: ByteStore, index: ByteStore, *, exact: bool = True
    ) -> None:
        super().__init__(inner)
        self.header_keys = HeaderKeys(spec)
        self.entries_indexed = 0
        """How many older entries were indexed since the store was opened."""
        self._entries = entries
        self._index = index
        self._exact = exact
        self._next: bytes | None = None
        """The first key that is not indexed; None if all are."""
        self._passed = 0
        self._read_state()

    def _read_state(self) -> None:
        state = self._index.get(_STATE_KEY)
        if state:
            self._passed, self._next = _COUNT.unpack_from(state)[0], state[_COUNT.size :]
        elif state is None:
            self._next = _LATEST_PREFIX if self.header_keys.latest_only else b""
            if next(self._entries.range(self._next, None), None) is None:
                self._index.write([self._state_row([])])

    @property
    def is_indexing(self) -> bool:
        """Whether entries are left that are not in the index."""
        return self._next is not None

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key, and what they change in the index."""
        # A crash between the two costs nothing: there is no write-ahead log, and what was applied is applied again.
        for part in chunks(changes):
            rows = self._index_changes(dict(part))
            self.inner.write(part)
            if rows:
                self._index.write(rows)

    def _index_changes(self, changes: dict[bytes, bytes | None]) -> list[Change]:
        if self.header_keys.latest_only:
            changes = {key: value for key, value in changes.items() if key.startswith(_LATEST_PREFIX)}
        end = self._next
        if end is not None:  # the rest is indexed when its turn comes
            changes = {key: value for key, value in changes.items() if key < end}
        if not changes:
            return []
        befores = self._entries.get_many([*changes])
        difference = self._difference if len(changes) < _FEW else self._difference_in_columns
        gone, there = difference([*changes], befores, [*changes.values()])
        # In two sorted runs, which RocksDB takes in half the time.
        rows: list[Change] = [(row, None) for row in sorted(gone - there)]
        rows += [(row, b"") for row in sorted(there - gone if self._exact else there)]
        return rows

    def _difference(
        self, keys: Sequence[bytes], before: Sequence[bytes | None], after: Sequence[bytes | None]
    ) -> tuple[set[bytes], set[bytes]]:
        """Return the index keys before and after changes; of an exact copy only where headers differ."""
        of, headers = self.header_keys.of, self.header_keys.headers
        gone: set[bytes] = set()
        there: set[bytes] = set()
        for key, old, new in zip(keys, before, after, strict=True):
            old_headers, new_headers = headers(old), headers(new)
            if old_headers != new_headers or not self._exact:
                gone.update(of(key, old_headers))
                there.update(of(key, new_headers))
        return gone, there

    def _difference_in_columns(
        self, keys: Sequence[bytes], before: Sequence[bytes | None], after: Sequence[bytes | None]
    ) -> tuple[set[bytes], set[bytes]]:
        """Do what `_difference` does, for many entries."""
        key_column = pa.array(keys, pa.binary())
        columns = [self.header_keys.header_column(stored) for stored in (before, after)]
        if self._exact:
            changed = pc.not_equal(*columns)
            key_column, columns = key_column.filter(changed), [column.filter(changed) for column in columns]
        gone, there = (set(self.header_keys.of_columns(key_column, column)) for column in columns)
        return gone, there

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`, with its part of the index."""
        if self.header_keys.segment_size:
            self.inner.delete_below(end)
            self._index.delete_below(end)
        else:
            for part in chunks(pair for pair in self.inner.range(None, end) if pair[0] < end):
                self.write([(key, None) for key, _ in part])

    def keys_with_header(self, name: str, value: bytes, segment: bytes = b"") -> Iterator[bytes]:
        """Yield the keys of a segment's entries that may have a header with this value, ascending, as of the call."""
        prefix = self.header_keys.prefix(name, value, segment)
        size = len(prefix)
        hits = (segment + row[size:] for row, _ in pairs_with_prefix(self._index, prefix))
        first = self._next
        if first is None:
            return hits
        has = self.header_keys.has
        pairs = self._entries.range(max(first, segment), prefix_end(segment))
        left = takewhile(lambda pair: pair[0].startswith(segment), pairs)
        return chain(hits, (key for key, stored in left if has(stored, name, value)))

    def approximate_size_bytes(self) -> int:
        """Return about how much room the entries and their index take."""
        return self.inner.approximate_size_bytes() + self._index.approximate_size_bytes()

    def upgrade_progress(self) -> UpgradeProgress:
        """Return how many entries were moved or indexed since the store was opened, and about how many are left."""
        progress = self.inner.upgrade_progress() if isinstance(self.inner, Upgradable) else UpgradeProgress(0, 0)
        left = max(1, self._entries.approximate_num_entries() - self._passed) if self.is_indexing else 0
        return UpgradeProgress(progress.entries_moved + self.entries_indexed, progress.entries_left + left)

    def finish_upgrade(
        self, budget_ms: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> UpgradeProgress:
        """Move entries of an older format, then index the rest, within `budget_ms` but at least a slice of each."""
        deadline = None if budget_ms is None else clock() + budget_ms / 1000
        if isinstance(self.inner, Upgradable):
            self.inner.finish_upgrade(budget_ms)
        while self.is_indexing:
            self.index_slice()
            if deadline is not None and clock() >= deadline:
                break
        return self.upgrade_progress()

    def index_slice(self) -> None:
        """Index the next entries; when none is left, the index is whole."""
        found = next(chunks(self._entries.range(self._next, None), max_rows=_INDEXED_AT_ONCE), [])
        rows = [(row, b"") for key, stored in found for row in self.header_keys.of_entry(key, stored)]
        self.entries_indexed += len(found)
        self._index.write([*sorted(rows), self._state_row(found)])

    def _state_row(self, passed: Sequence[Pair]) -> Change:
        """Return the state row after these entries were indexed; if there were none left, all are."""
        self._passed += len(passed)
        self._next = passed[-1][0] + b"\0" if passed else None
        return _STATE_KEY, b"" if self._next is None else _COUNT.pack(self._passed) + self._next

    def close(self) -> None:
        """Close the store and its index."""
        self.inner.close()
        self._index.close()


def entries_missing(spec: StoreSpec, entries: ByteStore, index: ByteStore) -> Iterator[bytes]:
    """Yield the keys of entries that an index says to have and lacks: no lookup finds them."""
    indexed = IndexedByteStore(spec, entries, entries, index)
    for part in chunks(entries.range(None, None), max_rows=_INDEXED_AT_ONCE):
        indexed_pairs = ((key, stored) for key, stored in part if indexed._next is None or key < indexed._next)
        rows = [(row, key) for key, stored in indexed_pairs for row in indexed.header_keys.of_entry(key, stored)]
        found = index.get_many([row for row, _ in rows])
        yield from dict.fromkeys(key for (_, key), value in zip(rows, found, strict=True) if value is None)


def indexed_in_memory(spec: StoreSpec, store: ByteStore) -> ByteStore:
    """Return a store with the index of `spec`, made anew in memory; without one, as it is."""
    if index_family(spec) is None:
        return store
    indexed = IndexedByteStore(spec, store, store, MemoryByteStore(spec.name))
    while indexed.is_indexing:
        indexed.index_slice()
    return indexed
