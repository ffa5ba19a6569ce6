"""`stateful`: a topology as a Spark Structured Streaming operator."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.errors import InputError, TopologyError
from statestore.interception.chain import Interceptors, query_chain
from statestore.interception.failures import FailureHandling
from statestore.processor.rehearsal import refuse_empty_classes, uses_wall_clock
from statestore.processor.topology import Topology
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import (
    ShardBy,
    StateMetadata,
    agree_on_states,
    new_state_id,
    routing_numbers,
)
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import DEFAULT_RETAINED_VERSIONS, RecoveryOptions
from statestore.spark.code_on_workers import check_code_on_workers
from statestore.spark.drivers import through_apply_in_pandas_with_state, through_transform_with_state
from statestore.spark.figures import observe_figures
from statestore.spark.heads import publish_heads
from statestore.spark.query_failure import end_with_sentence
from statestore.spark.query_settings import (
    PARTITIONS,
    STATE_PROVIDER,
    carry,
    is_default,
    session_header_converter,
    session_properties,
)
from statestore.spark.query_stages import QueryStage, query_stages
from statestore.spark.sessions import choose_python, default_parallelism, is_connect, location_in, on_server
from statestore.spark.shards.blobs import BLOB
from statestore.spark.shards.pack import PACKED_SCHEMA, Pack, unpack
from statestore.spark.shards.schema import OUTPUT_SCHEMA, check_choice, check_input_schema
from statestore.spark.shards.shard_call import ShardCall, StateChange
from statestore.spark.spark_versions import WITH_ALL, require

_LOG = logging.getLogger(__name__)
_TRANSFORM = "transform_with_state"
_DRIVERS = {_TRANSFORM: through_transform_with_state, "apply_in_pandas_with_state": through_apply_in_pandas_with_state}
_ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DEFAULT_TIMESTAMP_AHEAD_MS = 365 * 24 * 3600 * 1000
"""A year: no clock is that wrong, and a wrong unit is a thousand times further ahead."""


@dataclass(frozen=True)
class MemoryOptions:
    """What a query may take in memory, besides what Spark takes; the rest goes to `local_dir`."""

    state_bytes: int | None = None
    """For the state, on each executor: uncommitted writes, write buffers and block cache. The tasks that run at once on
    an executor share it evenly. None is 256 MiB for each task.
    """
    input_bytes: int = 256 << 20
    """For a shard's input, in each task."""


def stateful(
    records: DataFrame,
    topology: Topology,
    *,
    shards: int | Mapping[str, int],
    state_location: str | Path | DurableLocation,
    shard_by: str = "key",
    local_dir: str | LocalDirectory | None = None,
    interceptors: Interceptors = None,
    failures: FailureHandling | None = None,
    accept_topology_change: bool | Collection[str] = False,
    accept_older_checkpoint: bool = False,
    memory: MemoryOptions | None = None,
    recovery: RecoveryOptions | None = None,
    max_timestamp_ahead_ms: int | None = _DEFAULT_TIMESTAMP_AHEAD_MS,
    packed: bool = False,
    via: str = "transform_with_state",
) -> DataFrame:
    """Run `topology` over a streaming DataFrame of Kafka's shape; the result has the Kafka sink's shape.

    Args:
        records: columns key, value (binary), topic, partition, offset, timestamp and headers as Spark's Kafka source
            gives them with `includeHeaders`; `timestampType` is accepted and ignored.
        topology: what to run. Its structure is recorded at the first start.
        shards: how many parts the key space has, fixed at the first start. At most that many tasks run at once. A
            topology with repartition topics runs in stages, each with that many shards and a state of its own; or with
            as many as a mapping says, as {"stage-0": 8, "stage-1": 2}.
        state_location: path or URI (file, s3, gs, abfss, hdfs) for the committed state; one query, one location. With
            Spark Connect the server opens it, never the client.
        shard_by: "key" places records as Kafka's producer would (murmur2 of the key, modulo shards); "partition" by
            their Kafka partition modulo shards, for topics that are already partitioned as wanted. Stages behind
            repartition topics place records by key.
        local_dir: directory on each executor for the local copies; None is one per user in the temporary directory. A
            LocalDirectory brings its own memory budget.
        interceptors: middleware around the topology: a Chain, interceptors in its order, or a configuration that names
            them in `statestore.interceptors`. Those that the session names in `spark.statestore.interceptors` go around
            them. A function among them is called with each record that comes in (a ConsumerRecord of bytes), and
            returns the record to go on with, whose headers, value and timestamp may differ, or None to leave it out.
            For Kafka Connect's converters and transformations give a ConnectIngest; its `errors.tolerance` applies to
            all that `failures` does not say. Typed headers are read as its `topics` say, else its `header.converter`,
            else the session's `spark.statestore.header.converter`.
        failures: what to do about records that fail; None stops the query at the first.
        accept_topology_change: True records a changed topology instead of refusing it. Names of stores do so, too, and
            drop these stores, which the topology no longer has, with all their entries; the names can't be used again.
            No store may be changed. The query that owns the location records it, in its first batch.
        accept_older_checkpoint: go on from a checkpoint that is behind the location, or that another run has given up,
            and give up what was committed since. Without it such a start raises CheckpointBehindError; with it,
            VersionCollectedError if a file of that version is gone.
        memory: what the state and the input may take in memory; the rest goes to `local_dir`.
        recovery: when to make snapshots, how much history to keep, and whom to tell of restores; None is the defaults.
        max_timestamp_ahead_ms: how far ahead of the clock a record's timestamp may be; None is no bound.
            A record further ahead ends the query with FutureTimestampError, because stream time never goes back.
        packed: True leaves rows packed, for KafkaTransactions alone, which takes them so in less time: one column,
            `blob`, has many records in each.
        via: for experts: Spark's entry point; "apply_in_pandas_with_state" is for where Spark refuses the default.

    Returns a streaming DataFrame of key, value (binary), topic, timestamp and headers. State is exactly once; for the
    rows, the sink's guarantee holds (Spark's Kafka sink: at least once).

    Each processor's `init` runs once on the driver with empty stores, before anything is recorded.

    Raises InputSchemaError, LocationNotWritableError, ShardCountChangedError, StoreFormatError, TopologyChangedError,
    TopologyError, NotPicklableError, ModuleNotOnWorkersError, ConnectServerError, ProcessorError for what an `init`
    raises, and ValueError for illegal arguments. While the query runs, errors reach the driver in the text of Spark's
    StreamingQueryException, which `error_of` reads.
    """
    check_choice("shard_by", shard_by, ShardBy)
    _check_records(records, shards, max_timestamp_ahead_ms)
    spark = records.sparkSession
    _check_driver(via, spark)
    chain = query_chain(interceptors, session_properties(spark), session_header_converter(spark))
    handling = (failures or FailureHandling()).around(chain)
    _validate(topology.with_interceptors(chain))
    choose_python(spark)
    end_with_sentence()
    stages = query_stages(spark, topology, chain, location_in(spark, state_location), shards, shard_by, via)
    for stage in stages:
        check_code_on_workers(stage.topology, handling, spark)
    most = max(stage.shards for stage in stages)
    settings = _settings(spark, most, via)
    partitions = settings.get(PARTITIONS) or spark.conf.get(PARTITIONS)
    asked = [(stage.location, _new_metadata(stage, handling, partitions)) for stage in stages]
    agreed = _agreed(spark, asked, accept_topology_change)
    memory = memory or MemoryOptions()
    local = LocalDirectory.of(local_dir, _memory_budget(memory, spark))
    recovery = _with_retention(recovery or RecoveryOptions(), spark)
    rows = records
    for stage, metadata in zip(stages, agreed, strict=True):
        state = _sharded_state(metadata, stage, local, recovery, accept_older_checkpoint)
        publish_heads(spark, stage.location, metadata)
        call = ShardCall(
            stage.topology,
            state,
            metadata.routing,
            handling,
            memory.input_bytes,
            metadata.wall_clock,
            most if PARTITIONS in settings else None,
            hands_on=stage.lanes is not None,
            is_last=stage.is_last,
            copied=stage.copied,
            change=None if metadata.is_recorded else StateChange(metadata, accept_topology_change),
        )
        pack = _pack(stage, metadata, max_timestamp_ahead_ms)
        placed = carry(rows.mapInArrow(pack.__call__, PACKED_SCHEMA), settings, str(stage.location))
        rows = observe_figures(_DRIVERS[via](placed, call), metadata.state_id, str(stage.location)).select(BLOB)
    return rows if packed else rows.mapInArrow(unpack, OUTPUT_SCHEMA)


def _pack(stage: QueryStage, metadata: StateMetadata, max_timestamp_ahead_ms: int | None) -> Pack:
    return Pack(
        stage.shards,
        stage.shard_by,
        metadata.routing,
        tuple(stage.topology.global_stores.values()),
        metadata.wall_clock,
        max_timestamp_ahead_ms,
        stage.lanes,
        follows_stage=stage.number > 0,
    )


def _sharded_state(
    metadata: StateMetadata,
    stage: QueryStage,
    local: LocalDirectory,
    recovery: RecoveryOptions,
    accept_older_checkpoint: bool,
) -> ShardedState:
    return ShardedState(
        metadata.state_id,
        stage.location,
        metadata.stores,
        local,
        stage.topology.in_memory_stores(),
        recovery,
        uuid.uuid4().hex,  # each start is a run of its own: of two runs that write to a shard, the later one goes on
        accept_older_checkpoint,
        metadata.initial_state,
    )


def _agreed(
    spark: SparkSession,
    asked: Sequence[tuple[DurableLocation, StateMetadata]],
    accept_topology_change: bool | Collection[str],
) -> list[StateMetadata]:
    """Return the metadata to run with; what is not recorded is the owner's to record. Raises TypeError for a str."""
    if isinstance(accept_topology_change, str):
        raise TypeError(f"accept_topology_change must be a list of names, not the str {accept_topology_change!r}")
    agreed = on_server(spark, _agree_as_json, asked, accept_topology_change)
    return [
        replace(StateMetadata.from_json(text.encode(), str(location)), is_recorded=is_recorded)
        for (text, is_recorded), (location, _) in zip(agreed, asked, strict=True)
    ]


def _agree_as_json(
    asked: Sequence[tuple[DurableLocation, StateMetadata]], accept_topology_change: bool | Collection[str]
) -> list[tuple[str, bool]]:
    # Which query this is going to be, and so whether it owns the location, only its tasks know.
    agreed = agree_on_states(asked, accept_topology_change=accept_topology_change, is_owner=False)
    return [(each.to_json(), each.is_recorded) for each in agreed]


def _new_metadata(stage: QueryStage, handling: FailureHandling, state_partitions: str | None) -> StateMetadata:
    """Return the metadata of a stage's new state; without `state_partitions` there is one for each shard."""
    topology, shards = stage.topology, stage.shards
    return StateMetadata(
        new_state_id(),
        shards,
        stage.shard_by,
        routing_numbers(shards, int(state_partitions or shards)),
        topology.store_specs(),
        topology.to_json(),
        uses_wall_clock(topology, handling),
    )


def _memory_budget(memory: MemoryOptions, spark: SparkSession) -> MemoryBudget:
    """Return a budget that the tasks of an executor share, as many as run at once as far as the driver can tell."""
    if memory.state_bytes is None:
        return MemoryBudget()
    # Local mode runs all tasks in one process. A standalone cluster gives an executor all cores of its worker; the
    # driver only knows the cores of all executors together, its default parallelism. So this is an upper bound.
    cores = spark.conf.get("spark.executor.cores", None) or default_parallelism(spark)
    tasks = max(1, int(cores) // int(spark.conf.get("spark.task.cpus", None) or 1))
    return MemoryBudget(memory.state_bytes, tasks)


def _with_retention(recovery: RecoveryOptions, spark: SparkSession) -> RecoveryOptions:
    """Retain as many versions as Spark retains batches, if the options don't say how many."""
    if recovery.retained_versions is not None:
        return recovery
    batches = spark.conf.get("spark.sql.streaming.minBatchesToRetain")
    return replace(recovery, retained_versions=int(batches or DEFAULT_RETAINED_VERSIONS))


def _check_driver(via: str, spark: SparkSession) -> None:
    check_choice("via", via, _DRIVERS)
    if via == _TRANSFORM and is_connect(spark):
        require('through Spark Connect via="transform_with_state", but not via="apply_in_pandas_with_state",', WITH_ALL)


def _check_records(records: DataFrame, shards: int | Mapping[str, int], max_timestamp_ahead_ms: int | None) -> None:
    counts = shards.values() if isinstance(shards, Mapping) else (shards,)
    if any(type(count) is not int or count < 1 for count in counts):
        raise ValueError(f"shards must be a whole number of at least 1, not {shards!r}")
    if max_timestamp_ahead_ms is not None and (type(max_timestamp_ahead_ms) is not int or max_timestamp_ahead_ms < 0):
        raise ValueError(f"max_timestamp_ahead_ms must be 0 ms or more, or None, not {max_timestamp_ahead_ms!r}")
    if not records.isStreaming:
        raise InputError("stateful() needs a streaming DataFrame (spark.readStream), this one is a batch")
    check_input_schema(records.schema)


def _validate(topology: Topology) -> None:
    topology.validate()
    refuse_empty_classes(topology)
    if not topology.sinks:
        _LOG.warning("the topology has no sink, so the query's result will have no rows: add a sink with add_sink()")
    for name, builder in topology.store_builders.items():
        if not builder.logging_enabled:
            raise TopologyError(
                f"state store {name!r} has logging disabled, and under Spark it would lose its entries after each "
                "batch: leave out with_logging_disabled()"
            )


def _settings(spark: SparkSession, shards: int, via: str) -> dict[str, str]:
    """Return the settings whose defaults in Spark don't suit this operator, without those that the user has set."""
    settings = {}
    if is_default(spark, PARTITIONS):
        # Every state partition, even an empty one, costs tens of milliseconds a batch.
        settings[PARTITIONS] = str(shards)
    if via == _TRANSFORM and is_default(spark, STATE_PROVIDER):
        # transformWithState refuses to run on any other.
        settings[STATE_PROVIDER] = _ROCKSDB_PROVIDER
    return settings
