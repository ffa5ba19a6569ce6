"""Strict JSON: what is written is read as it was, for every schema and value that is written at all."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from statestore.connect.converters.json import JsonConverter
from statestore.connect.instant import DAY_MS, Instant
from statestore.connect.numbers import Float32, Float64, Int8, Int16, Int32, Int64
from statestore.connect.schema import Field, Schema, SchemaAndValue, Struct, Type
from statestore.connect.schemas import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    array_schema,
    decimal_schema,
    map_schema,
)
from statestore.connect.typed_map import TypedMap

Typed = tuple[Schema, st.SearchStrategy[Any]]
"""A schema, and values that follow it."""

TEXT = st.text(max_size=5)


def integers(form: Callable[[int], Any], bits: int) -> st.SearchStrategy[Any]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1).map(form)


PRIMITIVES: list[Typed] = [
    (Schema(Type.INT8), integers(Int8, 8)),
    (Schema(Type.INT16), integers(Int16, 16)),
    (Schema(Type.INT32), integers(Int32, 32)),
    (Schema(Type.INT64), integers(Int64, 64)),
    (Schema(Type.FLOAT32), st.floats(width=32).map(Float32)),
    (Schema(Type.FLOAT64), st.floats().map(Float64)),
    (Schema(Type.BOOLEAN), st.booleans()),
    (Schema(Type.STRING), st.text(st.characters(exclude_categories=[]), max_size=5)),
    (Schema(Type.BYTES), st.binary(max_size=5)),
    (DATE_SCHEMA, integers(lambda days: Instant(days * DAY_MS), 32)),
    (TIME_SCHEMA, st.integers(0, DAY_MS).map(Instant)),
    (TIMESTAMP_SCHEMA, integers(Instant, 64)),
]


@st.composite
def decimals(draw: st.DrawFn) -> Typed:
    scale = draw(st.integers(-30, 30))
    values = st.integers(-(10**30), 10**30).map(lambda unscaled: Decimal(unscaled).scaleb(-scale))
    return decimal_schema(scale), values.filter(lambda value: -int(value.as_tuple().exponent) == scale)


@st.composite
def with_facts(draw: st.DrawFn, typed: st.SearchStrategy[Typed]) -> Typed:
    """Make a schema of another name, of a version, optional, with a default."""
    plain, values = draw(typed)
    facts: dict[str, Any] = {
        "optional": draw(st.booleans()),
        "version": draw(st.none() | st.integers(-(2**31), 2**31 - 1)),
        "doc": draw(st.none() | TEXT),
        "default": None if plain.type is Type.STRUCT else draw(st.none() | values),
    }
    if plain.name is None:
        facts["name"] = draw(st.none() | TEXT)
        facts["parameters"] = draw(st.dictionaries(TEXT, TEXT, max_size=2))
    parts = {name: getattr(plain, name) for name in ("key_schema", "value_schema", "fields")}
    schema = Schema(plain.type, **({"name": plain.name, "parameters": plain.parameters} | facts | parts))
    if plain.type is Type.STRUCT:
        values = st.builds(lambda struct: Struct(schema, dict(struct.items())), values)
    return schema, values | st.none() if schema.optional else values


@st.composite
def containers(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    kind = draw(st.sampled_from(["array", "map", "struct"]))
    if kind == "struct":
        names = draw(st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=3))
        fields = [(name, draw(inner)) for name in names]
        schema = Schema(Type.STRUCT, fields=[Field(name, of_field) for name, (of_field, _) in fields])
        values = st.fixed_dictionaries({name: values for name, (_, values) in fields})
        return schema, values.map(lambda content: Struct(schema, content))
    element_schema, elements = draw(inner)
    if kind == "array":
        return array_schema(element_schema), st.lists(elements, max_size=3)
    key_schema, keys = draw(st.sampled_from(PRIMITIVES))
    if key_schema.type is Type.STRING:
        keys = TEXT
    pairs = st.lists(st.tuples(keys, elements), max_size=3)
    return map_schema(key_schema, element_schema), pairs.map(TypedMap)


SCHEMAS = st.recursive(
    with_facts(st.sampled_from(PRIMITIVES) | decimals()), lambda inner: with_facts(containers(inner)), max_leaves=5
)


@st.composite
def typed_values(draw: st.DrawFn) -> SchemaAndValue:
    schema, values = draw(SCHEMAS)
    return SchemaAndValue(schema, draw(values))


STRICT_CONVERTERS = [JsonConverter() for _ in range(2)]
for converter, decimal_format in zip(STRICT_CONVERTERS, ("base64", "numeric"), strict=True):
    converter.configure({"replace.null.with.default": False, "decimal.format": decimal_format})


@given(typed_values())
@example(SchemaAndValue(Schema(Type.FLOAT64), float("nan")))
@example(SchemaAndValue(Schema(Type.FLOAT32), Float32(-0.0)))
@example(SchemaAndValue(Schema(Type.FLOAT32), Float32(1.1754944e-38)))
@example(SchemaAndValue(Schema(Type.FLOAT64), 2.0**-24))
@example(SchemaAndValue(map_schema(Schema(Type.FLOAT64), Schema(Type.INT8)), TypedMap([(0.0, 1), (-0.0, 2)])))
def test_what_is_written_is_read_as_it_was(given_value: SchemaAndValue) -> None:
    for strict in STRICT_CONVERTERS:
        content = strict.from_connect_header("t", "h", given_value.schema, given_value.value)
        found = strict.to_connect_header("t", "h", content)
        assert found == given_value
        assert strict.from_connect_header("t", "h", found.schema, found.value) == content


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | integers(Int64, 64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES.filter(lambda value: value is not None))
def test_json_without_schemas_keeps_what_json_has(value: Any) -> None:
    for enabled in (True, False):
        without = JsonConverter()
        without.configure({"schemas.enable": enabled})
        found = without.to_connect_header("t", "h", without.from_connect_header("t", "h", None, value))
        assert found == SchemaAndValue(None, value)


@given(st.binary(max_size=40) | st.text('[]{}",:0e.-+\\u tfn', max_size=30).map(str.encode), st.booleans())
def test_any_bytes_are_read_or_refused(content: bytes, enabled: bool) -> None:
    for mode in ("strict", "compat"):
        anything = JsonConverter()
        anything.configure({"schemas.enable": enabled, "mode": mode})
        try:
            found = anything.to_connect_header("t", "h", content)
        except Exception as error:
            assert type(error).__name__ == "DataException"  # noqa: PT017
        else:
            if mode == "strict":
                again = anything.from_connect_header("t", "h", found.schema, found.value)
                assert anything.to_connect_header("t", "h", again or b"null") == found
