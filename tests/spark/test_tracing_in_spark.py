"""Traces under Spark: through state and a restart, with the spans that its Python workers hand over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from orders import Order, seeded_orders
from statestore import Processor, ProcessorContext, Record, Serdes, Topology
from statestore.middleware.lineage.tracing import TRACEPARENT, Tracing
from tests.support.headed_stores import HeadedStores
from tests.support.spark.queries import OrderQuery
from tests.support.traced import kept_first

LONG_MS = 600_000


class FirstOrders(Processor):
    """Keeps each customer's first order; forwards it, as it was kept, with every later one."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.firsts = context, context.state_store("firsts")

    def process(self, record: Record[Any, Any]) -> None:
        first = kept_first(self.firsts, record)
        if first is not None:
            self.context.forward(Record(record.key, first.value, record.timestamp_ms, first.headers))


def first_orders() -> Topology:
    topology = Topology()
    topology.add_source("orders", key_serde=Serdes.string(), value_serde=Serdes.bytes())
    topology.add_processor("first", FirstOrders, ["orders"])
    topology.add_state_store(HeadedStores(Serdes.string(), Serdes.bytes()).key_value("firsts"), "first")
    topology.add_sink("out", "firsts", ["first"], key_serde=Serdes.string(), value_serde=Serdes.bytes())
    return topology


def spans_into(directory: Path) -> Callable[[], TracerProvider]:
    """What makes a provider whose spans go to a file of the process, only when it is told to hand them over."""

    def provide() -> TracerProvider:
        made = TracerProvider()
        file = (directory / str(os.getpid())).open("a")
        exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
        made.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=LONG_MS))
        return made

    return provide


def traced(number: int, order: Order) -> Order:
    return order._replace(headers=[(TRACEPARENT, b"00-%032x-%016x-01" % (number, number))])


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_b12_a_trace_goes_through_state_and_a_restart_under_spark(order_query: OrderQuery, tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    spans.mkdir()
    first = list({order.customer: order for order in seeded_orders(40)}.values())[:3]
    later = [order._replace(offset=order.offset + 1000, timestamp_ms=order.timestamp_ms + 1000) for order in first]
    tracing = Tracing(spans_into(spans), consumer_group="firsts")
    for numbers, orders in ((1, first), (101, later)):
        order_query.add([traced(number, order) for number, order in enumerate(orders, numbers)])
        order_query.run(first_orders(), interceptors=[tracing])

    found = [json.loads(line) for file in spans.iterdir() for line in file.read_text().splitlines()]
    by_id = {span["context"]["span_id"]: span for span in found}
    assert sorted(span["name"] for span in found) == ["poll orders"] * 6 + ["process orders"] * 6 + ["send firsts"] * 3
    assert all(span["attributes"]["messaging.system"] == "kafka" for span in found)
    for row in order_query.outputs:
        number = 1 + [order.customer for order in first].index(row.key.decode())
        _, trace, sent, _ = dict(row.headers)[TRACEPARENT].decode().split("-")
        assert int(trace, 16) == number
        send = by_id[f"0x{sent}"]
        kept, polled = by_id[send["parent_id"]], by_id[by_id[send["parent_id"]]["parent_id"]]
        assert [send["name"], kept["name"], polled["name"]] == ["send firsts", "process orders", "poll orders"]
        assert int(polled["parent_id"], 16) == number
        [link] = send["links"]
        assert int(link["context"]["trace_id"], 16) == number + 100
    assert len(order_query.outputs) == 3
