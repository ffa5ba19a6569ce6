"""Middleware in Spark: a chain around a query, by argument and by the session's settings, and on plain DataFrames."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from orders import expected_totals, running_total_topology, seeded_orders
from statestore.connect import ConnectIngest
from statestore.errors import InputSchemaError, TopologyError
from statestore.interception.interceptor import InterceptorContext
from statestore.middleware import DeadLetters, FailureHandling
from statestore.spark import batch_figures, stateful, with_middleware
from tests.middleware.test_interceptors_in_tasks import Counting
from tests.support.connect.region_steps import REGION_TO_HEADER
from tests.support.interceptors import ColumnStamp, Refusing, Stamp
from tests.support.spark.queries import KAFKA_ROWS, SHARDS, OrderQuery, spark_settings

ORDERS = seeded_orders(40)
SPARK_NAMES = {"spark.statestore.interceptors": "tests.spark.test_middleware:Configured"}


class Configured(ColumnStamp):
    @classmethod
    def from_config(cls, config: Any) -> Configured:
        return cls("configured")


class RefusingOffsets(Refusing):
    """Refuses every tenth record."""

    def on_ingest(self, record: Any) -> Any:
        if record.offset % 10 == 3:
            self._refuse()
        return [record]

    on_ingest_columns = Stamp.on_ingest_columns


def values(row: Row, key: str) -> list[bytes]:
    return [bytes(header.value) for header in row.headers if header.key == key]


@pytest.mark.parametrize("via", ["transform_with_state", "apply_in_pandas_with_state"])
def test_a_chain_around_a_query_with_dead_letters_state_and_figures(order_query: OrderQuery) -> None:
    order_query.add(ORDERS[:20], ORDERS[20:])
    chain = [Stamp("a"), RefusingOffsets("guard"), Counting([])]
    with spark_settings(order_query.spark, SPARK_NAMES):
        rows = stateful(
            order_query.records(),
            running_total_topology(),
            shards=SHARDS,
            state_location=order_query.state_location,
            via=order_query.via,
            interceptors=chain,
            failures=FailureHandling(dead_letters="dead"),
        )
        query = run(rows, order_query)
    letters = [row for row in order_query.outputs if row.topic == "dead"]
    totals = [row for row in order_query.outputs if row.topic == "totals"]
    refused = [order for order in ORDERS if order.offset % 10 == 3]
    stamps = [("in", b"configured"), ("in", b"a")]
    kept = [order._replace(headers=[*order.headers, *stamps]) for order in ORDERS if order not in refused]
    assert len(letters) == len(refused) > 0
    assert sorted(values(row, DeadLetters.OFFSET)[0] for row in letters) == sorted(
        str(order.offset).encode() for order in refused
    )
    assert {values(row, DeadLetters.EXCEPTION_CLASS_NAME)[0] for row in letters} == {
        b"tests.support.interceptors.ForbiddenError"
    }
    assert all(not values(row, "in") for row in letters), "dead letters are as they came"
    assert len(totals) == len(kept)
    assert all(values(row, "in") == [b"configured", b"a"] for row in totals)
    assert all(values(row, "out") == [b"a", b"configured"] for row in totals)
    assert order_query.totals() == expected_totals(kept)
    counted = {bytes(row.key): row.value for row in order_query.rows_of("seen")}
    assert sum(int.from_bytes(value, "big") for value in counted.values()) == len(ORDERS)
    batches = [each for progress in query.recentProgress for each in batch_figures(progress)]
    assert sum(each.failures.get("ForbiddenError", 0) for each in batches) == len(refused)
    figures = [each.records for each in batches]
    assert sum(each.refused_records_total for each in figures) == len(refused)
    assert sum(each.dead_letters_total for each in figures) == len(refused)


def run(rows: DataFrame, order_query: OrderQuery) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(lambda batch, _: order_query.outputs.extend(batch.collect()))
    checkpoint = str(order_query.home / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.fixture
def records(spark: SparkSession) -> DataFrame:
    rows = [
        (b"k", value, "in", 0, offset, 1_700_000_000, [("h", b"1")])
        for offset, value in enumerate([b"good", b"bad", None])
    ]
    return spark.createDataFrame(rows, KAFKA_ROWS.replace("timestamp timestamp", "timestamp bigint")).selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp_seconds(timestamp) timestamp", "headers"
    )


def test_the_same_chain_on_a_dataframe_without_any_state(records: DataFrame) -> None:
    chain = [Stamp("a"), Refusing("guard"), ColumnStamp("b")]
    taken = with_middleware(records, chain, failures=FailureHandling(dead_letters="dead")).collect()
    assert [(row.topic, row.value, row.offset) for row in taken] == [
        ("in", b"good", 0),
        ("in", None, 2),
        ("dead", b"bad", None),
    ]
    assert [values(row, "in") for row in taken] == [[b"b", b"a"], [b"b", b"a"], []]
    assert values(taken[2], DeadLetters.OFFSET) == [b"1"]

    sent = with_middleware(
        records.drop("partition", "offset"), chain, side="emit", failures=FailureHandling(dead_letters="dead")
    ).collect()
    assert [(row.topic, row.value) for row in sent] == [("in", b"good"), ("in", None), ("dead", b"bad")]
    assert [values(row, "out") for row in sent] == [[b"a", b"b"], [b"a", b"b"], []]
    assert sent[0].timestamp == records.first().timestamp  # type: ignore[union-attr]
    assert values(sent[2], DeadLetters.TOPIC) == [b"in"]
    assert not values(sent[2], DeadLetters.OFFSET)


def test_a_connector_s_configuration_says_what_becomes_of_bad_records(records: DataFrame) -> None:
    ingest = ConnectIngest({**REGION_TO_HEADER, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"})
    taken = with_middleware(records, ingest).collect()
    assert [(row.topic, row.value) for row in taken] == [("dead", b"good"), ("dead", b"bad"), ("dead", None)]
    handling = FailureHandling(deserialization="continue")
    left = with_middleware(records, ingest, failures=handling).collect()
    assert [row.value for row in left] == [None], "the others are not JSON, this one lacks fields"


class Ticking(Stamp):
    """Asks to be called by the clock."""

    def init(self, context: InterceptorContext) -> None:
        context.schedule_wall_clock(1_000, lambda now_ms: None)


def test_what_is_to_be_called_by_a_clock_ends_a_query_that_has_none(records: DataFrame) -> None:
    with pytest.raises(PythonException, match="interceptor-tick schedules calls by a clock"):
        with_middleware(records, Ticking("tick")).collect()


def test_what_a_dataframe_can_not_do_is_refused_before_it_runs(records: DataFrame) -> None:
    with pytest.raises(TopologyError, match="'counting' keeps state"):
        with_middleware(records, Counting([]))
    with pytest.raises(ValueError, match="side must be one of ingest, emit, not 'out'"):
        with_middleware(records, Stamp("a"), side="out")
    with pytest.raises(InputSchemaError, match="headers"):
        with_middleware(records.drop("headers"), Stamp("a"), side="emit")
    with pytest.raises(InputSchemaError, match="offset"):
        with_middleware(records.drop("offset"), Stamp("a"))


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_refusal_ends_a_query_without_dead_letters(order_query: OrderQuery) -> None:
    order_query.add(ORDERS)
    with pytest.raises(Exception, match="ForbiddenError: a bad value"):
        order_query.run(interceptors=[RefusingOffsets("guard")])
