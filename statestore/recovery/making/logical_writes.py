"""What a store holds, as the writes that make it: for a delta, or for another shard's store.

The writes of two stores are equal exactly if the stores hold the same. Bytes that can differ and mean the same are
normalised: the size in front of headers gets its shortest form, as in deltas, and the versions of a key become one
write for each, in order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, SEGMENT_ID_SIZE, Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.kinds.versioned_rows import Interval, intervals_by_key
from statestore.bytestore.protocol import ByteStore
from statestore.errors.new_state import StateCheckError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored, split_stored
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.recovery.shard_batch import ShardBatch, ShardedState

_LONGER_VARINT: Final = b"\x80"
"""A varint with a smaller first byte has one byte, and no shorter form."""
_SHORTEST_OF_TWO: Final = frozenset(bytes((low, high)) for low in range(0x80, 0x100) for high in range(1, 0x80))
"""The varints of two bytes that have no shorter form: sizes from 64 to 8191."""


class LogicalWrite(NamedTuple):
    """A put: `key` as a changelog record has it. `stored` of None is the tombstone of a version."""

    key: bytes
    stored: bytes | None
    timestamp_ms: int | None
    """From when a version is valid, in ms; None for other kinds."""


logical_write: Final[Callable[[tuple[bytes, bytes | None, int | None]], LogicalWrite]] = partial(
    tuple.__new__, LogicalWrite
)
"""Makes one of a tuple of its fields, in a third of the time of a call of LogicalWrite."""


def logical_writes(spec: StoreSpec, store: ByteStore, stream_time_ms: int) -> Iterator[list[LogicalWrite]]:
    """Yield the writes that make what `store` holds, some MB at a time at most; those of a key in their order.

    Holds one entry of each of a versioned store's segments, and all versions of one key. Raises FormatError.
    """
    if LAYOUTS[spec.kind].keeps_versions:
        writes = _versions(spec, store, stream_time_ms)
    else:
        skipped = SEGMENT_ID_SIZE if spec.kind.is_segmented else 0
        writes = (logical_write((key[skipped:], stored, None)) for key, stored in store.range(None, None))
    for chunk in chunks(writes):
        yield _with_shortest_sizes(spec.format, chunk)


def _with_shortest_sizes(store_format: StoreFormat, writes: list[LogicalWrite]) -> list[LogicalWrite]:
    if not store_format.has_headers:
        return writes
    return [
        write
        if write.stored is None or write.stored[:1] < _LONGER_VARINT or write.stored[:2] in _SHORTEST_OF_TWO
        else write._replace(stored=_with_shortest_size(store_format, write.stored))
        for write in writes
    ]


def _with_shortest_size(store_format: StoreFormat, stored: bytes) -> bytes | None:
    value, timestamp_ms, header_bytes = split_stored(store_format, stored)
    return join_stored(store_format, value, timestamp_ms or 0, header_bytes or b"")


def _versions(spec: StoreSpec, store: ByteStore, stream_time_ms: int) -> Iterator[LogicalWrite]:
    segments = Segments(store, *spec.retention, stream_time_ms)
    for key, intervals in intervals_by_key(spec, store):
        for _, of_one_time in groupby(_puts(intervals, segments), key=itemgetter(1)):
            *_, last = of_one_time  # it replaces the others, of which a row of a tombstone may be left
            yield LogicalWrite(key, *last)


def _puts(intervals: list[Interval], segments: Segments) -> Iterator[tuple[bytes | None, int]]:
    """Yield value and time of the puts that make a key's versions, oldest first.

    A tombstone follows an interval that ended before the next one began. A tombstone before all versions whose segment
    has expired is left out: whatever was put before it came too late.
    """
    has_value = False
    last: tuple[bytes | None, int] | None = None
    for number, (from_ms, to_ms, stored) in enumerate(intervals):
        has_value = has_value or stored is not None
        if has_value or segments.is_live(segments.id_of(from_ms)):
            put = (stored, from_ms)
            if put != last:
                yield put
            last = put
        next_ms = intervals[number + 1].valid_from_ms if number + 1 < len(intervals) else None
        if to_ms is not None and (next_ms is None or to_ms < next_ms):
            put = (None, to_ms)
            if put != last and (has_value or segments.is_live(segments.id_of(to_ms))):
                yield put
            last = put


_CHECKSUMS: Final = 1 << 64


@dataclass
class Tally:
    """Entries, bytes, and a checksum in any order: of Python's keyed hashes, so for one process alone."""

    entries: int = 0
    size_bytes: int = field(default=0, compare=False)
    """Of keys and values."""
    _checksum: int = 0

    def add(self, writes: Sequence[LogicalWrite]) -> int:
        """Count entries in; return how many bytes they are."""
        size_bytes = sum([len(key) + (0 if stored is None else len(stored)) for key, stored, _ in writes])
        self.entries += len(writes)
        self.size_bytes += size_bytes
        # A sum does not depend on the order, and counts each write as often as it is there.
        self._checksum = (self._checksum + sum(map(hash, writes))) % _CHECKSUMS
        return size_bytes

    def require(self, found: Tally, store: str, shard: int) -> None:
        """Raise StateCheckError unless the same was found in a shard's store."""
        if found != self:
            raise StateCheckError(store, shard=shard, expected=str(self), found=str(found))

    def __str__(self) -> str:
        return f"{self.entries} entries with the checksum {self._checksum:016x}"


@contextmanager
def open_shard(
    location: DurableLocation, metadata: StateMetadata, pointer: CommitPointer, work_dir: str | None
) -> Iterator[ShardBatch]:
    """Hand out the shard of `pointer` in a copy of its own below `work_dir`; None is the temporary directory."""
    with TemporaryDirectory(prefix="statestore-shard-", dir=work_dir) as directory:
        # On disk, also in-memory stores: they need not fit here.
        state = ShardedState(metadata.state_id, location, metadata.stores, LocalDirectory(directory))
        with state.open(pointer) as batch:
            yield batch


def store_writes(batch: ShardBatch, spec: StoreSpec) -> Iterator[list[LogicalWrite]]:
    """Yield the writes that make what a store of a shard holds, as `logical_writes` does."""
    stream_time_ms = batch.pointer.store_times_ms.get(spec.name, NO_STREAM_TIME)
    return logical_writes(spec, batch.stores[spec.name].bytes, stream_time_ms)
