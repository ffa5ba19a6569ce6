"""Fills the shards of a new state from entries of any origin, and makes it a state once they read back.

claim_target(...)             by one process, first
StateFiller(...).put(...)     by any number of processes, each shard by one of them
check_filled(...)             for each shard, wherever
complete_filled(...)          by one process, last
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.errors import StateCheckError
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.new_state import TargetShards, complete_target
from statestore.recovery.making.tally import Tally
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.recovery.shard_batch import ShardedState

DEFAULT_MEMORY_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class FilledShard:
    """What was written of one shard: all that its initial pointer takes, and what must be found in it."""

    shard: int
    deltas: tuple[DurableFile, ...]
    tallies: Mapping[str, Tally]
    """Of each store that got something."""
    store_times_ms: Mapping[str, int]
    """Of each segmented store that got something, its stream time: the latest time put into it, or that it reached."""

    @property
    def entries(self) -> int:
        """How many entries were put, of versioned stores versions and tombstones."""
        return sum(tally.entries for tally in self.tallies.values())

    def pointer(self, state_id: str) -> CommitPointer:
        """Return the commit pointer from which the shard starts."""
        return CommitPointer(
            state_id,
            self.shard,
            version=len(self.deltas),
            deltas=self.deltas,
            stream_time_ms=max(self.store_times_ms.values(), default=-1),
            store_times_ms=dict(self.store_times_ms),
        )


class StateFiller:
    """Takes the entries of some shards of a new state, in any order but for those of a version's key, oldest first.

    `memory_bytes` is about how much of them is held at most; the rest is in the location by then.
    """

    def __init__(
        self, location: DurableLocation, metadata: StateMetadata, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> None:
        self._written = TargetShards(location, metadata, memory_bytes)
        self._layouts = {spec.name: layout_of(spec) for spec in metadata.stores}
        self._tallies: dict[int, dict[str, Tally]] = {}
        self._store_times_ms: dict[int, dict[str, int]] = {}

    def put(self, shard: int, store: str, writes: list[LogicalWrite]) -> None:
        """Add entries to a store of a shard. Raises FormatError for the key of a window or session that is none."""
        if not writes:
            return
        tally = self._tallies.setdefault(shard, {}).setdefault(store, Tally())
        latest_ms = self._layouts[store].latest_put_ms(writes)
        if latest_ms != NO_STREAM_TIME:
            self.reached(shard, store, latest_ms)
        self._written.put(shard, store, writes, tally.add(writes))

    def reached(self, shard: int, store: str, stream_time_ms: int) -> None:
        """Note the stream time of a segmented store, which may have come from what is not in it any more."""
        times_ms = self._store_times_ms.setdefault(shard, {})
        times_ms[store] = max(times_ms.get(store, -1), stream_time_ms)

    def finish(self) -> list[FilledShard]:
        """Write what is held, and return what was written of each shard that got something, in order."""
        self._written.flush()
        return [
            FilledShard(
                shard,
                tuple(self._written.deltas[shard]),
                self._tallies.get(shard, {}),
                self._store_times_ms.get(shard, {}),
            )
            for shard in sorted(self._tallies.keys() | self._store_times_ms.keys())
        ]


def check_filled(
    location: DurableLocation,
    metadata: StateMetadata,
    filled: FilledShard,
    *,
    pointer: CommitPointer | None = None,
    work_dir: str | None = None,
    on_entries: Callable[[int], None] | None = None,
) -> None:
    """Read a shard as a query would; raise StateCheckError unless it holds exactly what was put.

    `pointer` is the one that it starts from, if that is not `filled.pointer`. `work_dir` has room for the shard, in a
    temporary directory; None means that of the machine. `on_entries` is told of entries as they are read.
    """
    pointer = pointer or filled.pointer(metadata.state_id)
    with TemporaryDirectory(prefix="statestore-check-", dir=work_dir) as directory:
        state = ShardedState(metadata.state_id, location, metadata.stores, LocalDirectory(directory))
        with state.open(pointer) as batch:
            for spec in metadata.stores:
                found = Tally()
                stream_time_ms = pointer.store_times_ms.get(spec.name, -1)
                for writes in logical_writes(spec, batch.stores[spec.name].bytes, stream_time_ms):
                    found.add(writes)
                    if on_entries is not None:
                        on_entries(len(writes))
                expected = filled.tallies.get(spec.name, Tally())
                if found != expected:
                    raise StateCheckError(spec.name, shard=filled.shard, expected=str(expected), found=str(found))


def complete_filled(location: DurableLocation, metadata: StateMetadata, filled: Sequence[FilledShard]) -> None:
    """Make the location a state whose shards hold what was filled, and the others nothing.

    Raises ValueError if a shard is there twice, and LocationNotWritableError.
    """
    by_shard = {shard.shard: shard for shard in filled}
    if len(by_shard) < len(filled):
        raise ValueError("a shard was filled twice; each shard must be filled by one StateFiller")
    pointers = (
        by_shard.get(shard, FilledShard(shard, (), {}, {})).pointer(metadata.state_id)
        for shard in range(metadata.shards)
    )
    complete_target(location, metadata, pointers)
