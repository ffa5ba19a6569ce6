"""Strict JSON: what is written is read as it was, for every schema and value that is written at all."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from statestore.connect.converters.json import JsonConverter
from statestore.connect.scalars import Float32, Int64
from statestore.connect.schema import Schema, SchemaAndValue, Type
from statestore.connect.typed_map import TypedMap
from tests.support.connect.typed_values import TEXT, integers, typed_values

STRICT_CONVERTERS = [JsonConverter() for _ in range(2)]
for converter, decimal_format in zip(STRICT_CONVERTERS, ("base64", "numeric"), strict=True):
    converter.configure({"replace.null.with.default": False, "decimal.format": decimal_format})


@given(typed_values())
@example(SchemaAndValue(Schema(Type.FLOAT64), float("nan")))
@example(SchemaAndValue(Schema(Type.FLOAT32), Float32(-0.0)))
@example(SchemaAndValue(Schema(Type.FLOAT32), Float32(1.1754944e-38)))
@example(SchemaAndValue(Schema(Type.FLOAT64), 2.0**-24))
@example(SchemaAndValue(Schema.map(Schema(Type.FLOAT64), Schema(Type.INT8)), TypedMap([(0.0, 1), (-0.0, 2)])))
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
