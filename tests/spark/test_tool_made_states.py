"""Queries that begin on what the command line has made: a legacy directory, an earlier batch, a file of rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from orders import Order, expected_totals, seeded_orders
from statestore import Serdes
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.keys.partitioner import partition_column
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp
from statestore.spark import __main__ as spark_command_line
from tests.support.spark.queries import SHARDS, OrderQuery
from upgrade_tools.cli.app import main

ORDERS = seeded_orders(120)
LEGACY = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> OrderQuery:
    return OrderQuery(spark, tmp_path / "new", "apply_in_pandas_with_state")


def write_application(home: Path, orders: list[Order]) -> None:
    """Write the totals of orders as a Kafka Streams application leaves them that knows no headers."""
    totals = expected_totals(orders)
    keys = [customer.encode() for customer in totals]
    partitions = partition_column(pa.array(keys, pa.binary()), SHARDS).tolist()
    for partition in range(SHARDS):
        with TaskDirectory(home / f"0_{partition}", "shop", partition) as task:
            store = task.open_store(LEGACY)
            for (total, timestamp_ms, _), key, place in zip(totals.values(), keys, partitions, strict=True):
                if place == partition:
                    store.put(key, encode_value_timestamp(Serdes.int64().serialize(total), timestamp_ms))


def test_a_query_goes_on_from_a_kafka_streams_directory(query: OrderQuery, tmp_path: Path) -> None:
    application = tmp_path / "streams" / "shop"
    write_application(application, ORDERS[:80])
    command = ["migrate", str(application), str(tmp_path / "new" / "state"), "--layout", "location"]
    assert main([*command, "--shards", str(SHARDS)]) == 0, "its format stays; the query upgrades it as it goes"
    query.add(ORDERS[80:])
    query.run()
    untouched = expected_totals(ORDERS[:80]).keys() - expected_totals(ORDERS[80:]).keys()
    expected = {
        customer: (total, timestamp_ms, [] if customer in untouched else headers)
        for customer, (total, timestamp_ms, headers) in expected_totals(ORDERS).items()
    }
    assert query.totals() == expected


def test_a_query_goes_on_from_an_earlier_batch(
    query: OrderQuery, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = OrderQuery(spark, tmp_path / "old", "apply_in_pandas_with_state")
    for begin in (0, 40, 80):
        first.add(ORDERS[begin : begin + 40])
    first.run()
    assert first.totals() == expected_totals(ORDERS)
    old, checkpoint = str(tmp_path / "old" / "state"), str(tmp_path / "old" / "checkpoint")
    command = ["rollback", old, str(tmp_path / "new" / "state"), "--checkpoint", checkpoint, "--batch-id", "1"]
    assert main(command) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert spark_command_line.main(["offsets", checkpoint, "--batch-id", "1"]) == 0
    assert capsys.readouterr().out.strip() == '{"logOffset":1}'
    assert spark_command_line.main(["offsets", checkpoint, "--batch-id", "7"]) == 1
    assert "has no commit of batch 7; retained are 0 to 2" in capsys.readouterr().err
    query.add(ORDERS[80:100])
    query.run()
    assert query.totals() == expected_totals(ORDERS[:100])
    assert first.totals() == expected_totals(ORDERS), "the old state is as it was"


def test_a_query_goes_on_from_an_exported_file(query: OrderQuery, spark: SparkSession, tmp_path: Path) -> None:
    first = OrderQuery(spark, tmp_path / "old", "apply_in_pandas_with_state")
    first.add(ORDERS[:60])
    first.run()
    file, old = str(tmp_path / "totals.parquet"), str(tmp_path / "old")
    assert main(["export", f"{old}/state", file, "--checkpoint", f"{old}/checkpoint"]) == 0
    assert main(["import", file, str(tmp_path / "new" / "state"), "--shards", "2"]) == 0
    query.add(ORDERS[60:])
    query.run(shards=2)
    assert query.totals() == expected_totals(ORDERS)
