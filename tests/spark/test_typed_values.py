"""Headers of DataFrames as header converters read them: in Spark, and over columns of Arrow without it."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from statestore.connect import Float32, Instant, Int8
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.simple import SimpleHeaderConverter
from statestore.connect.schema import Schema, SchemaAndValue
from statestore.errors import ConfigException, DataException
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.spark import header_functions as hf
from statestore.spark.header_functions.typed_values import _Reader, _schema_and_type, _Viewer
from statestore.spark.shards.schema import HEADERS
from tests.support.spark.versions import not_in_spark_4_0

pytestmark = not_in_spark_4_0
ORDER = Schema.struct({"id": Schema.INT64_SCHEMA, "tags": Schema.array(Schema.STRING_SCHEMA)})
DAY_AND_PRICE = (date(2017, 5, 21), Decimal("1.50"))
READ: list[tuple[str, bytes | None, str | Schema, Any]] = [
    ("byte", b"-5", "tinyint", -5),
    ("whole", b"7.0", "bigint", 7),
    ("float", b"0.1", "float", float(Float32(0.1))),
    ("double", b"0.1", "double", 0.1),
    ("boolean", b"1", "boolean", True),
    ("text", "é 007".encode(), "string", "é 007"),
    ("encoded", b"AQI=", "binary", b"\x01\x02"),
    ("decimal", b"1.5", "decimal(10,2)", Decimal("1.50")),
    (
        "huge",
        b"123456789012345678901234567890.12",
        Schema.decimal(2),
        Decimal("123456789012345678901234567890.12"),
    ),
    ("date", b"1969-12-31", "date", date(1969, 12, 31)),
    ("moment", b"2017-05-21T16:31:05.387Z", "timestamp", datetime(2017, 5, 21, 16, 31, 5, 387000)),
    ("time", b"16:31:05.387Z", Schema.TIME_SCHEMA, 59_465_387),
    ("array", b'[1,2.5,"3"]', "array<double>", [1.0, 2.5, 3.0]),
    ("nulls", b"[[1],[null]]", "array<array<int>>", [[1], [None]]),
    ("map", b'{"a":1,"b":2}', Schema.map(Schema.STRING_SCHEMA, Schema.INT8_SCHEMA), {"a": 1, "b": 2}),
    ("struct", b'{"id":1,"tags":["x"],"other":2}', ORDER, (1, ["x"])),
    ("missing fields", b'{"id":1}', "struct<id:bigint,tags:array<string>>", (1, None)),
    ("fields", b'{"day": "2017-05-21", "price": 1.50}', "struct<day:date,price:decimal(9,2)>", DAY_AND_PRICE),
    ("nothing", None, "int", None),
]


def test_values_become_columns_of_any_type(spark: SparkSession) -> None:
    row = [(key, value) for key, value, _, _ in READ]
    rows = spark.createDataFrame([(row,), (None,)], f"headers {HEADERS}").coalesce(1)
    columns = [hf.header_typed("headers", key, wanted).alias(key) for key, _, wanted, _ in READ]
    columns.append(hf.header_typed("headers", "text", "int", on_error="null").alias("wrong"))
    columns.append(hf.typed_headers("headers").alias("all"))
    found, nothing = rows.select(columns).collect()
    assert nothing.asDict() == dict.fromkeys(nothing.asDict())
    assert [found[key] for key, _, _, _ in READ] == [expected for _, _, _, expected in READ]
    assert found["wrong"] is None
    types = {header.key: header.type for header in found["all"]}
    assert types == {
        **dict.fromkeys(types, "STRING"),
        **{"byte": "INT8", "boolean": "INT8", "float": "FLOAT32", "double": "FLOAT32", "decimal": "FLOAT32"},
        **{"date": "Date", "moment": "Timestamp", "time": "Time", "array": "ARRAY", "nulls": "ARRAY", "map": "MAP"},
        **{"missing fields": "MAP", "struct": "MAP", "nothing": None},
        **{key: types[key] for key in ("array", "nulls", "huge", "struct")},
    }
    assert {header.key: header.text for header in found["all"]}["map"] == '{"a":1,"b":2}'


def test_what_is_wrong_ends_the_query_and_names_the_header(spark: SparkSession) -> None:
    rows = spark.createDataFrame([([("attempt", b"7.5")],)], f"headers {HEADERS}")
    with pytest.raises(PySparkException, match=r"DataException: header 'attempt': .*str of 3 characters"):
        rows.select(hf.header_typed("headers", "attempt", "int")).collect()


class Counting(HeaderConverter):
    """Counts what it reads."""

    def __init__(self) -> None:
        self.read: list[tuple[str, bytes | None]] = []

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        self.read.append((key, value))
        return SimpleHeaderConverter().to_connect_header(topic, key, value)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        raise NotImplementedError


def reader(wanted: str | T.DataType | Schema, converter: HeaderConverter, on_error: str = "raise") -> _Reader:
    schema, spark_type = _schema_and_type(wanted)
    return _Reader("k", "t", schema, spark_type, converter, on_error)


def test_each_text_is_read_once_in_a_batch() -> None:
    converter = Counting()
    values = pa.array([b"1", b"2", None, b"1", b"1"], pa.binary())
    assert reader(T.IntegerType(), converter).read(values).to_pylist() == [1, 2, None, 1, 1]
    assert converter.read == [("k", b"1"), ("k", b"2")]

    converter.read.clear()
    row = [("a", b"1"), ("b", b"1"), ("a", b"1"), ("a", None)]
    seen = _Viewer("t", converter).view(pa.array([row, None, [], row[:1]], HEADERS_TYPE)).to_pylist()
    assert seen[1:] == [None, [], [{"key": "a", "type": "INT8", "text": "1"}]]
    assert seen[0][3] == {"key": "a", "type": None, "text": None}
    assert sorted(converter.read, key=str) == [("a", None), ("a", b"1"), ("b", b"1")]


def test_slices_of_columns_are_seen_as_they_are() -> None:
    column = pa.array([[("a", b"1")], None, [("b", b"x"), ("c", None)], [("d", b"2")]], HEADERS_TYPE)
    whole = _Viewer("t", SimpleHeaderConverter()).view(column).to_pylist()
    with_null = pa.array([[None, ("a", b"1")]], HEADERS_TYPE)
    assert _Viewer("t", SimpleHeaderConverter()).view(with_null).to_pylist() == [[None, whole[0][0]]]
    assert _Viewer("t", SimpleHeaderConverter()).view(column.slice(1, 2)).to_pylist() == whole[1:3]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"300", T.ByteType()),
        (b"1.555", T.DecimalType(10, 2)),
        (b"123456789.00", T.DecimalType(10, 2)),
        (b"2017-05-21T00:00:00.001Z", T.DateType()),
        (b"[1,2]", T.IntegerType()),
        (b"x", T.ArrayType(T.IntegerType())),
        (b"[1,2]", ORDER),
        (b"\xff", T.StringType()),
        (b"-0001-01-01", T.DateType()),
    ],
)
def test_what_would_be_lost_or_does_not_fit_is_refused(value: bytes, wanted: T.DataType | Schema) -> None:
    column = pa.array([value], pa.binary())
    converter = SimpleHeaderConverter()
    with pytest.raises(DataException, match="header 'k': "):
        reader(wanted, converter).read(column)
    assert reader(wanted, converter, "null").read(column).to_pylist() == [None]


def test_a_converter_is_given_by_name_by_properties_or_as_it_is(spark: SparkSession) -> None:
    json = {"header.converter": "Json", "header.converter.schemas.enable": "false"}
    row = [("order", b'{"id": 7, "tags": ["x", "y"]}')]
    rows = spark.createDataFrame([(row,)], f"headers {HEADERS}")
    columns = [
        hf.header_typed("headers", "order", ORDER, converter=json),
        hf.header_typed("headers", "order", "binary", converter="ByteArrayConverter"),
        hf.header_typed("headers", "order", "string", converter=SimpleHeaderConverter()),
    ]
    assert tuple(rows.select(columns).collect()[0]) == ((7, ["x", "y"]), row[0][1], row[0][1].decode())
    with pytest.raises(ConfigException, match="Class Jsn could not be found"):
        hf.header_typed("headers", "order", ORDER, converter="Jsn")


SCALARS = [
    (Schema.INT8_SCHEMA, st.integers(-128, 127).map(Int8)),
    (Schema.INT64_SCHEMA, st.integers(-(2**63), 2**63 - 1)),
    (Schema.FLOAT64_SCHEMA, st.floats(allow_nan=False)),
    (Schema.STRING_SCHEMA, st.text(st.characters(exclude_categories=["Cs"]))),
    (Schema.BYTES_SCHEMA, st.binary()),
    (Schema.decimal(2), st.decimals(-(10**20), 10**20, places=2)),
    (Schema.TIMESTAMP_SCHEMA, st.datetimes().map(lambda one: one.replace(microsecond=1000, tzinfo=timezone.utc))),
]


@given(drawn=st.sampled_from(SCALARS).flatmap(lambda one: st.tuples(st.just(one[0]), st.lists(one[1], max_size=4))))
def test_what_the_converter_wrote_is_read_again(drawn: tuple[Schema, list[Any]]) -> None:
    schema, values = drawn
    converter = pickle.loads(pickle.dumps(SimpleHeaderConverter()))
    typed = [Instant.of(value) if isinstance(value, datetime) else value for value in values]
    written = [converter.from_connect_header("t", "k", schema, value) for value in typed]
    found = reader(schema, converter).read(pa.array(written, pa.binary())).to_pylist()
    assert found == values
