"""The peers that are Spark queries from Kafka to Kafka: statestore, Spark's own Python state, and Spark without state.

    python -m benchmarks.peers.spark_peer OPERATOR BOOTSTRAP INPUT OUTPUT SCRATCH RECORDS_PER_BATCH

All have the same session. It runs until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks import dsl_programs
from benchmarks.peers.run import tell_progress
from benchmarks.spark_native import native_operator
from benchmarks.workload import PARTITIONS, CountAndKeepColumns, counting_topology
from statestore import Serdes, Topology
from statestore.spark import recommended_settings, stateful
from statestore.testing.jars import connector_jars

TASK_SLOTS: Final = 2
SETTINGS: Final = recommended_settings(cores=TASK_SLOTS)
"""What statestore recommends; every Spark peer has it."""
ARROW_RECORDS: Final = 20_000
TELL_PROGRESS: Final = "statestore-dsl-"
"""What the names of operators begin with that put out other numbers of records than come in."""
_TELL_EVERY_S: Final = 0.1
_OUT: Final = "key binary, value binary, headers array<struct<key:string,value:binary>>"
_KEPT: Final = "value binary, timestamp timestamp, headers array<struct<key:string,value:binary>>"

Operator = Callable[[DataFrame, Path], DataFrame]


def pass_through(rows: DataFrame, scratch: Path) -> DataFrame:
    """From topic to topic without any Python."""
    return rows.select("key", "value", "headers")


def map_arrow(rows: DataFrame, scratch: Path) -> DataFrame:
    """Through a Python worker, which hands on what it gets."""
    return pass_through(rows, scratch).mapInArrow(_untouched, _OUT)


def _untouched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def statestore_scalar(rows: DataFrame, scratch: Path) -> DataFrame:
    """This library, a record at a time."""
    return _statestore(rows, counting_topology(), scratch)


def statestore_batch(rows: DataFrame, scratch: Path) -> DataFrame:
    """This library, by columns."""
    return _statestore(rows, counting_topology(CountAndKeepColumns), scratch)


def _statestore(rows: DataFrame, topology: Topology, scratch: Path) -> DataFrame:
    return stateful(
        rows, topology, shards=PARTITIONS, state_location=scratch / "state", local_dir=str(scratch / "local")
    )


DSL_PROGRAMS: Final[dict[str, dsl_programs.Program]] = {
    "count": lambda stream: dsl_programs.count(stream, dsl_programs.kept()),
    "tumbling": lambda stream: dsl_programs.tumbling(stream, dsl_programs.kept()),
    "hopping": lambda stream: dsl_programs.hopping(stream, dsl_programs.kept()),
    "final_windows": dsl_programs.final_windows,
    "suppressed_windows": lambda stream: dsl_programs.suppressed_windows(stream, is_cached=False),
    "sessions": lambda stream: dsl_programs.sessions(stream, is_cached=False),
    "final_sessions": dsl_programs.final_sessions,
    "joined": dsl_programs.joined_with_itself,
    "left_joined": dsl_programs.left_joined_with_itself,
    "word_count": dsl_programs.word_count_of_digits,
    "foreign_key_joined": dsl_programs.joined_by_foreign_key,
}
"""Of this library's DSL, each change put out: Operators.java has the same of Kafka's."""


def statestore_dsl(program: dsl_programs.Program) -> Operator:
    """Return a program of this library's DSL."""

    def operator(rows: DataFrame, scratch: Path) -> DataFrame:
        make = dsl_programs.one_input(program, value_serde=Serdes.bytes())
        return _statestore(rows.withColumn("topic", F.lit(dsl_programs.TOPIC)), make(), scratch)

    return operator


class CountAndKeepRows(StatefulProcessor):
    """What benchmarks.spark_native.CountAndKeepNative does, with rows in place of pandas frames."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("kept", _KEPT)

    def handleInputRows(self, key: tuple[bytes], rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        kept = self.state.get()
        count = int.from_bytes(kept[0][:8], "big") if kept else 0
        for row in sorted(rows, key=lambda row: row.offset):
            count += 1
            counted = count.to_bytes(8, "big") + bytes(row.value)
            yield Row(key=bytes(row.key), value=counted, headers=row.headers)
        pairs = [(header["key"], bytes(header["value"])) for header in row.headers]
        self.state.update((counted, row.timestamp, pairs))

    def close(self) -> None:
        """Spark asks for it."""


def python_state(rows: DataFrame, scratch: Path) -> DataFrame:
    """Spark's own state, by pandas frames."""
    return native_operator(rows)


def python_state_rows(rows: DataFrame, scratch: Path) -> DataFrame:
    """Spark's own state, by rows."""
    needed = rows.select("key", "value", "offset", "timestamp", "headers")
    return needed.groupBy("key").transformWithState(CountAndKeepRows(), _OUT, "append", "none")


OWN_STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""What Spark's documentation recommends for state of its own; statestore sets what it needs itself."""

OPERATORS: Final[dict[str, Operator]] = {
    "spark-pass-through": pass_through,
    "spark-map-arrow": map_arrow,
    "spark-python-state": python_state,
    "spark-python-state-rows": python_state_rows,
    "statestore-scalar": statestore_scalar,
    "statestore-batch": statestore_batch,
    **{f"statestore-dsl-{name}": statestore_dsl(program) for name, program in DSL_PROGRAMS.items()},
}


def session(operator: str) -> SparkSession:
    """Return the session that an operator runs in: the same for all, but for the settings of Spark's own state."""
    builder = (
        SparkSession.builder.master(f"local[{TASK_SLOTS}]")
        .appName("statestore peers")
        .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
        .config(map=SETTINGS.session.as_options())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_RECORDS))
    )
    for name, value in OWN_STATE.items() if operator in ("spark-python-state", "spark-python-state-rows") else ():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    operator, servers, input_topic, output_topic, scratch, records_per_batch = sys.argv[1:]
    rows = (
        session(operator)
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", input_topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .options(**SETTINGS.source.as_options())
        .load()
    )
    query = (
        OPERATORS[operator](rows, Path(scratch))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", output_topic)
        .option("checkpointLocation", str(Path(scratch, "checkpoint")))
        .options(**SETTINGS.sink.as_options())
        .start()
    )
    while operator.startswith(TELL_PROGRESS) and not query.awaitTermination(_TELL_EVERY_S):
        tell_progress(Path(scratch), sum(batch.numInputRows for batch in query.recentProgress))
    query.awaitTermination()


if __name__ == "__main__":
    main()
