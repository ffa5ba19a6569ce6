"""What a kind of store keeps where: one class for each `StoreKind`, and the table of them. The one owner.

    plain key      the key that was put
    logged key     as a changelog record has it: of a window or session with its times behind the plain key
    physical key   as a store has it: the logged key, of a segmented store behind its segment's id

An entry of a key-value, window or session store is one pair of the store's bytes. A version is not: a key's latest one
has its own row, and each segment has a row of all that ended in it; `entries` and `entry_columns` hide that.

To add a kind: its class here and its row in LAYOUTS, then a row in each other table by kind, which a test finds:
`tests/architecture/test_kinds_of_stores.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import ClassVar, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.kinds.segments import (
    LATEST_SEGMENT,
    NO_STREAM_TIME,
    SEGMENT_ID_SIZE,
    is_latest_key,
    segment_prefix,
    with_segments,
)
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.versioned_rows import row_intervals
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.format.binary_columns import END_OF_ROW, Integers, columns_of_rows
from statestore.format.keys.time_key_columns import session_times, window_starts
from statestore.format.keys.window_key import (
    MAX_TIME_MS,
    SESSION_SUFFIX_SIZE,
    WINDOW_SUFFIX_SIZE,
    encode_session_key,
    encode_window_key,
    split_session_key,
    split_window_key,
)
from statestore.format.values.versioned_row import convert_latest_row, convert_segment_row

Put: TypeAlias = tuple[bytes, "bytes | None", "int | None"]
"""A logged key, the stored value (None is the tombstone of a version), and from when a version is valid, in ms."""
EntryParts: TypeAlias = tuple[bytes, "int | None", "int | None", bytes]
"""Plain key, start and end in ms, and stored value of an entry."""
Joined: TypeAlias = tuple[bytes, "int | None"]  # a logged key, and from when a version is valid
PlaceColumns: TypeAlias = tuple[pa.BinaryArray, pa.Int64Array, pa.Int64Array]  # plain keys, starts and ends
ConvertValue: TypeAlias = Callable[["bytes | None"], "bytes | None"]
ConvertPair: TypeAlias = Callable[[bytes, bytes], bytes]
Times: TypeAlias = tuple[int, int]  # between which times something is, both inclusive

_LOGGED_KEY: Final = itemgetter(0)
_VALID_FROM_MS: Final = itemgetter(2)
"""For puts, which mostly are NamedTuples: indexing or unpacking those takes two to five times as long."""
_TIME_SIZE: Final = 8
_NEGATIVE: Final = b"\x80"  # the bytes of negative times are at or above it
_ENTRY_TYPES: Final = {"key": pa.binary(), "start_ms": pa.int64(), "end_ms": pa.int64(), "stored": pa.binary()}


class Place(NamedTuple):
    """What a put says beside its value. Times are milliseconds since the epoch; None is what the kind does not have."""

    key: bytes  # the plain key
    start_ms: int | None  # of the window or session, or from when the version is valid
    end_ms: int | None
    """Of the window, exclusive, or of the session, inclusive. A version's is not known from its put."""
    sequence: int | None  # tells the duplicates of a window apart


class UnsoundEnds(NamedTuple):
    """Which rows have an end that no entry of the kind can have, and the problem, for a message "it PROBLEM"."""

    rows: pa.BooleanArray
    problem: str


class KindLayout(ABC):
    """How a store of one kind lays out keys and entries, by default without times. Made by `layout_of`."""

    suffix_size: ClassVar[int] = 0  # how many bytes of times follow the plain key in a logged key
    has_timed_keys: ClassVar[bool] = False  # whether logged keys have times
    keeps_versions: ClassVar[bool] = False
    """Whether the result of a put depends on earlier ones, and tombstones stay: entries are in rows of versions."""
    unended_segment: ClassVar[int | None] = None
    """The id of the segment of entries that have no end yet; None if every entry has an end."""
    put_time_column: ClassVar[str | None]
    """Which time of a put is that of `put_time_ms`: start_ms or end_ms; None for stores without time."""
    segment_time_column: ClassVar[str | None]
    """Which time of an entry decides its segment: start_ms or end_ms; None for stores without segments."""
    row_columns: ClassVar[tuple[str, ...]]  # the columns of times that rows must have to make such a store

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec

    # Keys

    @abstractmethod
    def split(self, key: bytes, valid_from_ms: int | None = None) -> Place:
        """Return what a put with this logged key says. Raises FormatError if it is not the key of one."""

    @abstractmethod
    def join(self, key: bytes, start_ms: int | None, end_ms: int | None, sequence: int | None = None) -> Joined:
        """Return logged key and, of a version, from when it is valid: what `split` takes apart.

        What the kind does not have is ignored; a missing `sequence` is 0. Raises ValueError for times that are missing
        or that no entry can have.
        """

    def plain_keys(self, keys: list[bytes]) -> list[bytes]:
        """Return the plain keys of logged ones, without decoding times. Raises FormatError if a key is too short."""
        return keys

    @abstractmethod
    def physical_key(self, key: bytes) -> bytes:
        """Return where the entry of a logged key is. Raises FormatError; TypeError for versions, which are in rows."""

    @abstractmethod
    def physical_keys(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return `physical_key` of each key of a column."""

    # Times

    @abstractmethod
    def put_time_ms(self, key: bytes, valid_from_ms: int | None = None) -> int:
        """Return the time to which a put advances the stream time; -1 for stores without time. Raises FormatError."""

    @abstractmethod
    def latest_put_ms(self, puts: Sequence[Put]) -> int:
        """Return the latest `put_time_ms` of one or more puts. Raises FormatError."""

    def segment_times(self, starts_ms: Times, ends_ms: Times) -> Times:
        """Return the times whose segments can hold entries with these starts and ends."""
        return ends_ms

    # Entries

    @abstractmethod
    def entries(self, pairs: Iterable[Pair]) -> Iterator[EntryParts]:
        """Yield the entries that a store's pairs hold, in order, without tombstones of versions. Raises FormatError."""

    def entry_columns(self, pairs: Sequence[Pair]) -> dict[str, pa.Array]:
        """Return `entries` as the columns key, start_ms, end_ms and stored."""
        columns = columns_of_rows(self.entries(pairs), len(_ENTRY_TYPES))
        return {
            name: pa.array(column, type_) for (name, type_), column in zip(_ENTRY_TYPES.items(), columns, strict=True)
        }

    @abstractmethod
    def record_columns(self, keys: pa.BinaryArray, timestamps_ms: pa.Int64Array) -> PlaceColumns:
        """Return the places of changelog records with these logged keys and timestamps. Raises FormatError."""

    def pairs_of_key(self, store: ByteStore, segment: bytes, key: bytes) -> Iterator[Pair]:
        """Yield the pairs of one plain key whose physical keys begin with `segment`."""
        physical_key = segment + key
        value = store.get(physical_key)
        if value is not None:
            yield physical_key, value

    @abstractmethod
    def unsound_ends(self, starts_ms: pa.Int64Array, ends_ms: pa.Int64Array) -> UnsoundEnds:
        """Return the rows whose ends no entry can have; their starts, if any, are 0 or later."""

    @classmethod
    def conversion(cls, convert_value: ConvertValue) -> ConvertPair:
        """Return what converts the bytes under a physical key, whose values `convert_value` converts."""

        def convert(key: bytes, stored: bytes) -> bytes:
            converted = convert_value(stored)
            assert converted is not None  # only None becomes None
            return converted

        return convert


class _KeyValueLayout(KindLayout):
    """physical key = logged key = plain key."""

    put_time_column = None
    segment_time_column = None
    row_columns = ()

    def split(self, key: bytes, valid_from_ms: int | None = None) -> Place:
        return Place(key, None, None, None)

    def join(self, key: bytes, start_ms: int | None, end_ms: int | None, sequence: int | None = None) -> Joined:
        return key, None

    def physical_key(self, key: bytes) -> bytes:
        return key

    def physical_keys(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return keys

    def put_time_ms(self, key: bytes, valid_from_ms: int | None = None) -> int:
        return NO_STREAM_TIME

    def latest_put_ms(self, puts: Sequence[Put]) -> int:
        return NO_STREAM_TIME

    def entries(self, pairs: Iterable[Pair]) -> Iterator[EntryParts]:
        for key, stored in pairs:
            yield key, None, None, stored

    def entry_columns(self, pairs: Sequence[Pair]) -> dict[str, pa.Array]:
        keys, stored = columns_of_rows(pairs, 2)
        none = pa.nulls(len(pairs), pa.int64())
        columns = (pa.array(keys, pa.binary()), none, none, pa.array(stored, pa.binary()))
        return dict(zip(_ENTRY_TYPES, columns, strict=True))

    def record_columns(self, keys: pa.BinaryArray, timestamps_ms: pa.Int64Array) -> PlaceColumns:
        none = pa.nulls(len(keys), pa.int64())
        return keys, none, none

    def unsound_ends(self, starts_ms: pa.Int64Array, ends_ms: pa.Int64Array) -> UnsoundEnds:
        return UnsoundEnds(pc.is_valid(ends_ms), "has an end, where there are no times")


class _TimedKeyLayout(KindLayout):
    """physical key = segment id, plain key, times; the first time says which segment, and when the entry expires."""

    has_timed_keys = True

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec)
        _, self._interval_ms = spec.retention

    @abstractmethod
    def _put_times(self, keys: pa.BinaryArray) -> Integers:
        """Return `put_time_ms` of each logged key of a column."""

    @abstractmethod
    def _times(self, keys: pa.BinaryArray) -> tuple[pa.Int64Array, pa.Int64Array]:
        """Return the start and the end in each logged key of a column."""

    def plain_keys(self, keys: list[bytes]) -> list[bytes]:
        size = self.suffix_size
        if min(map(len, keys), default=size) < size:
            for key in keys:
                self.split(key)
        return [key[:-size] for key in keys]

    def physical_key(self, key: bytes) -> bytes:
        return segment_prefix(self.put_time_ms(key) // self._interval_ms) + key

    def physical_keys(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return with_segments(self._put_times(keys) // self._interval_ms, keys)

    def latest_put_ms(self, puts: Sequence[Put]) -> int:
        # Times are big-endian, so bytes sort like times. Splitting every key would cost more than all the rest.
        place = slice(-self.suffix_size, _TIME_SIZE - self.suffix_size)
        times = [key[place] for key in map(_LOGGED_KEY, puts)]
        latest = max(times)
        if min(map(len, times)) < _TIME_SIZE or latest >= _NEGATIVE:
            for put in puts:
                self.split(put[0])
        return int.from_bytes(latest, "big")

    def entry_columns(self, pairs: Sequence[Pair]) -> dict[str, pa.Array]:
        keys, stored = (pa.array(column, pa.binary()) for column in columns_of_rows(pairs, 2))
        columns = (*self._places(pc.binary_slice(keys, SEGMENT_ID_SIZE, END_OF_ROW)), stored)
        return dict(zip(_ENTRY_TYPES, columns, strict=True))

    def record_columns(self, keys: pa.BinaryArray, timestamps_ms: pa.Int64Array) -> PlaceColumns:
        return self._places(keys)

    def _places(self, keys: pa.BinaryArray) -> PlaceColumns:
        return pc.binary_slice(keys, 0, -self.suffix_size), *self._times(keys)

    def pairs_of_key(self, store: ByteStore, segment: bytes, key: bytes) -> Iterator[Pair]:
        # Longer keys may be between the first and the last time of this one.
        start = segment + key
        size = len(start) + self.suffix_size
        for pair in store.range(start, start + b"\xff" * self.suffix_size):
            if len(pair[0]) == size:
                yield pair


class _WindowLayout(_TimedKeyLayout):
    """logged key = plain key, start, sequence number; the end is the start plus the store's window size."""

    suffix_size = WINDOW_SUFFIX_SIZE
    put_time_column = "start_ms"
    segment_time_column = "start_ms"
    row_columns = ("start_ms",)

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec)
        assert spec.window_size_ms is not None  # checked when the spec was made
        self._size_ms = spec.window_size_ms

    def split(self, key: bytes, valid_from_ms: int | None = None) -> Place:
        plain, start_ms, sequence = split_window_key(key)
        return Place(plain, start_ms, min(start_ms + self._size_ms, MAX_TIME_MS), sequence)

    def join(self, key: bytes, start_ms: int | None, end_ms: int | None, sequence: int | None = None) -> Joined:
        if start_ms is None:
            raise ValueError("it has no start_ms")
        return encode_window_key(key, start_ms, sequence or 0), None

    def put_time_ms(self, key: bytes, valid_from_ms: int | None = None) -> int:
        return split_window_key(key)[1]

    def segment_times(self, starts_ms: Times, ends_ms: Times) -> Times:
        # A window that would end after the last possible time ends there.
        return max(starts_ms[0], ends_ms[0] - self._size_ms), min(starts_ms[1], ends_ms[1])

    def entries(self, pairs: Iterable[Pair]) -> Iterator[EntryParts]:
        for key, stored in pairs:
            plain, start_ms, _ = split_window_key(key[SEGMENT_ID_SIZE:])
            yield plain, start_ms, min(start_ms + self._size_ms, MAX_TIME_MS), stored

    def _put_times(self, keys: pa.BinaryArray) -> Integers:
        return window_starts(keys)

    def _times(self, keys: pa.BinaryArray) -> tuple[pa.Int64Array, pa.Int64Array]:
        starts_ms = pa.array(window_starts(keys), pa.int64())
        return starts_ms, self._ends(starts_ms)

    def _ends(self, starts_ms: pa.Int64Array) -> pa.Int64Array:
        return pc.add(pc.min_element_wise(starts_ms, pa.scalar(MAX_TIME_MS - self._size_ms)), self._size_ms)

    def unsound_ends(self, starts_ms: pa.Int64Array, ends_ms: pa.Int64Array) -> UnsoundEnds:
        problem = f"does not end {self._size_ms} ms after its start, as windows here do"
        return UnsoundEnds(pc.not_equal(ends_ms, self._ends(starts_ms)), problem)


class _SessionLayout(_TimedKeyLayout):
    """logged key = plain key, end, start."""

    suffix_size = SESSION_SUFFIX_SIZE
    put_time_column = "end_ms"
    segment_time_column = "end_ms"
    row_columns = ("start_ms", "end_ms")

    def split(self, key: bytes, valid_from_ms: int | None = None) -> Place:
        return Place(*split_session_key(key), None)

    def join(self, key: bytes, start_ms: int | None, end_ms: int | None, sequence: int | None = None) -> Joined:
        if start_ms is None or end_ms is None:
            raise ValueError(f"it has no {'start_ms' if start_ms is None else 'end_ms'}")
        return encode_session_key(key, start_ms, end_ms), None

    def put_time_ms(self, key: bytes, valid_from_ms: int | None = None) -> int:
        return split_session_key(key)[2]

    def entries(self, pairs: Iterable[Pair]) -> Iterator[EntryParts]:
        for key, stored in pairs:
            yield *split_session_key(key[SEGMENT_ID_SIZE:]), stored

    def _put_times(self, keys: pa.BinaryArray) -> Integers:
        return session_times(keys)[1]

    def _times(self, keys: pa.BinaryArray) -> tuple[pa.Int64Array, pa.Int64Array]:
        starts_ms, ends_ms = session_times(keys)
        return pa.array(starts_ms, pa.int64()), pa.array(ends_ms, pa.int64())

    def unsound_ends(self, starts_ms: pa.Int64Array, ends_ms: pa.Int64Array) -> UnsoundEnds:
        early = pc.fill_null(pc.less(ends_ms, starts_ms), True)
        return UnsoundEnds(early, "has no end, or ends before it starts")


class _VersionedLayout(KindLayout):
    """logged key = plain key; a row of bytes holds the latest version of a key, or all that ended in a segment."""

    keeps_versions = True
    unended_segment = LATEST_SEGMENT
    put_time_column = "start_ms"
    segment_time_column = "end_ms"
    row_columns = ("start_ms", "end_ms")

    def split(self, key: bytes, valid_from_ms: int | None = None) -> Place:
        return Place(key, valid_from_ms, None, None)

    def join(self, key: bytes, start_ms: int | None, end_ms: int | None, sequence: int | None = None) -> Joined:
        if start_ms is None:
            raise ValueError("it has no start_ms")
        if start_ms < 0:
            raise ValueError(f"it is valid from {start_ms}")
        return key, start_ms

    def physical_key(self, key: bytes) -> bytes:
        raise TypeError("versions are in rows: a put has no physical key of its own")

    def physical_keys(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array([self.physical_key(key) for key in keys.to_pylist()], pa.binary())

    def put_time_ms(self, key: bytes, valid_from_ms: int | None = None) -> int:
        assert valid_from_ms is not None  # every put of a version has it
        return valid_from_ms

    def latest_put_ms(self, puts: Sequence[Put]) -> int:
        latest_ms: int = max(map(_VALID_FROM_MS, puts))
        return latest_ms

    def entries(self, pairs: Iterable[Pair]) -> Iterator[EntryParts]:
        for key, row in pairs:
            plain = key[SEGMENT_ID_SIZE:]
            for valid_from_ms, valid_to_ms, stored in row_intervals(key, row):
                if stored is not None:
                    yield plain, valid_from_ms, valid_to_ms, stored

    def record_columns(self, keys: pa.BinaryArray, timestamps_ms: pa.Int64Array) -> PlaceColumns:
        return keys, timestamps_ms, pa.nulls(len(keys), pa.int64())

    def unsound_ends(self, starts_ms: pa.Int64Array, ends_ms: pa.Int64Array) -> UnsoundEnds:
        return UnsoundEnds(pc.less_equal(ends_ms, starts_ms), "ends when it begins, or before")

    @classmethod
    def conversion(cls, convert_value: ConvertValue) -> ConvertPair:
        return lambda key, row: (convert_latest_row if is_latest_key(key) else convert_segment_row)(row, convert_value)


LAYOUTS: Final[dict[StoreKind, type[KindLayout]]] = {
    StoreKind.KEY_VALUE: _KeyValueLayout,
    StoreKind.WINDOW: _WindowLayout,
    StoreKind.SESSION: _SessionLayout,
    StoreKind.VERSIONED: _VersionedLayout,
}
"""The layout of each kind, for what depends on the kind alone."""


def layout_of(spec: StoreSpec) -> KindLayout:
    """Return how a store is laid out. Raises KeyError for a kind that is not in the table."""
    return LAYOUTS[spec.kind](spec)
