"""The peers that are Spark queries from Kafka to Kafka: statestore, Spark's own Python state, and Spark without state.

    python -m benchmarks.peers.spark_peer OPERATOR BOOTSTRAP INPUTS OUTPUT SCRATCH RECORDS_PER_BATCH

All have the same session. It runs until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks import dsl_programs
from benchmarks.peers.place import Place
from benchmarks.spark_native import native_operator
from benchmarks.workload import PARTITIONS, CountAndKeep, CountAndKeepColumns, counting_topology
from statestore import Processor, Serdes, Topology
from statestore.spark import recommended_settings, stateful
from statestore.spark.kafka_sink import KafkaTransactions
from statestore.spark.shards.blobs import BLOB
from statestore.testing.jars import connector_jars

TASK_SLOTS: Final = 2
SETTINGS: Final = recommended_settings(cores=TASK_SLOTS)
"""What statestore recommends; every Spark peer has it."""
ARROW_RECORDS: Final = 20_000
_OUT: Final = "key binary, value binary, headers array<struct<key:string,value:binary>>"
_KEPT: Final = "value binary, timestamp timestamp, headers array<struct<key:string,value:binary>>"

Operator = Callable[[DataFrame, Place], DataFrame]


def pass_through(rows: DataFrame, place: Place) -> DataFrame:
    """From topic to topic without any Python."""
    return rows.select("key", "value", "headers")


def map_arrow(rows: DataFrame, place: Place) -> DataFrame:
    """Through a Python worker, which hands on what it gets."""
    return pass_through(rows, place).mapInArrow(_untouched, _OUT)


def _untouched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def statestore(processor: type[Processor], *, packed: bool = False) -> Operator:
    """Return this library with a processor. Packed rows are for its sink of transactions."""

    def operator(rows: DataFrame, place: Place) -> DataFrame:
        return _stateful(rows, counting_topology(processor, place.output_topic), place, packed=packed)

    return operator


def _stateful(rows: DataFrame, topology: Topology, place: Place, *, packed: bool = False) -> DataFrame:
    state, local = place.scratch / "state", str(place.scratch / "local")
    return stateful(rows, topology, shards=PARTITIONS, state_location=state, local_dir=local, packed=packed)


DSL_PROGRAMS: Final[dict[str, dsl_programs.Program]] = {
    "count": lambda stream: dsl_programs.count(stream, dsl_programs.kept()),
    "tumbling": lambda stream: dsl_programs.tumbling(stream, dsl_programs.kept()),
    "hopping": lambda stream: dsl_programs.hopping(stream, dsl_programs.kept()),
    "final_windows": dsl_programs.final_windows,
    "suppressed_windows": lambda stream: dsl_programs.suppressed_windows(stream, is_cached=False),
    "sessions": lambda stream: dsl_programs.sessions(stream, is_cached=False),
    "final_sessions": dsl_programs.final_sessions,
    "joined": dsl_programs.joined_bytes,
    "left_joined": dsl_programs.left_joined_bytes,
    "tables_joined": dsl_programs.tables_joined,
    "word_count": dsl_programs.word_count_of_digits,
    "foreign_key_joined": dsl_programs.joined_by_foreign_key,
}
"""Of this library's DSL, each change put out: Operators.java has the same of Kafka's."""


def statestore_dsl(program: dsl_programs.Program) -> Operator:
    """Return a program of this library's DSL."""

    def operator(rows: DataFrame, place: Place) -> DataFrame:
        make = dsl_programs.topology_of(program, topics=place.input_topics, value_serde=Serdes.bytes())
        return _stateful(rows, make(), place)

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


def python_state(rows: DataFrame, place: Place) -> DataFrame:
    """Spark's own state, by pandas frames."""
    return native_operator(rows)


def python_state_rows(rows: DataFrame, place: Place) -> DataFrame:
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
    "statestore-scalar": statestore(CountAndKeep),
    "statestore-batch": statestore(CountAndKeepColumns),
    "statestore-scalar-eos": statestore(CountAndKeep, packed=True),
    "statestore-batch-eos": statestore(CountAndKeepColumns, packed=True),
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
    operator, *where = sys.argv[1:]
    place = Place.from_arguments(*where)
    rows = (
        session(operator)
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", place.servers)
        .option("subscribe", ",".join(place.input_topics))
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", place.records_per_batch)
        .options(**SETTINGS.source.as_options())
        .load()
    )
    result = OPERATORS[operator](rows, place)
    writer = result.writeStream.option("checkpointLocation", str(place.checkpoint))
    if result.columns == [BLOB]:
        writer = writer.foreachBatch(KafkaTransactions(place.servers, markers=f"{place.output_topic}-markers"))
    else:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", place.servers)
        writer = writer.option("topic", place.output_topic).options(**SETTINGS.sink.as_options())
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
