"""Keys and values as what serdes read of them, without Spark around the data source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from statestore import Serdes
from statestore.bytestore.kinds.store_spec import StoreType
from statestore.errors import DataSourceOptionError
from statestore.spark.datasource.read_as import ReadAs
from statestore.spark.datasource.source import HeaderStateDataSource
from tests.support.spark.store_rows import NUMBERS, read, rows_of_numbers, write


@pytest.mark.parametrize("kind", [StoreType.HEADERS_KV, StoreType.TS_WINDOW, StoreType.SESSION, StoreType.VERSIONED])
def test_keys_and_values_are_what_serdes_read_of_them(kind: StoreType, tmp_path: Path) -> None:
    write(kind, tmp_path, rows_of_numbers(kind))
    options = {"path": str(tmp_path), "keyAs": "int64", "VALUEAS": "STRING"}
    assert "key bigint, value string, " in str(HeaderStateDataSource(options).schema())
    rows, _ = read(tmp_path, keyAs="int64", valueAs="string")
    assert {row["key"]: row["value"] for row in rows} == {number: f"no. {number}" for number in NUMBERS}


def test_what_is_not_so_is_said(tmp_path: Path) -> None:
    write(StoreType.HEADERS_KV, tmp_path, rows_of_numbers(StoreType.HEADERS_KV))
    with pytest.raises(DataSourceOptionError, match=r"is int32, but store 'store' has a value that is not"):
        read(tmp_path, valueAs="int32")
    with pytest.raises(DataSourceOptionError, match=r"'keyAs' .* must be one of string, bytes, int32"):
        HeaderStateDataSource({"path": "p", "keyAs": "long"}).reader(StructType())


def test_serdes_and_their_names_say_the_same() -> None:
    assert ReadAs.of(Serdes.int64(), "json") == ReadAs("int64", "json")
    assert ReadAs.of(None, None) == ReadAs()
    with pytest.raises(ValueError, match="serde 'int64' of your own"):
        ReadAs.of(replace(Serdes.int64(), columns=None), None)
