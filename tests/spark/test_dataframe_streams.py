"""Programs of the DSL on columns: what goes in by name comes out by name, with headers, windows and late rows."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from statestore import Serdes
from statestore.dsl.materialized import Materialized
from statestore.dsl.windows import JoinWindows, TimeWindows
from statestore.errors import InputError, RecordColumnsError, TopologyError
from statestore.spark import read_store
from statestore.spark.dataframe_streams import DataFrameStreams
from statestore.spark.to_records import RecordOptions, to_records
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
    with pytest.raises(
        TypeError, match=r"no option 'valueas': beside key, value and name there are timestamp, headers"
    ):
        DataFrameStreams().stream(rows, key="value", value="value", valueas="json")  # type: ignore[call-arg]
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


def test_all_options_of_records_are_there(spark: SparkSession, tmp_path: Path) -> None:
    parameters = signature(to_records).parameters.values()
    optional = {each.name: each.annotation for each in parameters if each.default is not Parameter.empty}
    assert {name: each.__forward_arg__ for name, each in RecordOptions.__annotations__.items()} == optional
    rows = spark.readStream.format("rate").load().withColumn("shop", F.lit(5))
    streams = DataFrameStreams()
    shops = streams.stream(rows, key="shop", key_as="int64", value="value", headers={"x": None}, omit_null_headers=True)
    result = streams.result(shops, shards=1, state_location=tmp_path)
    assert result.schema["shop"].dataType == LongType()


def test_joins_of_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    """Of three: orders with the payments within a minute, and with the names of regions, which every shard has."""

    def rows_of(name: str, columns: str, rows: list[tuple[object, ...]]) -> DataFrame:
        spark.createDataFrame(rows, columns).coalesce(1).write.parquet(str(tmp_path / name))
        return spark.readStream.schema(columns).parquet(str(tmp_path / name))

    streams = DataFrameStreams()
    paid = "customer string, paid int, time_ms bigint, bank string"
    payments = streams.stream(
        rows_of("payments", paid, [("ada", 5, 2_000, "b1"), ("cy", 1, 200_000, "b2")]),
        key="customer",
        value="paid",
        timestamp="time_ms",
        headers={"bank": "bank"},
    )
    orders = streams.stream(
        orders_of(spark, tmp_path),
        key="customer",
        value=["region", "amount"],
        timestamp="time_ms",
        headers={"tenant": "tenant"},
    )
    names = streams.global_table(
        rows_of("names", "region string, name string", [("n", "North")]), key="region", value="name"
    )
    named = orders.left_join(names, _region_of, _named, value_serde=Serdes.json())
    joined = named.left_join(
        payments, _paid, JoinWindows.of_time_difference_and_grace(60_000, 0), value_serde=Serdes.string()
    )
    result = streams.result(
        joined, headers={"tenant": "string", "bank": "string"}, shards=1, state_location=tmp_path / "state"
    )
    rows: list[tuple[object, ...]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        rows.extend(tuple(row) for row in batch.selectExpr("customer", "value", "tenant", "bank").collect())

    run_to_the_end(result.writeStream.foreachBatch(keep), tmp_path / "checkpoint")
    assert sorted(rows, key=str) == [
        ("ada", "None 1 5", "eu", "b1"),
        ("ada", "North -8 5", "us", "b1"),
        ("ada", "North 5 5", "eu", "b1"),
        ("bo", "North 7 None", None, None),
    ]


def _region_of(key: str, order: dict[str, object]) -> object:
    return order["region"]


def _named(order: dict[str, object], name: str | None) -> dict[str, object]:
    return {**order, "region": name}


def _paid(order: dict[str, object], paid: int | None) -> str:
    return f"{order['region']} {order['amount']} {paid}"
