"""Records that are CloudEvents: made of what is sent, let in if they are sound, and as the library has them."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import ConsumerRecord, ProducerRecord, Serdes, Topology
from statestore.errors import ConfigException
from statestore.errors.middleware import ChainOrderError, CloudEventRefusedError
from statestore.headers.record_columns import RecordColumns
from statestore.middleware import Chain, FailureHandling, Interceptor
from statestore.middleware.schemas import cloud_events as ce
from statestore.testing import TopologyTestDriver

SENT = ce.CloudEvents("/orders", "com.example.order", content_type="application/json")
RECEIVED = ce.CloudEvents()
SOUND = {
    "ce_specversion": b"1.0",
    "ce_id": b"1",
    "ce_source": b"/s",
    "ce_type": b"t",
    "ce_time": b"2024-02-29T12:00:00.5Z",
    "ce_subject": b"s",
    "ce_other1": "é".encode(),
    "content-type": b"application/json",
}


def sent(value: bytes | None = b"{}", headers: Any = (), **fields: Any) -> ProducerRecord[bytes | None, bytes | None]:
    return ProducerRecord(
        "t", **{"key": b"k", "timestamp_ms": 1_700_000_000_123, **fields}, value=value, headers=headers
    )


def received(
    headers: Any, value: bytes | None = b"{}", key: bytes | None = b"k"
) -> ConsumerRecord[bytes | None, bytes | None]:
    pairs = headers.items() if isinstance(headers, dict) else headers
    return ConsumerRecord("t", 0, 5, key=key, value=value, headers=list(pairs))


def without(*names: str, **others: Any) -> dict[str, Any]:
    return {name: value for name, value in (SOUND | others).items() if name not in names}


def event(**attributes: Any) -> CloudEvent:
    given_: dict[str, Any] = {"id": "1", "source": "/s", "type": "t", "time": datetime(2024, 1, 2, tzinfo=timezone.utc)}
    return CloudEvent(given_ | attributes, {"a": [1]})


def test_what_is_sent_becomes_an_event_that_the_library_reads() -> None:
    (record,) = SENT.on_emit(
        sent(b'{"n": 1}', [("h", b"1"), ("ce_id", b"old"), ("ce_old", b"x"), ("content-type", b"y")])
    )
    assert record.value == b'{"n": 1}'
    assert dict(record.headers) == {
        "h": b"1",
        "ce_specversion": b"1.0",
        "ce_id": ce.content_id(record).encode(),
        "ce_source": b"/orders",
        "ce_type": b"com.example.order",
        "ce_time": b"2023-11-14T22:13:20.123000Z",
        "content-type": b"application/json",
    }
    headers = {key: value or b"" for key, value in record.headers}
    theirs = kafka.from_binary_event(kafka.KafkaMessage(headers, None, record.value or b""))
    assert (theirs.get_data(), theirs.get_type()) == ({"n": 1}, "com.example.order")
    assert theirs.get_time() == datetime(2023, 11, 14, 22, 13, 20, 123_000, timezone.utc)
    (back,) = RECEIVED.on_ingest(received(list(record.headers), record.value))
    assert (back.value, list(back.headers)) == (record.value, list(record.headers))


def test_attributes_are_what_callables_say_of_a_record() -> None:
    made = ce.CloudEvents(
        lambda record: f"/{record.topic}",
        "t",
        id=lambda record: (record.key or b"").decode(),
        subject=lambda record: None if record.value is None else "s",
        extensions={"traceparent": "00-1", "number": lambda record: None},
        carried=["causation"],
        time=False,
    )
    old = [("ce_causation", b"c"), ("ce_subject", b"old"), ("content-type", b"text/plain")]
    expected = {"ce_causation": b"c", "content-type": b"text/plain", "ce_specversion": b"1.0", "ce_id": b"k"}
    expected |= {"ce_source": b"/t", "ce_type": b"t", "ce_traceparent": b"00-1"}
    (record,) = made.on_emit(sent(headers=old))
    assert dict(record.headers) == expected | {"ce_subject": b"s"}
    (record,) = made.on_emit(sent(None, old))
    assert dict(record.headers) == expected
    assert record.value is None


def test_ids_are_the_same_for_the_same_record_only() -> None:
    assert ce.content_id(sent()) == ce.content_id(sent(headers=[("h", b"1")]))
    others = [
        sent(),
        sent(None),
        sent(b""),
        sent(key=None),
        sent(key=b"k2"),
        sent(timestamp_ms=None),
        sent(timestamp_ms=1),
    ]
    assert len({ce.content_id(record) for record in others}) == len(others)


def test_what_is_no_event_passes_where_it_may() -> None:
    record = received([("h", b"1")])
    with pytest.raises(CloudEventRefusedError, match="neither headers of an event nor the content type"):
        RECEIVED.on_ingest(record)
    assert ce.CloudEvents(required=False).on_ingest(record) == (record,)
    elsewhere = ce.CloudEvents("/s", "t", topics=["u"])
    assert elsewhere.on_ingest(record) == (record,)
    assert dict(elsewhere.on_emit(sent())[0].headers) == {}
    assert dict(RECEIVED.on_emit(sent())[0].headers) == {}


MALFORMED: list[Any] = [
    without("ce_specversion"),
    without("ce_id"),
    without("ce_source"),
    without("ce_type"),
    without(ce_specversion=b"0.3"),
    without(ce_id=b""),
    without(ce_id=None),
    without(ce_id=b"\xff"),
    without(ce_source=b"x" * 4097),
    without(ce_subject=b""),
    without(ce_dataschema=b""),
    without(ce_time=b"2024-02-30T12:00:00Z"),
    without(ce_time=b"2024-02-28"),
    without(ce_time=b"2024-02-28T12:00:00"),
    without(ce_time=b"now"),
    without(ce_time=b"20240228T120000Z"),
    without(ce_time=b"2024-02-28T12Z"),
    without(**{"ce_Big": b"x"}),
    without(**{"ce_": b"x"}),
    without(**{"ce_under_score": b"x"}),
    without(**{"ce_data": b"x"}),
    without(**{"content-type": None}, ce_datacontenttype=b""),
    without(**{f"ce_x{number}": b"" for number in range(60)}),
    [*SOUND.items(), ("ce_id", b"2")],
    without(**{"content-type": b"application/cloudevents-batch+json"}),
    without(**{"content-type": b"application/cloudevents+avro"}),
    without(**{"content-type": b"application/cloudevents+json"}),
]


def columns_of(records: list[ConsumerRecord[Any, Any]]) -> RecordColumns:
    columns = RecordColumns(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([0] * len(records)),
        pa.array([record.headers.to_bytes() for record in records], pa.binary()),
    )
    topics = pa.array([record.topic for record in records]).dictionary_encode()
    return RecordColumns.adopt(
        columns.key, columns.value, columns.timestamp_ms, columns.headers, pa.record_batch({"topic": topics})
    )


@pytest.mark.parametrize("headers", MALFORMED, ids=lambda headers: str(headers)[-40:])
def test_malformed_events_are_refused(headers: Any) -> None:
    record = received(headers)
    with pytest.raises(CloudEventRefusedError):
        RECEIVED.on_ingest(record)
    with pytest.raises(CloudEventRefusedError):
        ce.event_of(record)
    assert RECEIVED.on_ingest_columns(columns_of([received(SOUND), record])) is None


def test_columns_of_sound_events_are_let_in_together() -> None:
    sound = [received(SOUND), received(without("ce_time", "ce_other1", "content-type")), received(SOUND, None)]
    columns = columns_of(sound)
    assert RECEIVED.on_ingest_columns(columns) is columns
    assert all(RECEIVED.on_ingest(record) == (record,) for record in sound)
    assert ce.CloudEvents(topics=["u"]).on_ingest_columns(columns) is None


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from([*SOUND, "ce_x", "ce_X", "h"]), st.one_of(st.none(), st.binary(max_size=4))),
    st.sampled_from([SOUND, {}]),
)
def test_columns_let_in_nothing_that_records_do_not(headers: dict[str, Any], base: dict[str, Any]) -> None:
    record = received({**base, **headers})
    if RECEIVED.on_ingest_columns(columns_of([record])) is not None:
        assert RECEIVED.on_ingest(record) == (record,)
    else:
        try:
            RECEIVED.on_ingest(record)
        except CloudEventRefusedError:
            return
        assert b"\xff" not in headers.values()


@pytest.mark.parametrize(
    ("data", "content_type", "value"),
    [
        ({"a": 1}, "application/json", b'{"a":1}'),
        ([1, "é"], None, b'[1,"\xc3\xa9"]'),
        ("text", "application/vnd.x+json; charset=utf-8", b'"text"'),
        ("text", "text/plain", b"text"),
        (b"\xff\0", "application/octet-stream", b"\xff\0"),
        (None, None, None),
    ],
)
def test_structured_mode_goes_on_in_binary_mode(data: Any, content_type: str | None, value: bytes | None) -> None:
    made = CloudEvent({**event().get_attributes(), "other": "x"}, data)
    if content_type is not None:
        made.get_attributes()["datacontenttype"] = content_type
    theirs = kafka.to_structured_event(made)
    headers = [("content-type", b"Application/CloudEvents+json; charset=utf-8"), ("ce_id", b"no matter"), ("h", b"1")]
    record = received(headers, theirs.value)
    (binary,) = RECEIVED.on_ingest(record)
    assert binary.value == value
    assert dict(binary.headers) == {
        "h": b"1",
        "ce_specversion": b"1.0",
        "ce_id": b"1",
        "ce_source": b"/s",
        "ce_type": b"t",
        "ce_time": b"2024-01-02T00:00:00Z",
        "ce_other": b"x",
        **({} if content_type is None else {"content-type": content_type.encode()}),
    }
    assert ce.event_of(record).get_data() == data
    assert RECEIVED.on_ingest_columns(columns_of([record])) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s"}).encode(),
        json.dumps({"specversion": "1.0", "id": 1, "source": "/s", "type": "t"}).encode(),
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "x"}).encode(),
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "x": {}}).encode(),
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "x": "y" * 4097}).encode(),
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "x": "\ud800"}).encode(),
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": "\ud800"}).encode(),
        json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data_base64": "a"}).encode(),
        b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": NaN}',
    ],
)
def test_malformed_whole_events_are_refused(value: bytes | None) -> None:
    with pytest.raises(CloudEventRefusedError):
        RECEIVED.on_ingest(received({"content-type": ce.STRUCTURED.encode()}, value))


@pytest.mark.parametrize("structured", [False, True])
def test_events_become_records_and_come_back(structured: bool) -> None:
    made = event(partitionkey="k", subject="s", datacontenttype="application/json")
    record = ce.record_of(made, "t", structured=structured)
    assert (record.topic, record.key, record.timestamp_ms) == ("t", b"k", 1_704_153_600_000)
    back = ce.event_of(record)
    assert back.get_attributes() == made.get_attributes()
    assert back.get_data() == (made.get_data() if structured else b'{"a":[1]}')
    if structured:
        assert list(record.headers) == [("content-type", ce.STRUCTURED.encode())]
    else:
        assert dict(record.headers) == kafka.to_binary_event(made).headers


def test_a_key_in_utf8_is_the_partition_key() -> None:
    assert ce.event_of(received(SOUND)).get_extension("partitionkey") == "k"
    assert ce.event_of(received(SOUND, key=b"\xff")).get_extension("partitionkey") is None
    assert ce.event_of(received(SOUND, key=None)).get_extension("partitionkey") is None
    assert ce.event_of(received(without(ce_partitionkey=b"p"))).get_extension("partitionkey") == "p"
    assert ce.event_of(received(without("ce_time"))).get_time() is None


def test_data_that_have_no_form_are_refused() -> None:
    for data in (float("nan"), {1, 2}, "\ud800"):
        with pytest.raises(CloudEventRefusedError):
            ce.record_of(CloudEvent(event().get_attributes(), data), "t")  # type: ignore[arg-type]
    with pytest.raises(CloudEventRefusedError, match="of type list"):
        ce.record_of(event(other=[1]), "t")


def test_what_no_event_can_have_is_refused_at_once() -> None:
    wrong: list[dict[str, Any]] = [
        {"source": "/s"},
        {"source": "", "type": "t"},
        {"source": "/s", "type": "t", "extensions": {"Big": "x"}},
        {"source": "/s", "type": "t", "extensions": {"data": "x"}},
        {"source": "/s", "type": "t", "extensions": {"time": "x"}},
        {"source": "/s", "type": "t", "subject": ""},
        {"source": "/s", "type": "t", "subject": "x" * 4097},
        {"source": "/s", "type": "t", "id": None},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"(?i)event|extensions"):
            ce.CloudEvents(**arguments)
    with pytest.raises(CloudEventRefusedError, match="lacks id"):
        ce.CloudEvents("/s", "t", id=lambda record: None).on_emit(sent())
    with pytest.raises(CloudEventRefusedError, match="more than 4096 bytes"):
        ce.CloudEvents("/s", "t", id=lambda record: "x" * 4097).on_emit(sent())


def test_it_is_made_of_a_configuration() -> None:
    config = {"statestore.cloudevents.source": "/s", "statestore.cloudevents.type": "t"}
    others = {"statestore.cloudevents.topics": "t,u", "statestore.cloudevents.time": "false", "other": "x"}
    made = ce.CloudEvents.from_config({**config, **others})
    assert repr(made) == "CloudEvents(source='/s', type='t')"
    (record,) = pickle.loads(pickle.dumps(made)).on_emit(sent())
    assert dict(record.headers)["ce_type"] == b"t"
    assert "ce_time" not in record.headers
    with pytest.raises(ConfigException, match="give both"):
        ce.CloudEvents.from_config({"statestore.cloudevents.source": "/s"})


def test_events_are_made_before_what_changes_the_value() -> None:
    class Signing(Interceptor):
        kind = "signing"

    with pytest.raises(ChainOrderError, match="put cloudevents before"):
        Chain([Signing(), SENT])
    assert len(Chain([SENT, Signing()])) == 2


def test_malformed_events_become_dead_letters_and_others_go_through() -> None:
    topology = Topology()
    topology.add_source("in", "t", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_sink("out", "u", ["in"], key_serde=Serdes.string(), value_serde=Serdes.json())
    with TopologyTestDriver(topology, interceptors=[SENT], failures=FailureHandling(dead_letters="dead")) as driver:
        topic = driver.create_input_topic("t", key_serde=Serdes.string(), value_serde=Serdes.bytes())
        topic.pipe_input("a", b"[1]", timestamp_ms=5, headers=list(SOUND.items()))
        topic.pipe_input("b", b"[2]", timestamp_ms=6, headers=list(without("ce_id").items()))
        whole = kafka.to_structured_event(event()).value
        topic.pipe_input("c", whole, timestamp_ms=7, headers=[("content-type", ce.STRUCTURED.encode())])
        made = driver.create_output_topic(
            "u", key_serde=Serdes.string(), value_serde=Serdes.json()
        ).read_records_to_list()
        assert [(record.key, record.value) for record in made] == [("a", [1]), ("c", {"a": [1]})]
        assert dict(made[0].headers)["ce_time"] == b"1970-01-01T00:00:00.005000Z"
        assert "ce_other1" not in dict(made[0].headers)
        dead = driver.create_output_topic("dead", key_serde=Serdes.string(), value_serde=Serdes.bytes()).read_record()
        assert (dead.key, dead.value) == ("b", b"[2]")
        assert b"it lacks id" in (dict(dead.headers)["__connect.errors.exception.message"] or b"")
