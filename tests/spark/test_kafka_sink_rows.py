"""What the sink of transactions takes of Spark, and what it leaves out when a batch comes again; on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statestore.errors import InputError, InputSchemaError
from statestore.errors.run import BatchChangedError, SinkAheadError
from statestore.spark.kafka_sink import KafkaCluster, KafkaTransactions
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.kafka.transactions import seen, values
from tests.support.spark.queries import spark_settings

PARTITIONS = 3
_NUMBERS = count()
_LARGE_BYTES = 300_000


class Sink:
    """A sink of one query to a topic of its own, and what consumers see of it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.topic = f"sink-rows-{next(_NUMBERS)}"
        KafkaCluster(servers).create_topic(self.topic, 1, {})

    def made(self, **options: Any) -> KafkaTransactions:
        defaults = {"markers": "sink-rows-markers", "topic": self.topic, "query_id": f"query-of-{self.topic}"}
        return KafkaTransactions(KafkaCluster(self.servers, timeout_s=20), **{**defaults, **options})

    def values(self) -> list[bytes]:
        return values(self.servers, self.topic)


@pytest.fixture
def sink(broker: KafkaBroker) -> Sink:
    return Sink(broker.bootstrap_servers)


@pytest.fixture
def numbers(spark: SparkSession) -> Callable[[int], DataFrame]:
    return lambda count: spark.range(0, count, 1, PARTITIONS).select(f.col("id").cast("string").alias("value"))


def fails_once(noted: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step before the sink that fails at the end of its rows, in its first attempt."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        is_first = not noted.exists()
        noted.touch()
        yield from batches
        if is_first:
            raise ValueError("fails at the end")

    return step


def test_rows_that_end_with_an_error_are_not_committed(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    # More than Spark holds of what is on its way, a row at a time: the sink has some when their step fails.
    texts = [str(number) + "x" * _LARGE_BYTES for number in range(6)]
    rows = spark.createDataFrame([(text,) for text in texts], "value string").coalesce(1)
    with spark_settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}):
        failing = rows.mapInArrow(fails_once(tmp_path / "failed"), "value string")
        sink.made()(failing, 0)
    assert [value.decode() for value in sink.values()] == texts


def test_a_batch_that_comes_again_is_left_out_by_the_same_sink_and_another(
    sink: Sink, numbers: Callable[[int], DataFrame], spark: SparkSession
) -> None:
    first = sink.made()
    first(numbers(9), 0)
    first(numbers(9), 0)
    first(numbers(6), 1)
    again = sink.made()
    again(numbers(6), 1)
    again(numbers(3), 2)
    found = sink.values()
    assert sorted(found[:9]) == [b"%d" % number for number in range(9)]
    assert sorted(found[9:15]) == [b"%d" % number for number in range(6)]
    assert sorted(found[15:]) == [b"0", b"1", b"2"]
    with pytest.raises(SinkAheadError, match="batch 2 is in Kafka already"):
        again(numbers(6), 1)
    with pytest.raises(BatchChangedError, match="it has 2 partitions, and had 3"):
        again(numbers(3).coalesce(2), 2)


def test_a_part_that_a_failed_call_has_written_is_known_to_the_next_one(spark: SparkSession, sink: Sink) -> None:
    servers, topic = sink.servers, sink.topic

    def fails_later(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0:
            while not values(servers, topic):
                pass
            raise ValueError("fails at the end")

    same = sink.made()
    rows = spark.range(0, 4, 1, 2).select(f.col("id").cast("string").alias("value"))
    with pytest.raises(PythonException, match="fails at the end"):
        same(rows.mapInArrow(fails_later, "value string"), 0)
    with pytest.raises(BatchChangedError, match="it has 1 partitions, and had 2"):
        same(rows.coalesce(1), 0)
    same(rows, 0)
    assert sorted(sink.values()) == [b"0", b"1", b"2", b"3"]


def test_rows_are_taken_once_and_to_their_end_also_when_they_are_left_out(
    sink: Sink, numbers: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    def noting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        with open(tmp_path / "taken", "ab") as file:
            file.write(b".")

    rows = numbers(9).mapInArrow(noting, "value string")
    for batch_id, taken in ((0, 1), (0, 2), (1, 3)):
        sink.made()(rows, batch_id)
        assert (tmp_path / "taken").stat().st_size == taken * PARTITIONS


def test_partitions_divide_rows_by_key_whatever_tasks_they_come_in(
    sink: Sink, numbers: Callable[[int], DataFrame]
) -> None:
    def keyed(tasks: int) -> DataFrame:
        rows = numbers(60).coalesce(1).repartition(tasks)
        return rows.select((f.col("value") % 7).cast("string").alias("key"), "value")

    sink.made(partitions=2)(keyed(3), 0)
    sink.made(partitions=2)(keyed(5), 0)
    assert sorted(sink.values(), key=int) == [b"%d" % number for number in range(60)]


def test_what_is_packed_is_not_divided(spark: SparkSession, sink: Sink) -> None:
    with pytest.raises(InputError, match="packed=True"):
        sink.made(partitions=2)(spark.createDataFrame([(b"blob",)], "blob binary"), 0)


def test_columns_are_those_of_sparks_sink(spark: SparkSession, sink: Sink) -> None:
    other = f"{sink.topic}-other"
    KafkaCluster(sink.servers).create_topic(other, 2, {})
    rows = spark.sql(
        f"""select 'text' as key, binary('bytes') as value, cast(null as string) as topic, 0 as partition,
            timestamp_millis(1234567) as timestamp, array(struct('h' as key, binary('v') as value)) as headers
        union all select null, null, '{other}', 1, timestamp_millis(7), null"""
    )
    sink.made()(rows, 0)
    ((first,),) = seen(sink.servers, sink.topic)
    _, (second,) = seen(sink.servers, other, 2)
    assert (first.key(), first.value(), first.timestamp()[1], first.headers()) == (
        b"text",
        b"bytes",
        1234567,
        [("h", b"v")],
    )
    assert (second.key(), second.value(), second.timestamp()[1], second.headers()) == (None, None, 7, None)


@pytest.mark.parametrize(
    ("columns", "options", "error", "words"),
    [
        (["value", "x"], {}, InputSchemaError, "'x': is not a column of Kafka's sink"),
        (["key"], {}, InputSchemaError, "'value': is missing"),
        (["number as value"], {}, InputSchemaError, "is bigint, not binary"),
        (["map('a', 'b') as headers", "value"], {}, InputSchemaError, "a map can't keep"),
        (["value"], {"topic": None}, InputSchemaError, "'topic': is missing"),
        (["value"], {"query_id": None}, InputError, "query_id="),
    ],
)
def test_what_it_can_not_write_is_refused_before_anything_runs(
    spark: SparkSession, columns: list[str], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    rows = spark.sql("select 'k' as key, 'v' as value, 1 as x, 7L as number").selectExpr(*columns)
    with pytest.raises(error, match=words):
        # Nobody answers there.
        KafkaTransactions("127.0.0.1:1", **{"markers": "m", "topic": "t", "query_id": "q", **options})(rows, 0)


def test_numbers_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="partitions must be at least 1"):
        KafkaTransactions("localhost:1", markers="m", partitions=0)
