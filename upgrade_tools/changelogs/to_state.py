"""Makes a state for a query to start from out of changelogs: shard n is what partition n restores to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors.new_state import KeyPlacementError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.new_state import NewState, OnEntries
from statestore.recovery.making.placement import Placement
from statestore.recovery.making.state_filling import ShardFilling, with_expiry_stores
from statestore.recovery.metadata.state_metadata import StateMetadata, metadata_of_stores
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.reading import ChangelogTopic, read_records
from upgrade_tools.changelogs.restoring import RestoredStore, refuse_live_deleted, restore_store
from upgrade_tools.errors import ChangelogError

RESTORING: Final = "restoring"


@dataclass(frozen=True)
class MadeState:
    """The state that was made."""

    metadata: StateMetadata
    restored: dict[str, list[RestoredStore]]
    """The result for each store, by partition."""


def make_state(
    cluster: Cluster,
    application_id: str,
    changelogs: Sequence[ChangelogTopic],
    location: DurableLocation,
    *,
    shard_by: str,
    accept_deleted: bool = False,
    work_dir: str | None = None,
    expiry_headers: Mapping[str, str] | None = None,
    on_entries: OnEntries | None = None,
) -> MadeState:
    """Make in an empty location a state with a shard for each partition, and read it back.

    `shard_by` says how the query will place records: "key" needs every key to be where Kafka's partitioner places it.
    `accept_deleted` is that of `restore_task_directory`. `work_dir` has room for one partition's stores, in a
    temporary directory. `expiry_headers` says by which header the entries of a store expire. `on_entries` is told of
    records, RESTORING, and of entries, CHECKING. Raises TargetNotEmptyError, ChangelogError, StateCheckError
    and what restoring raises; then there is no state in the location.
    """
    specs = with_expiry_stores((changelog.spec for changelog in changelogs), expiry_headers or {})
    metadata = metadata_of_stores(specs, len(changelogs[0].logs), shard_by)
    made = NewState.claim(location, metadata, f"changelogs of {application_id}", work_dir=work_dir)
    made = replace(made, expiry_headers=expiry_headers or {})
    filling = made.filling()
    source = _Changelogs(cluster, application_id, made, filling, accept_deleted, on_entries)
    restored: dict[str, list[RestoredStore]] = {changelog.spec.name: [] for changelog in changelogs}
    for partition in range(metadata.shards):
        for changelog in changelogs:
            restored[changelog.spec.name].append(source.read(changelog, partition))
    made.complete(made.read_back(filling, on_entries))
    return MadeState(metadata, restored)


@dataclass(frozen=True)
class _Changelogs:
    """Puts what changelogs restore to into the shards of one state."""

    cluster: Cluster
    application_id: str
    made: NewState
    filling: ShardFilling
    accept_deleted: bool
    on_entries: OnEntries | None

    def read(self, changelog: ChangelogTopic, partition: int) -> RestoredStore:
        """Restore one store of a partition, and put what is in it into the shard."""
        spec, log = changelog.spec, changelog.logs[partition]
        on_records = None if self.on_entries is None else partial(self.on_entries, RESTORING)
        with (
            TemporaryDirectory(prefix="statestore-restore-", dir=self.made.work_dir) as directory,
            TaskDirectory(Path(directory), self.application_id, partition) as task,
        ):
            store = task.open_store(spec)
            restored = restore_store(spec, store, log, read_records(self.cluster, log), on_records)
            if not self.accept_deleted:
                refuse_live_deleted(spec, log, restored)
            for writes in logical_writes(spec, store, restored.stream_time_ms):
                self._check_place(changelog.topic, spec, partition, writes)
                self.filling.put(partition, spec.name, writes)
            if restored.stream_time_ms != NO_STREAM_TIME:
                self.filling.advance_stream_time(partition, spec.name, restored.stream_time_ms)
        return restored

    def _check_place(self, topic: str, spec: StoreSpec, partition: int, writes: list[LogicalWrite]) -> None:
        placement = Placement(self.made.metadata, self.made.metadata.shards, {})
        try:
            placement.check_new(spec, partition, writes)
        except KeyPlacementError as cause:
            raise ChangelogError(
                topic,
                f"the key 0x{cause.key} is in partition {partition}, and Kafka's partitioner would place it in "
                f"{cause.expected_shard}: the store is not keyed like its records, or a custom partitioner has placed "
                'them. Make the state with --shard-by partition, and start the query with shard_by="partition"',
            ) from cause
