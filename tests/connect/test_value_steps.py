"""Steps that change values: what strict mode refuses, and what is wrong in a configuration; vectors have Kafka's."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest

from statestore.connect import ConnectRecord, Float32, Instant, Int8, Int32, Int64, Schema, Struct, Type
from statestore.connect.schema import LogicalName
from statestore.connect.transforms.value_steps import Cast, Flatten, MaskField, SetSchemaMetadata
from statestore.errors import ConfigException, DataException

VALUE_CONFIGS = {
    "Must specify at least one field to cast": lambda: Cast.Value(()),
    "spec: Invalid type found in casting spec: int65": lambda: Cast.Value(("a:int65",)),
    "spec: Cast transformation does not support casting to BYTES": lambda: Cast.Key(("bytes",)),
    "spec: Invalid rename mapping: a:b:int8": lambda: Cast.Value(("a:b:int8",)),
    "A type for the whole must be the only one": lambda: Cast.Value(("a:int8", "string")),
    "replacement: String must be non-empty": lambda: MaskField.Value(("a",), ""),
    "delimiter: entry must be non null": lambda: Flatten.Key(None),
    "Neither schema name nor version configured": lambda: SetSchemaMetadata.Value(),
    "schema.version: Not a number of type INT": lambda: SetSchemaMetadata.Value(schema_version="1.5"),
}


@pytest.mark.parametrize("message", VALUE_CONFIGS)
def test_a_configuration_that_is_wrong_is_refused_in_words(message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        VALUE_CONFIGS[message]()


def made(step: Any, value: Any, schema: Schema | None = None) -> Any:
    return step.apply(ConnectRecord("t", value_schema=schema, value=value)).value


LOSSY: list[tuple[str, Any, Any]] = [
    ("int8", Int32(300), Int8(44)),
    ("int32", 1.5, Int32(1)),
    ("int8", 1e12, Int8(-1)),
    ("float32", 0.1, Float32(0.1)),
    ("boolean", 7, True),
    ("boolean", "yes", False),
]


@pytest.mark.parametrize(("type_", "value", "cut"), LOSSY)
def test_only_compat_mode_casts_with_a_loss(type_: str, value: Any, cut: Any) -> None:
    with pytest.raises(DataException, match="Unable to convert"):
        made(Cast.Value((type_,)), value)
    found = made(Cast.Value((type_,), "compat"), value)
    assert (found, type(found)) == (cut, type(cut))


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_what_fits_is_cast_in_both_modes(mode: str) -> None:
    step = Cast.Value(("a:int8", "b:string", "c:int64", "d:boolean", "e:string"), mode)
    given = {"a": "-7", "b": 5, "c": True, "d": "true", "e": b"\x00\xff", "f": 1}
    assert made(step, given) == {"a": Int8(-7), "b": "5", "c": Int64(1), "d": True, "e": "AP8=", "f": 1}
    assert made(step, {"a": None}) == {"a": None, "b": None, "c": None, "d": None, "e": None}
    for problem in ([1], {}):
        with pytest.raises(DataException, match="does not support casting from"):
            made(step, {"a": problem})
    with pytest.raises(DataException, match="passed a value of type Instant which is not supported"):
        made(step, {"a": Instant(5)})


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_logical_value_is_cast_as_the_number_that_it_stands_for(mode: str) -> None:
    assert made(Cast.Value(("int16",), mode), Instant(3 * 86_400_000), Schema.DATE_SCHEMA) == 3
    assert made(Cast.Value(("float64",), mode), Instant(5), Schema.TIMESTAMP_SCHEMA) == 5.0
    assert made(Cast.Value(("int32",), mode), Decimal("7.00"), Schema.decimal(2)) == 7


def test_compat_mode_reads_floats_as_java_does() -> None:
    texts = {" 1.5e3f ": 1500.0, "-0": -0.0, "+.5D": 0.5, "-Infinity": float("-inf")}
    texts |= {f"-1e{'9' * 5000}": float("-inf"), f"-1e-{'9' * 5000}": -0.0, f"1e{'0' * 5000}1": 10.0}
    for type_ in ("float32", "float64"):
        assert [str(made(Cast.Value((type_,), "compat"), text)) for text in texts] == list(map(str, texts.values()))
        with pytest.raises(DataException, match="Unable to convert"):
            made(Cast.Value((type_,), "compat"), "1_0")


def test_a_long_is_rounded_once() -> None:
    assert made(Cast.Value(("float32",), "compat"), (1 << 54) + (1 << 30) + 1) == (1 << 54) + (1 << 31)


def test_a_date_that_is_a_text_is_none_to_its_schema() -> None:
    day = ConnectRecord("t", value_schema=Schema.DATE_SCHEMA.as_optional(), value=Instant(0))
    strict, compat = (Cast.Value(("string",), mode).apply(day) for mode in ("strict", "compat"))
    assert (strict.value_schema, strict.value) == (Schema.OPTIONAL_STRING_SCHEMA, "1970-01-01")
    kept = Schema(Type.STRING, optional=True, name=LogicalName.DATE, version=1)
    assert (compat.value_schema, compat.value) == (kept, "00:00:00.000Z")


def test_a_mask_is_of_the_type_of_what_it_hides() -> None:
    schema = Schema.struct({"n": Schema.INT8_SCHEMA, "d": Schema.decimal(2), "s": Schema.STRING_SCHEMA})
    secret = Struct(schema, {"n": Int8(5), "d": Decimal("1.50"), "s": "x"})
    masked = made(MaskField.Value(("n", "d", "nope")), secret, schema)
    assert dict(masked.items()) == {"n": Int8(0), "d": Decimal("0.00"), "s": "x"}
    assert str(masked.get("d")) == "0.00"
    masked = made(MaskField.Value(("n", "d", "s"), "7"), secret, schema)
    assert dict(masked.items()) == {"n": Int8(7), "d": Decimal("7.00"), "s": "7"}
    assert str(masked.get("d")) == "7.00"
    with pytest.raises(DataException, match="Unable to convert"):
        made(MaskField.Value(("n",), "300"), secret, schema)
    assert made(MaskField.Value(("n",), "300", "compat"), secret, schema).get("n") == Int8(44)
    with pytest.raises(DataException, match=r"^Unable to convert"):
        made(MaskField.Value(("d",), "x"), secret, schema)
    with pytest.raises(DataException, match="Cannot mask value of type: bytes"):
        made(MaskField.Value(("b",)), {"b": b"x"})
    with pytest.raises(DataException, match="Cannot mask value of type bool with custom replacement"):
        made(MaskField.Value(("b",), "x"), {"b": True})


def test_flat_names_that_would_be_one_are_refused_unless_kafka_is_asked_for() -> None:
    given = {"a": {"b": 1, "c": {}}, "a.b": 2}
    with pytest.raises(DataException, match="Two fields of a map would have one name"):
        made(Flatten.Value(), given)
    assert made(Flatten.Value(mode="compat"), given) == {"a.b": 2}
    assert made(Flatten.Value("_"), given) == {"a_b": 1, "a.b": 2}
    with pytest.raises(DataException, match="maps with keys of int"):
        made(Flatten.Value(), {"a": {1: 2}})


def test_fields_of_a_struct_that_may_be_none_may_be_none() -> None:
    inner = Schema.struct({"x": Schema.INT32_SCHEMA, "y": Schema(Type.INT32, default=Int32(7))}, optional=True)
    schema = Schema.struct({"p": inner, "n": Schema.STRING_SCHEMA}, name="whole")
    flat = Schema.struct(
        {
            "p.x": Schema.OPTIONAL_INT32_SCHEMA,
            "p.y": Schema(Type.INT32, optional=True, default=Int32(7)),
            "n": Schema.STRING_SCHEMA,
        },
        name="whole",
    )
    for value, of_x in ((None, None), (Struct(inner, {"x": Int32(1)}), Int32(1))):
        found = made(Flatten.Value(), Struct(schema, {"p": value, "n": "a"}), schema)
        assert found.schema == flat
        assert dict(found.items()) == {"p.x": of_x, "p.y": 7, "n": "a"}
    of_maps = Schema.struct({"m": Schema.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA)})
    with pytest.raises(DataException, match=r"does not support MAP for record with schemas \(for field m\)"):
        made(Flatten.Value(), Struct(of_maps, {"m": {}}), of_maps)


def test_maps_of_any_depth_become_flat() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep}
    assert made(Flatten.Value("", "strict"), deep) == {"a" * 5000: 1}


def test_a_struct_is_of_the_schema_with_the_new_name() -> None:
    step = pickle.loads(pickle.dumps(SetSchemaMetadata.Value("pt", 3)))
    schema = Schema.struct({"x": Schema.INT32_SCHEMA}, doc="d")
    found = step.apply(ConnectRecord("t", value_schema=schema, value=Struct(schema, {"x": Int32(1)})))
    assert (
        found.value_schema
        == found.value.schema
        == Schema.struct({"x": Schema.INT32_SCHEMA}, doc="d", name="pt", version=3)
    )
    with pytest.raises(DataException, match=r"Schema required for \[updating schema metadata\]"):
        made(step, {"x": 1})
    assert made(step, None) is None
