"""Programs of the DSL on columns: what goes in by name comes out by name, with headers, windows and late rows."""

from __future__ import annotations

from decimal import Decimal
from inspect import Parameter, signature
from math import nan
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType

from statestore import BatchProcessor, Serdes
from statestore.dsl.aggregates.aggregate import Aggregate
from statestore.dsl.materialized import Materialized
from statestore.dsl.windows import JoinWindows, TimeWindows
from statestore.errors import InputError, TopologyError
from statestore.errors.run import AggregatesError, RecordColumnsError
from statestore.spark import read_store
from statestore.spark.dataframes.dataframe_streams import DataFrameStreams
from statestore.spark.dataframes.to_records import RecordOptions, to_records
from statestore.testing import TopologyTestDriver
from tests.support.spark.queries import run_to_the_end

COLUMNS = "customer string, region string, amount int, price decimal(10,2), score double, time_ms bigint, tenant string"
ORDERS = [
    ("ada", "n", 5, Decimal("0.10"), nan, 1_000, "eu"),
    ("bo", "n", 7, None, None, 2_000, None),
    ("ada", "n", -8, Decimal("9.99"), 0.5, 61_000, "us"),
    ("ada", "s", 1, Decimal("-1.00"), 1.5, 3_000, "eu"),
    ("ada", "n", None, Decimal("0.20"), 2.5, 4_000, "us"),
]
AGGREGATES = {
    "total": Aggregate.sum("amount"),
    "orders": Aggregate.count(),
    "turnover": Aggregate.sum("price"),
    "mean_price": Aggregate.mean("price"),
    "best": Aggregate.max("score"),
    "scores": Aggregate.collect("score", 2),
    "latest": Aggregate.last("at"),
}


def orders_of(spark: SparkSession, home: Path) -> DataFrame:
    spark.createDataFrame(ORDERS, COLUMNS).coalesce(1).write.parquet(str(home / "orders"))
    return spark.readStream.schema(COLUMNS).parquet(str(home / "orders"))


def test_windows_of_columns(spark: SparkSession, tmp_path: Path, via: str) -> None:
    streams, df = DataFrameStreams(), orders_of(spark, tmp_path)
    shared: RecordOptions = {"timestamp": "time_ms", "headers": {"tenant": "tenant"}}
    key, at = ["customer", "region"], F.timestamp_millis("time_ms").alias("at")
    rows = streams.stream(df, key=key, value=["amount", "price", "score", at], **shared)
    amounts = streams.stream(df, key=key, value="amount", **shared)  # of numbers, which go in columns
    windows = TimeWindows.of_size_with_no_grace(60_000)
    kept = Materialized.as_("totals").with_caching_enabled()
    totals = rows.group_by_key().windowed_by(windows).agg(AGGREGATES, materialized=kept, headers="append")
    sums = amounts.group_by_key().windowed_by(windows).sum(headers="append")
    records = streams.records({"totals": totals, "sums": sums}, shards=1, state_location=tmp_path / "state", via=via)
    assert streams.columns(records, totals, headers={"tenant": "string"}).schema.simpleString() == (
        "struct<customer:string,region:string,window_start:timestamp,window_end:timestamp,"
        "total:bigint,orders:bigint,turnover:decimal(15,2),mean_price:double,best:double,scores:array<double>,"
        "latest:timestamp,timestamp:timestamp,tenant:string>"
    )
    found: dict[str, list[str]] = {"totals": [], "sums": []}

    def keep(batch: DataFrame, batch_id: int) -> None:
        for topic, table in (("totals", totals), ("sums", sums)):
            of_topic = batch.where(batch.topic == topic)
            made = streams.columns(of_topic, table, value="total", timestamp=None, headers={"tenant": "string"})
            times = [name for name in made.columns if name in ("window_start", "window_end", "latest")]
            shown = made.withColumns({name: F.unix_millis(name) for name in times})
            found[topic] += [repr(tuple(row)) for row in shown.collect()]

    run_to_the_end(records.writeStream.foreachBatch(keep), tmp_path / "checkpoint")
    assert sorted(found["totals"]) == [
        "('ada', 'n', 0, 60000, 5, 2, Decimal('0.30'), 0.15000000000000002, 2.5, [nan, 2.5], 4000, 'us')",
        "('ada', 'n', 60000, 120000, -8, 1, Decimal('9.99'), 9.99, 0.5, [0.5], 61000, 'us')",
        "('ada', 's', 0, 60000, 1, 1, Decimal('-1.00'), -1.0, 1.5, [1.5], 3000, 'eu')",
        "('bo', 'n', 0, 60000, 7, 1, None, None, None, [], 2000, None)",
    ]
    assert found["sums"] == [
        "('ada', 'n', 0, 60000, 5, 'eu')",
        "('bo', 'n', 0, 60000, 7, None)",
        "('ada', 's', 0, 60000, 1, 'eu')",
        "('ada', 'n', 60000, 120000, -8, 'us')",
    ]
    held = read_store(
        spark,
        "totals",
        checkpoint_location=tmp_path / "checkpoint",
        state_location=tmp_path / "state",
        key_serde="string",
        value_serde="json",
    )
    assert [tuple(row) for row in held.where("key like '%bo%'").select("key", "value").collect()] == [
        (
            '{"customer":"bo","region":"n"}',
            '{"total":7,"orders":1,"turnover":null,"mean_price":[0,0],"best":null,"scores":[],'
            '"latest":"1970-01-01T00:00:02.000000Z"}',
        )
    ]


def test_aggregates_that_can_not_be_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = (
        spark.readStream.format("rate").load().withColumns({"shop": F.lit("a"), "long": F.lit(1).cast("decimal(30,2)")})
    )
    streams = DataFrameStreams()
    sales = streams.stream(rows, key=["shop", "value"], value=["*", F.expr("interval 1 month").alias("month")])
    with pytest.raises(
        AggregatesError, match=r"\(1\) 'a': sum\(\).*\(2\) 'b': there is no column 'valu'.*\(3\) .*'month'"
    ):
        sales.group_by_key().agg(
            {
                "a": Aggregate.sum("shop"),
                "b": Aggregate.sum("valu"),
                "c": Aggregate.last("month"),
                "d": Aggregate.count("long"),
            }
        )
    made = {name: Aggregate.count() for name in ("shop", "window_start", "Timestamp", "headers", "fine")}
    table = sales.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(1)).agg(made)
    with pytest.raises(RecordColumnsError) as raised:
        streams.result(table, shards=1, state_location=tmp_path)
    assert [problem.split("'")[1] for problem in raised.value.problems] == [
        "shop",
        "window_start",
        "timestamp",
        "headers",
    ]


def test_rows_that_come_through_have_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load().select("value", F.lit("a").alias("shop"))
    streams = DataFrameStreams()
    passed = streams.stream(rows, key="shop", value=["*"]).filter(lambda key, row: row["value"] % 2)
    result = streams.result(passed, shards=1, state_location=tmp_path)
    assert result.columns == ["shop", "value", "timestamp", "headers"]
    records = to_records(rows, key="shop", value=["*"], topic="t")
    windows = TimeWindows.of_size_with_no_grace(1)
    late = passed.group_by_key().windowed_by(windows).agg({"mean": Aggregate.mean("value")}).late_records()
    assert streams.columns(records, late).columns == result.columns
    assert streams.columns(records, passed, value_schema="json").schema["value"].dataType == StringType()
    wide = rows.withColumn("wide", F.lit(1).cast("decimal(16,2)"))
    streams = DataFrameStreams()
    not_known = streams.stream(wide, key="shop", value=["*"])
    assert streams.columns(records, not_known).schema["value"].dataType == StringType(), "JSON has no such decimals"


def test_what_is_wrong_is_said_when_the_program_is_made(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()
    with pytest.raises(RecordColumnsError, match="customer"):
        DataFrameStreams().stream(rows, key="customer", value="value")
    with pytest.raises(
        TypeError, match=r"no option 'valueas': besides key, value and name there are timestamp, headers"
    ):
        DataFrameStreams().stream(rows, key="value", value="value", valueas="json")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="no input"):
        DataFrameStreams().records({}, shards=1, state_location=tmp_path)
    streams = DataFrameStreams()
    numbers = streams.stream(rows, key="value", value="value")
    with pytest.raises(TopologyError, match="value_serde"):
        streams.result(numbers.map_values(str), shards=1, state_location=tmp_path)
    with pytest.raises(TypeError, match="grouped stream is to be aggregated"):
        streams.result(numbers.group_by_key(), shards=1, state_location=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="value_schema"):
        streams.columns(rows, numbers, value_schema="a int")


def test_rows_are_grouped_again_by_what_came_of_them(spark: SparkSession, tmp_path: Path) -> None:
    streams = DataFrameStreams()
    orders = streams.stream(
        orders_of(spark, tmp_path), key=["customer", "tenant"], value=["region", "amount"], timestamp="time_ms"
    )
    by_region = orders.group_by("region", name="regions")
    totals = by_region.agg({"total": Aggregate.sum("amount")})
    found: dict[str, int] = {}

    def keep(batch: DataFrame, batch_id: int) -> None:
        made = streams.columns(batch, totals)
        found.update({row.key: row.total for row in made.collect()})

    records = streams.records({"totals": totals}, shards=2, state_location=tmp_path / "state")
    run_to_the_end(records.writeStream.foreachBatch(keep), tmp_path / "checkpoint")
    assert found == {"n": 4, "s": 1}


def test_all_options_of_records_are_there(spark: SparkSession, tmp_path: Path) -> None:
    parameters = signature(to_records).parameters.values()
    optional = {each.name: each.annotation for each in parameters if each.default is not Parameter.empty}
    assert {name: each.__forward_arg__ for name, each in RecordOptions.__annotations__.items()} == optional
    rows = spark.readStream.format("rate").load().withColumn("shop", F.lit(5))
    streams = DataFrameStreams()
    shops = streams.stream(rows, key="shop", key_as="int64", value="value", headers={"x": None}, omit_null_headers=True)
    result = streams.result(shops, shards=1, state_location=tmp_path)
    assert result.schema["shop"].dataType == LongType()


def test_each_query_has_the_results_that_it_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """Also if a call failed before, as one in a notebook."""
    rows = spark.readStream.format("rate").load().select("value", F.lit("a").alias("shop"))
    streams = DataFrameStreams()
    by_shop = streams.stream(rows, key="shop", value="value", name="sales").group_by_key()
    counts, sums = by_shop.count(), by_shop.sum()
    with pytest.raises(TypeError, match="state_location"):
        streams.result(counts)
    for in_columns in (True, False):
        other = DataFrameStreams(in_columns=in_columns)
        once = other.stream(rows, key="shop", value="value").deduplicate(1)
        processors = other.topology({"out": once}).processors.values()
        assert {isinstance(node.supplier(), BatchProcessor) for node in processors} == {in_columns}
    for results in ({"out": counts}, {"out": sums}, {"out": counts, "sums": sums}):
        with TopologyTestDriver(streams.topology(results)) as driver:
            sales = driver.create_input_topic("sales", key_serde=Serdes.string(), value_serde=Serdes.int64())
            sales.pipe_input("a", 5, timestamp_ms=0)
            for topic, result in results.items():
                out = driver.create_output_topic(topic, key_serde=Serdes.string(), value_serde=Serdes.int64())
                assert out.read_values_to_list() == [1 if result is counts else 5]


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
        ("ada", "North None 5", "us", "b1"),
        ("bo", "North 7 None", None, None),
    ]


def _region_of(key: str, order: dict[str, object]) -> object:
    return order["region"]


def _named(order: dict[str, object], name: str | None) -> dict[str, object]:
    return {**order, "region": name}


def _paid(order: dict[str, object], paid: int | None) -> str:
    return f"{order['region']} {order['amount']} {paid}"
