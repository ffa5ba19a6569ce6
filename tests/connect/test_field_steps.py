"""Steps on fields: what is refused, and how; Kafka's vectors say what they make."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from statestore.connect import ConnectRecord, Schema, Struct, Type
from statestore.connect.transforms.field_steps import ExtractField, HoistField, InsertField, ReplaceField, ValueToKey
from statestore.errors import ConfigException, DataException
from statestore.errors.data import NullValueException, SchemaBuilderException

BARE = Schema.struct({"x": Schema.INT32_SCHEMA, "y": Schema.OPTIONAL_STRING_SCHEMA}, name="pt")
POINT = Schema.struct({"p": BARE, "n": Schema.INT64_SCHEMA})
FIELD_CONFIGS = {
    "No field insertion configured": lambda: InsertField.Value(),
    "static.value: No value specified for static field: s!": lambda: InsertField.Key(static_field="s!"),
    "renames: Invalid rename mapping: a:b:c": lambda: ReplaceField.Key(renames=("a:b:c",)),
    "'include' values must not be empty": lambda: ReplaceField.Value(include=("", "a")),
    "field.syntax.version: String must be one of": lambda: ExtractField.Value("a", "V3"),
    "Incomplete backtick pair in path": lambda: ExtractField.Value("a.`b", "v2"),
    "'fields' must not be empty": lambda: ValueToKey(()),
    "field: entry must be non null": lambda: HoistField.Key(None),
}


@pytest.mark.parametrize("message", FIELD_CONFIGS)
def test_a_wrong_configuration_is_refused_in_words(message: str) -> None:
    with pytest.raises(ConfigException, match=message.replace("(", r"\(")):
        FIELD_CONFIGS[message]()


def test_a_flag_of_null_is_refused() -> None:
    with pytest.raises(NullValueException, match=r"replace\.null\.with\.default is set to null"):
        ReplaceField.Value.from_properties({"replace.null.with.default": None})


def of(value: Any, schema: Schema | None = None) -> ConnectRecord:
    return ConnectRecord("t", value_schema=schema, value=value)


def test_what_can_not_be_done_to_a_record_is_said() -> None:
    point = of(Struct(POINT, {"n": 7}), POINT)
    with pytest.raises(DataException, match=r"^Unknown field: q"):
        ExtractField.Value("q").apply(point)
    with pytest.raises(DataException, match=r"^Field does not exist: q"):
        ValueToKey(("n", "q")).apply(point)
    with pytest.raises(
        DataException, match=r"^Only SinkRecord supported for \[field insertion\], found: ConnectRecord"
    ):
        InsertField.Value(offset_field="o").apply(point)
    with pytest.raises(DataException, match=r"^Only Struct objects supported for \[field replacement\], found: str"):
        ReplaceField.Value().apply(of("x", Schema.STRING_SCHEMA))
    with pytest.raises(SchemaBuilderException, match="field name duplication"):
        ReplaceField.Value(renames=("n:p",)).apply(point)
    with pytest.raises(DataException, match="Two fields of a map would have one name"):
        ReplaceField.Value(renames=("n:p",)).apply(of({"n": 1, "p": 2}))


def test_keys_of_a_map_that_only_python_takes_for_one_stay_two() -> None:
    made = ReplaceField.Value(renames=("a:b",)).apply(of({"a": 1, 1: 2}))
    assert made.value == {"b": 1, 1: 2}


def test_what_a_record_lacks_is_not_put() -> None:
    step = InsertField.Value(topic_field="t", partition_field="p", timestamp_field="at")
    assert step.apply(of({"x": 1})).value == {"x": 1, "t": "t"}
    made = step.apply(of(Struct(BARE, {"x": 1}), BARE)).value
    assert dict(made.items()) == {"x": 1, "y": None, "t": "t", "p": None, "at": None}


def test_a_field_alone_is_its_default_unless_told_otherwise() -> None:
    schema = Schema.struct({"x": Schema(Type.STRING, optional=True, default="d")})
    assert ExtractField.Value("x").apply(of(Struct(schema), schema)).value == "d"
    assert ExtractField.Value("x", replace_null_with_default=False).apply(of(Struct(schema), schema)).value is None


def test_a_path_leads_into_maps_and_structs() -> None:
    deep = of({"a.b": {"c": {"d": 5}}, "e": None})
    assert ExtractField.Value("`a.b`.c.d", "V2").apply(deep).value == 5
    assert ExtractField.Value("`a\\`.b`.c", "V2").apply(of({"a`.b": {"c": 5}})).value == 5
    assert ExtractField.Value("e.c", "V2").apply(deep).value is None
    assert ExtractField.Value("a.b").apply(deep).value == {"c": {"d": 5}}
    with pytest.raises(DataException, match=r"^Only Map objects supported .* \[nested field access\]"):
        ExtractField.Value("e.c", "V2").apply(of({"e": 5}))
    made = ExtractField.Value("p.x", "V2").apply(of(Struct(POINT, {"p": Struct(BARE, {"x": 3}), "n": 1}), POINT))
    assert (made.value_schema, made.value) == (Schema.INT32_SCHEMA, 3)


def test_each_side_is_a_value_of_its_own() -> None:
    step = InsertField.Key(topic_field="topic!", static_field="s", static_value="x")
    assert step.describe() == "InsertFieldKey(topic.field=topic!, static.field=s, static.value=x)"
    again = pickle.loads(pickle.dumps(step))
    assert again == step
    assert hash(again) == hash(step)
    assert step != InsertField.Value(topic_field="topic!", static_field="s", static_value="x")
    record = ConnectRecord("t", key={"a": 1}, value={"a": 1})
    made = step.apply(record)
    assert (made.key, made.value) == ({"a": 1, "topic": "t", "s": "x"}, {"a": 1})
    assert record.key == {"a": 1}
    with pytest.raises(AttributeError):
        step.topic_field = "x"  # type: ignore[misc]
