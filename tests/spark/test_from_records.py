"""Records back in columns: values by encoding or schema, headers by type, and what is said of other bytes."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from statestore import Serdes
from statestore.errors.run import RecordColumnsError
from statestore.spark import from_records, to_records
from statestore.spark.shards.schema import OUTPUT_SCHEMA
from tests.support.spark.versions import not_in_spark_4_0

AT = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
ORDER = "total bigint, at timestamp, tags array<string>"
ORDERS = [("ada", -5, AT, ["new"], "eu", 1), ("bo", None, None, None, None, 2)]


def records_of(spark: SparkSession) -> DataFrame:
    orders = spark.createDataFrame(ORDERS, f"customer string, {ORDER}, tenant string, try int")
    return to_records(
        orders,
        key="customer",
        value=["total", "at", "tags"],
        timestamp=F.lit(1_700_000_000_000),
        headers={"tenant": "tenant", "try": "try"},
        topic="orders",
    )


def test_columns_come_back_as_they_were(spark: SparkSession) -> None:
    found = from_records(
        records_of(spark), ORDER, key="customer", timestamp=None, headers={"tenant": "string", "try": "int"}
    )
    assert found.columns == ["customer", "total", "at", "tags", "tenant", "try"]
    expected = [Row(*order) for order in ORDERS]
    assert [tuple(row)[:2] for row in found.collect()] == [order[:2] for order in ORDERS]
    assert found.select(F.unix_micros("at"), "tags", "tenant", "try").collect() == [
        Row(int(AT.timestamp() * 1_000_000), ["new"], "eu", 1),
        Row(None, None, None, 2),
    ]
    assert len(expected) == found.count()


def test_values_of_an_encoding_are_one_column(spark: SparkSession) -> None:
    rows = [(b"\xff" * 8, b"\xff" * 4, "t", AT, [("id", b"\x00")])]
    sunk = spark.createDataFrame(rows, OUTPUT_SCHEMA)
    found = from_records(
        sunk, Serdes.int32(), key_as="int64", value="total", headers={"id": "binary"}, keep=["topic"]
    ).first()
    assert found is not None
    assert found.asDict() | {"timestamp": None} == {
        "key": -1,
        "total": -1,
        "timestamp": None,
        "id": b"\x00",
        "topic": "t",
    }


WRONG = [
    (b"a", Serdes.int64().serialize(1), "t", AT, [("n", b"7")]),
    (b"b", b"short", "t", AT, [("n", b"x"), ("day", b"?")]),
    (b"\xff", None, "t", AT, []),
]


def test_what_is_malformed_is_null_beside_what_is_wrong(spark: SparkSession) -> None:
    sunk = spark.createDataFrame(WRONG, OUTPUT_SCHEMA)
    found = from_records(sunk, "int64", timestamp=None, headers={"n": "int"}, on_error="null").collect()
    assert [tuple(row) for row in found] == [
        ("a", 1, 7, None),
        ("b", None, None, "value is no int64: 5 bytes; header 'n' is no int: 1 bytes"),
        (None, None, None, "key is no string: 1 bytes"),
    ]


@not_in_spark_4_0
def test_headers_of_any_type_that_are_malformed_are_null_beside_what_is_wrong(spark: SparkSession) -> None:
    sunk = spark.createDataFrame(WRONG, OUTPUT_SCHEMA)
    found = from_records(sunk, "int64", timestamp=None, headers={"n": "int", "day": "decimal(3,1)"}, on_error="null")
    assert [(row.day, row.error) for row in found.collect()] == [
        (None, None),
        (
            None,
            "value is no int64: 5 bytes; header 'n' is no int: 1 bytes; header 'day' is no decimal(3,1): 1 bytes",
        ),
        (None, "key is no string: 1 bytes"),
    ]


def test_what_is_malformed_ends_the_query_else(spark: SparkSession) -> None:
    sunk = spark.createDataFrame(WRONG, OUTPUT_SCHEMA)
    with pytest.raises(SparkRuntimeException, match="value is no int64: 5 bytes"):
        from_records(sunk, "int64", key=None).collect()


@pytest.mark.parametrize(
    ("schema", "asked", "said"),
    [
        ("int", {}, "value: int is neither an encoding"),
        (None, {}, "value: None is neither an encoding"),
        ("total bigit", {}, "is neither a schema of Spark nor"),
        (Serdes.of("own", str.encode, bytes.decode), {}, "serde 'own' of your own"),
        ("key int", {}, "2 columns would be named 'key'"),
        (StructType(), {"keep": ["offset"]}, "offset: is not a column of these records"),
        ("json", {"headers": {"a": "bigit"}}, "header 'a'"),
    ],
)
def test_what_can_not_be_is_said_at_once(spark: SparkSession, schema: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordColumnsError, match=said):
        from_records(spark.createDataFrame([], OUTPUT_SCHEMA), schema, **asked)
