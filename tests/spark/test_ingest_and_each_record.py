"""What sees every single record of a query: the ingest hook before it, and a callback after it or without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orders import Order, expected_totals, running_total_topology, seeded_orders
from statestore import ConsumerRecord, ProducerRecord, Serdes
from statestore.connect.ingest import ConnectIngest
from statestore.errors import InputError
from statestore.middleware import IngestedRecord
from statestore.spark import for_each_record, stateful
from tests.support.spark.queries import SHARDS, OrderQuery, spark_settings

ORDERS = seeded_orders(60)


def from_eu_with_a_hop(record: IngestedRecord) -> IngestedRecord | None:
    tenant = record.headers.last_header("tenant")
    record.headers.add("hop", b"ingest")
    return record if tenant is not None and tenant.value == b"eu" else None


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_the_ingest_hook_sees_every_record_before_the_topology(order_query: OrderQuery) -> None:
    order_query.add(ORDERS)
    order_query.run(interceptors=from_eu_with_a_hop)
    passed: list[Order] = []
    for order in ORDERS:
        if [value for key, value in order.headers if key == "tenant"][-1] == b"eu":
            passed.append(order._replace(headers=[*order.headers, ("hop", b"ingest")]))
    assert 0 < len(passed) < len(ORDERS)
    assert order_query.totals() == expected_totals(passed)
    assert len(order_query.outputs) == len(passed)


def run(writer: object, home: Path) -> None:
    query = writer.option("checkpointLocation", str(home)).trigger(availableNow=True).start()  # type: ignore[attr-defined]
    query.awaitTermination()


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_callback_gets_each_record_of_the_source_and_of_the_result(
    spark: SparkSession, tmp_path: Path, via: str
) -> None:
    query = OrderQuery(spark, tmp_path, via)
    query.add(ORDERS)
    told = tmp_path / "told"
    told.mkdir()

    def tell(record: ConsumerRecord[bytes, bytes] | ProducerRecord[bytes, bytes]) -> None:
        # On the executors: what they find goes to files.
        headers = [[header.key, None if header.value is None else header.value.decode()] for header in record.headers]
        name = f"{record.partition}-{record.offset}" if isinstance(record, ConsumerRecord) else f"{record.timestamp_ms}"
        line = [type(record).__name__, record.topic, record.key.decode(), record.timestamp_ms, headers]
        (told / f"{type(record).__name__}-{name}").write_text(json.dumps([*line, record.value.hex()]))

    run(for_each_record(query.records(), tell), tmp_path / "first")
    rows = stateful(
        query.records(), running_total_topology(), shards=SHARDS, state_location=tmp_path / "state", via=via
    )
    run(for_each_record(rows, tell), tmp_path / "second")

    found = sorted(json.loads(path.read_text()) for path in told.iterdir())
    consumed = [line for line in found if line[0] == "ConsumerRecord"]
    produced = [line for line in found if line[0] == "ProducerRecord"]
    as_told = sorted(
        [order.customer, order.timestamp_ms, [[k, None if v is None else v.decode()] for k, v in order.headers]]
        for order in ORDERS
    )
    assert sorted(line[2:5] for line in consumed) == as_told
    assert {line[1] for line in consumed} == {"orders"}
    assert sorted(line[2:5] for line in produced) == as_told
    assert {line[1] for line in produced} == {"totals"}
    in_order = sorted(produced, key=lambda line: line[3])
    last = {line[2]: Serdes.int64().deserialize(bytes.fromhex(line[5])) for line in in_order}
    assert last == {name: total for name, (total, _, _) in expected_totals(ORDERS).items()}


def test_a_batch_has_no_callback(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="lacks"):
        for_each_record(spark.range(1), print)


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_connectors_configuration_is_done_to_every_record(order_query: OrderQuery) -> None:
    config = {
        "transforms": "mark",
        "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.mark.header": "hop",
        "transforms.mark.value.literal": "7",
    }
    order_query.add(ORDERS)
    with spark_settings(order_query.spark, {"spark.statestore.header.converter": "JsonConverter"}):
        order_query.run(interceptors=ConnectIngest(config))
    written = b'{"schema":{"type":"int8","optional":false},"payload":7}'
    marked = [order._replace(headers=[*order.headers, ("hop", written)]) for order in ORDERS]
    assert order_query.totals() == expected_totals(marked)
    for row in order_query.rows_of("totals", header_converter="SimpleHeaderConverter"):
        assert [header.key for header in row.typed_headers] == [header.key for header in row.headers]
        assert row.typed_headers[-1].key == "hop"
