"""HeaderTo, which Kafka never shipped: what KIP-145 leaves open has one answer here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.scalars import Int8, Int32
from statestore.connect.schema import Field, Schema, Struct, Type
from statestore.connect.transforms.field_moves import HeaderFromValue, HeaderToKey, HeaderToValue
from statestore.errors import ConfigException, DataException

POINT = Schema.struct({"x": Schema.INT32_SCHEMA, "y": Schema.OPTIONAL_STRING_SCHEMA}, name="pt", version=2, doc="d")


def typed(*headers: tuple[str, Any, Schema | None]) -> ConnectHeaders:
    made = ConnectHeaders()
    for key, value, schema in headers:
        made.add(key, value, schema)
    return made


def point(*headers: tuple[str, Any, Schema | None]) -> ConnectRecord:
    value = Struct(POINT, {"x": Int32(7)})
    return ConnectRecord("t", key="k", value_schema=POINT, value=value, headers=typed(*headers), timestamp_ms=5)


def to(headers: str, fields: str, operation: str = "copy", **others: str) -> HeaderToValue:
    return HeaderToValue.from_properties({"headers": headers, "fields": fields, "operation": operation, **others})


def test_a_struct_has_the_field_with_the_schema_of_the_header() -> None:
    made = to("a,b", "x,z", "move").apply(
        point(
            ("a", "one", Schema.STRING_SCHEMA),
            ("b", Int8(2), Schema.INT8_SCHEMA),
            ("c", None, None),
            ("a", "two", Schema.STRING_SCHEMA),
        )
    )
    assert [header.key for header in made.headers] == ["c"]
    assert made.value_schema == made.value.schema
    assert made.value_schema.fields == (
        Field("x", Schema.STRING_SCHEMA),
        Field("y", Schema.OPTIONAL_STRING_SCHEMA),
        Field("z", Schema.INT8_SCHEMA),
    )
    assert (made.value_schema.name, made.value_schema.version, made.value_schema.doc) == ("pt", 2, "d")
    assert dict(made.value.items()) == {"x": "two", "y": None, "z": 2}
    assert (made.key, made.timestamp_ms, made.topic) == ("k", 5, "t")


def test_copied_headers_stay() -> None:
    record = point(("a", "one", Schema.STRING_SCHEMA))
    made = to("a", "z").apply(record)
    assert made.headers == record.headers
    assert made.headers is not record.headers
    assert record.value.schema is POINT


def test_a_map_takes_the_values_alone() -> None:
    given = {"x": 1, "y": 2}
    record = ConnectRecord("t", value=given, headers=typed(("a", Int8(3), Schema.INT8_SCHEMA), ("b", None, None)))
    made = to("b,a", "z,x", "move").apply(record)
    assert made.value == {"x": 3, "y": 2, "z": None}
    assert list(made.value) == ["x", "y", "z"]
    assert made.value_schema is None
    assert len(made.headers) == 0
    assert given == {"x": 1, "y": 2}


def test_the_key_is_a_side_too() -> None:
    made = HeaderToKey(("f",), ("a",), "copy").apply(ConnectRecord("t", key={}, headers=typed(("a", 1, None))))
    assert made.key == {"f": 1}


@pytest.mark.parametrize("duplicates", ["last", "list", "error"])
def test_of_several_headers_of_a_name_the_option_says_what_is_put(duplicates: str) -> None:
    record = point(("a", Int32(1), Schema.INT32_SCHEMA), ("a", Int32(2), Schema.INT32_SCHEMA))
    step = to("a", "z", duplicates=duplicates)
    if duplicates == "error":
        with pytest.raises(
            DataException, match="header 'a': 2 headers of one name can't all be field 'z' of the value"
        ):
            step.apply(record)
    else:
        value = step.apply(record).value
        assert value.get("z") == (2 if duplicates == "last" else [1, 2])
        assert value.schema.field("z").schema == (
            Schema.INT32_SCHEMA if duplicates == "last" else Schema.array(Schema.INT32_SCHEMA)
        )
        plain = step.apply(ConnectRecord("t", value={}, headers=record.headers)).value
        assert plain == {"z": 2 if duplicates == "last" else [1, 2]}


def test_a_list_is_one_of_a_single_header_too_and_optional_if_one_is() -> None:
    step = to("a", "z", duplicates="list")
    made = step.apply(point(("a", Int32(1), Schema.INT32_SCHEMA))).value
    assert made.get("z") == [1]
    made = step.apply(point(("a", Int32(1), Schema.INT32_SCHEMA), ("a", None, Schema.OPTIONAL_INT32_SCHEMA))).value
    assert (made.get("z"), made.schema.field("z").schema) == ([1, None], Schema.array(Schema.OPTIONAL_INT32_SCHEMA))
    made = step.apply(point(("a", None, None), ("a", Int32(1), Schema.INT32_SCHEMA))).value
    assert made.schema.field("z").schema == Schema.array(Schema.OPTIONAL_INT32_SCHEMA)
    with pytest.raises(DataException, match=r"header 'a': .* their schemas are Schema\{INT32\} and Schema\{INT64\}"):
        step.apply(point(("a", Int32(1), Schema.INT32_SCHEMA), ("a", 1, Schema.INT64_SCHEMA)))


def test_a_header_that_is_not_there_leaves_the_field_as_it_is() -> None:
    record = point()
    assert to("a,b", "x,z", "move").apply(record) == record
    assert to("a", "z").apply(ConnectRecord("t", value={"z": 1})).value == {"z": 1}


def test_a_header_that_is_not_there_may_make_a_null_of_an_optional_field() -> None:
    step = to("a,b,c", "x,z,w", missing="null")
    made = step.apply(point(("b", Int8(2), Schema.INT8_SCHEMA))).value
    assert dict(made.items()) == {"x": None, "y": None, "z": 2, "w": None}
    assert [(field.name, field.schema) for field in made.schema.fields] == [
        ("x", Schema.OPTIONAL_INT32_SCHEMA),
        ("y", Schema.OPTIONAL_STRING_SCHEMA),
        ("z", Schema.INT8_SCHEMA.as_optional()),
        ("w", Schema.OPTIONAL_STRING_SCHEMA),
    ]
    assert to("a", "z", missing="null").apply(ConnectRecord("t", value={"z": 1})).value == {"z": None}
    schema = Schema.struct({"d": Schema(Type.STRING, default="dflt")})
    record = ConnectRecord("t", value_schema=schema, value=Struct(schema))
    assert to("a", "d", missing="null").apply(record).value.get("d") is None


def test_a_header_that_is_not_there_may_be_an_error() -> None:
    with pytest.raises(DataException, match="header 'a': There is no such header to move to field 'z' of the value"):
        to("a", "z", "move", missing="error").apply(point())


def test_a_header_without_a_schema_has_that_of_its_value() -> None:
    made = to("a,b", "z,w").apply(point(("a", "text", None), ("b", None, None))).value
    assert made.schema.field("z").schema == Schema.STRING_SCHEMA
    assert made.schema.field("w").schema == Schema.OPTIONAL_STRING_SCHEMA
    with pytest.raises(DataException, match="header 'a': A value without a schema, of object"):
        to("a", "z").apply(point(("a", object(), None)))


def test_what_a_struct_was_not_given_stays_so() -> None:
    schema = Schema.struct({"r": Schema(Type.STRING, default="req"), "x": Schema.INT32_SCHEMA})
    record = ConnectRecord("t", value_schema=schema, value=Struct(schema), headers=typed(("a", 1, Schema.INT64_SCHEMA)))
    made = to("a", "z").apply(record).value
    assert (made.get_without_default("r"), made.get("r"), made.get("z")) == (None, "req", 1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fields": "a,a", "headers": "h,i"}, "'fields' config has 'a' twice: one of two headers would be lost"),
        ({"fields": "a", "headers": "h,i"}, "'fields' config must have the same number"),
        ({"fields": "a", "headers": "h", "duplicates": "first"}, "String must be one of: last, list, error"),
        ({"fields": "a", "headers": "h", "missing": "x"}, "String must be one of: skip, null, error"),
        ({"headers": "h"}, 'Missing required configuration "fields"'),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        HeaderToValue.from_properties({"operation": "copy", **config})


def test_what_has_no_fields_is_refused() -> None:
    step = to("a", "z")
    with pytest.raises(DataException, match=r"Only Map objects supported in absence of schema for \[header copy\]"):
        step.apply(ConnectRecord("t", headers=typed(("a", 1, None))))
    with pytest.raises(DataException, match=r"Only Struct objects supported for \[header copy\], found: null"):
        step.apply(ConnectRecord("t", value_schema=POINT, headers=typed(("a", 1, None))))


NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.one_of(
    st.tuples(st.integers(-9, 9), st.just(Schema.INT64_SCHEMA)),
    st.tuples(st.text(), st.just(Schema.STRING_SCHEMA)),
    st.tuples(st.none(), st.just(Schema.OPTIONAL_STRING_SCHEMA)),
)
FIELDS = st.dictionaries(NAMES, VALUES, min_size=1)


@given(FIELDS, st.data())
def test_fields_moved_to_headers_and_back_are_what_they_were(fields: dict[str, Any], data: st.DataObject) -> None:
    schema = Schema.struct({name: each for name, (_, each) in fields.items()}, name="n")
    record = ConnectRecord(
        "t",
        value_schema=schema,
        value=Struct(schema, {name: value for name, (value, _) in fields.items()}),
        headers=typed(("z", 1, Schema.INT64_SCHEMA)),
    )
    moved = tuple(data.draw(st.lists(st.sampled_from(sorted(fields)), unique=True, min_size=1)))
    back = HeaderToValue(moved, moved, "move").apply(HeaderFromValue(moved, moved, "move").apply(record))
    assert dict(back.value.items()) == dict(record.value.items())
    assert {(field.name, field.schema) for field in back.value_schema.fields} == {
        (field.name, field.schema) for field in schema.fields
    }
    assert back.headers == record.headers
