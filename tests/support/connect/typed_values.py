"""Schemas of every kind, and values that follow them, for hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from statestore.connect.scalars import DAY_MS, Float32, Float64, Instant, Int8, Int16, Int32, Int64
from statestore.connect.schema import Field, Schema, SchemaAndValue, Struct, Type
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
    (Schema.DATE_SCHEMA, integers(lambda days: Instant(days * DAY_MS), 32)),
    (Schema.TIME_SCHEMA, st.integers(0, DAY_MS).map(Instant)),
    (Schema.TIMESTAMP_SCHEMA, integers(Instant, 64)),
]


@st.composite
def decimals(draw: st.DrawFn) -> Typed:
    scale = draw(st.integers(-30, 30))
    values = st.integers(-(10**30), 10**30).map(lambda unscaled: Decimal(unscaled).scaleb(-scale))
    return Schema.decimal(scale), values.filter(lambda value: -int(value.as_tuple().exponent) == scale)


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
        return Schema.array(element_schema), st.lists(elements, max_size=3)
    key_schema, keys = draw(st.sampled_from(PRIMITIVES))
    if key_schema.type is Type.STRING:
        keys = TEXT
    pairs = st.lists(st.tuples(keys, elements), max_size=3)
    return Schema.map(key_schema, element_schema), pairs.map(TypedMap)


SCHEMAS = st.recursive(
    with_facts(st.sampled_from(PRIMITIVES) | decimals()), lambda inner: with_facts(containers(inner)), max_leaves=5
)


@st.composite
def typed_values(draw: st.DrawFn) -> SchemaAndValue:
    schema, values = draw(SCHEMAS)
    return SchemaAndValue(schema, draw(values))
