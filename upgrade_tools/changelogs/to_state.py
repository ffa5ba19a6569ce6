"""Makes a state for a query to start from out of changelogs: shard n is what partition n restores to.

A program of several stages has a state for each. A store of which a later stage has a copy is restored in both. A store
with fewer partitions than there are shards is divided by key: shard n has keys of partition n modulo their number.
"""

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
from statestore.errors import TargetNotEmptyError
from statestore.errors.new_state import KeyPlacementError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.new_state import NewState, OnEntries
from statestore.recovery.making.placement import Placement, record_keys
from statestore.recovery.making.state_filling import FilledShard, ShardFilling, with_expiry_stores
from statestore.recovery.metadata.state_metadata import (
    METADATA_NAME,
    ShardBy,
    StateMetadata,
    metadata_of_stores,
    read_metadata,
    stage_name,
)
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.reading import ChangelogTopic, read_records
from upgrade_tools.changelogs.restoring import RestoredStore, refuse_live_deleted, restore_store
from upgrade_tools.changelogs.stage_logs import StageLogs
from upgrade_tools.errors import ChangelogError

RESTORING: Final = "restoring"


@dataclass(frozen=True)
class MadeState:
    """The state of a stage that was made."""

    metadata: StateMetadata
    restored: dict[str, list[RestoredStore]]
    """The result for each store, by partition."""


def make_states(
    cluster: Cluster,
    application_id: str,
    stages: Sequence[StageLogs],
    location: DurableLocation,
    *,
    shard_by: str,
    accept_deleted: bool = False,
    trust_keys: bool = False,
    work_dir: str | None = None,
    expiry_headers: Mapping[str, str] | None = None,
    on_entries: OnEntries | None = None,
) -> list[MadeState]:
    """Make in an empty location the states of a query's stages, with as many shards as those say, and read them back.

    `shard_by` says how the query will place records in the first stage: "key" needs every key to be where Kafka's
    partitioner places it, as in all later ones; where a single partition proves nothing, `trust_keys` says so.
    `accept_deleted` is that of `restore_task_directory`. `work_dir` has room for one partition's stores, in a temporary
    directory. `expiry_headers` says by which header the entries of a store expire. `on_entries` is told of records,
    RESTORING, and of entries, CHECKING. Raises TargetNotEmptyError, ChangelogError, NewStateError, StateCheckError and
    what restoring raises; then there is no state in the location.
    """
    claimed = []
    for number, stage in enumerate(stages):
        names = {spec.name for spec in stage.stage.stores}
        headers = {store: header for store, header in (expiry_headers or {}).items() if store in names}
        metadata = metadata_of_stores(
            with_expiry_stores(stage.stage.stores, headers), stage.shards, ShardBy.KEY.value if number else shard_by
        )
        room = _room(location, number, len(stages))
        made = NewState.claim(room, metadata, f"changelogs of {application_id}", work_dir=work_dir)
        claimed.append(replace(made, expiry_headers=headers))
    filled = []
    for made, stage in zip(claimed, stages, strict=True):
        source = _Changelogs(
            cluster, application_id, made, stage, made.filling(), accept_deleted, trust_keys, on_entries
        )
        filled.append(source.fill())
    # As a query does, the first stage last: where there is a state of it, there are all.
    for made, (shards, _) in reversed([*zip(claimed, filled, strict=True)]):
        made.complete(shards)
    return [MadeState(made.metadata, restored) for made, (_, restored) in zip(claimed, filled, strict=True)]


def _room(location: DurableLocation, number: int, stages: int) -> DurableLocation:
    """Return where the state of a stage goes. Raises TargetNotEmptyError if a state without stages is there."""
    if stages == 1:
        return location
    if read_metadata(location) is not None:
        raise TargetNotEmptyError(str(location), found=f"a state ({METADATA_NAME})")
    return location.below(stage_name(number))


@dataclass(frozen=True)
class _Changelogs:
    """Puts what changelogs restore to into the shards of one state."""

    cluster: Cluster
    application_id: str
    made: NewState
    source: StageLogs
    filling: ShardFilling
    accept_deleted: bool
    trust_keys: bool
    on_entries: OnEntries | None

    def fill(self) -> tuple[list[FilledShard], dict[str, list[RestoredStore]]]:
        """Fill all shards and read them back; return what was written, and what each store was restored to."""
        restored = {
            changelog.spec.name: [self._read(changelog, partition) for partition in range(len(changelog.logs))]
            for changelog in self.source.changelogs
        }
        return self.made.read_back(self.filling, self.on_entries), restored

    def _placement(self, changelog: ChangelogTopic) -> Placement:
        """Return where entries of a changelog go: as if a state with its partitions was rescaled."""
        # The state itself records no topology: it is that of the first query.
        metadata, topology = self.made.metadata, self.source.stage.topology
        divided = replace(metadata, shards=len(changelog.logs), topology=topology)
        return Placement(divided, metadata.shards, record_keys(divided), self.trust_keys)

    def _read(self, changelog: ChangelogTopic, partition: int) -> RestoredStore:
        """Restore one store of a partition, and put what is in it into the shard."""
        spec, log, placement = changelog.spec, changelog.logs[partition], self._placement(changelog)
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
                for shard, own_writes in _divided(placement, changelog.topic, spec, partition, writes).items():
                    self.filling.put(shard, spec.name, own_writes)
            if restored.stream_time_ms != NO_STREAM_TIME:
                for shard in placement.shards_of(partition):
                    self.filling.advance_stream_time(shard, spec.name, restored.stream_time_ms)
        return restored


def _divided(
    placement: Placement, topic: str, spec: StoreSpec, partition: int, writes: list[LogicalWrite]
) -> dict[int, list[LogicalWrite]]:
    try:
        return placement.by_shard(spec, partition, writes)
    except KeyPlacementError as cause:
        raise ChangelogError(
            topic,
            f"the key 0x{cause.key} is in partition {partition}, and Kafka's partitioner would place it in "
            f"{cause.expected_shard}: the store is not keyed like its records, or a custom partitioner has placed "
            "them. In the first stage, make the state with --shard-by partition, and start the query with "
            'shard_by="partition"',
        ) from cause
