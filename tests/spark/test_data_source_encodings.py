"""Keys and values as what serdes read of them, without Spark around the data source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull
from pyspark.sql.types import StructType

from statestore import Serdes
from statestore.bytestore.kinds.store_types import StoreType
from statestore.errors import DataSourceOptionError
from statestore.spark.datasource.read_as import ReadAs
from statestore.spark.datasource.row_filter import condition_of
from statestore.spark.datasource.source import HeaderStateDataSource
from tests.support.spark.store_rows import Row, read, seeded_rows, write

NUMBERS = [-(2**63), -300, -1, 0, 7, 2**40]


def rows_of(kind: StoreType) -> list[Row]:
    """Return rows whose keys are numbers, and whose values are them as text."""
    first = seeded_rows(kind)[0]
    keys = sorted((Serdes.int64().serialize(number), f"no. {number}".encode()) for number in NUMBERS)
    return [{**first, "key": key, "value": value} for key, value in keys]


@pytest.mark.parametrize("kind", [StoreType.HEADERS_KV, StoreType.TS_WINDOW, StoreType.SESSION, StoreType.VERSIONED])
def test_keys_and_values_are_what_serdes_read_of_them(kind: StoreType, tmp_path: Path) -> None:
    write(kind, tmp_path, rows_of(kind))
    options = {"path": str(tmp_path), "keyAs": "int64", "VALUEAS": "STRING"}
    assert "key bigint, value string, " in str(HeaderStateDataSource(options).schema())
    rows, _ = read(tmp_path, keyAs="int64", valueAs="string")
    assert {row["key"]: row["value"] for row in rows} == {number: f"no. {number}" for number in NUMBERS}
    rows, partitions = read(tmp_path, [In(("key",), (-300, 7))], keyAs="int64", trustKeys="true")
    assert sorted((row["key"], row["value"]) for row in rows) == [(-300, b"no. -300"), (7, b"no. 7")]
    assert partitions <= 2


def test_what_is_not_so_is_said(tmp_path: Path) -> None:
    write(StoreType.HEADERS_KV, tmp_path, rows_of(StoreType.HEADERS_KV))
    with pytest.raises(DataSourceOptionError, match=r"is int32, and store 'store' has a value that is none"):
        read(tmp_path, valueAs="int32")
    with pytest.raises(DataSourceOptionError, match=r"'keyAs' .* must be one of string, bytes, int32"):
        HeaderStateDataSource({"path": "p", "keyAs": "long"}).reader(StructType())


@pytest.mark.parametrize(
    ("read_as", "asked", "expected"),
    [
        ("string", EqualTo(("key",), "ada"), b"ada"),
        ("int32", EqualTo(("key",), -1), b"\xff" * 4),
        ("int32", EqualTo(("key",), 2**31), None),
        ("string", GreaterThan(("key",), "a"), None),
        ("double", EqualTo(("key",), 0.0), None),
        ("bytes", EqualTo(("key",), b"a"), b"a"),
        ("bytes", EqualTo(("key",), "a"), None),
    ],
)
def test_filters_on_keys_compare_bytes_or_are_left_to_spark(read_as: str, asked: Filter, expected: Any) -> None:
    condition = condition_of(asked, ReadAs(key=read_as))
    assert (None if condition is None else condition.value) == expected
    assert condition_of(IsNotNull(("key",)), ReadAs(key=read_as)) is not None


def test_serdes_and_their_names_say_the_same() -> None:
    assert ReadAs.of(Serdes.int64(), "json") == ReadAs("int64", "json")
    assert ReadAs.of(None, None) == ReadAs()
    with pytest.raises(ValueError, match="serde 'int64' of your own"):
        ReadAs.of(replace(Serdes.int64(), columns=None), None)
