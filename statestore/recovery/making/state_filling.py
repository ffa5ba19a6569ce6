"""Fills shards of a new state from entries of any origin: in bounded memory, delta by delta, counted as they come.

A query notes when an entry expires as it is put. Entries from elsewhere have only their headers and would stay for
ever, so that note is made here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.bytestore.kinds.store_spec import StoreSpec, expiry_spec
from statestore.bytestore.protocol import NoRecord
from statestore.errors import FormatError
from statestore.format.keys.due_key import due_key, expiry_key, time_bytes
from statestore.format.values.stored_value import split_stored
from statestore.headers.expiry_header import expiry_in_headers
from statestore.recovery.commit.changelog import BatchChangelog, batch_changelog
from statestore.recovery.commit.delta import DeltaInfo, encode_delta
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import EPOCH_OF_TOOLS, new_delta_name
from statestore.recovery.making.logical_writes import LogicalWrite, Tally
from statestore.recovery.metadata.state_metadata import StateMetadata

DEFAULT_MEMORY_BYTES: Final = 256 << 20
_DELTA_TARGET_BYTES: Final = 32 << 20
_OVERHEAD_BYTES: Final = 200  # what a write takes in memory beside its bytes


@dataclass(frozen=True)
class FilledShard:
    """What was written of one shard: where it starts, and what must be found in it."""

    start: CommitPointer
    tallies: Mapping[str, Tally]
    """Of each store that got something."""

    @property
    def shard(self) -> int:
        """The number of the shard."""
        return self.start.shard

    @property
    def entries(self) -> int:
        """How many entries were put, of versioned stores versions and tombstones."""
        return sum(tally.entries for tally in self.tallies.values())


@dataclass
class _Filling:
    held: dict[str, list[LogicalWrite]] = field(default_factory=dict)
    held_bytes: int = 0
    deltas: list[DurableFile] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    store_times_ms: dict[str, int] = field(default_factory=dict)


class ShardFilling:
    """Takes the entries of some shards of a new state in any order, but the versions of a key oldest first.

    It holds about `memory_bytes` of them at most, and writes the rest to `location`; None only counts the entries. The
    deltas of a shard are applied in the order in which they were written; within one, the entries of versioned stores
    in order of time. `expiry_headers` has the header by which the entries of a store expire: when they do is put beside
    them.
    """

    def __init__(
        self,
        location: DurableLocation | None,
        metadata: StateMetadata,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        expiry_headers: Mapping[str, str] | None = None,
    ) -> None:
        self._location = location
        self._state_id = metadata.state_id
        self._specs = {spec.name: spec for spec in metadata.stores}
        self._layouts = {spec.name: layout_of(spec) for spec in metadata.stores}
        self._memory_bytes = memory_bytes
        self._expiry_headers = expiry_headers or {}
        self._held_bytes = 0
        self._shards: defaultdict[int, _Filling] = defaultdict(_Filling)

    def put(self, shard: int, store: str, writes: list[LogicalWrite]) -> None:
        """Add entries to a store of a shard. Raises FormatError for a malformed key of a window or session."""
        if not writes:
            return
        header = self._expiry_headers.get(store)
        if header is not None:
            spec = self._specs[store]
            self.put(shard, expiry_spec(spec).name, expiries(spec, writes, header))
        filling = self._shards[shard]
        latest_ms = self._layouts[store].latest_put_ms(writes)
        if latest_ms != NO_STREAM_TIME:
            self.advance_stream_time(shard, store, latest_ms)
        size_bytes = filling.tallies.setdefault(store, Tally()).add(writes)
        if self._location is not None:
            self._hold(shard, store, writes, size_bytes)

    def advance_stream_time(self, shard: int, store: str, stream_time_ms: int) -> None:
        """Note the stream time of a segmented store, which may be that of an entry that has gone."""
        times_ms = self._shards[shard].store_times_ms
        times_ms[store] = max(times_ms.get(store, -1), stream_time_ms)

    def flush(self) -> None:
        """Write what is held: later entries go to other deltas."""
        for shard in sorted(self._shards):
            self._flush(shard)

    def shard(self, shard: int) -> FilledShard:
        """Return what was written of a shard; what it still holds is written first."""
        filling = self._shards[shard]
        self._flush(shard)
        start = CommitPointer(
            self._state_id,
            shard,
            version=len(filling.deltas),
            deltas=tuple(filling.deltas),
            stream_time_ms=max(filling.store_times_ms.values(), default=-1),
            store_times_ms=dict(filling.store_times_ms),
        )
        return FilledShard(start, filling.tallies)

    def shards(self) -> list[FilledShard]:
        """Return what was written of each shard that got something, in order."""
        return [self.shard(shard) for shard in sorted(self._shards)]

    def _hold(self, shard: int, store: str, writes: list[LogicalWrite], size_bytes: int) -> None:
        filling = self._shards[shard]
        filling.held.setdefault(store, []).extend(writes)
        added = size_bytes + _OVERHEAD_BYTES * len(writes)
        filling.held_bytes += added
        self._held_bytes += added
        if filling.held_bytes >= _DELTA_TARGET_BYTES:
            self._flush(shard)
        while self._held_bytes > self._memory_bytes:
            self._flush(max(self._shards, key=lambda number: self._shards[number].held_bytes))

    def _flush(self, shard: int) -> None:
        filling = self._shards[shard]
        if not filling.held:
            return
        assert self._location is not None  # without one nothing is held
        info = DeltaInfo(self._state_id, shard, len(filling.deltas) + 1)
        changelogs = {store: _changelog(self._specs[store], writes) for store, writes in filling.held.items()}
        # Without stream times: no entry may expire by them, whatever the order in which entries come.
        data, _ = encode_delta(info, changelogs, {})
        name = new_delta_name(shard, info.version, EPOCH_OF_TOOLS)
        self._location.write(name, data)
        filling.deltas.append(DurableFile(name, data.size, digest(data)))
        self._held_bytes -= filling.held_bytes
        filling.held, filling.held_bytes = {}, 0


def _changelog(spec: StoreSpec, writes: list[LogicalWrite]) -> BatchChangelog:
    context, changelog = NoRecord(), batch_changelog(spec)
    if LAYOUTS[spec.kind].keeps_versions:
        # A version that is older than those before it by more than the retention would be refused.
        writes = sorted(writes, key=attrgetter("timestamp_ms"))
    for key, stored, timestamp_ms in writes:
        changelog.append(key, stored, context, timestamp_ms)
    return changelog


def with_expiry_stores(specs: Iterable[StoreSpec], expiry_headers: Mapping[str, str]) -> tuple[StoreSpec, ...]:
    """Return the specs, with a store for when entries expire beside each that has a header. Raises ValueError."""
    known = {spec.name: spec for spec in specs}
    for name in expiry_headers:
        spec = known.get(name)
        if spec is None:
            raise ValueError(f"there is no store {name!r} whose entries could expire by a header")
        if spec.kind.is_segmented or not spec.format.has_headers:
            raise ValueError(f"nothing of store {name!r} expires by a header: it is {spec.describe()}")
        beside = expiry_spec(spec)
        if beside.name in known:
            raise ValueError(f"when entries of store {name!r} expire is known already, in store {beside.name!r}")
        known[beside.name] = beside
    return tuple(known.values())


def expiries(spec: StoreSpec, writes: Sequence[LogicalWrite], header: str) -> list[LogicalWrite]:
    """Return what is to be put beside some entries, by their header of this name; a malformed one is ignored."""
    notes = []
    for key, stored, _ in writes:
        header_bytes = None if stored is None else split_stored(spec.format, stored).header_bytes
        try:
            expiry_ms = expiry_in_headers(header_bytes or b"", header)
        except FormatError:
            continue
        if expiry_ms is not None:
            notes.append(LogicalWrite(expiry_key(key), time_bytes(expiry_ms), None))
            notes.append(LogicalWrite(due_key(expiry_ms, key), b"", None))
    return notes
