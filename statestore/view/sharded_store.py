"""A store over all shards: which shard has a key, what a shard holds, and all shards as one map of bytes."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple, cast

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, SEGMENT_ID_SIZE, Segments
from statestore.bytestore.kinds.store_spec import StoreSpec, expiry_spec
from statestore.bytestore.protocol import ByteReader, ByteStore, Pair, Range
from statestore.errors import FormatError, StoreError
from statestore.errors.state import LocalStateCorruptedError, StoreClosedError
from statestore.format.keys.partitioner import partition_of
from statestore.recovery.making.placement import KeyOf
from statestore.recovery.metadata.state_metadata import ShardBy, StateMetadata
from statestore.stores.builder import live_by
from statestore.stores.layers.expiring import Expiry
from statestore.view.open_shards import OpenShard, OpenShards

_TIME_SIZE = 8


class Holding(NamedTuple):
    """Which shards hold a store's entries, and how to find the shard of one."""

    spec: StoreSpec
    shards: int
    """How many the state has."""
    is_global: bool
    """Whether each of them holds all entries."""
    key_of: KeyOf | None
    """Makes the record's key, which chooses the shard, of a store's key; None if keys do not choose shards."""
    is_known: bool
    """Whether `key_of` certainly gives the record's key."""

    @classmethod
    def of(cls, metadata: StateMetadata, spec: StoreSpec, key_of: KeyOf | None, *, trust_keys: bool) -> Holding:
        """Say where a store is. The record's key is not known without `key_of`; with `trust_keys` it is the store's."""
        is_global = spec.name in metadata.global_stores
        if is_global or metadata.shards == 1:
            return cls(spec, metadata.shards, is_global, _same, True)
        by_key = (key_of or _same) if metadata.shard_by == ShardBy.KEY.value else None
        return cls(spec, metadata.shards, False, by_key, by_key is not None and (key_of is not None or trust_keys))

    def order(self, key: bytes, numbers: list[int]) -> tuple[list[int], list[int]]:
        """Return of these shards the one that may have a key, and those to ask if it does not.

        The key is without the times of a window or session.
        """
        if self.is_global or self.shards == 1:
            return numbers, []
        if self.key_of is None:
            return [], numbers
        try:
            number = partition_of(self.key_of(key), self.shards)
        except (FormatError, ValueError):
            return [], numbers  # it is not a key of such a store
        first = [number] if number in numbers else []
        return first, [] if self.is_known else [each for each in numbers if each != number]


def _same(key: bytes) -> bytes:
    return key


def readable(store: ByteReader) -> ByteStore:
    """Return a store for callers that take any store and only read it."""
    return cast(ByteStore, store)


class ShardedStore:
    """A store of a view: of each shard that holds some of it, or of all of them as one."""

    def __init__(self, shards: OpenShards, holding: Holding, clock: str) -> None:
        self.shards = shards
        self.holding = holding
        self.numbers: list[int] = []
        """The shards that hold entries of the store."""
        self.problem: str | None = None
        """Why it can't be read any more; None if it can."""
        self._clock = clock
        self._expiry = expiry_spec(holding.spec).name
        self.go_on()

    @property
    def spec(self) -> StoreSpec:
        """What is recorded of the store."""
        return self.holding.spec

    @property
    def is_open(self) -> bool:
        """Whether it can be read."""
        return self.shards.is_open and self.problem is None

    def go_on(self) -> None:
        """Take the shards as they are now."""
        written = [pointer.shard for pointer in self.shards.pointers if pointer.version]
        self.numbers = written[:1] if self.holding.is_global else written

    def shard(self, number: int) -> OpenShard:
        """Return a shard. Raises StoreError if the store can't be read, and as OpenShards.shard does."""
        if self.problem is not None:
            raise StoreError(self.spec.name, self.problem)
        if not self.shards.is_open:
            raise StoreClosedError(self.spec.name)
        return self.shards.shard(number)

    def bytes_in(self, number: int) -> ByteStore:
        """Return the store's bytes in a shard, without what has expired. Raises as `shard` does."""
        shard = self.shard(number)
        store = readable(_BytesOfShard(shard, self.spec.name))
        if self._expiry not in shard.stores:
            return store
        times = readable(_BytesOfShard(shard, self._expiry))
        return live_by(store, self._clock, Expiry(times, _Clocks(shard)))

    def stream_times_ms(self) -> list[int]:
        """Return the store's stream time in each shard that holds some of it; -1 is not known."""
        name = self.spec.name
        return [self.shards.pointers[number].store_times_ms.get(name, NO_STREAM_TIME) for number in self.numbers]


@dataclass(frozen=True)
class _Clocks:
    """The wall clock, and the stream time of a shard."""

    shard: OpenShard

    @property
    def system_time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @property
    def stream_time_ms(self) -> int:
        return self.shard.pointer.stream_time_ms


class _BytesOfShard:
    """A store's bytes in a shard, to be read only; the shard's copy is discarded if damage is found in it."""

    def __init__(self, shard: OpenShard, name: str) -> None:
        self.name = name
        self._shard = shard
        self._store = shard.stores[name].bytes

    @property
    def inner(self) -> ByteStore:
        """The bytes in the shard, for what looks for an index in them."""
        return self._store

    @property
    def is_open(self) -> bool:
        """Whether the shard has not been closed yet."""
        return self._store.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        try:
            return self._store.get(key)
        except LocalStateCorruptedError:
            self._shard.note_damage()
            raise

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        with self._noticing():
            return self._store.get_many(keys)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        with self._noticing():
            return self._scan(self._store.range(start, end, reverse=reverse))

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        with self._noticing():
            return self._store.range_many(ranges)

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value."""
        return self._store.approximate_num_entries()

    def _scan(self, pairs: Iterator[Pair]) -> Generator[Pair, None, None]:
        with self._noticing():
            yield from pairs
        if not self.is_open:  # a scan of a closed store just ends
            raise StoreClosedError(self.name)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except LocalStateCorruptedError:
            self._shard.note_damage()
            raise


class _VisibleBytes(_BytesOfShard):
    """A store of windows or sessions in a shard, without what is too old there."""

    def __init__(self, shard: OpenShard, spec: StoreSpec) -> None:
        super().__init__(shard, spec.name)
        size = layout_of(spec).suffix_size
        # The first time behind a key says what is visible. Times are big-endian, so bytes sort like times.
        self._time = slice(-size, _TIME_SIZE - size or None)
        first_ms = Segments(self._store, *spec.retention, shard.stream_time_ms(spec.name)).first_visible_ms
        self._first = first_ms.to_bytes(_TIME_SIZE, "big")

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none, or is too old."""
        (found,) = self.get_many([key])
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none, or are too old."""
        of_time, first = self._time, self._first
        found = super().get_many(keys)
        return [value if key[of_time] >= first else None for key, value in zip(keys, found, strict=True)]

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range that are not too old, in key order."""
        of_time, first = self._time, self._first
        return [[pair for pair in pairs if pair[0][of_time] >= first] for pairs in super().range_many(ranges)]

    def _scan(self, pairs: Iterator[Pair]) -> Generator[Pair, None, None]:
        of_time, first = self._time, self._first
        return (pair for pair in super()._scan(pairs) if pair[0][of_time] >= first)


class MergedStore:
    """All shards of a store as one map of bytes, in the order of keys, to be read only."""

    def __init__(self, store: ShardedStore) -> None:
        self.name = store.spec.name
        self._store = store
        spec = store.spec
        self._prefix_size = SEGMENT_ID_SIZE if spec.kind.is_segmented else 0
        self._suffix_size = layout_of(spec).suffix_size

    @property
    def is_open(self) -> bool:
        """Whether the view has not been closed yet."""
        return self._store.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        (found,) = self.get_many([key])
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        found: list[bytes | None] = [None] * len(keys)
        orders = list(map(self._order, keys))
        for asked in zip(*orders, strict=True):  # first the shards that may have them, then all others
            places: dict[int, list[int]] = {}
            for place, numbers in enumerate(asked):
                if found[place] is None:
                    for number in numbers:
                        places.setdefault(number, []).append(place)
            for number, wanted in places.items():
                values = self._bytes_in(number).get_many([keys[place] for place in wanted])
                for place, value in zip(wanted, values, strict=True):
                    if value is not None:
                        found[place] = value
        return found

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        # All are opened, and their scans begun, at the call: so none of them is closed before the end.
        scans = [store.range(start, end, reverse=reverse) for store in self._all()]
        return merge(*scans, reverse=reverse)

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        found = [store.range_many(ranges) for store in self._all()]
        return [list(merge(*pairs)) for pairs in zip(*found, strict=True)] if found else [[] for _ in ranges]

    def approximate_num_entries(self) -> int:
        """Return about how many keys have a value."""
        return sum(store.approximate_num_entries() for store in self._all())

    def _order(self, key: bytes) -> tuple[list[int], list[int]]:
        """Return the shards that may have an entry, and those to ask next."""
        plain = key[self._prefix_size : len(key) - self._suffix_size]
        return self._store.holding.order(plain, self._store.numbers)

    def _all(self) -> Iterator[ByteStore]:
        return map(self._bytes_in, self._store.numbers)

    def _bytes_in(self, number: int) -> ByteStore:
        shard = self._store.shard(number)
        found: ByteStore | None = shard.built.get(self)
        if found is None:
            spec = self._store.spec
            is_timed = layout_of(spec).has_timed_keys
            found = readable(_VisibleBytes(shard, spec)) if is_timed else self._store.bytes_in(number)
            shard.built[self] = found
        return found
