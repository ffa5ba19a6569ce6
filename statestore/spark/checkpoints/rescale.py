"""Rescaling the state of a query that has stopped: what Spark's checkpoint says, and what a new query begins with."""

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
from statestore.spark.checkpoints.checkpoint_pointers import read_pointers
from statestore.spark.checkpoints.source_offsets import SourceOffsets, read_source_offsets
from statestore.spark.sessions import is_connect, location_in, on_server


@dataclass(frozen=True)
class Rescaled:
    """What was made, and where the query on it must begin to read: it has a new checkpoint, which knows no offsets."""

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
    """Make in `to` a state with `shards` shards of the one in `state_location`, and check it entry by entry.

    The query must have stopped. Its checkpoint and its state are not changed. Start the new query on `to` with a new
    checkpoint, at the offsets that are returned.

    Args:
        spark: reads the checkpoint; the state itself is read and written by this process, with Spark Connect by one
            task on the server.
        checkpoint_location: the checkpoint of the query: what is committed stands there.
        state_location: its state.
        to: path or URI of an empty location.
        shards: how many parts the key space will have.
        key_of: of stores whose keys are not the keys of records: a function from the store's key, of windows and
            sessions without its times, to the record's key. The library's own are known.
        trust_keys: believe that the keys of stores are those of records where only one old shard could prove it.
        state_partitions: `spark.sql.shuffle.partitions` of the new query; None is one for each shard.
        work_dir: directory with room for one shard; None means a temporary one.
        memory_bytes: about how much of what is to be written is held in memory.
        on_progress: is called about once a second; not with Spark Connect.
        dry_run: read all, prove where it belongs, write nothing.

    Raises NewStateError, RecoveryError, LocationError; then `to` holds no state.
    """
    if on_progress is not None and is_connect(spark):
        raise ValueError("on_progress can't be told of what the server of Spark Connect does: leave it out")
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
    """Rescale, where the locations can be reached, the state of which these commit pointers are recorded, as JSON."""
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
