"""The query that `make soak` runs under faults: stores of every kind, on a real Spark, in both of its entry points."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timezone
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from orders import kafka_row, write_rows
from statestore import Headers
from statestore.bytestore.kinds.entry_scan import stored_entries
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark import read_pointers, read_store, stateful
from statestore.testing.faults import Effect, FaultEnvironment
from statestore.testing.faults.runner import Contents, MakeQuery, QueryUnderFaults
from tests.support.soak.records import BATCHES, PARTITIONS, TOPIC, Reading, expected_contents, seeded_batches
from tests.support.soak.topology import INT, STORES, topology
from tests.support.spark.queries import KAFKA_ROWS

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these few rows do
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""What saves time in a query of small batches, set in a session of the query's own."""
HDFS_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class SoakQuery:
    """The query with the input of one seed. Its sink is exactly once, by the id of the micro-batch."""

    def __init__(self, spark: SparkSession, environment: FaultEnvironment) -> None:
        self.spark = spark.newSession()
        self.environment = environment
        seed = environment.plan.seed
        # transformWithState starts more slowly, by a second and a half each time.
        self.via = "transform_with_state" if seed % 4 == 0 else "apply_in_pandas_with_state"
        self.in_columns = seed % 3 == 0
        for name, value in SETTINGS.items():
            self.spark.conf.set(name, value)
        provider = HDFS_PROVIDER if seed % 4 == 1 else ROCKSDB_PROVIDER
        self.spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
        goes_back = any(fault.effect is Effect.OLDER_CHECKPOINT for fault in environment.plan.faults)
        self.recovery = RecoveryOptions(
            snapshot_every_deltas=1 + seed % 2, retained_versions=BATCHES if goes_back else 1 + seed % 3
        )
        self.input = environment.home / "input"
        self.input.mkdir()
        self.batches = seeded_batches(seed)
        self.written: dict[int, list[Row]] = {}

    def add_batch(self, number: int) -> None:
        """Add one file, the next micro-batch."""
        write_readings(self.batches[number], self.input / f"{number:04d}.parquet", number)

    def run(self) -> None:
        """Run the query over all files that it has not processed."""
        records = self.spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(self.input))
        rows = stateful(
            records,
            topology(in_columns=self.in_columns),
            shards=PARTITIONS,
            shard_by="partition",
            via=self.via,
            recovery=self.recovery,
            **self.environment.stateful_options(),
        )
        query = (
            rows.writeStream.foreachBatch(self.environment.sink(self._write))
            .option("checkpointLocation", str(self.environment.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        self.environment.wait_for(query)

    def expected(self) -> Contents:
        """Return what the plain model makes of all batches."""
        return expected_contents(reading for batch in self.batches for reading in batch)

    def found(self) -> Contents:
        """Return what was written, and what the stores hold as it is read back from the durable location."""
        by_spark = STORES[self.environment.plan.seed % len(STORES)]
        # One store in Spark's tasks, as users read it; the others here, which is faster and reads the same files.
        rows = read_store(
            self.spark,
            by_spark,
            checkpoint_location=self.environment.checkpoint,
            state_location=self.environment.state_location,
        ).collect()
        entries = [
            (bytes(row.key), row.start_ms, row.end_ms, bytes(row.value), row.timestamp_ms, _headers(row))
            for row in rows
        ]
        others = self._entries([store for store in STORES if store != by_spark])
        return {
            "output": self._output(),
            **{store: _by_key(found) for store, found in {**others, by_spark: entries}.items()},
        }

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        self.written[batch_id] = rows.collect()

    def _output(self) -> dict[str, list[Any]]:
        output: dict[str, list[Any]] = {}
        for batch_id in sorted(self.written):
            for row in self.written[batch_id]:
                value = None if row.value is None else bytes(row.value).decode()
                time_ms = round(row.timestamp.replace(tzinfo=timezone.utc).timestamp() * 1000)
                output.setdefault(row.key.decode(), []).append((value, time_ms, _headers(row)))
        return output

    def _entries(self, names: list[str]) -> dict[str, list[Entry]]:
        environment = self.environment
        metadata = read_metadata(environment.state_location)
        assert metadata is not None
        found: dict[str, list[Entry]] = {name: [] for name in names}
        with tempfile.TemporaryDirectory(dir=environment.home) as local_dir:
            state = ShardedState(
                metadata.state_id, environment.state_location, metadata.stores, LocalDirectory(local_dir)
            )
            for row in read_pointers(self.spark, environment.checkpoint).collect():
                with state.open(CommitPointer.from_json(row.pointer)) as shard:
                    for name in names:
                        store = shard.stores[name]
                        found[name] += [
                            (
                                *entry[:5],
                                [
                                    (header.key, header.value)
                                    for header in Headers.from_bytes(entry.header_bytes or b"")
                                ],
                            )
                            for entry in stored_entries(store.spec, store.bytes)
                        ]
        return found


Entry = tuple[bytes, "int | None", "int | None", bytes, "int | None", list[Any]]
"""Key, start and end of a window, session or version, value, timestamp, headers."""


def _by_key(entries: list[Entry]) -> dict[Any, Any]:
    found = {
        (key.decode() if start_ms is None else (key.decode(), start_ms, end_ms)): (
            INT.deserialize(value),
            timestamp_ms,
            headers,
        )
        for key, start_ms, end_ms, value, timestamp_ms, headers in entries
    }
    assert len(found) == len(entries), "an entry twice"
    return found


def _headers(row: Row) -> list[Any]:
    return [(header.key, None if header.value is None else bytes(header.value)) for header in row.headers or []]


def write_readings(readings: list[Reading], path: Path, number: int) -> None:
    """Write readings as a Parquet file of Kafka's shape, the file that Spark takes `number`th."""
    rows = [kafka_row(TOPIC, reading.key.encode(), reading) for reading in readings]
    write_rows(rows, path, modified_s=1_700_000_000 + number)


@contextmanager
def queries(
    make: Callable[[SparkSession, FaultEnvironment], QueryUnderFaults] | None = None,
) -> Iterator[MakeQuery]:
    """Start the Spark session of a soak, and hand out what makes its queries; None is those of stores of every kind."""
    # Python workers unpickle processors by import.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    session = (
        SparkSession.builder.master("local[2,4]")  # a failed task is tried three times more
        .appName("statestore soak")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.default.parallelism", "2")
        .config("spark.python.daemon.module", "statestore.spark.python_daemon")
        # Compilers of more than the first tier cost more here than they gain.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield partial(make or SoakQuery, session)
    finally:
        session.stop()


assert BATCHES == 4, "the occurrences of drawn faults are those of four micro-batches"
