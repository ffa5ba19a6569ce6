"""What holds of all values and texts: nothing is lost that is printed, and no text is too much for a parser."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.connect import (
    Float32,
    Float64,
    Instant,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    Struct,
    Type,
    recursion,
)
from statestore.connect.scalars import DAY_MS
from statestore.connect.schema import same_value, validate_value
from statestore.connect.typed_map import TypedMap
from statestore.connect.values import compat, reading, strict
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.connect.values.values import Values
from statestore.errors import ConnectException

MODES = [COMPAT, STRICT]
SIGNS = st.text('[]{},:"\\ nul01.E-+Z', max_size=40)
TEXTS = st.one_of(st.text(st.characters(), max_size=30), SIGNS, st.from_regex(r"\A[0-9]{1,5}[-:.][0-9E+-]{1,20}Z?\Z"))
MILLION = 1_000_000
MANY = MILLION // 10

INSTANTS = st.integers(-(1 << 48), 1 << 48).map(Instant)
SCALARS: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (Schema.BOOLEAN_SCHEMA, st.booleans()),
    (Schema.INT8_SCHEMA, st.integers(-128, 127).map(Int8)),
    (Schema.INT16_SCHEMA, st.integers(-(1 << 15), (1 << 15) - 1).map(Int16)),
    (Schema.INT32_SCHEMA, st.integers(-(1 << 31), (1 << 31) - 1).map(Int32)),
    (Schema.INT64_SCHEMA, st.integers(-(1 << 63), (1 << 63) - 1).map(Int64)),
    (Schema.FLOAT32_SCHEMA, st.floats(width=32).map(Float32)),
    (Schema.FLOAT64_SCHEMA, st.floats().map(Float64)),
    (Schema.STRING_SCHEMA, st.text()),
    (Schema.BYTES_SCHEMA, st.binary()),
    (
        Schema.decimal(3),
        st.decimals(allow_nan=False, allow_infinity=False).map(lambda value: value or abs(value)),
    ),
    (
        Schema.DATE_SCHEMA,
        st.one_of(INSTANTS, st.integers(-(1 << 24), 1 << 24).map(lambda days: Instant(days * DAY_MS))),
    ),
    (Schema.TIME_SCHEMA, st.one_of(INSTANTS, st.integers(0, DAY_MS).map(Instant))),
    (Schema.TIMESTAMP_SCHEMA, INSTANTS),
]


def maybe_optional(schema: Schema, values: st.SearchStrategy[Any], is_optional: bool) -> Any:
    if not is_optional:
        return schema, values
    optional = schema.as_optional()
    if schema.type is Type.STRUCT:  # a struct follows the schema that it was made with alone
        names = [each.name for each in schema.fields]
        values = values.map(lambda made: Struct(optional, {name: made.get_without_default(name) for name in names}))
    return optional, st.none() | values


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return schemas of containers of what `inner` are schemas of, each with the values that follow it."""
    arrays = inner.map(lambda of: (Schema.array(of[0]), st.lists(of[1], max_size=3)))
    maps = st.tuples(inner, inner).map(
        lambda of: (
            Schema.map(of[0][0], of[1][0]),
            st.lists(st.tuples(of[0][1], of[1][1]), max_size=3).map(TypedMap),
        )
    )
    return st.one_of(arrays, maps, st.dictionaries(st.text(min_size=1), inner, max_size=3).map(struct_of))


def struct_of(fields: dict[str, Any]) -> Any:
    schema = Schema.struct({name: of[0] for name, of in fields.items()})
    values = st.fixed_dictionaries({name: of[1] for name, of in fields.items()})
    return schema, values.map(lambda each: Struct(schema, each))


def optional_or_not(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(inner, st.booleans()).map(lambda drawn: maybe_optional(*drawn[0], drawn[1]))


SCHEMAS = st.recursive(optional_or_not(st.sampled_from(SCALARS)), lambda inner: optional_or_not(containers(inner)))
TYPED = SCHEMAS.flatmap(lambda of: of[1].map(lambda value: (of[0], value)))


@settings(max_examples=400)
@given(TYPED)
def test_what_is_printed_of_any_schema_is_read_by_it(typed: tuple[Schema, Any]) -> None:
    schema, value = typed
    validate_value(schema, value)
    read = STRICT.parse_as(schema, STRICT.convert_to_string(schema, value))
    assert same_value(read, value)
    validate_value(schema, read)


def test_a_field_that_was_not_given_is_read_as_such() -> None:
    schema = Schema.struct({"d": Schema(Type.INT32, default=Int32(7)), "s": Schema.STRING_SCHEMA.as_optional()})
    text = STRICT.convert_to_string(schema, Struct(schema))
    assert text == '{"d":null,"s":null}'
    assert STRICT.parse_as(schema, text) == Struct(schema)


@given(TEXTS)
def test_what_is_parsed_prints_as_it_was_and_follows_its_schema(text: str) -> None:
    found = STRICT.parse_string(text)
    assert found.schema is not None
    assert STRICT.convert_to_string(found.schema, found.value) == text
    if not isinstance(found.value, list | dict):  # an element without a schema is one that is not known to validation
        validate_value(found.schema, found.value)
        assert same_value(STRICT.parse_as(found.schema, text), found.value)


@given(TYPED)
def test_what_was_printed_without_a_loss_is_parsed_without_one(typed: tuple[Schema, Any]) -> None:
    text = STRICT.convert_to_string(*typed)
    found = STRICT.parse_string(text)
    assert STRICT.convert_to_string(found.schema, found.value) == text


@given(TEXTS, st.sampled_from(MODES))
def test_no_text_raises_what_is_not_ours(text: str, values: Values) -> None:
    found = values.parse_string(text)
    if found is not None:
        values.convert_to_string(found.schema, found.value)
    for name in (name for name in dir(values) if name.startswith("convert_to_")):
        arguments = (2,) if name == "convert_to_decimal" else ()
        with suppress(ConnectException):
            getattr(values, name)(None, text, *arguments)


@given(TEXTS, SCHEMAS)
def test_no_text_of_any_schema_raises_what_is_not_ours(text: str, of: Any) -> None:
    try:
        read = STRICT.parse_as(of[0], text)
    except ConnectException:
        return
    validate_value(of[0], read)


@given(st.floats(width=32))
def test_the_text_of_a_single_is_the_shortest_that_is_read_as_it(value: float) -> None:
    text = COMPAT.convert_to_string(None, Float32(value))
    assert text is not None
    assert same_value(STRICT.convert_to_float(None, text), Float32(value))
    digits = text.partition("E")[0].replace(".", "").lstrip("-0").rstrip("0")
    if math.isfinite(value) and len(digits) > 2:
        shorter = f"{value:.{len(digits) - 2}e}"
        assert Float32(float(shorter)) != Float32(value)


@pytest.mark.parametrize("values", MODES)
@pytest.mark.parametrize(
    "text",
    [
        "[" * MILLION,
        "{" * MILLION,
        "[{1:" * (MILLION // 4),
        "{[" * (MILLION // 2),
        "[" * (MILLION // 2) + "]" * (MILLION // 2),
        " [" * (MILLION // 2),
        '["' * (MILLION // 2),
        "{" * 5000 + "}:1" * 5000,
        ":" * MILLION,
        '"' * MILLION,
        "\\" * MILLION,
        " " * MILLION,
        "1" * MILLION,
        "-" * MILLION,
        "1" * MILLION + ".5",
        "0." + "1" * MILLION,
        "1e" + "9" * MILLION,
        "1e999999999",
        "-1e-999999999",
        "[1e2147483647,1]",
        "\uff11" * MILLION,
        "[" + "1," * MANY + "1]",
        "[" + "12345," * (MANY // 4) + "1.5]",
        "[" + '"a",' * MANY + "1]",
        "{" + ",".join(f"{number}:{number}" for number in range(MANY // 4)) + "}",
        "[" + "[1]," * (MANY // 4) + "2]",
        "[" + "2017-05-21," * (MANY // 10) + "5]",
        "[" + "1:1:1:1:1:" * (MILLION // 10),
        "{" * 90 + "[" + "1," * MANY + "1]" + ":1}" * 90,
    ],
    ids=lambda value: f"{value[:8]}..." if isinstance(value, str) else None,
)
def test_a_million_of_anything_is_read_or_refused(text: str, values: Values) -> None:
    """Whatever takes the square of its length does not end here within the limit that all tests have."""
    try:
        found = values.parse_string(text)
        if found is not None:
            values.convert_to_string(found.schema, found.value)
    except ConnectException:
        assert values is COMPAT, "strict text that is too much is a string"


def test_tokens_are_looked_at_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    peek = reading.ValueReader._peek

    def count(reader: reading.ValueReader) -> str:
        nonlocal looks
        looks += 1
        return peek(reader)

    monkeypatch.setattr(reading.ValueReader, "_peek", count)
    elements = ("1,", '"a b",', "[1,2],", '{"a":[{}]},', "2017-05-21,", "16:31:05.387Z,", "1:")
    for element in elements:
        for times in (1000, 2000):
            looks = 0
            text = f"[{element * times}"
            COMPAT.parse_string(text)
            assert looks <= 5 * len(reading.tokens_of(text))


@pytest.mark.parametrize(("values", "deepest"), [(COMPAT, compat.DEEPEST_COMPAT), (STRICT, strict.DEEPEST_STRICT)])
def test_depth_has_a_limit(values: Values, deepest: int) -> None:
    text = f"{'[' * deepest}1{']' * deepest}"
    found = values.parse_string(text)
    assert found is not None
    assert isinstance(found.value, list)
    assert values.infer_schema(found.value) is not None
    assert values.convert_to_string(None, found.value) == text
    deeper: Any = [found.value]
    for act in (values.convert_to_string, lambda _, value: values.infer_schema([value])):
        with pytest.raises(ConnectException, match="deeper than"):
            act(None, deeper)
    if values is COMPAT:
        with pytest.raises(ConnectException, match="deeper than 500"):
            values.parse_string(f"[{text}]")
    else:
        assert values.parse_string(f"[{text}]").value == f"[{text}]"  # type: ignore[union-attr]


def test_what_is_begun_has_a_limit_too() -> None:
    text = "[" * 20_000
    with pytest.raises(ConnectException, match="deeper than 2000"):
        COMPAT.parse_string(text)
    assert STRICT.parse_string(text).value == text
    assert COMPAT.parse_string("[" * 1900).value == "[" * 1900  # type: ignore[union-attr]


def test_a_value_that_holds_itself_has_no_text() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for values in MODES:
        with pytest.raises(ConnectException, match="deeper than"):
            values.convert_to_string(None, endless)


def test_too_deep_text_of_a_schema_is_refused() -> None:
    schema = Schema.INT8_SCHEMA
    for _ in range(strict.DEEPEST_STRICT + 1):
        schema = Schema.array(schema)
    deep = "[" * (strict.DEEPEST_STRICT + 1) + "]" * (strict.DEEPEST_STRICT + 1)
    with pytest.raises(ConnectException, match="deeper than 100"):
        STRICT.parse_as(schema, deep)
    with pytest.raises(ConnectException, match="deeper than 100"):
        STRICT.convert_to_list(None, deep)
    assert recursion.too_deep(1).problem
    assert Decimal("1") == STRICT.parse_as(Schema.decimal(0), "1")
