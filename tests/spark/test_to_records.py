"""Business columns in Kafka's shape: what each type becomes, in which order, and what is said of what can't."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timezone
from math import inf, isnan, nan
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import _parse_datatype_string

from statestore import Serdes
from statestore.errors.run import RecordColumnsError
from statestore.format.serde import STANDARD_SERDES, Serde, standard_serde
from statestore.spark import to_records
from statestore.spark.dataframes.encodings import decode, encode, is_malformed
from statestore.spark.shards.schema import check_input_schema

NUMBERS = {
    "int32": ("int", [0, 1, -1, 127, -128, 2**31 - 1, -(2**31), None]),
    "int64": ("bigint", [0, 1, -1, 2**63 - 1, -(2**63), 255, -256, None]),
    "double": (
        "double",
        [0.0, -0.0, 1.0, -1.5, 0.1, 5e-324, -5e-324, 2.2250738585072014e-308, 2.225073858507201e-308]
        + [1.7976931348623157e308, -1.7976931348623157e308, inf, -inf, nan, 8.0, 7.999999999999999, 1e22, None]
        + [2.0**power for power in range(-1074, 1024, 13)]
        + [-(2.0**power) * (2 - 2**-52) for power in range(-1022, 1024, 17)],
    ),
    "boolean": ("boolean", [True, False, None]),
    "string": ("string", ["", "ada", "jürgen 🙂", None]),
    "bytes": ("binary", [b"", b"\xff\x00", None]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_every_encoding_is_that_of_the_serde_both_ways(spark: SparkSession, name: str) -> None:
    spark_type, values = NUMBERS[name]
    serde: Serde[Any] = STANDARD_SERDES[name]
    df = spark.createDataFrame([(n, value) for n, value in enumerate(values)], f"n int, value {spark_type}")
    written = df.select("n", "value", encode(F.col("value"), name).alias("data"))
    back = written.select("n", "data", decode(F.col("data"), name).alias("back")).orderBy("n").collect()
    expected = [None if value is None else serde.serialize(value) for value in values]
    assert [None if row.data is None else bytes(row.data) for row in back] == expected
    found = [bytes(row.back) if isinstance(row.back, bytearray) else row.back for row in back]  # before Spark 4.1
    assert [repr(value) for value in found] == [repr(value) for value in values]


def test_what_the_serde_did_not_write_is_null_and_malformed(spark: SparkSession) -> None:
    wrong = {"int32": b"\x00" * 8, "int64": b"\x00" * 9, "double": b"", "boolean": b"\x02", "string": b"\xff"}
    for name, data in wrong.items():
        df = spark.createDataFrame([(data,), (None,)], "data binary")
        value = decode(F.col("data"), name)
        rows = df.select(value.alias("value"), is_malformed(F.col("data"), value, name).alias("malformed")).collect()
        assert [tuple(row) for row in rows] == [(None, True), (None, False)], name
    df = spark.createDataFrame(
        [(text.encode(),) for text in ('{"a":1}', '{"a":"x"}', "{", "", "1,2", '{"a":1} more', "null", "7")],
        "data binary",
    )
    value = decode(F.col("data"), "json", _parse_datatype_string("a int"))
    rows = df.select(value.alias("value"), is_malformed(F.col("data"), value, "json").alias("malformed")).collect()
    assert [row.malformed for row in rows] == [False, True, True, True, True, True, False, True]
    assert rows[0].value == Row(a=1)


ORDERS = "customer string, amount int, at timestamp, tenant string, line bigint"


def orders(spark: SparkSession) -> Any:
    at = datetime(2024, 5, 1, 12, 0, 0, 250_001, tzinfo=timezone.utc)
    return spark.createDataFrame([("ada", 5, at, "eu", 7), ("bo", None, at, None, 3)], ORDERS)


def test_columns_become_records_that_stateful_takes(spark: SparkSession) -> None:
    df = orders(spark)
    made = to_records(
        df,
        key="customer",
        value=["amount", F.col("at").alias("time"), F.lit("é").alias("note")],
        timestamp="at",
        headers={"tenant": "tenant", "source": b"shop", "lines": F.col("line") + 1, "none": None},
        topic="orders",
    )
    check_input_schema(made.schema)
    first, second = made.collect()
    assert (first.topic, first.partition, bytes(first.key)) == ("orders", 0, b"ada")
    assert first.offset == 1_714_564_800_250_001, "the time, in microseconds"
    value = json.loads(bytes(second.value))
    assert value == {"amount": None, "time": "2024-05-01T12:00:00.250001Z", "note": "é"}
    assert [tuple(header) for header in second.headers] == [
        ("tenant", None),
        ("source", b"shop"),
        ("lines", b"4"),
        ("none", None),
    ]


def test_a_null_header_can_be_none_at_all(spark: SparkSession) -> None:
    asked: dict[str, Any] = {
        "key": "customer",
        "value": ["*"],
        "topic": "t",
        "headers": {"tenant": "tenant", "x": None},
    }
    names = {}
    for omitted in (False, True, ["tenant"]):
        made = to_records(orders(spark), **asked, omit_null_headers=omitted).collect()
        names[str(omitted)] = [[header.key for header in row.headers] for row in made]
    assert names == {
        "False": [["tenant", "x"], ["tenant", "x"]],
        "True": [["tenant"], []],
        "['tenant']": [["tenant", "x"], ["x"]],
    }
    assert list(json.loads(bytes(made[0].value))) == ["customer", "amount", "at", "tenant", "line"]


def test_encodings_orders_and_times_are_said(spark: SparkSession) -> None:
    made = to_records(
        orders(spark),
        key="amount",
        key_as="int64",
        value="line",
        value_as=Serdes.string(),
        timestamp=F.lit(1_700_000_000_123),
        order_by="line",
        partition=F.col("amount"),
        topic=F.concat(F.lit("of-"), "customer"),
    ).collect()
    assert [(row.offset, row.partition, row.topic, bytes(row.value)) for row in made] == [
        (7, 5, "of-ada", b"7"),
        (3, None, "of-bo", b"3"),
    ]
    assert bytes(made[0].key) == Serdes.int64().serialize(5)
    assert made[0].timestamp.timestamp() == 1_700_000_000.123
    by_day = to_records(
        orders(spark),
        key=None,
        value=F.lit(1.5),
        timestamp=F.lit(date(2024, 5, 1)),
        order_by=F.to_date("at"),
        topic="t",
    ).first()
    assert by_day is not None
    assert (by_day.key, by_day.offset) == (None, (date(2024, 5, 1) - date(1970, 1, 1)).days)
    assert not isnan(Serdes.double().deserialize(bytes(by_day.value)))


def test_a_row_without_a_time_is_for_stateful_to_refuse_and_one_without_an_order_is_refused(
    spark: SparkSession,
) -> None:
    rows = spark.createDataFrame([("ada", None, None)], "customer string, at timestamp, line int")
    asked: dict[str, Any] = {"key": "customer", "value": "customer", "timestamp": "at", "topic": "t"}
    record = to_records(rows, **asked).first()
    assert record is not None
    assert (record.timestamp, record.offset) == (None, -1), "a null offset would be named instead of the time"
    with pytest.raises(SparkRuntimeException, match="order_by is null in a row"):
        to_records(rows, **asked, order_by="line").collect()


def test_all_that_is_wrong_is_one_error(spark: SparkSession) -> None:
    with pytest.raises(RecordColumnsError) as raised:
        to_records(
            orders(spark),
            key="custmer",
            value=F.col("at"),
            timestamp="amount",
            headers={"tenant": "nobody"},
            order_by=F.monotonically_increasing_id(),
            partition="line",
            topic="",
        )
    error = raised.value
    assert error.function == "to_records"
    assert [problem.partition(":")[0] for problem in error.problems] == [
        "key",
        "value",
        "topic",
        "partition",
        "timestamp",
        "header 'tenant'",
        "order_by",
    ]
    assert "there is no column 'custmer'; there are customer, amount, at, tenant, line" in str(error)
    assert "milliseconds since the epoch as bigint" in str(error)
    assert "when its batch is run again" in str(error)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: {"key": "line", "key_as": "int32"}, "bigint can't be written as int32"),
        (lambda: {"key": "customer", "key_as": "avro"}, "an encoding is one of string, bytes, int32"),
        (lambda: {"key": "customer", "key_as": Serdes.of("own", str.encode, bytes.decode)}, "serde 'own' of your own"),
        (lambda: {"key": F.col("line").cast("decimal(10,2)")}, "has no encoding of its own"),
        (lambda: {"key": "line", "headers": F.create_map(F.lit("a"), F.lit("b"))}, "headers: is map"),
        (lambda: {"key": []}, "names no column"),
        (lambda: {"key": 5}, "key: 5 is neither a column nor the name of one"),
        (lambda: {"key": ["customer", "nobody"]}, "there is no column 'nobody'"),
        (lambda: {"key": "customer", "headers": {"n": 5}}, "header 'n': 5 is neither a column"),
        (lambda: {"key": "customer", "omit_null_headers": ["x"], "headers": {"n": None}}, "names 'x', which"),
        (lambda: {"key": F.rand()}, r"key: rand\(\) gives another result"),
        (lambda: {"key": "customer", "partition": -1}, "partition: is -1"),
        (lambda: {"key": "customer", "topic": F.lit(1)}, "topic: is int, not string"),
        (lambda: {"key": "customer", "order_by": "customer"}, "order_by: is string; it takes whole numbers"),
        (lambda: {"key": F.col("customer") + F.array(F.lit(1))}, "key: .*DATATYPE_MISMATCH"),
    ],
)
def test_what_would_lose_something_is_refused(
    spark: SparkSession, asked: Callable[[], dict[str, Any]], said: str
) -> None:
    with pytest.raises(RecordColumnsError, match=said):
        to_records(orders(spark), **{"value": "line", "topic": "t", **asked()})


def test_a_standard_serde_is_known_by_its_name_and_itself() -> None:
    assert standard_serde("int64") is standard_serde(Serdes.int64())
    with pytest.raises(ValueError, match="string"):
        standard_serde(Serdes.of("string", str.encode, bytes.decode))
