"""A state location: shards restored as a query would, each into a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial

import pyarrow as pa

from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.errors import FormatError
from statestore.errors.new_state import StatePointersError
from statestore.errors.state import DurableFileMissingError
from statestore.format.keys.partitioner import partition_column
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head, newest_head
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import open_shard
from statestore.recovery.making.placement import record_keys
from statestore.recovery.making.rescale import committed_pointers, where_all_begin
from statestore.recovery.metadata.state_metadata import METADATA_NAME, StateMetadata, state_with
from statestore.recovery.shard_batch import ShardBatch
from upgrade_tools.errors import StateWentOnError, UnknownLayoutError
from upgrade_tools.states.copy import families_by_store
from upgrade_tools.states.database import Database, OpenFamilies
from upgrade_tools.states.state import FoundStore, Layout, OpenStore, State, StateOptions, refuse_other_than_recorded


class LocationState(State):
    """The stores of a state location at the version that the commit pointers in the options name."""

    def __init__(self, location: DurableLocation, metadata: StateMetadata, options: StateOptions) -> None:
        super().__init__(str(location), Layout.LOCATION, range(metadata.shards), options)
        self.location = location
        self.metadata = metadata
        self.head: Head | None = None
        """The head that said what is committed; None if something else did."""
        self._pointers: list[CommitPointer] | None = None

    @property
    def knows_pointers(self) -> bool:
        """Whether it is known what is committed: by options or a head, or as no query ran on a state of a tool."""
        return self.head is not None or self.options.pointers is not None or self._began is not None

    @cached_property
    def _began(self) -> list[CommitPointer] | None:
        return where_all_begin(self.location, self.metadata)

    @property
    def pointers(self) -> list[CommitPointer]:
        """The commit pointer of each shard. Raises StatePointersError if they are not known."""
        if self._pointers is None and self.options.pointers is not None:
            self._pointers = committed_pointers(self.location, self.metadata, self.options.pointers, complete=False)
        found = self._pointers or self._began
        if found is None:
            raise StatePointersError(
                self.path,
                problem="there is no head, and Spark's checkpoint records what is committed. Name it with "
                "--checkpoint, or give what `python -m statestore.spark pointers CHECKPOINT` prints with "
                "--pointers",
            )
        return found

    def read_head(self) -> None:
        """Take the location's head for what is committed, if there is one. Raises RecoveryError, StatePointersError."""
        head = newest_head(self.location, self.metadata.state_id)
        if head is not None:
            self.go_by(head)

    def go_on(self) -> bool:
        """Go by the newest head, if it is a head that is gone by; return whether it is another one. Raises as that."""
        before = self.head
        if before is not None:
            self.read_head()
        return self.head != before

    def go_by(self, head: Head) -> None:
        """Take a head for what is committed. Raises StatePointersError."""
        self._pointers = committed_pointers(self.location, self.metadata, head.pointers, complete=False)
        self.head = head

    @property
    def global_stores(self) -> frozenset[str]:
        """The names of the stores that are known to be whole in each part."""
        return self.metadata.global_stores

    def found_stores(self) -> list[FoundStore]:
        """Return what is recorded, in the order of names."""
        return [FoundStore(spec.name, (StoreType.of(spec),), spec) for spec in self._specs_by_name().values()]

    def _specs_by_name(self) -> dict[str, StoreSpec]:
        return {spec.name: spec for spec in sorted(self.metadata.stores, key=lambda spec: spec.name)}

    @contextmanager
    def _open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
        """Hand out these stores of a shard as it was committed."""
        recorded = self._specs_by_name()
        for spec in specs:
            refuse_other_than_recorded(recorded[spec.name], spec, self.path)
        asked = {spec.name: spec for spec in specs}
        with self._restored(part, tuple(asked.get(spec.name, spec) for spec in self.metadata.stores)) as batch:
            times_ms = batch.pointer.store_times_ms
            yield {
                name: OpenStore(spec, batch.stores[name].bytes, times_ms.get(name, -1), None, {})
                for name, spec in asked.items()
            }

    def parts_of(self, spec: StoreSpec, key: bytes | None = None) -> tuple[int, ...]:
        """Return one shard of a global store, of which each has all; the key's, if records are placed by it; or all."""
        metadata = self.metadata
        if spec.name in self.global_stores:
            return self.parts[:1]
        if key is None or metadata.shard_by != "key":
            return self.parts
        key_of = record_keys(metadata).get(spec.name)
        try:
            record_key = key if key_of is None else key_of(key)
        except (FormatError, ValueError):
            return self.parts  # not a key of such a store
        return (int(partition_column(pa.array([record_key], pa.binary()), metadata.shards)[0]),)

    def databases(self, part: int) -> list[Database]:
        """Return one database, of the shard, which is restored when it is opened."""
        return [Database(f"shard {part}", partial(self._families, part))]

    @contextmanager
    def _families(self, part: int) -> Iterator[OpenFamilies]:
        with self._restored(part, self.metadata.stores) as batch:
            assert batch.copy is not None  # no store is in memory here
            yield families_by_store(batch.copy.database)

    @contextmanager
    def _restored(self, part: int, stores: tuple[StoreSpec, ...]) -> Iterator[ShardBatch]:
        """Hand out a shard as it was committed, its stores opened as these. Raises StateWentOnError, RecoveryError."""
        metadata, pointer = replace(self.metadata, stores=stores), self.pointers[part]
        with ExitStack() as opened:
            try:
                batch = opened.enter_context(open_shard(self.location, metadata, pointer, self.options.work_dir))
            except DurableFileMissingError as missing:
                head = newest_head(self.location, metadata.state_id)
                versions = [] if head is None else [each.version for each in head.pointers if each.shard == part]
                if max(versions, default=0) <= pointer.version:
                    raise
                raise StateWentOnError(
                    self.path, shard=part, version=pointer.version, newest=max(versions), file=missing.where
                ) from missing
            yield batch


def metadata_at(location: DurableLocation) -> StateMetadata:
    """Return the metadata of the state in a location.

    Raises UnknownLayoutError if there is none, and RecoveryError if several stages have some.
    """
    found = state_with(location, None)
    if found is None:
        raise UnknownLayoutError(str(location), found=f"no {METADATA_NAME}")
    return found[1]
