"""A chain over columns does what it does record by record."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import RecordColumns
from statestore.connect import DropHeaders, Filter, HasHeaderKey, InsertHeader, RecordIsTombstone, TopicNameMatches
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.simple import SimpleHeaderConverter
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import Schema, SchemaAndValue, Type
from statestore.connect.transforms.chain import ColumnChain, TransformChain
from statestore.connect.transforms.field_moves import HeaderFromValue, HeaderToValue
from statestore.connect.transforms.field_steps import ExtractField, HoistField, InsertField, ValueToKey
from statestore.connect.transforms.timestamp_converter import TimestampConverter
from statestore.connect.transforms.topic_steps import RegexRouter, TimestampRouter
from statestore.connect.transforms.transformation import Step, Transformation
from statestore.connect.transforms.typed_columns import schema_of, type_of_schema
from statestore.connect.transforms.value_steps import Cast, Flatten, MaskField
from statestore.errors import DataException
from statestore.errors.data import NullValueException
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.headers.record_columns import ORIGIN


class TopicConverter(HeaderConverter):
    """Writes other bytes for each topic, and not those that it reads: who rewrites a header is found out."""

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        if value == b"bad":
            raise DataException("bad bytes")
        return None if value is None else SchemaAndValue(Schema.OPTIONAL_STRING_SCHEMA, value.decode("latin-1"))

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else f"{topic}/{key}/{value}".encode()


@dataclass(frozen=True)
class AsRecords(Transformation):
    """Does nothing, and can't be done on columns: with it, a chain is run on records."""

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record


KEYS = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from(["t", "orders"])
HEADERS = st.lists(st.tuples(KEYS, st.none() | st.sampled_from([b"", b"1", b"x"])), max_size=4)
ROWS = st.lists(st.tuples(TOPICS, st.none() | st.binary(max_size=2), HEADERS), max_size=6)
TRANSFORMATIONS = st.one_of(
    st.builds(InsertHeader, KEYS, st.sampled_from(["1", "null", "x"])),
    st.builds(DropHeaders, st.lists(KEYS, min_size=1).map(tuple)),
    st.just(Filter()),
    st.sampled_from([RegexRouter("t", "x"), RegexRouter("(o)(.*)", "$2$1"), RegexRouter("x.*|[01].*", "t")]),
    st.builds(TimestampRouter, st.sampled_from(["t", "x${topic}", "${timestamp}"]), st.sampled_from(["S", "dd", "HH"])),
)
PREDICATES = st.one_of(
    st.none(),
    st.builds(HasHeaderKey, st.none() | KEYS),
    st.just(RecordIsTombstone()),
    st.builds(TopicNameMatches, st.sampled_from(["t", "o.*", "x", "x.*|[01].*"])),
)
STEPS = st.lists(st.builds(Step, st.just("s"), TRANSFORMATIONS, PREDICATES, st.booleans()), max_size=4)


def columns(rows: list[tuple[str, bytes | None, list[tuple[str, bytes | None]]]], with_origin: bool) -> RecordColumns:
    made = RecordColumns(
        pa.array([b"k%d" % at for at in range(len(rows))], pa.binary()),
        pa.array([value for _, value, _ in rows], pa.binary()),
        np.arange(len(rows), dtype=np.int64),
        pa.array([headers for _, _, headers in rows], HEADERS_TYPE),
    )
    if not with_origin:
        return made
    topics = pa.array([topic for topic, _, _ in rows], pa.string()).dictionary_encode()
    numbers = pa.array(range(len(rows)), pa.int64())
    columns = [topics, numbers.cast(pa.int32()), *[numbers] * 4]
    origin = pa.RecordBatch.from_arrays(columns, schema=ORIGIN)
    return RecordColumns.adopt(made.key, made.value, made.timestamp_ms, made.headers, origin)


def content(records: RecordColumns) -> Any:
    return (
        records.key.to_pylist(),
        records.value.to_pylist(),
        records.timestamp_ms.to_pylist(),
        records.headers.to_pylist(),
        None if records.topic is None else records.topic.to_pylist(),
    )


@given(ROWS, STEPS, st.booleans(), st.integers(0, 2))
@settings(deadline=None)
def test_columns_are_changed_as_records_are(
    rows: list[Any], steps: list[Step], with_origin: bool, skipped: int
) -> None:
    records = columns(rows, with_origin).slice(skipped)
    chain = TransformChain.of(*steps)
    fast = ColumnChain(chain, TopicConverter())
    slow = ColumnChain(TransformChain.of(*steps, AsRecords()), TopicConverter())
    assert fast.is_in_columns
    assert not slow.is_in_columns
    assert content(fast.apply(records)) == content(slow.apply(records))


def test_headers_of_spark_are_changed_as_they_are() -> None:
    chain = TransformChain.of(Step("f", Filter(), HasHeaderKey("no")), InsertHeader("z", "1"), DropHeaders(("a",)))
    lists = pa.array([[("a", b"1"), ("b", None)], [("no", b"")], None], HEADERS_TYPE)
    topics = pa.array(["t", "t", "u"])
    made, rows = ColumnChain(chain, TopicConverter()).apply_to_lists(
        pa.chunked_array([lists[:1], lists[1:]]), topics=pa.chunked_array([topics[:2], topics[2:]]), values=topics
    )
    assert rows.tolist() == [0, 2]
    assert made == ColumnChain(chain, TopicConverter()).apply_to_lists(lists, topics=topics)[0]
    assert made.to_pylist() == [
        [{"key": "b", "value": None}, {"key": "z", "value": b"t/z/1"}],
        [{"key": "z", "value": b"u/z/1"}],
    ]
    with pytest.raises(ValueError, match=r"not all of it can be done on columns: 1: AsRecords\(\)"):
        ColumnChain(TransformChain.of(AsRecords()), TopicConverter()).apply_to_lists(lists)


def test_a_new_topic_is_for_the_rows_that_are_chosen_and_headers_are_of_the_old_one() -> None:
    steps = [
        Step("r", RegexRouter("t", "x"), HasHeaderKey("a")),
        Step("d", TimestampRouter("${topic}-${timestamp}", "ss"), HasHeaderKey("a")),
        Step("i", InsertHeader("n", "1"), TopicNameMatches("x-0[0-9]")),
    ]
    rows: list[Any] = [("t", b"v", [("a", b"")]), ("t", b"v", []), ("u", b"v", [("a", b"")])]
    for more in ([], [AsRecords()]):
        made = ColumnChain(TransformChain.of(*steps, *more), TopicConverter()).apply(columns(rows, with_origin=True))
        assert [[tuple(each.values()) for each in row] for row in made.decoded_headers().to_pylist()] == [
            [("a", b""), ("n", b"t/n/1")],
            [],
            [("a", b"")],
        ]


def test_only_a_chosen_row_needs_a_timestamp() -> None:
    lists = pa.array([[("a", b"")], []], HEADERS_TYPE)
    steps = [Step("d", TimestampRouter("x", "ss"), HasHeaderKey("a")), Step("f", Filter(), TopicNameMatches("x"))]
    chain = ColumnChain(TransformChain.of(*steps), TopicConverter())
    topics = pa.array(["t", "t"])
    assert chain.apply_to_lists(lists, topics=topics, timestamps_ms=pa.array([5, None]))[1].tolist() == [1]
    with pytest.raises(DataException, match="Timestamp missing on record"):
        chain.apply_to_lists(lists, topics=topics, timestamps_ms=pa.array([None, 5], pa.int64()))
    with pytest.raises(DataException, match="Timestamp missing on record"):
        chain.apply_to_lists(lists, topics=topics)


def test_what_is_left_by_a_filter_keeps_its_topic_and_value() -> None:
    rows = [("t", b"v", [("no", b"")]), ("u", None, [("a", b"")]), ("t", b"v", [("a", b"")])]
    steps = [
        Step("f", Filter(), HasHeaderKey("no")),
        Step("d", DropHeaders(("a",)), RecordIsTombstone()),
        Step("i", InsertHeader("b", "x"), TopicNameMatches("u")),
    ]
    made = ColumnChain(TransformChain.of(*steps), TopicConverter()).apply(columns(rows, with_origin=True))
    assert [[each["key"] for each in row] for row in made.decoded_headers().to_pylist()] == [["b"], ["a"]]


@dataclass(frozen=True)
class InsertTwice(InsertHeader):
    """What does something else than what it is a kind of."""

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return super().apply(super().apply(record))


def test_a_step_of_a_kind_of_its_own_is_run_on_records() -> None:
    chain = ColumnChain(TransformChain.of(InsertTwice("b", "x")), TopicConverter())
    assert not chain.is_in_columns
    assert len(chain.apply(columns([("t", None, [])], with_origin=True)).decoded_headers()[0]) == 2


def test_a_chain_that_changes_nothing_returns_the_records_themselves() -> None:
    records = columns([("t", b"v", [("a", b"1")])], with_origin=True)
    for chain in (TransformChain(), TransformChain.of(DropHeaders(("z",)))):
        assert ColumnChain(chain, TopicConverter()).apply(records) is records


UTC = timezone.utc
WHEN = datetime(2026, 5, 4, 3, 2, 1, 123456, UTC)


def struct_records(*values: Any, type: pa.DataType | None = None) -> RecordColumns:
    headers = [[("h", b"1")], [("h", b"2"), ("h", b"3")], []][: len(values)]
    return RecordColumns(
        pa.array(["k", "l", "m"][: len(values)]),
        pa.array(values, type),
        np.zeros(len(values), np.int64),
        pa.array(headers, HEADERS_TYPE),
    )


def run(records: RecordColumns, *steps: Any) -> RecordColumns:
    return ColumnChain(TransformChain.of(*steps), TopicConverter()).apply(records)


def test_fields_of_a_struct_column_become_headers() -> None:
    records = struct_records({"id": 7, "name": "x"}, {"id": 8, "name": None}, None)
    made = run(
        records, Step("d", Filter(), RecordIsTombstone()), HeaderFromValue(("id", "name"), ("id", "name"), "move")
    )
    assert made.value.to_pylist() == [{}, {}]
    assert made.key.to_pylist() == ["k", "l"]
    assert [[(each["key"], each["value"]) for each in row] for row in made.decoded_headers().to_pylist()] == [
        [("h", b"1"), ("id", b"/id/7"), ("name", b"/name/x")],
        [("h", b"2"), ("h", b"3"), ("id", b"/id/8"), ("name", None)],
    ]
    with pytest.raises(NullValueException, match="header 'h': There is no field 'nope'"):
        run(records, HeaderFromValue(("nope",), ("h",), "copy"))


def test_headers_become_fields_of_a_struct_column() -> None:
    records = struct_records({"id": 7, "name": "x"}, {"id": 8, "name": None})
    made = run(records, HeaderToValue(fields=("name", "h"), headers=("h", "h"), operation="move"))
    assert made.value.to_pylist() == [{"id": 7, "name": "1", "h": "1"}, {"id": 8, "name": "3", "h": "3"}]
    assert made.headers.to_pylist() == [b"", b""]
    assert made.value.type == pa.struct([("id", pa.int64()), ("name", pa.string()), ("h", pa.string())])


def test_a_field_that_not_every_row_has_is_null_in_the_others() -> None:
    records = struct_records({"id": 7}, {"id": 8}, {"id": 9})
    made = run(records, Step("a", HeaderToValue(("h",), ("h",), "copy"), HasHeaderKey("h")))
    assert made.value.to_pylist() == [{"id": 7, "h": "1"}, {"id": 8, "h": "3"}, {"id": 9, "h": None}]
    with pytest.raises(DataException, match="Field 'id' can't be one column"):
        run(records, Step("a", HeaderToValue(("id",), ("h",), "copy"), HasHeaderKey("h")))


FULL = pa.struct(
    [
        ("b", pa.bool_()),
        ("i", pa.int8()),
        ("u", pa.uint16()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.time64("us")),
        ("when", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.timestamp("ms"))),
        ("in", pa.struct([("x", pa.binary())])),
    ]
)
ROW = {
    "b": True,
    "i": 5,
    "u": 65535,
    "f": 0.5,
    "d": Decimal("1.50"),
    "day": WHEN.date(),
    "at": WHEN.time(),
    "when": WHEN,
    "list": [1, None],
    "map": [("a", datetime(2026, 1, 1)), ("b", None)],
    "in": {"x": b"\0"},
}


def test_what_no_step_touches_keeps_its_type_and_all_its_digits() -> None:
    records = struct_records(ROW, dict.fromkeys(ROW), type=FULL)
    made = run(records, HeaderFromValue(("b", "f"), ("b", "f"), "move")).value
    rest = [field for field in FULL if field.name not in ("b", "f")]
    assert made.type == pa.struct(rest)
    assert made.to_pylist()[0] == {name: value for name, value in ROW.items() if name not in ("b", "f")}
    assert made.to_pylist()[1] == {field.name: None for field in rest}


def test_a_column_that_no_step_touches_is_the_same() -> None:
    times = pa.array([WHEN], pa.timestamp("us", "UTC"))
    records = RecordColumns(times, times, np.zeros(1, np.int64), None)
    made = run(records, AsRecords())
    assert made.key is times
    assert made.value is times


@dataclass(frozen=True)
class Keep(Transformation):
    """Puts headers in the place of fields of the same names, and back: what is typed goes through all of it."""

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        names = tuple(field.name for field in FULL)
        moved = HeaderFromValue(names, names, "move").apply(record)
        renamed = [header.rename("new." + header.key) for header in moved.headers if header.key in names]
        fields = tuple(header.key for header in renamed)
        return HeaderToValue(fields, fields, "move").apply(moved.new_record(headers=renamed))


def test_typed_values_of_every_kind_become_columns_again() -> None:
    value = run(struct_records(ROW, dict.fromkeys(ROW), type=FULL), Keep()).value
    cut = WHEN.replace(microsecond=123000)
    made = {**ROW, "when": cut, "at": cut.time()}
    made["map"] = [("a", datetime(2026, 1, 1, tzinfo=UTC)), ("b", None)]
    assert value.to_pylist() == [
        {f"new.{name}": each for name, each in made.items()},
        {f"new.{name}": None for name in made},
    ]


def test_a_column_without_a_schema_is_refused_only_if_it_has_fields() -> None:
    durations = struct_records(timedelta(1))
    assert run(durations, AsRecords()).value.to_pylist() == [timedelta(1)]
    with pytest.raises(DataException, match="has a field whose type has no schema"):
        run(struct_records({"t": timedelta(1)}), AsRecords())


@pytest.mark.parametrize(
    ("arrow", "schema"),
    [
        (pa.uint8(), Schema(Type.INT16, optional=True)),
        (pa.uint32(), Schema(Type.INT64, optional=True)),
        (pa.uint64(), None),
        (pa.large_string(), Schema.OPTIONAL_STRING_SCHEMA),
        (pa.dictionary(pa.int32(), pa.string()), Schema.OPTIONAL_STRING_SCHEMA),
        (pa.date64(), Schema.DATE_SCHEMA.as_optional()),
        (pa.timestamp("ns"), Schema.TIMESTAMP_SCHEMA.as_optional()),
        (pa.decimal256(50, 3), Schema.decimal(3, optional=True)),
        (pa.list_(pa.field("e", pa.string(), nullable=False)), Schema.array(Schema.STRING_SCHEMA, optional=True)),
        (pa.list_(pa.duration("s")), None),
        (pa.map_(pa.string(), pa.duration("s")), None),
        (
            pa.struct([pa.field("x", pa.string(), nullable=False)]),
            Schema.struct({"x": Schema.STRING_SCHEMA}, optional=True),
        ),
        (pa.null(), None),
    ],
)
def test_a_type_has_a_schema_if_there_is_one(arrow: pa.DataType, schema: Schema | None) -> None:
    assert schema_of(arrow) == schema


def test_what_no_column_can_hold_is_refused() -> None:
    with pytest.raises(DataException, match="No schema defined for what is in"):
        type_of_schema(Schema.array(None))
    records = struct_records({"id": 7})
    with pytest.raises(DataException, match="header 'a': No schema defined for element of array"):
        run(records, InsertHeader("a", '[1,"x"]', "compat"), HeaderToValue(("a",), ("a",), "copy"))


@dataclass(frozen=True)
class Put(Transformation):
    """Puts another value, time and topic into a record."""

    value: Any

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record.new_record(topic="x", value=self.value, timestamp_ms=5)


def test_a_step_may_put_another_value_of_the_column() -> None:
    records = columns([("t", b"v", []), ("u", None, [])], with_origin=True)
    made = run(records, Put(bytearray(b"w")))
    assert made.value.to_pylist() == [b"w", b"w"]
    assert made.timestamp_ms.to_pylist() == [5, 5]
    assert made.topic is not None
    assert made.topic.to_pylist() == ["t", "u"]
    with pytest.raises(DataException, match="the column can't hold"):
        run(records, Put(5))
    with pytest.raises(DataException, match="the column can't hold what was made of it: ArrowTypeError"):
        run(struct_records({"a": 1}), Put(7))
    assert run(struct_records({"a": 1}), Put(None)).value.to_pylist() == [None]


def test_a_field_alone_is_a_column_of_its_type_and_a_column_is_the_field_of_a_struct() -> None:
    records = struct_records({"id": 7, "at": WHEN.date()}, {"id": 8, "at": None}, None)
    made = run(records, ExtractField.Value("at")).value
    assert made.type == pa.date32()
    assert made.to_pylist() == [WHEN.date(), None, None]
    again = run(records, ExtractField.Value("id"), HoistField.Value("n")).value
    assert again.type == pa.struct([("n", pa.int64())])
    assert again.to_pylist() == [{"n": 7}, {"n": 8}, {"n": None}]
    keys = run(records, Step("t", Filter(), RecordIsTombstone()), ValueToKey(("id",))).key
    assert keys.to_pylist() == [{"id": 7}, {"id": 8}]
    some = Step("a", ExtractField.Value("id"), HasHeaderKey("h"))
    with pytest.raises(DataException, match="The column can't be one of"):
        run(struct_records({"id": 7}, {"id": 8}, {"id": 9}), some)


def test_what_is_in_a_struct_column_is_flat_cast_masked_and_dated() -> None:
    records = struct_records({"p": {"id": 7, "pin": "x"}, "at": WHEN}, {"p": None, "at": None}, None)
    steps = (Flatten.Value("_"), Cast.Value(("p_id:string",)), MaskField.Value(("p_pin",)))
    kept = Step("k", Filter(), RecordIsTombstone())
    made = run(records, kept, *steps, TimestampConverter.Value("Date", "at")).value
    assert made.to_pylist() == [
        {"p_id": "7", "p_pin": "", "at": WHEN.date()},
        {"p_id": None, "p_pin": None, "at": None},
    ]
    assert made.type == pa.struct([("at", pa.date32()), ("p_id", pa.string()), ("p_pin", pa.string())])


def test_a_field_says_where_a_record_came_from() -> None:
    records = columns([("t", b"v", []), ("u", None, [])], with_origin=True)
    insert = InsertField.Value(
        topic_field="topic!", partition_field="p", offset_field="o", static_field="s", static_value="x"
    )
    made = run(records, HoistField.Value("v"), insert)
    assert made.value.to_pylist() == [
        {"v": b"v", "topic": "t", "p": 0, "o": 0, "s": "x"},
        {"v": None, "topic": "u", "p": 1, "o": 1, "s": "x"},
    ]


def test_a_header_that_is_looked_at_and_can_not_be_read_is_named() -> None:
    records = columns([("t", b"v", [("a", b"bad")])], with_origin=True)
    assert content(run(records, AsRecords())) == content(records)
    with pytest.raises(DataException, match="header 'a': bad bytes"):
        run(struct_records({"x": 1}).with_columns(headers=records.headers), HeaderToValue(("a",), ("a",), "copy"))


CONFIG = """
    transforms=a, b
    transforms.a.type=InsertHeader
    transforms.a.header=n
    transforms.a.value.literal=1,2
    transforms.b.type=HeaderTo$Value
    transforms.b.headers=n
    transforms.b.fields=n
    transforms.b.operation=copy
    header.converter=org.apache.kafka.connect.json.JsonConverter
    header.converter.schemas.enable=true
"""


def test_a_configuration_says_which_converter_is_used() -> None:
    made = ColumnChain.from_properties(CONFIG).apply(struct_records({"x": 1}))
    assert made.value.to_pylist() == [{"x": 1, "n": "1,2"}]
    found = made.decoded_headers().to_pylist()[0][-1]["value"]
    assert json.loads(found) == {"schema": {"type": "string", "optional": False}, "payload": "1,2"}
    made = ColumnChain.from_properties(CONFIG, mode="compat").apply(struct_records({"x": 1}))
    assert made.value.to_pylist() == [{"x": 1, "n": 1}]
    assert made.value.type.field("n").type == pa.int8()
    default = ColumnChain.from_properties({})
    assert isinstance(default.converter, SimpleHeaderConverter)
    assert default.converter.is_strict


def test_a_chain_of_columns_can_be_sent_to_other_processes() -> None:
    chain = ColumnChain.from_properties(CONFIG)
    again = pickle.loads(pickle.dumps(chain))
    assert again.chain == chain.chain
    assert content(again.apply(struct_records({"x": 1}))) == content(chain.apply(struct_records({"x": 1})))
