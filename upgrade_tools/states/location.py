"""A state location: shards restored as a query would, each into a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

from statestore.bytestore.families import older_formats
from statestore.bytestore.store_spec import StoreSpec
from statestore.errors import StatePointersError, StoreFormatError
from statestore.recovery.initial_state import initial_pointer
from statestore.recovery.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import StateMetadata
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.rescale import committed_pointers
from statestore.recovery.shard_batch import ShardedState
from upgrade_tools.kinds import Kind
from upgrade_tools.states.state import FoundStore, Layout, OpenStore, State, StateOptions


class LocationState(State):
    """The stores of a state location at the version that the commit pointers in the options name."""

    def __init__(self, location: DurableLocation, metadata: StateMetadata, options: StateOptions) -> None:
        super().__init__(str(location), Layout.LOCATION, range(metadata.shards), options)
        self.location = location
        self.metadata = metadata
        self._pointers: list[CommitPointer] | None = None

    @property
    def pointers(self) -> list[CommitPointer]:
        """The commit pointer of each shard. Raises StatePointersError if they are not known."""
        if self._pointers is None and self.options.pointers is None and not self.metadata.topology:
            # A tool made it, and no query has begun to run on it.
            self._pointers = [
                initial_pointer(self.location, self.metadata.state_id, shard) for shard in range(self.metadata.shards)
            ]
        if self._pointers is None:
            if self.options.pointers is None:
                raise StatePointersError(
                    self.path,
                    problem="what is committed stands in Spark's checkpoint. Name it with --checkpoint, or give what "
                    "`python -m statestore.spark pointers CHECKPOINT` prints with --pointers",
                )
            self._pointers = committed_pointers(self.location, self.metadata, self.options.pointers, complete=False)
        return self._pointers

    def found_stores(self) -> list[FoundStore]:
        """Return what is recorded, in the order of names."""
        return [FoundStore(spec.name, (Kind.of(spec),), spec) for spec in self._specs_by_name().values()]

    def _specs_by_name(self) -> dict[str, StoreSpec]:
        return {spec.name: spec for spec in sorted(self.metadata.stores, key=lambda spec: spec.name)}

    @contextmanager
    def open(self, part: int, specs: Sequence[StoreSpec]) -> Iterator[Mapping[str, OpenStore]]:
        """Hand out these stores of a shard as it was committed."""
        recorded = self._specs_by_name()
        for spec in specs:
            self._check(recorded[spec.name], spec)
        asked = {spec.name: spec for spec in specs}
        stores = tuple(asked.get(spec.name, spec) for spec in self.metadata.stores)
        pointer = self.pointers[part]
        with TemporaryDirectory(prefix="statestore-read-", dir=self.options.work_dir) as directory:
            # All on disk, also what a query keeps in memory: it need not fit here.
            state = ShardedState(self.metadata.state_id, self.location, stores, LocalDirectory(directory))
            with state.open(pointer) as batch:
                yield {
                    name: OpenStore(spec, batch.stores[name].bytes, pointer.store_times_ms.get(name, -1), None, {})
                    for name, spec in asked.items()
                }

    def _check(self, recorded: StoreSpec, asked: StoreSpec) -> None:
        """Refuse to read a store as what it is not; as a newer format of the same it is an upgrade."""
        same = replace(asked, format=recorded.format) == recorded
        if same and recorded.format in (asked.format, *older_formats(asked.kind, asked.format)):
            return
        raise StoreFormatError(
            asked.name,
            recorded=recorded.describe(),
            asked=asked.describe(),
            where=self.path,
            remedy="Leave out --kind to read it as what is recorded",
        )
