"""What the drivers hand to Spark, as Spark's own worker takes it."""

from collections.abc import Generator, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from orders import running_total_topology, seeded_orders
from statestore.spark import drivers, stateful
from statestore.spark.drivers import CollectedOutput, in_frames
from statestore.spark.figures import FIGURES, ShardFigures
from statestore.spark.shards.blobs import BLOB
from statestore.spark.shards.shard_call import ShardResult
from tests.support.spark.arrow_output import batches_of_output
from tests.support.spark.queries import SHARDS, OrderQuery, run_to_the_end

MAX_ROWS = 50
OUTPUT = StructType([StructField(BLOB, BinaryType()), StructField(FIGURES, StringType())])


def frames_of(blobs: list[bytes]) -> Generator[pd.DataFrame, None, Any]:
    for blob in blobs:
        yield pd.DataFrame({BLOB: [blob], FIGURES: [None]})
    return "result"


def test_spark_collects_no_more_output_than_some_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_COLLECTED_BYTES", 1_000)
    collected, results = CollectedOutput(MAX_ROWS), []

    def run(blobs: list[bytes]) -> Iterator[pd.DataFrame]:
        results.append((yield from collected.bound(frames_of(blobs))))

    shards = [[bytes([shard, number]) * 150 for number in range(8)] for shard in range(3)]
    batches = batches_of_output((run(blobs) for blobs in shards), OUTPUT, MAX_ROWS)
    sent = [[row[BLOB] for row in batch.to_pylist() if row[BLOB] is not None] for batch in batches]
    assert [blob for blobs in sent for blob in blobs] == [blob for blobs in shards for blob in blobs]
    assert all(sum(map(len, blobs)) < 1_000 + 300 for blobs in sent)
    assert results == ["result"] * 3


@pytest.mark.parametrize(
    ("sizes", "frames"),
    [([], [[None]]), ([4, 4, 2, 1], [[4, 4, 2], [1]]), ([20, 5, 6], [[20], [5], [6]])],
    ids=["none", "of one size", "larger than a frame"],
)
def test_blobs_go_together_as_far_as_a_frame_holds_them_and_figures_with_the_last_one(
    sizes: list[int], frames: list[list[int | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "_FRAME_BYTES", 10)
    figures = ShardFigures.from_json('{"shard":1,"version":2,"stores":{}}')
    ended = ShardResult("pointer", None, figures, "identity")

    def run() -> Generator[bytes, None, ShardResult]:
        yield from map(bytes, sizes)
        return ended

    results = []

    def taken() -> Iterator[pd.DataFrame]:
        results.append((yield from in_frames(run())))

    made = list(taken())
    assert [[None if blob is None else len(blob) for blob in frame[BLOB]] for frame in made] == frames
    assert [text for frame in made for text in frame[FIGURES]][:-1] == [None] * (max(1, len(sizes)) - 1)
    assert made[-1][FIGURES].iloc[-1] == ended.observed_json()
    assert results == [ended]


def test_spark_generates_code_in_the_first_batches_only(order_query: OrderQuery, spark: SparkSession) -> None:
    metrics = getattr(spark._jvm.org.apache.spark.metrics.source, "CodegenMetrics$").__getattr__("MODULE$")
    generated: list[int] = []

    def put_out(batch: DataFrame, _: int) -> None:
        batch.write.format("noop").mode("append").save()
        generated.append(metrics.METRIC_COMPILATION_TIME().getCount())

    orders = seeded_orders(80)
    order_query.add(*(orders[start : start + 20] for start in range(0, 80, 20)))
    places = {"state_location": order_query.state_location, "local_dir": str(order_query.home / "local")}
    rows = stateful(order_query.records(), running_total_topology(), shards=SHARDS, via=order_query.via, **places)
    run_to_the_end(rows.writeStream.foreachBatch(put_out), order_query.home / "checkpoint")
    assert len(generated) == 4
    assert generated[0] > 0
    assert generated[-1] == generated[1]
