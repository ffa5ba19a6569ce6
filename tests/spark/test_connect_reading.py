"""State read, rescaled and made through Spark Connect, by a client that shares no directory with the server.

What runs in the client are the functions that take a session; they are called there, and their results come back.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from statestore import Serdes, Stores
from statestore.errors import TargetNotEmptyError
from statestore.spark import register_data_source, write_initial_state
from tests.support.clusters.connect import THEIRS, ClientFailure, ConnectClient, ConnectServer
from tests.support.recovery.s3_server import S3

SHARDS = 3
NAMES = ["ada", "bjarne", "chen", "dolores"]


def where_it_runs(spark: SparkSession) -> dict[str, Any]:
    spark.range(3).write.parquet(str(THEIRS / "numbers"))
    there = {name for name in os.environ if name.startswith("AWS_")}
    return {
        "numbers": spark.read.parquet(str(THEIRS / "numbers")).count(),
        "session": type(spark).__module__,
        "keys": there,
        "temporary": tempfile.gettempdir(),
    }


def rows_at(spark: SparkSession, path: str) -> list[Any]:
    return spark.read.parquet(path).collect()


def make_a_file(spark: SparkSession) -> None:
    Path("left").touch()


def test_client_and_server_share_no_directory(connect_server: ConnectServer, connect_client: ConnectClient) -> None:
    found = connect_client.call(where_it_runs)
    assert found == {
        "numbers": 3,
        "session": "pyspark.sql.connect.session",
        "keys": set(),
        "temporary": str(connect_client.home),
    }
    assert (connect_server.home / "numbers").is_dir()
    with pytest.raises(AssertionError, match=r"the client has made \['left'\]"):
        connect_client.call(make_a_file)
    (connect_client.home / "left").unlink()
    with pytest.raises(ClientFailure, match="PATH_NOT_FOUND"):
        connect_client.call(rows_at, str(THEIRS / "nothing"))


@pytest.fixture
def location(s3: S3) -> str:
    """A location that the server alone can reach."""
    return f"s3://{s3.bucket}/state"


def entries_of(spark: SparkSession) -> DataFrame:
    rows = [Row(key=name.encode(), value=number, timestamp_ms=1000 + number) for number, name in enumerate(NAMES)]
    typed = spark.createDataFrame(rows, "key binary, value long, timestamp_ms long")
    headers = f.array(f.struct(f.lit("h").alias("key"), f.lit(b"x").alias("value")))
    # Eight bytes, the first one first, as Kafka's serde writes a number.
    return typed.withColumn("value", f.unhex(f.lpad(f.hex("value"), 16, "0"))).withColumn("headers", headers)


def make_state(spark: SparkSession, location: str) -> dict[str, Any]:
    store = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("totals"), Serdes.string(), Serdes.int64()
    )
    entries = entries_of(spark)
    made = write_initial_state(entries, location, stores=[store], shards=SHARDS)
    register_data_source(spark)
    register_data_source(spark)  # once more does nothing
    with pytest.raises(TargetNotEmptyError, match=r"holds a state .statestore.json"):
        write_initial_state(entries, location, stores=[store], shards=SHARDS)
    with pytest.raises(PySparkException, match=r"RecoveryError.*there is no state, nor anything else"):
        spark.read.format("headerstate").load(f"{location}-of-nobody").count()
    saved = f"{location}-saved"
    options = {"store": "totals", "kind": "headers-kv", "shards": SHARDS, "shardBy": "key"}
    entries.coalesce(1).write.format("headerstate").mode("append").options(**options).save(saved)
    read = spark.read.format("headerstate").options(keyAs="string", valueAs="int64")
    rows = [read.load(each).orderBy("key").collect() for each in (location, saved)]
    return {
        "entries": dict(made.entries),
        "read": [[(row.key, row.value, row.timestamp_ms) for row in each] for each in rows],
        "headers": [[tuple(header) for header in row.headers] for row in rows[0][:1]],
    }


def with_filters(spark: SparkSession, location: str) -> list[Any]:
    once = spark.read.format("headerstate").options(keyAs="string", pushFilters="true").load(location)
    assert once.schema  # the server keeps what it has made of it
    asked = [once.where(condition).select("key", "value") for condition in ("key = 'chen'", "key = 'ada'")]
    with pytest.raises(PySparkException, match="DataFrameReusedError"):
        print([rows.collect() for rows in asked])
    return [tuple(row) for row in asked[0].collect()]


def test_a_state_is_made_and_read_where_the_server_is(connect_client: ConnectClient, location: str) -> None:
    assert connect_client.call(make_state, location) == {
        "entries": {"totals": 4},
        "read": [[(name, number, 1000 + number) for number, name in enumerate(NAMES)]] * 2,
        "headers": [[("h", b"x")]],
    }
    # It would otherwise be given the rows of the other key, as it is without Connect.
    assert connect_client.call(with_filters, location) == [("chen", b"\0\0\0\0\0\0\0\2")]
