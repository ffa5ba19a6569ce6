"""A record's trace, through one service: spans, headers, links, bad headers, what costs nothing."""

from __future__ import annotations

import copy
import pickle
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry.propagators.textmap import TextMapPropagator, default_setter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.semconv._incubating.attributes import messaging_attributes as attribute
from opentelemetry.trace import SpanKind, StatusCode

from statestore import ConsumerRecord, Headers, ProducerRecord, Record, RecordColumns
from statestore.errors import ConfigException
from statestore.errors.middleware import ChainOrderError
from statestore.headers.record_columns import ORIGIN
from statestore.interception.chain import chain_of
from statestore.middleware import Chain, Interceptor
from statestore.middleware.application import BAGGAGE, TRACE_LINKS, TRACESTATE
from statestore.middleware.lineage.tracing import TRACEPARENT, Tracing, link_traces
from statestore.middleware.lineage.tracing.trace_headers import MAX_LINKS
from tests.support.passed_records import Clocks, started
from tests.support.traced import KeptSpans, traceparent, tree

SAMPLED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + b"0"
OTHER = b"00-11f7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def consumed(*headers: tuple[str, bytes | None], topic: str = "orders", value: bytes | None = b"v") -> Any:
    return ConsumerRecord(topic, 3, 17, key=b"ada", value=value, timestamp_ms=1, headers=headers)


def produced(headers: Any = (), topic: str = "totals") -> Any:
    return ProducerRecord(topic, key=b"ada", value=b"v", timestamp_ms=1, headers=headers)


class AtHand(Clocks):
    """A context that says which record is processed."""

    record_metadata: tuple[str, int, int] | None = None


def processed(tracing: Tracing, record: Any) -> Record[Any, Any]:
    """Have a record ingested and consumed, and return it as a processor sees it."""
    if tracing._context is None:
        started(tracing, AtHand())
    tracing._context.record_metadata = record.topic, record.partition, record.offset
    [ingested] = Chain([tracing]).ingest(record)
    [seen] = tracing.on_consume(Record(ingested.key, ingested.value, 1, ingested.headers))
    return seen


def sent(tracing: Tracing, record: Record[Any, Any], topic: str = "totals") -> Headers:
    """Have a record sent and emitted, and return the headers that it has in its topic."""
    [record] = tracing.on_send(topic, record)
    [emitted] = Chain([tracing]).emit(produced(record.headers, topic))
    return emitted.headers


@pytest.fixture
def kept() -> KeptSpans:
    return KeptSpans()


def test_b12_the_spans_of_a_record_are_named_and_related_by_the_conventions(kept: KeptSpans) -> None:
    tracing = Tracing(kept, consumer_group="totals-query")
    record = processed(tracing, consumed((TRACEPARENT, SAMPLED), ("tenant", b"eu")))
    headers = sent(tracing, record)
    tracing.finish_batch()
    by_name = {span.name: span for span in kept.spans}
    assert tree(kept.spans) == {"poll orders": {"process orders": {"send totals": {}}}}
    assert [by_name[name].kind for name in ("poll orders", "process orders", "send totals")] == [
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.PRODUCER,
    ]
    assert {format(span.context.trace_id, "032x") for span in kept.spans} == {SAMPLED[3:35].decode()}
    assert format(by_name["poll orders"].parent.span_id, "016x") == SAMPLED[36:52].decode()
    kafka = {attribute.MESSAGING_SYSTEM: attribute.MessagingSystemValues.KAFKA.value}
    for name, operation in (("poll orders", "RECEIVE"), ("process orders", "PROCESS")):
        assert dict(by_name[name].attributes or {}) == {
            **kafka,
            attribute.MESSAGING_OPERATION_NAME: name.split()[0],
            attribute.MESSAGING_OPERATION_TYPE: attribute.MessagingOperationTypeValues[operation].value,
            attribute.MESSAGING_DESTINATION_NAME: "orders",
            attribute.MESSAGING_DESTINATION_PARTITION_ID: "3",
            attribute.MESSAGING_KAFKA_OFFSET: 17,
            attribute.MESSAGING_KAFKA_MESSAGE_KEY: "ada",
            attribute.MESSAGING_CONSUMER_GROUP_NAME: "totals-query",
        }
    assert dict(by_name["send totals"].attributes or {}) == {
        **kafka,
        attribute.MESSAGING_OPERATION_NAME: "send",
        attribute.MESSAGING_OPERATION_TYPE: attribute.MessagingOperationTypeValues.SEND.value,
        attribute.MESSAGING_DESTINATION_NAME: "totals",
        attribute.MESSAGING_KAFKA_MESSAGE_KEY: "ada",
    }
    assert headers == Headers([("tenant", b"eu"), (TRACEPARENT, traceparent(by_name["send totals"]))])


def test_b12_the_span_of_reading_links_to_that_of_sending_which_is_its_parent(kept: KeptSpans) -> None:
    Chain([Tracing(kept)]).ingest(consumed((TRACEPARENT, SAMPLED)))
    Chain([Tracing(kept)]).ingest(consumed())
    first, second = kept.spans
    assert [(format(one.context.span_id, "016x"), one.context.is_remote) for one in first.links] == [
        (SAMPLED[36:52].decode(), True)
    ]
    assert second.links == ()


def test_b12_what_user_code_does_belongs_to_the_trace(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    processed(tracing, consumed((TRACEPARENT, SAMPLED), (BAGGAGE, b"tenant=eu")))
    with kept.provider.get_tracer("user").start_as_current_span("look up"):
        assert baggage.get_baggage("tenant") == "eu"
    tracing.finish_batch()
    assert tree(kept.spans) == {"poll orders": {"process orders": {"look up": {}}}}
    assert not trace.get_current_span().get_span_context().is_valid
    assert baggage.get_baggage("tenant") is None


def test_b12_the_spans_of_user_code_are_not_sampled_where_the_trace_is_not() -> None:
    kept = KeptSpans(ParentBased(TraceIdRatioBased(1.0)))
    tracing = Tracing(kept)
    processed(tracing, consumed((TRACEPARENT, UNSAMPLED)))
    with kept.provider.get_tracer("user").start_as_current_span("look up"):
        pass
    tracing.finish_batch()
    assert kept.names == []


def test_b12_a_record_without_headers_belongs_to_the_trace_of_the_one_at_hand(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    processed(tracing, consumed((TRACEPARENT, SAMPLED), (BAGGAGE, b"tenant=eu")))
    headers = sent(tracing, Record("k", "sum", 1))
    assert headers.last_header(BAGGAGE).value == b"tenant=eu"
    tracing._context.record_metadata = None  # a punctuation, or what was held back
    sent(tracing, Record("k", "sum", 1))
    assert kept.spans[-1].parent is None
    tracing.finish_batch()
    assert tree(kept.spans) == {"poll orders": {"process orders": {"send totals": {}}}, "send totals": {}}
    sent(tracing, Record("k", "later", 1))
    assert kept.spans[-1].parent is None, "no record is at hand: it begins a trace"


def test_b12_what_is_sent_is_changed_in_a_copy(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    processed(tracing, consumed((TRACEPARENT, SAMPLED)))
    mine = Record("k", "v", 1)
    [first], [second] = tracing.on_send("a", mine), tracing.on_send("b", mine)
    assert (len(mine.headers), len(first.headers), first.headers) == (0, 1, second.headers)
    tracing.finish_batch()


def test_b12_a_trace_that_comes_out_of_state_goes_on_and_links_to_who_fetched_it(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    stored = processed(tracing, consumed((TRACEPARENT, SAMPLED))).headers.to_bytes()
    processed(tracing, consumed((TRACEPARENT, OTHER), topic="payments"))
    headers = sent(tracing, Record("k", "both", 1, Headers.from_bytes(stored)), "matched")
    tracing.finish_batch()
    by_name = {span.name: span for span in kept.spans}
    assert tree(kept.spans) == {
        "poll orders": {"process orders": {"send matched": {}}},
        "poll payments": {"process payments": {}},
    }
    assert [one.context.span_id for one in by_name["send matched"].links] == [
        by_name["process payments"].context.span_id
    ]
    assert [header.key for header in headers] == [TRACEPARENT]


def test_b12_links_of_an_aggregate_become_links_of_the_span_and_leave(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    others = [Headers([(TRACEPARENT, b"00-%032x-%016x-01" % (n, n))]) for n in range(1, 41)]
    total = Headers([(TRACEPARENT, SAMPLED)])
    for other in others:
        link_traces(total, other, other)
    headers = sent(tracing, Record("k", "total", 1, total))
    [span] = kept.spans
    assert format(span.parent.span_id, "016x") == SAMPLED[36:52].decode()
    assert [one.context.span_id for one in span.links] == list(range(9, 41)), "the last MAX_LINKS"
    assert all(one.context.is_remote and one.context.trace_flags.sampled for one in span.links)
    assert len(span.links) == MAX_LINKS
    assert TRACE_LINKS not in headers


def test_links_gather_what_others_have_gathered() -> None:
    first = link_traces(Headers([(TRACEPARENT, SAMPLED)]), Headers([(TRACEPARENT, OTHER)]))
    both = link_traces(Headers(), first)
    assert both.last_header(TRACE_LINKS).value == OTHER + b"," + SAMPLED
    assert link_traces(both, Headers([(TRACEPARENT, b"00-nonsense")]), Headers()) == both
    assert list(link_traces(Headers([(TRACEPARENT, SAMPLED)]), Headers([(TRACEPARENT, SAMPLED)]))) == [
        (TRACEPARENT, SAMPLED)
    ]


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"," * 99, (SAMPLED + b",") * 33, SAMPLED + b"\xff,"])
def test_links_that_are_none_are_left_out(kept: KeptSpans, value: bytes | None) -> None:
    tracing = Tracing(kept)
    assert len(Chain([tracing]).emit(produced([(TRACE_LINKS, value)]))) == 1
    assert kept.spans[0].links == ()


def test_links_do_not_come_in_from_topics(kept: KeptSpans) -> None:
    [record] = Chain([Tracing(kept)]).ingest(consumed((TRACEPARENT, UNSAMPLED), (TRACE_LINKS, OTHER)))
    assert list(record.headers) == [(TRACEPARENT, UNSAMPLED)]


MALFORMED = [
    b"",
    b"nonsense",
    None,
    b"\xff\xfe",
    SAMPLED.upper(),
    SAMPLED + b"-more",
    b"ff" + SAMPLED[2:],
    b"00-" + b"0" * 32 + SAMPLED[35:],
    SAMPLED[:36] + b"0" * 16 + SAMPLED[52:],
    UNSAMPLED[:-1] + b"g",
    b"00-" + b"0" * 32 + UNSAMPLED[35:],
    UNSAMPLED[:36] + b"0" * 16 + UNSAMPLED[52:],
    SAMPLED + b" " * 10_000_000,
]


@pytest.mark.parametrize("value", MALFORMED, ids=range(len(MALFORMED)))
def test_b12_a_malformed_traceparent_begins_a_trace(kept: KeptSpans, value: bytes | None) -> None:
    tracing = Tracing(kept)
    [record] = Chain([tracing]).ingest(consumed((TRACEPARENT, value), (TRACESTATE, b"vendor=1"), ("tenant", b"eu")))
    [span] = kept.spans
    assert span.parent is None
    assert list(record.headers) == [("tenant", b"eu"), (TRACEPARENT, traceparent(span))], "and its tracestate goes"


def test_b12_a_malformed_traceparent_is_no_trace_of_a_record_that_is_sent(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    processed(tracing, consumed((TRACEPARENT, SAMPLED)))
    sent(tracing, Record("k", "v", 1, [(TRACEPARENT, b"nonsense")]))
    tracing.finish_batch()
    assert tree(kept.spans) == {"poll orders": {"process orders": {"send totals": {}}}}


@pytest.mark.parametrize("trace", [SAMPLED, UNSAMPLED])
@pytest.mark.parametrize("size", [8193, 5_000_000])
def test_b12_headers_that_are_too_long_go(kept: KeptSpans, trace: bytes, size: int) -> None:
    long = (TRACESTATE, b"a=" + b"1" * size), (BAGGAGE, b"a=" + b"1" * size)
    [record] = Chain([Tracing(kept)]).ingest(consumed((TRACEPARENT, trace), *long))
    assert [header.key for header in record.headers] == [TRACEPARENT]
    assert record.headers.last_header(TRACEPARENT).value[:35] == trace[:35]


def test_b12_what_is_malformed_of_baggage_goes_and_the_rest_stays(kept: KeptSpans) -> None:
    [record] = Chain([Tracing(kept)]).ingest(
        consumed((TRACEPARENT, SAMPLED), (TRACESTATE, b"a=1,b=2"), (BAGGAGE, b"tenant=eu,\xff,=,x"))
    )
    assert next(iter(record.headers)) == (TRACESTATE, b"a=1,b=2")
    assert record.headers.last_header(BAGGAGE).value == b"tenant=eu"


def test_the_last_traceparent_counts(kept: KeptSpans) -> None:
    [record] = Chain([Tracing(kept)]).ingest(consumed((TRACEPARENT, OTHER), (TRACEPARENT, SAMPLED)))
    assert [header.value for header in record.headers.headers(TRACEPARENT)] == [traceparent(kept.spans[0])]
    assert format(kept.spans[0].context.trace_id, "032x") == SAMPLED[3:35].decode()


def test_b12_a_trace_that_nobody_samples_passes_on_as_it_came(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    pairs = (TRACEPARENT, UNSAMPLED), (TRACESTATE, b"a=1"), (BAGGAGE, b"tenant=eu;secret")
    record = consumed(*pairs)
    given = Headers.from_bytes(record.headers.to_bytes())
    record = ConsumerRecord.adopt("orders", 3, 17, 1, b"ada", b"v", given)
    assert list(sent(tracing, processed(tracing, record))) == list(pairs)
    assert sent(tracing, Record("k", "sum", 1)).last_header(TRACEPARENT).value == UNSAMPLED, "also one without headers"
    tracing.finish_batch()
    assert kept.names == []


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, TraceIdRatioBased(0.0), ParentBased(ALWAYS_OFF)])
def test_b12_what_is_not_sampled_at_first_is_nowhere_after(sampler: Any) -> None:
    off, on = KeptSpans(sampler), KeptSpans()
    upstream = Tracing(off)
    headers = sent(upstream, processed(upstream, consumed()))
    upstream.finish_batch()
    assert int(headers.last_header(TRACEPARENT).value[-2:], 16) % 2 == 0
    downstream = Tracing(on)
    processed(downstream, consumed(*headers))
    downstream.finish_batch()
    assert (off.names, on.names) == ([], [])


def test_b12_a_sampler_that_drops_a_trace_says_so_to_the_next(kept: KeptSpans) -> None:
    off = KeptSpans(ALWAYS_OFF)
    [record] = Chain([Tracing(off)]).ingest(consumed((TRACEPARENT, SAMPLED)))
    value = record.headers.last_header(TRACEPARENT).value
    assert (value[:35], value[-2:]) == (SAMPLED[:35], b"00")


def test_b12_without_a_provider_nothing_is_done() -> None:
    tracing = Tracing()
    pairs = [(TRACEPARENT, b"nonsense"), (TRACE_LINKS, OTHER), (BAGGAGE, b"1" * 9000)]
    assert list(sent(tracing, processed(tracing, consumed(*pairs)))) == pairs
    records = columns([Headers(pairs)])
    assert tracing.on_ingest_columns(records) is records
    assert tracing.on_emit_columns(records) is records


def test_b12_a_record_whose_processing_failed_says_so(kept: KeptSpans) -> None:
    tracing = Tracing(kept)
    processed(tracing, consumed((TRACEPARENT, SAMPLED)))
    try:
        raise KeyError("secret")
    except KeyError:
        tracing.close()
    span = kept.spans[-1]
    assert (span.name, span.status.status_code) == ("process orders", StatusCode.ERROR)
    assert dict(span.attributes or {})["error.type"] == "KeyError"
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_tombstone_says_so_and_keys_show_if_they_are_text(kept: KeptSpans) -> None:
    for key in (b"ada", b"\x00\x01", b"\xff", None, b"a" * 300):
        Chain([Tracing(kept)]).ingest(ConsumerRecord("t", 0, 0, key=key, value=None))
    shown = [dict(span.attributes or {}) for span in kept.spans]
    assert [one.get("messaging.kafka.message.key") for one in shown] == ["ada", None, None, None, None]
    assert all(one["messaging.kafka.message.tombstone"] is True for one in shown)
    tracing = Tracing(kept)
    for key in (7, uuid.UUID(int=7), True, ("a", 7)):
        tracing.on_consume(Record(key, "v", 1))
    tracing.finish_batch()
    shown = [dict(span.attributes or {}) for span in kept.spans[-4:]]
    assert [one.get(attribute.MESSAGING_KAFKA_MESSAGE_KEY) for one in shown] == ["7", str(uuid.UUID(int=7)), None, None]
    Chain([Tracing(kept, shows_keys=False)]).ingest(consumed())
    assert "messaging.kafka.message.key" not in dict(kept.spans[-1].attributes or {})


def columns(headers: list[Headers]) -> RecordColumns:
    rows = len(headers)
    made = RecordColumns(
        pa.array([b"ada"] * rows, pa.binary()),
        pa.array([b"v", None] * rows, pa.binary())[:rows],
        pa.array([1] * rows, pa.int64()),
        pa.array([one.to_bytes() for one in headers], pa.binary()),
    )
    names = pa.array(["orders"] * rows).dictionary_encode()
    origin = pa.record_batch([names, [3] * rows, range(rows)], schema=pa.schema(list(ORIGIN)[:3]))
    return RecordColumns.adopt(made.key, made.value, made.timestamp_ms, made.headers, origin)


def test_links_of_traces_that_nobody_samples_leave_columns_too(kept: KeptSpans) -> None:
    records = columns([Headers([(TRACEPARENT, UNSAMPLED), (TRACE_LINKS, OTHER)]), Headers([(TRACEPARENT, UNSAMPLED)])])
    for hook in (Tracing(kept).on_ingest_columns, Tracing(kept).on_emit_columns):
        assert hook(records).headers.to_pylist() == [Headers([(TRACEPARENT, UNSAMPLED)]).to_bytes()] * 2


VALUES = st.sampled_from([SAMPLED, UNSAMPLED, OTHER, b"a=1", *MALFORMED[:-1], b"x" * 9000])
KEYS = st.sampled_from([TRACEPARENT, TRACEPARENT, TRACESTATE, BAGGAGE, TRACE_LINKS, "tenant"])


@given(st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=4).map(Headers), max_size=5))
def test_columns_have_what_single_records_have(headers: list[Headers]) -> None:
    kept = KeptSpans()
    records = columns(headers)
    shown: list[list[Any]] = []
    for hook in ("on_ingest", "on_emit"):
        in_columns = getattr(Tracing(kept), f"{hook}_columns")(records)
        by_columns = [Headers.from_bytes(one) for one in in_columns.headers.to_pylist()]
        seen = [(span.name, dict(span.attributes or {}), len(span.links)) for span in kept.spans]
        kept.exporter.clear()
        one_by_one = []
        for row, one in enumerate(headers):
            value = (b"v", None)[row % 2]
            record = ConsumerRecord("orders", 3, row, key=b"ada", value=value, headers=one)
            if hook == "on_emit":
                record = ProducerRecord("orders", key=b"ada", value=value, headers=one)
            one_by_one.append(next(iter(getattr(Tracing(kept), hook)(record))).headers)
        assert seen == [(span.name, dict(span.attributes or {}), len(span.links)) for span in kept.spans]
        kept.exporter.clear()
        shown.append([by_columns, one_by_one])
    for by_columns, one_by_one in shown:
        assert [without_ids(one) for one in by_columns] == [without_ids(one) for one in one_by_one]


def without_ids(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Leave out of headers which span they name, for that is another one each time."""
    return [(key, value[-2:] if key == TRACEPARENT and value else value) for key, value in headers]


def test_columns_of_traces_that_nobody_samples_are_not_touched(kept: KeptSpans) -> None:
    records = columns([Headers([(TRACEPARENT, UNSAMPLED), (BAGGAGE, b"a=b")])] * 3)
    assert Tracing(kept).on_ingest_columns(records) is records
    assert Tracing(kept).on_emit_columns(records) is records


def provide() -> Any:
    PROVIDED.append(KeptSpans())
    return PROVIDED[-1].provider


PROVIDED: list[KeptSpans] = []


def test_b12_a_provider_is_made_once_a_process_on_the_executor() -> None:
    tracing = Tracing(provide)
    copies = [pickle.loads(pickle.dumps(tracing)), copy.copy(tracing), pickle.loads(pickle.dumps(copy.copy(tracing)))]
    PROVIDED.clear()
    for one in copies:
        Chain([one]).ingest(consumed())
        one.close()
    [provided] = PROVIDED
    assert provided.names == ["poll orders"] * 3


def test_spans_are_handed_over_when_a_batch_ends_but_not_if_there_are_none() -> None:
    kept, flushes = KeptSpans(), []
    kept.provider.force_flush = lambda timeout_ms: bool(flushes.append(timeout_ms)) or True  # type: ignore[method-assign]
    tracing = Tracing(kept)
    Chain([tracing]).ingest(consumed((TRACEPARENT, UNSAMPLED)))
    tracing.close()
    assert flushes == []
    Chain([tracing]).ingest(consumed())
    tracing.finish_batch()
    tracing.close()
    tracing.close()
    assert len(flushes) == 1


def test_a_collector_that_is_not_there_is_not_waited_for_again(caplog: pytest.LogCaptureFixture) -> None:
    kept, flushes = KeptSpans(), []
    kept.provider.force_flush = lambda timeout_ms: bool(flushes.append(timeout_ms))  # type: ignore[method-assign]
    tracing = Tracing(kept)
    for _ in range(3):
        Chain([tracing]).ingest(consumed())
        tracing.close()
    assert len(flushes) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class OneHeader(TextMapPropagator):
    """A propagator that is not W3C's: all in a header `x`, as some vendors have it."""

    fields = {"x"}  # noqa: RUF012  # as its base class has it

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        found = getter.get(carrier, "x")
        assert found is None or len(found[0]) < 9000, "what is too long is not handed on"
        if not found or found[0].count("/") != 2:
            return context
        trace_id, span_id, flags = (int(part, 16) for part in found[0].split("/"))
        remote = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
        return trace.set_span_in_context(trace.NonRecordingSpan(remote), context)

    def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:
        span = trace.get_current_span(context).get_span_context()
        if span.is_valid:
            setter.set(carrier, "x", f"{span.trace_id:x}/{span.span_id:x}/{span.trace_flags:x}")


def test_b12_a_propagator_may_be_given() -> None:
    kept = KeptSpans(ParentBased(ALWAYS_ON))
    tracing = Tracing(kept, propagator=OneHeader())
    went = sent(tracing, processed(tracing, consumed(("x", b"ab/cd/1"), (TRACEPARENT, UNSAMPLED))))
    sent(tracing, Record("k", "no headers", 1))
    tracing.finish_batch()
    assert tree(kept.spans) == {"poll orders": {"process orders": {"send totals": {}}}}
    assert {span.context.trace_id for span in kept.spans} == {0xAB}
    assert went.last_header(TRACEPARENT).value == UNSAMPLED, "not one of its headers"
    kept.exporter.clear()
    for unsampled in (b"ab/cd/0", b"x" * 9000):
        processed(tracing, consumed(("x", unsampled)))
        assert sent(tracing, Record("k", "no headers", 1)).last_header("x") is not None
    tracing.finish_batch()
    assert [span.name for span in kept.spans if span.parent is None] == ["poll orders"], "of what is too long"
    [ingested] = tracing.on_ingest_columns(columns([Headers([("x", b"ab/cd/0")])])).headers.to_pylist()
    assert Headers.from_bytes(ingested).last_header("x").value.startswith(b"ab/")


def test_what_belongs_to_a_batch_does_not_travel(kept: KeptSpans) -> None:
    tracing = Tracing(provide)
    processed(tracing, consumed())
    assert copy.copy(tracing)._batch is None
    assert pickle.loads(pickle.dumps(tracing))._context is None
    tracing.finish_batch()


def test_what_can_not_travel_is_refused() -> None:
    with pytest.raises(TypeError, match="a function that makes one"):
        Tracing(KeptSpans().provider)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must return a TracerProvider of OpenTelemetry, not str"):
        Chain([Tracing(lambda: "nothing")]).ingest(consumed())  # type: ignore[arg-type, return-value]


def test_b12_a_configuration_names_it_and_its_provider() -> None:
    PROVIDED.clear()
    named = {"statestore.interceptors": "statestore.middleware.lineage.tracing:Tracing"}
    options = {"tracer.provider": f"{__name__}:provide", "consumer.group": "g", "shows.keys": "false"}
    chain = chain_of({**named, **{f"statestore.tracing.{name}": value for name, value in options.items()}})
    chain.ingest(consumed())
    attributes = dict(PROVIDED[0].spans[0].attributes or {})
    assert attributes["messaging.consumer.group.name"] == "g"
    assert "messaging.kafka.message.key" not in attributes
    assert repr(chain_of({**named, "group.id": "h"})) == "Chain([Tracing(consumer_group='h')])"
    with pytest.raises(ConfigException):
        Tracing.from_config({"statestore.tracing.shows.keys": "perhaps"})


def test_after_slicing_it_is_refused() -> None:
    class Slicing(Interceptor):
        kind = "slicing"

    with pytest.raises(ChainOrderError, match="first slice"):
        Chain([Slicing(), Tracing()])
    assert len(Chain([Tracing(), Slicing()])) == 2
