"""The main job under both drivers: headers live in state, and state lives in the durable location."""

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import running_total as demo
from orders import Order, expected_totals, seeded_orders
from statestore import Serdes
from statestore.errors import RecoveryError
from statestore.spark import read_pointers
from tests.support.spark.queries import SECOND_CHECKPOINT_FORMAT, SHARDS, OrderQuery, spark_settings
from tests.support.spark.versions import not_in_spark_4_0


def test_each_record_comes_out_once_and_headers_survive_state_and_a_lost_disk(order_query: OrderQuery) -> None:
    orders = seeded_orders(120)
    order_query.add(orders[:40])
    order_query.add(orders[40:80])
    order_query.run()
    assert order_query.totals() == expected_totals(orders[:80])

    shutil.rmtree(order_query.home / "local")
    order_query.add(orders[80:])
    order_query.run()
    assert order_query.totals() == expected_totals(orders)
    assert_outputs_are_in_order(order_query, orders)


def test_the_demo_finds_its_totals_right(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run(spark, tmp_path)
    assert "trace-id" in capsys.readouterr().out, "it shows headers"


@not_in_spark_4_0
@pytest.mark.parametrize("via", ["transform_with_state"])
def test_sparks_second_checkpoint_format_is_gone_on_with_and_read(order_query: OrderQuery) -> None:
    orders = seeded_orders(90)
    checkpoint = order_query.home / "checkpoint"
    with spark_settings(order_query.spark, SECOND_CHECKPOINT_FORMAT):
        order_query.add(orders[:30])
        order_query.add(orders[30:60])
        order_query.run()
        order_query.add(orders[60:])
        order_query.run()
        assert order_query.totals() == expected_totals(orders)
        assert read_pointers(order_query.spark, checkpoint, batch_id=1).count() == SHARDS
    with pytest.raises(RecoveryError, match="checkpointFormatVersion as the query does") as raised:
        order_query.totals()
    # Which condition it is depends on the Spark: what it says is said.
    (condition,) = re.findall(r"\(([A-Z_]+\.[A-Z_]+)\)", str(raised.value))
    assert f"[{condition}]" in str(raised.value.__cause__)


def assert_outputs_are_in_order(order_query: OrderQuery, orders: list[Order]) -> None:
    """Each customer's totals, with the headers of the order that made each."""
    running: dict[str, int] = {}
    expected = []
    for order in orders:
        running[order.customer] = running.get(order.customer, 0) + order.amount
        expected.append((order.customer, running[order.customer], order.timestamp_ms, order.headers))
    found = [
        (
            row.key.decode(),
            Serdes.int64().deserialize(bytes(row.value)),
            round(row.timestamp.timestamp() * 1000),
            [(header.key, header.value) for header in row.headers],
        )
        for row in order_query.outputs
    ]
    assert {row.topic for row in order_query.outputs} == {"totals"}
    for customer in running:
        assert [row for row in found if row[0] == customer] == [row for row in expected if row[0] == customer]
    assert len(found) == len(expected)
