"""The sink of transactions in a query's foreachBatch: for which batch, and by whom, it is called; on a real broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statestore.spark.kafka_sink import KafkaCluster, KafkaTransactions
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.kafka.transactions import values
from tests.support.spark.queries import run_to_the_end

_NUMBERS = count()
Write = Callable[[DataFrame, int], None]


class Sums:
    """A query that writes one row for each batch, the sum of the numbers in its lines, whatever the batch reads."""

    def __init__(self, spark: SparkSession, servers: str, home: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._home = home
        self._topic = f"sink-queries-{next(_NUMBERS)}"
        KafkaCluster(servers).create_topic(self._topic, 1, {})
        (home / "input").mkdir()

    def sink(self, **options: Any) -> KafkaTransactions:
        cluster = KafkaCluster(self._servers, timeout_s=20)
        defaults = {"markers": f"{self._topic}-markers", "topic": self._topic, "partitions": 1}
        return KafkaTransactions(cluster, **{**defaults, **options})

    def add(self, number: int) -> None:
        (self._home / f"input/{next(_NUMBERS)}.txt").write_text(f"{number}\n")

    def run(self, *sinks: Write) -> None:
        def write(lines: DataFrame, batch_id: int) -> None:
            for sink in sinks:
                sink(lines.agg(f.sum("value").cast("int").cast("string").alias("value")), batch_id)

        lines = self._spark.readStream.text(str(self._home / "input"))
        run_to_the_end(lines.writeStream.foreachBatch(write), self._home / "checkpoint")

    def keep_checkpoint(self) -> None:
        shutil.copytree(self._home / "checkpoint", self._home / "kept")

    def bring_checkpoint_back(self) -> None:
        shutil.rmtree(self._home / "checkpoint")
        (self._home / "kept").rename(self._home / "checkpoint")

    def forget_last_commit(self) -> None:
        """Have Spark repeat its last batch, as it does if it died before it was committed."""
        last = max((self._home / "checkpoint/commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (last, last.with_name(f".{last.name}.crc")):
            path.unlink()

    def values(self) -> list[bytes]:
        return values(self._servers, self._topic)


@pytest.fixture
def sums(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> Sums:
    return Sums(spark, broker.bootstrap_servers, tmp_path)


def test_a_checkpoint_that_is_one_batch_older_is_refused_though_counts_are_the_same(sums: Sums) -> None:
    for number in (1, 10):
        if number == 10:
            sums.keep_checkpoint()
        sums.add(number)
        sums.run(sums.sink())
    sums.bring_checkpoint_back()
    sums.add(100)
    with pytest.raises(StreamingQueryException, match=r"batch 1 is in Kafka already, by another plan"):
        sums.run(sums.sink())
    assert sums.values() == [b"1", b"10"]


def test_a_batch_that_spark_repeats_is_left_out_by_the_same_object_and_another(sums: Sums) -> None:
    same = sums.sink()
    for sink in (same, same, sums.sink()):
        sums.add(1)
        sums.run(sink)
        sums.forget_last_commit()
        sums.run(sink)
    sums.forget_last_commit()
    sums.run(sums.sink())
    assert sums.values() == [b"1", b"1", b"1"]


def test_a_batch_is_given_once(sums: Sums) -> None:
    same = sums.sink()
    for pair in ((same, same), (sums.sink(), sums.sink())):
        sums.add(1)
        with pytest.raises(StreamingQueryException, match=r"give each a KafkaTransactions with its own writer="):
            sums.run(*pair)
    # The second of the last pair has written nothing, and the batch is there once.
    assert sums.values() == [b"1"]
    sums.run(sums.sink(), sums.sink(writer="other"))
    # The other one has both batches to write, this one has the second.
    assert sums.values() == [b"1"] * 4


def test_a_sink_may_be_made_for_each_batch_and_a_call_that_failed_be_made_again(sums: Sums) -> None:
    def made_anew(rows: DataFrame, batch_id: int) -> None:
        with pytest.raises(Exception, match="NO_SUCH_PARTITION"):
            sums.sink()(rows.select(f.raise_error(f.lit("NO_SUCH_PARTITION")).cast("string").alias("value")), batch_id)
        sums.sink()(rows, batch_id)

    for _ in range(2):
        sums.add(3)
        sums.run(made_anew)
    assert sums.values() == [b"3", b"3"]
