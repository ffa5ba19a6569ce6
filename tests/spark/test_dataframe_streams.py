"""Programs of the DSL on columns: what goes in by name comes out by name, with headers, windows and late rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from statestore import Serdes
from statestore.dsl.materialized import Materialized
from statestore.dsl.windows import TimeWindows
from statestore.errors import InputError, RecordColumnsError, TopologyError
from statestore.spark import read_store
from statestore.spark.dataframe_streams import DataFrameStreams
from tests.support.spark.queries import run_to_the_end

COLUMNS = "customer string, region string, amount int, time_ms bigint, tenant string"
ORDERS = [
    ("ada", "n", 5, 1_000, "eu"),
    ("bo", "n", 7, 2_000, None),
    ("ada", "n", -8, 61_000, "us"),
    ("ada", "s", 1, 3_000, "eu"),
]


def orders_of(spark: SparkSession, home: Path) -> DataFrame:
    spark.createDataFrame(ORDERS, COLUMNS).coalesce(1).write.parquet(str(home / "orders"))
    return spark.readStream.schema(COLUMNS).parquet(str(home / "orders"))


def test_windows_of_columns(spark: SparkSession, tmp_path: Path, via: str) -> None:
    streams = DataFrameStreams()
    orders = streams.stream(
        orders_of(spark, tmp_path),
        key=["customer", "region"],
        value="amount",
        timestamp="time_ms",
        headers={"tenant": "tenant"},
    )
    minutes = orders.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000))
    totals = minutes.sum(materialized=Materialized.as_("totals"), headers="append")
    result = streams.result(
        totals, value="total", headers={"tenant": "string"}, shards=1, state_location=tmp_path / "state", via=via
    )
    assert result.schema.simpleString() == (
        "struct<customer:string,region:string,window_start:timestamp,window_end:timestamp,total:bigint,"
        "timestamp:timestamp,tenant:string>"
    )
    rows: list[tuple[object, ...]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        seconds = batch.selectExpr(
            "customer", "region", "unix_millis(window_start)", "unix_millis(window_end)", "total", "tenant"
        )
        rows.extend(tuple(row) for row in seconds.collect())

    run_to_the_end(result.writeStream.foreachBatch(keep), tmp_path / "checkpoint")
    assert rows == [
        ("ada", "n", 0, 60_000, 5, "eu"),
        ("bo", "n", 0, 60_000, 7, None),
        ("ada", "s", 0, 60_000, 1, "eu"),
        ("ada", "n", 60_000, 120_000, -8, "us"),
    ]
    held = read_store(
        spark,
        "totals",
        checkpoint_location=tmp_path / "checkpoint",
        state_location=tmp_path / "state",
        key_serde="string",
        value_serde="int64",
    )
    assert sorted(tuple(row) for row in held.select("key", "value").collect()) == [
        ('{"customer":"ada","region":"n"}', -8),
        ('{"customer":"ada","region":"n"}', 5),
        ('{"customer":"ada","region":"s"}', 1),
        ('{"customer":"bo","region":"n"}', 7),
    ]


def test_what_is_wrong_is_said_when_the_program_is_made(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()
    with pytest.raises(RecordColumnsError, match="customer"):
        DataFrameStreams().stream(rows, key="customer", value="value")
    with pytest.raises(InputError, match="no input"):
        DataFrameStreams().records({}, shards=1, state_location=tmp_path)
    streams = DataFrameStreams()
    numbers = streams.stream(rows, key="value", value="value")
    with pytest.raises(TopologyError, match="value_serde"):
        streams.result(numbers.map_values(str), shards=1, state_location=tmp_path)
    with pytest.raises(ValueError, match="value_schema"):
        streams.columns(rows, numbers, value_schema="a int")
    with pytest.raises(TopologyError, match="changes keys"):
        numbers.select_key(lambda key, value: value, key_serde=Serdes.int64()).group_by_key()
