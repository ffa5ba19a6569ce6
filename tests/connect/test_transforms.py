"""What the vectors of Kafka do not have: errors that say what is wrong, predicates, and what is our own."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

from statestore.connect import DropHeaders, Filter, HasHeaderKey, InsertHeader, RecordIsTombstone, TopicNameMatches
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.scalars import Int32
from statestore.connect.schema import Schema, Struct
from statestore.connect.transforms.field_moves import HeaderFromKey, HeaderFromValue
from statestore.errors import ConfigException, DataException
from statestore.errors.data import NullValueException

POINT = Schema.struct({"x": Schema.INT32_SCHEMA, "y": Schema.OPTIONAL_STRING_SCHEMA}, name="pt")


def headers(*pairs: tuple[str, Any]) -> ConnectHeaders:
    made = ConnectHeaders()
    for key, value in pairs:
        made.add(key, value)
    return made


def point(*pairs: tuple[str, Any]) -> ConnectRecord:
    return ConnectRecord("t", value_schema=POINT, value=Struct(POINT, {"x": Int32(7)}), headers=headers(*pairs))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, 'Missing required configuration "fields" which has no default value.'),
        ({"fields": "", "headers": "h", "operation": "copy"}, "Invalid value [] for configuration fields: Empty list"),
        (
            {"fields": "a", "headers": "h,i", "operation": "copy"},
            "'fields' config must have the same number of elements as 'headers' config: 1 fields, 2 headers",
        ),
        (
            {"fields": "a", "headers": "h", "operation": "MOVE"},
            "Invalid value MOVE for configuration operation: String must be one of: move, copy",
        ),
        (
            {"fields": "a", "headers": "h", "operation": "copy", "replace.null.with.default": "maybe"},
            "Invalid value maybe for configuration replace.null.with.default: "
            "Expected value to be either true or false",
        ),
    ],
)
def test_a_wrong_configuration_says_what_kafka_says(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        HeaderFromValue.from_properties(config)
    assert str(caught.value) == message


def test_a_flag_of_null_is_refused() -> None:
    config = {"fields": "a", "headers": "h", "operation": "copy", "replace.null.with.default": None}
    with pytest.raises(NullValueException, match=r"replace\.null\.with\.default is set to null"):
        HeaderFromValue.from_properties(config)


def test_what_is_made_in_python_is_checked_as_properties_are() -> None:
    made = HeaderFromValue(fields=["x"], headers=["h"], operation=" move ")  # type: ignore[arg-type]
    assert made == HeaderFromValue.from_properties({"fields": "x", "headers": "h", "operation": "move"})
    with pytest.raises(ConfigException, match="Empty list"):
        HeaderFromKey((), (), "move")
    with pytest.raises(ConfigException, match="String must be one of"):
        HeaderFromKey(("a",), ("a",), "mvoe")


@pytest.mark.parametrize("operation", ["copy", "move"])
def test_a_field_that_is_not_there_is_named_with_its_header(operation: str) -> None:
    with pytest.raises(NullValueException) as caught:
        HeaderFromValue(("nope",), ("trace",), operation).apply(point())
    assert str(caught.value) == f"header 'trace': There is no field 'nope' to {operation} in the value"
    assert caught.value.header == "trace"


def test_a_value_that_has_no_fields_is_refused_as_in_kafka() -> None:
    move = HeaderFromValue(("x",), ("h",), "move")
    with pytest.raises(DataException, match=r"^Only Map objects supported in absence of schema for \[header move\]"):
        move.apply(ConnectRecord("t", value=None))
    with pytest.raises(DataException, match=r"^Only Struct objects supported for \[header move\], found: str"):
        move.apply(ConnectRecord("t", value_schema=Schema.STRING_SCHEMA, value="x"))
    for operation in ("move", "copy"):
        with pytest.raises(DataException, match="on non-struct type"):
            HeaderFromValue(("x",), ("h",), operation).apply(point().new_record(value_schema=Schema.STRING_SCHEMA))


def test_a_null_of_a_required_field_names_the_header() -> None:
    record = point().new_record(value=Struct(POINT))
    with pytest.raises(DataException, match="header 'h': A null value requires an optional schema"):
        HeaderFromValue(("x",), ("h",), "copy").apply(record)


def test_a_schema_that_fields_are_moved_out_of_is_required() -> None:
    schema = replace(POINT, optional=True, parameters={"p": "q"})
    record = point().new_record(value_schema=schema)
    moved = HeaderFromValue(("y",), ("y",), "move").apply(record).value_schema
    assert moved == Schema.struct({"x": Schema.INT32_SCHEMA}, name="pt", parameters={"p": "q"})
    assert HeaderFromValue(("y",), ("y",), "copy").apply(record).value_schema is schema


def test_a_field_that_the_schema_has_but_not_the_struct_is_a_null() -> None:
    schema = Schema.struct({"x": Schema.INT32_SCHEMA, "z": Schema.OPTIONAL_STRING_SCHEMA})
    copied = HeaderFromValue(("z",), ("z",), "copy").apply(point().new_record(value_schema=schema))
    assert (copied.headers[0].value, copied.headers[0].schema) == (None, Schema.OPTIONAL_STRING_SCHEMA)
    with pytest.raises(DataException, match="z is not a valid field name"):
        HeaderFromValue(("x",), ("x",), "move").apply(point().new_record(value_schema=schema))


def test_the_record_that_came_in_is_never_changed() -> None:
    given = {"a": 1, "b": 2}
    record = ConnectRecord("t", value=given, headers=headers(("h", 1)))
    moved = HeaderFromValue(("a",), ("a",), "move").apply(record)
    assert (moved.value, [header.key for header in moved.headers]) == ({"b": 2}, ["h", "a"])
    assert (given, [header.key for header in record.headers]) == ({"a": 1, "b": 2}, ["h"])
    copied = HeaderFromValue(("a",), ("a",), "copy").apply(record)
    assert copied.value == given
    assert copied.value is not given


def test_a_literal_is_parsed_once_and_added_behind_the_others() -> None:
    made = InsertHeader.from_properties({"header": " n ", "value.literal": " 1 "})
    found = made.apply(point(("n", "x")))
    assert [header.key for header in found.headers] == ["n", "n"]
    assert found.headers[1].value == 1
    assert str(found.headers[1].schema) == "Schema{INT8}"


def test_a_literal_that_would_lose_something_stays_a_string_unless_kafka_is_asked_for() -> None:
    given = {"header": "n", "value.literal": "1,2,3"}
    assert InsertHeader.from_properties(given).literal.value == "1,2,3"
    assert InsertHeader.from_properties({**given, "mode": "compat"}).literal.value == 1
    assert InsertHeader("n", "null").literal.value == "null"
    null = InsertHeader("n", "null", "compat").apply(point()).headers[0]
    assert (null.value, null.schema) == (None, None)


def test_headers_to_drop_may_be_named_as_in_the_example_of_the_kip() -> None:
    made = DropHeaders.from_properties({"header.names": "app.id, txn.id"})
    assert made == DropHeaders(("app.id", "txn.id"))
    found = made.apply(point(("app.id", 1), ("x", 2), ("txn.id", 3), ("app.id", 4)))
    assert [header.key for header in found.headers] == ["x"]
    with pytest.raises(ConfigException, match='Missing required configuration "headers"'):
        DropHeaders.from_properties({"header.names": "app.id", "mode": "compat"})


def test_filter_drops() -> None:
    assert Filter().apply(point()) is None


def test_predicates() -> None:
    assert HasHeaderKey("a").test(point(("a", None)))
    assert not HasHeaderKey("A").test(point(("a", 1)))
    assert not HasHeaderKey.from_properties({"name": None}).test(point(("a", 1)))
    assert RecordIsTombstone().test(ConnectRecord("t"))
    assert not RecordIsTombstone().test(point())


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("t", "t", True),
        ("t", "tt", False),
        ("t|x", "t", True),
        ("orders-\\d+", "orders-12", True),
        ("orders-\\d+", "orders-\u0661", False),
        ("[]a]+", "]a", True),
        ("[^]]+", "ab", True),
        ("\\[&&\\]", "[&&]", True),
        (".*", None, False),
    ],
)
def test_a_topic_matches_as_a_whole(pattern: str, topic: str | None, matches: bool) -> None:
    predicate = TopicNameMatches.from_properties({"pattern": pattern})
    assert predicate.test(ConnectRecord(topic)) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        None,
        "(",
        "[a[b]]",
        "[a-z&&[^b]]",
        "[a&&b]",
        "[]a[b]",
        "[^]&&a]",
        "[a||b]",
        "a" + "(" * 100_000,
        "\\p{L}",
        "\\Qa\\E",
        "(?<n>a)",
        "a(?i)b",
        "a{1,9999999999999}",
    ],
)
def test_a_pattern_that_python_does_not_read_as_java_is_refused(pattern: str | None) -> None:
    with pytest.raises(ConfigException, match="pattern"):
        TopicNameMatches.from_properties({"pattern": pattern})


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (InsertHeader("a", "1"), "InsertHeader(header=a, value.literal=1)"),
        (InsertHeader("a", "1", "compat"), "InsertHeader(header=a, value.literal=1, mode=compat)"),
        (DropHeaders(("a", "b")), "DropHeaders(headers=a,b)"),
        (HeaderFromKey(("f",), ("h",), "move"), "HeaderFromKey(fields=f, headers=h, operation=move)"),
        (Filter(), "Filter()"),
        (TopicNameMatches("a+"), "TopicNameMatches(pattern=a+)"),
    ],
)
def test_each_says_what_it_does_and_is_a_value(made: Any, said: str) -> None:
    assert made.describe() == said
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert hash(again) == hash(made)
    with pytest.raises(AttributeError):
        made.header = "x"
