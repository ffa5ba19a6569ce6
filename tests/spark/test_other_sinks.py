"""The recipes of docs/exactly-once-sink.md for files and for Delta: a batch that is run again is written once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from orders import running_total_topology, seeded_orders
from statestore.spark import error_of, stateful
from statestore.testing.jars import delta_jars
from tests.support.documentation import ROOT, run_page
from tests.support.spark.queries import SECOND_CHECKPOINT_FORMAT, OrderQuery, run_to_the_end, spark_settings

ORDERS = seeded_orders(30)
WITHOUT_EXTENSION = {
    "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",  # the session is that of all tests
    "spark.databricks.delta.snapshotPartitions": "1",  # by default 50 tasks look at a log of a few lines
}


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> OrderQuery:
    made = OrderQuery(spark, tmp_path, "apply_in_pandas_with_state")
    made.add(ORDERS[:10], ORDERS[10:20])
    return made


def writer_of(query: OrderQuery) -> DataStreamWriter:
    where = {"state_location": query.home / "state", "local_dir": str(query.home / "local"), "via": query.via}
    return stateful(query.records(), running_total_topology(), shards=2, **where).writeStream


def run_again_without_commit_and_go_on(query: OrderQuery, writer: DataStreamWriter) -> None:
    """Run two batches, lose what says that Spark has done the second, run it again, and then a third."""
    run_to_the_end(writer, query.home / "checkpoint")
    commits = query.home / "checkpoint" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    query.add(ORDERS[20:])
    run_to_the_end(writer, query.home / "checkpoint")
    assert (commits / "2").exists()


def test_files_have_each_batch_once(query: OrderQuery) -> None:
    output = str(query.home / "output")
    run_again_without_commit_and_go_on(query, writer_of(query).format("parquet").option("path", output))
    assert query.spark.read.parquet(output).count() == len(ORDERS)


@pytest.mark.parametrize("settings", [{}, SECOND_CHECKPOINT_FORMAT], ids=["format 1", "format 2"])
def test_a_delta_table_has_each_batch_once(query: OrderQuery, settings: Mapping[str, str]) -> None:
    if not delta_jars():
        pytest.skip("there is no Delta for this Spark here")
    recipe: Any = run_page(ROOT / "docs" / "exactly-once-sink.md", with_spark=False)
    table = str(query.home / "table")
    write, batches = recipe.to_delta(table, "checkpoint"), []

    def take(rows: DataFrame, batch_id: int) -> None:
        batches.append(batch_id)
        write(rows, batch_id)

    with spark_settings(query.spark, {**WITHOUT_EXTENSION, **settings}):
        run_again_without_commit_and_go_on(query, writer_of(query).foreachBatch(take))
        assert batches == [0, 1, 1, 2]
        assert query.spark.read.format("delta").load(table).count() == len(ORDERS)


def test_a_batch_that_the_function_does_not_take_is_said_as_such(query: OrderQuery) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        run_to_the_end(writer_of(query).foreachBatch(lambda rows, batch_id: None), query.home / "checkpoint")
    failure = error_of(caught.value)
    assert failure is not None
    assert (failure.error, failure.fields) == ("BatchNotEvaluatedError", {"evaluated": 0, "partitions": 2})
