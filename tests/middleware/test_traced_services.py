"""Two services and what they keep: one trace from the first record to what comes out of state much later."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from statestore import Processor, ProcessorContext, PunctuationType, Record, Serdes, Topology, ValueTimestampHeaders
from statestore.errors import ProcessorError, RecordRefusedError, TopologyError
from statestore.middleware import FailureHandling, Interceptor
from statestore.middleware.lineage.tracing import TRACEPARENT, Tracing, link_traces
from statestore.middleware.lineage.tracing.interceptor import BatchTracing
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.headed_stores import HeadedStores
from tests.support.processors import Passing, PassingColumns
from tests.support.traced import KeptSpans, kept_first, traceparent, tree

REMINDER_MS = 60_000


class Remind(Processor):
    """Keeps orders with their headers, and forwards them when they have waited long enough."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.open = context, context.state_store("open")
        context.schedule(REMINDER_MS, PunctuationType.WALL_CLOCK_TIME, self.remind)

    def process(self, record: Record[Any, Any]) -> None:
        self.open.put(record.key, ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers))

    def remind(self, now_ms: int) -> None:
        with self.open.all() as entries:
            for key, kept in list(entries):
                self.context.forward(Record(key, kept.value, now_ms, kept.headers))
                self.open.delete(key)


class Join(Processor):
    """Forwards an order with the headers that it was kept with once its payment is there."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.open = context, context.state_store("open")

    def process(self, record: Record[Any, Any]) -> None:
        kept = kept_first(self.open, record)
        if kept is not None:
            headers = link_traces(kept.headers.copy(), record.headers)
            self.context.forward(Record(record.key, f"{kept.value}+{record.value}", record.timestamp_ms, headers))


class Fail(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        raise ValueError("no")


class FailOnBad(Passing):
    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "bad":
            raise ValueError("secret")
        super().process(record)


class RefuseWorse(Interceptor):
    def on_ingest(self, record: Any) -> Any:
        if record.value == b"worse":
            raise RecordRefusedError("worse")
        return (record,)


def service(source: str, supplier: Any, sink: str | None, *, keeps: bool = False) -> Topology:
    topology = Topology()
    topology.add_source("source", source.split(), key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_processor("processor", supplier, parents=["source"])
    if keeps:
        topology.add_state_store(HeadedStores(Serdes.string(), Serdes.string()).key_value("open"), "processor")
    if sink is not None:
        topology.add_sink("sink", sink, ["processor"], key_serde=Serdes.string(), value_serde=Serdes.string())
    return topology


def ends(driver: TopologyTestDriver, topic: str) -> Any:
    """Where records of texts are piped into a topic."""
    return driver.create_input_topic(topic, key_serde=Serdes.string(), value_serde=Serdes.string())


def read(driver: TopologyTestDriver, topic: str) -> Any:
    return driver.create_output_topic(topic, key_serde=Serdes.string(), value_serde=Serdes.string()).read_record()


@pytest.mark.parametrize("restored_from", [None, "disk", "changelog"])
def test_b12_a_trace_that_enters_state_continues_when_it_leaves_it(restored_from: Any) -> None:
    a, b, kept = KeptSpans(), KeptSpans(), []
    shop = TopologyTestDriver(service("carts", Passing, "orders"), interceptors=[Tracing(a)])
    reminders = TopologyTestDriver(service("orders", Remind, "reminders", keeps=True), interceptors=[Tracing(b)])
    with shop, reminders:
        ends(shop, "carts").pipe_input("ada", "book")
        ends(reminders, "orders").pipe_input(read(shop, "orders"))
        stored = reminders.get_timestamped_key_value_store_with_headers("open").get("ada").headers
        by_name = {span.name: span for span in (*a.spans, *b.spans)}
        assert stored.last_header(TRACEPARENT).value == traceparent(by_name["process orders"])
        if restored_from is not None:
            reminders.restart(restore_from=restored_from)
        reminders.advance_wall_clock_time(REMINDER_MS)
        kept.append(read(reminders, "reminders"))
    spans = [*a.spans, *b.spans]
    assert tree(spans) == {
        "poll carts": {"process carts": {"send orders": {"poll orders": {"process orders": {"send reminders": {}}}}}}
    }
    assert len({span.context.trace_id for span in spans}) == 1
    assert kept[0].headers.last_header(TRACEPARENT).value == traceparent(spans[-1])
    assert spans[-1].links == ()


def test_b12_a_join_continues_one_trace_and_links_to_the_other() -> None:
    kept = KeptSpans()
    with TopologyTestDriver(
        service("orders payments", Join, "paid", keeps=True), interceptors=[Tracing(kept)]
    ) as driver:
        for topic in ("orders", "payments"):
            ends(driver, topic).pipe_input("ada", topic)
        assert read(driver, "paid").value == "orders+payments"
    by_name = {span.name: span for span in kept.spans}
    assert tree(kept.spans) == {
        "poll orders": {"process orders": {"send paid": {}}},
        "poll payments": {"process payments": {}},
    }
    [link] = by_name["send paid"].links
    assert link.context.span_id == by_name["process payments"].context.span_id


def test_b12_a_micro_batch_has_a_span_of_processing_for_each_record() -> None:
    kept = KeptSpans()
    with TopologyTestDriver(service("orders", Passing, "copies"), interceptors=[Tracing(kept)]) as driver:
        ends(driver, "orders").pipe_micro_batch([TestRecord("a", "1"), TestRecord("b", "2")])
    by_id = {span.context.span_id: span for span in kept.spans}
    sends = [span for span in kept.spans if span.name == "send copies"]
    assert len(sends) == 2
    for span in sends:
        assert span.parent is not None
        parent = by_id[span.parent.span_id]
        assert (
            dict(parent.attributes)["messaging.kafka.message.key"]
            == dict(span.attributes)["messaging.kafka.message.key"]
        )
    assert len({span.context.trace_id for span in sends}) == 2


def test_b12_what_fails_in_processing_ends_with_an_error() -> None:
    kept = KeptSpans()
    driver = TopologyTestDriver(service("orders", Fail, None), interceptors=[Tracing(kept)])
    with pytest.raises(ProcessorError):
        ends(driver, "orders").pipe_input("a", "b")
    driver.close()
    [span] = [span for span in kept.spans if span.name == "process orders"]
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("handler", ["continue", "dead_letter"])
def test_b12_the_span_of_a_record_that_is_left_out_says_why_and_no_other_does(handler: Any) -> None:
    kept = KeptSpans()
    letters = "letters" if handler == "dead_letter" else None
    failures = FailureHandling(processing=handler, refusal=handler, deserialization=handler, dead_letters=letters)
    chain = [Tracing(kept), RefuseWorse()]
    topology = service("orders", FailOnBad, "copies")
    with TopologyTestDriver(topology, interceptors=chain, failures=failures) as driver:
        orders = driver.create_input_topic("orders", key_serde=Serdes.string(), value_serde=Serdes.bytes())
        values = [b"good", b"worse", b"good", b"bad", b"\xff", b"good"]
        orders.pipe_micro_batch([TestRecord("k", value, 1) for value in values])
    found = [span for span in kept.spans if span.name == "process orders"]
    assert [span.status.status_code.name for span in found] == ["UNSET", "UNSET", "ERROR", "UNSET"]
    assert dict(found[2].attributes or {})["error.type"] == "ValueError"
    assert "secret" not in found[2].to_json()


def test_b12_records_in_columns_have_a_trace_without_spans_of_processing() -> None:
    kept = KeptSpans()
    topology = service("orders", PassingColumns, "copies")
    with TopologyTestDriver(topology, interceptors=[BatchTracing(kept)]) as driver:
        ends(driver, "orders").pipe_micro_batch([TestRecord("a", "1"), TestRecord("b", "2")])
    assert kept.names == ["poll orders"] * 2 + ["send copies"] * 2
    assert [span.parent.span_id for span in kept.spans[2:]] == [span.context.span_id for span in kept.spans[:2]]
    with pytest.raises(TopologyError, match="on_consume"):
        TopologyTestDriver(topology, interceptors=[Tracing(kept)])
