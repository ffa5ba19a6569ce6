"""Rescales the state of a stopped query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from statestore.errors.new_state import StatePointersError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.placement import KeyOf, record_keys
from statestore.recovery.making.rescale import OnProgress, RescaleReport, committed_pointers, state_to_rescale
from statestore.recovery.making.rescale import rescale as rescale_location
from statestore.recovery.making.state_filling import DEFAULT_MEMORY_BYTES
from statestore.recovery.metadata.state_metadata import routing_numbers
from statestore.spark.checkpoints.checkpoint import SourceOffsets, read_pointers, read_source_offsets
from statestore.spark.sessions import is_connect, location_in, on_server


@dataclass(frozen=True)
class Rescaled:
    """What was made, and where the new query must begin to read: its new checkpoint knows no offsets."""

    report: RescaleReport
    offsets: SourceOffsets

    def __str__(self) -> str:
        lines = [str(self.report), f"the new query begins after batch {self.offsets.batch_id}:"]
        lines += [f"  source {number}: {offset}" for number, offset in enumerate(self.offsets.sources)]
        if self.offsets.uncommitted_batch_id is not None:
            lines.append(f"  batch {self.offsets.uncommitted_batch_id} was not committed: its records come again")
        return "\n".join(lines)


def rescale(
    spark: SparkSession,
    *,
    checkpoint_location: str | Path,
    state_location: str | Path | DurableLocation,
    to: str | Path | DurableLocation,
    shards: int,
    key_of: Mapping[str, KeyOf] | None = None,
    trust_keys: bool = False,
    state_partitions: int | None = None,
    work_dir: str | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    on_progress: OnProgress | None = None,
    dry_run: bool = False,
) -> Rescaled:
    """Copy the state in `state_location` to `to` with another number of shards, and check it entry by entry.

    The query must have stopped. Its checkpoint and its state do not change. Start the new query on `to` with a new
    checkpoint, at the returned offsets.

    Args:
        spark: reads the checkpoint. This process reads and writes the state; with Spark Connect, one task on the server
            does.
        checkpoint_location: the checkpoint of the query, which says what is committed.
        state_location: its state.
        to: path or URI of an empty location.
        shards: how many parts the key space will have.
        key_of: for stores whose keys are not those of records: functions from the store's key (of windows and sessions
            without the times) to the record's key. The library knows them for its own stores.
        trust_keys: believe that a store's keys are those of records even if the state has one shard, which can't prove
            it.
        state_partitions: `spark.sql.shuffle.partitions` of the new query; None is one for each shard.
        work_dir: directory with room for one shard; None means a temporary one.
        memory_bytes: about how much unwritten data to hold in memory.
        on_progress: called about once a second; not with Spark Connect.
        dry_run: read everything and prove where it belongs, but write nothing.

    Raises NewStateError, RecoveryError, LocationError; then `to` holds no state.
    """
    if on_progress is not None and is_connect(spark):
        raise ValueError("the server of Spark Connect can't call on_progress: leave it out")
    source = location_in(spark, state_location)
    offsets = read_source_offsets(spark, checkpoint_location)
    recorded = [row.pointer for row in read_pointers(spark, checkpoint_location).collect()]
    if read_source_offsets(spark, checkpoint_location).batch_id != offsets.batch_id:
        raise StatePointersError(str(source), problem="the query is running: stop it, then rescale its state")
    made = on_server(
        spark,
        _rescale_state,
        source,
        location_in(spark, to),
        recorded,
        key_of,
        state_partitions or shards,
        shards=shards,
        trust_keys=trust_keys,
        work_dir=work_dir,
        memory_bytes=memory_bytes,
        on_progress=on_progress,
        dry_run=dry_run,
    )
    return Rescaled(RescaleReport.from_json(made), offsets)


def _rescale_state(
    source: DurableLocation,
    target: DurableLocation,
    recorded: list[str],
    key_of: Mapping[str, KeyOf] | None,
    state_partitions: int,
    *,
    shards: int,
    **options: Any,
) -> str:
    """Rescale a state that has these commit pointers, where the locations can be reached; return the report's JSON."""
    metadata = state_to_rescale(source)
    found = map(CommitPointer.from_json, recorded)
    report = rescale_location(
        source,
        target,
        shards=shards,
        pointers=committed_pointers(source, metadata, found, complete=True),
        key_of=record_keys(metadata, key_of),
        routing=routing_numbers(shards, state_partitions),
        **options,
    )
    return report.to_json()
