"""ConnectHeaders and the records that carry them, beyond what Kafka's vectors say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pytest

from statestore.connect.header import ConnectHeader
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord, SinkRecord, SourceRecord
from statestore.connect.scalars import Float32, Float64, Instant, Int8, Int16, Int32, Int64
from statestore.connect.schema import Schema, SchemaAndValue, Struct, Type, same_value
from statestore.connect.typed_map import TypedMap
from statestore.errors import DataException
from statestore.errors.data import NullValueException, SchemaBuilderException
from statestore.headers import TimestampType


def test_calls_can_be_chained() -> None:
    headers = ConnectHeaders().add_int("a", 1).add_string("b", "x").add_int("a", 2).retain_latest().remove("b")
    assert list(headers) == [ConnectHeader("a", Int32(2), Schema.INT32_SCHEMA)]


def test_a_number_knows_its_width() -> None:
    headers = (
        ConnectHeaders().add_byte("h", 1).add_short("h", 1).add_long("h", 1).add_float("h", 0.1).add_double("h", 1.0)
    )
    assert [type(header.value) for header in headers] == [Int8, Int16, Int64, Float32, Float64]


@pytest.mark.parametrize(
    ("add", "value", "expected"),
    [
        ("add_date", date(1970, 1, 2), ConnectHeader("h", Instant(86_400_000), Schema.DATE_SCHEMA)),
        ("add_time", time(0, 0, 1), ConnectHeader("h", Instant(1000), Schema.TIME_SCHEMA)),
        ("add_timestamp", datetime(1970, 1, 1, 0, 0, 2), ConnectHeader("h", Instant(2000), Schema.TIMESTAMP_SCHEMA)),
        (
            "add_timestamp",
            datetime(1970, 1, 1, tzinfo=timezone.utc),
            ConnectHeader("h", Instant(0), Schema.TIMESTAMP_SCHEMA),
        ),
    ],
)
def test_dates_of_python_become_instants(add: str, value: Any, expected: ConnectHeader) -> None:
    assert list(getattr(ConnectHeaders(), add)("h", value)) == [expected]


@pytest.mark.parametrize(
    "add",
    [
        lambda headers: headers.add("trace", "x", Schema.INT32_SCHEMA),
        lambda headers: headers.add("trace", None, Schema.INT32_SCHEMA),
        lambda headers: headers.add("trace", SchemaAndValue(Schema.INT8_SCHEMA, 300)),
        lambda headers: headers.add_string("trace", 5),
        lambda headers: headers.add_bytes("trace", "x"),
        lambda headers: headers.add_boolean("trace", 1),
        lambda headers: headers.add_boolean("trace", None),
        lambda headers: headers.add_byte("trace", 128),
        lambda headers: headers.add_byte("trace", Int16(1)),
        lambda headers: headers.add_int("trace", True),
        lambda headers: headers.add_int("trace", 1.0),
        lambda headers: headers.add_int("trace", None),
        lambda headers: headers.add_double("trace", "1"),
        lambda headers: headers.add_list("trace", {}, Schema.array(Schema.INT8_SCHEMA)),
        lambda headers: headers.add_list("trace", [], Schema.map(Schema.INT8_SCHEMA, Schema.INT8_SCHEMA)),
        lambda headers: headers.add_list("trace", [], None),
        lambda headers: headers.add_map("trace", [], Schema.map(Schema.INT8_SCHEMA, Schema.INT8_SCHEMA)),
        lambda headers: headers.add_struct("trace", {}),
        lambda headers: headers.add_decimal("trace", 1.5),
        lambda headers: headers.add_decimal("trace", Decimal("NaN")),
        lambda headers: headers.add_date("trace", datetime(2017, 5, 21, 1)),
        lambda headers: headers.add_time("trace", datetime(2017, 5, 21)),
        lambda headers: headers.add_timestamp("trace", "2017-05-21"),
    ],
)
def test_a_refused_value_names_the_header_and_leaves_the_others(add: Callable[[ConnectHeaders], Any]) -> None:
    headers = ConnectHeaders().add_int("kept", 1)
    with pytest.raises(DataException, match=r"^header 'trace': ") as caught:
        add(headers)
    assert caught.value.header == "trace"
    assert [header.key for header in headers] == ["kept"]


@pytest.mark.parametrize(
    "call",
    [
        lambda headers: headers.add("k"),
        lambda headers: headers.add(("k", 1)),
        lambda headers: headers.add(5, 1),
        lambda headers: headers.apply("k"),
        lambda headers: headers.remove(b"k"),
    ],
)
def test_mistakes_of_a_program_are_type_errors(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        call(ConnectHeaders())


def test_a_message_shows_no_more_than_the_beginning_of_a_value() -> None:
    with pytest.raises(DataException) as caught:
        ConnectHeaders().add("k", "x" * 10**6, Schema.INT32_SCHEMA)
    assert len(str(caught.value)) < 400


def test_an_error_of_a_transform_names_the_header() -> None:
    def refuse(header: ConnectHeader) -> ConnectHeader:
        if header.key == "bad":
            raise DataException("no")
        return header.with_value(None, 0)

    headers = ConnectHeaders().add("good", 1).add("bad", 2)
    with pytest.raises(DataException, match=r"^header 'bad': no$"):
        headers.apply(refuse)
    assert [header.value for header in headers] == [0, 2]  # what was done stays, as in Kafka


def test_a_transform_cannot_change_the_list_that_it_goes_through() -> None:
    headers = ConnectHeaders().add("a", 1).add("b", 2)
    for change in (lambda: headers.add("c", 3), lambda: headers.remove("a"), headers.clear):

        def change_and_keep(header: ConnectHeader, change: Callable[[], Any] = change) -> ConnectHeader:
            if len(headers) < 9:  # or a list that grows as it is gone through would have no end
                change()
            return header

        with pytest.raises(RuntimeError):
            headers.apply(change_and_keep)
        headers.clear().add("a", 1).add("b", 2)


def test_a_transform_may_do_to_the_headers_what_changes_none() -> None:
    headers = ConnectHeaders().add("a", 1).add("b", 2)
    headers.apply(lambda header: headers.remove("c").retain_latest() and header)
    assert len(headers) == 2


def test_iteration_ends_where_the_list_is_changed() -> None:
    headers = ConnectHeaders().add("a", 1).add("b", 2)
    iterator = iter(headers)
    next(iterator)
    headers.add("c", 3)
    with pytest.raises(RuntimeError):
        next(iterator)


def test_what_is_found_is_no_view() -> None:
    headers = ConnectHeaders().add("a", 1).add("b", 2).add("a", 3)
    found = headers.all_with_name("a")
    headers.clear()
    assert [header.value for header in found] == [1, 3]
    assert headers.last_with_name("a") is None
    assert "a" not in headers
    assert "a" in ConnectHeaders(found)
    assert found[0] in ConnectHeaders(found)
    assert repr(ConnectHeaders(found[:1])) == f"ConnectHeaders([{found[0]!r}])"


def test_retain_latest_keeps_the_order_of_what_is_kept() -> None:
    headers = ConnectHeaders()
    for number, key in enumerate("abcab"):
        headers.add(key, number)
    assert [header.value for header in headers.duplicate().retain_latest()] == [2, 3, 4]
    assert [header.value for header in headers.retain_latest("b")] == [0, 2, 3, 4]


def test_a_struct_brings_its_schema() -> None:
    schema = Schema.struct({"x": Schema.INT8_SCHEMA})
    assert ConnectHeader("h", Struct(schema, {"x": 1})).schema == schema


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (float("nan"), float("nan"), True),
        (Float32(float("nan")), Float64(float("nan")), False),
        (0.0, -0.0, False),
        (Float32(0.5), Float64(0.5), False),
        (Float32(0.5), 0.5, True),
        (Int8(1), Int16(1), False),
        (Int8(1), 1, True),
        (1, 2, False),
        (1, True, False),
        (True, Int8(1), False),
        (True, True, True),
        (1, 1.0, False),
        (Decimal("1.0"), Decimal("1.00"), False),
        (Decimal("1.0"), Decimal("1.0"), True),
        (Decimal(1), 1, False),
        ([1, [2.0]], (1, (2.0,)), True),
        ([1], [1, 1], False),
        ([True], [1], False),
        ({"a": 1, "b": [0.0]}, {"b": [0.0], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, TypedMap([("a", 1)]), True),
        (b"x", b"x", True),
        (b"x", bytearray(b"x"), False),
        ("x", b"x", False),
        (None, None, True),
        (None, 0, False),
        (Instant(0), Instant(0), True),
    ],
)
def test_values_are_the_same_as_in_java(one: Any, other: Any, same: bool) -> None:
    assert same_value(one, other) is same
    assert same_value(other, one) is same
    assert (ConnectHeader("h", one) == ConnectHeader("h", other)) is same
    assert (SchemaAndValue(None, one) == SchemaAndValue(None, other)) is same
    assert (ConnectRecord("t", value=one) == ConnectRecord("t", value=other)) is same
    if same:
        assert hash(ConnectHeader("h", one)) == hash(ConnectHeader("h", other))
        assert hash(ConnectRecord("t", value=one)) == hash(ConnectRecord("t", value=other))


def test_schemas_compare_their_defaults_as_values() -> None:
    assert Schema(Type.FLOAT64, default=float("nan")) == Schema(Type.FLOAT64, default=float("nan"))
    assert Schema(Type.FLOAT64, default=0.0) != Schema(Type.FLOAT64, default=-0.0)


def test_a_schema_of_many_fields_is_made_and_asked_in_linear_time() -> None:
    schema = Schema.struct({f"f{number}": Schema.INT32_SCHEMA for number in range(50_000)})
    struct = Struct(schema)
    for each in schema.fields:
        struct.put(each.name, 1)
    with pytest.raises(SchemaBuilderException, match="duplication f7"):
        Schema.struct([*((each.name, each.schema) for each in schema.fields), ("f7", Schema.INT32_SCHEMA)])


# ---- records ----


def test_headers_of_a_record_are_never_none() -> None:
    none: Any = None
    assert ConnectRecord("t", headers=none).headers == ConnectHeaders()
    assert list(SourceRecord("t", headers=[ConnectHeader("a", 1)]).headers) == [ConnectHeader("a", 1)]  # type: ignore[arg-type]


def test_a_new_record_has_headers_of_its_own_and_keeps_what_is_not_given() -> None:
    record = SourceRecord(
        "t", kafka_partition=3, key_schema=Schema.STRING_SCHEMA, key="k", timestamp_ms=5, source_partition={"file": "x"}
    )
    record.headers.add("a", 1)
    made = record.new_record(topic="u", value=7)
    made.headers.add("b", 2)
    assert made == SourceRecord(
        "u",
        kafka_partition=3,
        key_schema=Schema.STRING_SCHEMA,
        key="k",
        value=7,
        timestamp_ms=5,
        source_partition={"file": "x"},
        headers=ConnectHeaders().add("a", 1).add("b", 2),
    )
    assert len(record.headers) == 1
    assert record.new_record() == record
    assert record.new_record(headers=None).headers == ConnectHeaders()
    assert record.new_record(key=None).key is None


def test_headers_count_in_equality_hash_and_text() -> None:
    with_headers, without = ConnectRecord("t", headers=ConnectHeaders().add("a", 1)), ConnectRecord("t")
    assert with_headers != without
    assert hash(with_headers) != hash(without)
    assert "'a'" in repr(with_headers)
    assert ConnectRecord("t") != SourceRecord("t")


def test_a_sink_record_keeps_where_it_came_from() -> None:
    record = SinkRecord("t", kafka_partition=1, kafka_offset=7, timestamp_type=TimestampType.CREATE_TIME)
    moved = record.new_record(topic="u", kafka_partition=2)
    assert (moved.original_topic, moved.original_kafka_partition, moved.original_kafka_offset) == ("t", 1, 7)
    assert moved.timestamp_type is TimestampType.CREATE_TIME
    assert moved != SinkRecord("u", kafka_partition=2, kafka_offset=7, timestamp_type=TimestampType.CREATE_TIME)


def test_a_key_of_none_is_named_as_in_kafka() -> None:
    none: Any = None
    with pytest.raises(NullValueException, match="Null header keys are not permitted"):
        ConnectHeader(none, 1)
    with pytest.raises(NullValueException, match="Header key cannot be null"):
        ConnectHeaders().remove(none)
