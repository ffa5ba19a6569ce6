"""One trace over two services, and through state: what OpenTelemetry is shown of an order that nobody pays.

A shop takes orders. Another service keeps them until they are paid, and sends a reminder when that takes too long: by
then nothing is left of the record but what is in state. Run it with `python docs/examples/middleware_tracing.py`; it
needs neither Spark nor a broker.
"""

from __future__ import annotations

import sys
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from statestore import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    Topology,
    ValueTimestampHeaders,
)
from statestore.middleware.lineage.tracing import Tracing, link_traces
from statestore.testing import TopologyTestDriver

PATIENCE_MS = 60_000
STRING = Serdes.string()


class TakeOrder(Processor):
    """Turns carts into orders. It knows nothing of traces."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(f"order of {record.value}"))


class AwaitPayment(Processor):
    """Keeps orders with their headers until they are paid, or reminds of them."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.unpaid = context, context.state_store("unpaid")
        context.schedule(PATIENCE_MS, PunctuationType.WALL_CLOCK_TIME, self.remind)

    def process(self, record: Record[str, str]) -> None:
        order = self.unpaid.get(record.key)
        if order is None:
            self.unpaid.put(record.key, ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers))
            return
        headers = link_traces(order.headers.copy(), record.headers)  # goes on with the order, and links to the payment
        self.context.forward(Record(record.key, f"{order.value}, paid", record.timestamp_ms, headers), "paid")
        self.unpaid.delete(record.key)

    def remind(self, now_ms: int) -> None:
        with self.unpaid.all() as orders:
            for customer, order in list(orders):
                self.context.forward(Record(customer, f"{order.value}, unpaid", now_ms, order.headers), "reminders")


def service(sources: list[str], processor: Any, *sinks: str) -> Topology:
    """Return sources -> processor -> sinks, with the store `unpaid` if it wants one."""
    topology = Topology()
    topology.add_source("source", sources, key_serde=STRING, value_serde=STRING)
    topology.add_processor("processor", processor, parents=["source"])
    if processor is AwaitPayment:
        topology.add_state_store(
            Stores.timestamped_key_value_store_with_headers_builder(
                Stores.persistent_timestamped_key_value_store_with_headers("unpaid"), STRING, STRING
            ),
            "processor",
        )
    for topic in sinks:
        topology.add_sink(topic, topic, ["processor"], key_serde=STRING, value_serde=STRING)
    return topology


def provider(name: str, spans: InMemorySpanExporter) -> TracerProvider:
    """Return the tracer provider of a service. A real one would have an exporter to a collector."""
    made = TracerProvider(resource=Resource({SERVICE_NAME: name}))
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


def run() -> tuple[ReadableSpan, ...]:
    """Run both services, and return the spans of what they did."""
    spans = InMemorySpanExporter()
    shop_provider, billing_provider = provider("shop", spans), provider("billing", spans)
    shop = TopologyTestDriver(service(["carts"], TakeOrder, "orders"), interceptors=[Tracing(lambda: shop_provider)])
    billing = TopologyTestDriver(
        service(["orders", "payments"], AwaitPayment, "paid", "reminders"),
        interceptors=[Tracing(lambda: billing_provider)],
    )
    with shop, billing:
        carts = shop.create_input_topic("carts", key_serde=STRING, value_serde=STRING)
        orders = billing.create_input_topic("orders", key_serde=STRING, value_serde=STRING)
        payments = billing.create_input_topic("payments", key_serde=STRING, value_serde=STRING)
        for customer, goods in (("ada", "a book"), ("ben", "a lamp")):
            carts.pipe_input(customer, goods)
        for order in shop.create_output_topic("orders", key_serde=STRING, value_serde=STRING).read_records_to_list():
            orders.pipe_input(order)  # what Kafka does between them
        payments.pipe_input("ben", "20 EUR")
        billing.restart(restore_from="changelog")  # the state is lost, and restored with its headers
        billing.advance_wall_clock_time(PATIENCE_MS)
    return spans.get_finished_spans()


def show(spans: tuple[ReadableSpan, ...]) -> None:
    """Print spans as a tree for each trace, with the links between them."""
    by_id = {span.context.span_id: span for span in spans}

    def show_below(parent: ReadableSpan | None, depth: int) -> None:
        for span in sorted(spans, key=lambda span: span.start_time or 0):
            above = None if span.parent is None else by_id.get(span.parent.span_id)
            if above is parent:
                links = [by_id[link.context.span_id].name for link in span.links]
                linked = f"  links to: {', '.join(links)}" if links else ""
                print(f"{'  ' * depth}{span.resource.attributes[SERVICE_NAME]}: {span.name}{linked}")
                show_below(span, depth + 1)

    show_below(None, 0)


def main() -> int:
    """Run the demo; return 0 if each reminder and receipt belongs to the trace of its order, 1 if not."""
    spans = run()
    show(spans)
    traces = {span.name: span.context.trace_id for span in spans if span.name.startswith("send")}
    starts = {span.context.trace_id for span in spans if span.name == "poll carts"}
    return 0 if {traces["send reminders"], traces["send paid"]} == starts else 1


if __name__ == "__main__":
    sys.exit(main())
