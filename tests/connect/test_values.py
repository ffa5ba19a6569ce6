"""Conversions between types, and between values and text, beyond what the vectors have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from statestore.connect import Float32, Float64, Instant, Int8, Int16, Int64, Schema, TypedMap, logical_types
from statestore.connect.converters.charsets import UTF8
from statestore.connect.values import number_text
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.errors import DataException
from statestore.errors.data import NumberFormatException, SchemaBuilderException

MIDNIGHT = Instant(1_495_324_800_000)  # 2017-05-21
AFTERNOON = Instant(1_495_384_265_387)  # 16:31:05.387


@pytest.mark.parametrize(
    "text",
    [
        *(
            "null",
            "007",
            "1.0",
            "1,2",
            "+5",
            " 5",
            "1e2",
            "3.141592653589793",
            "1e-400",
            "5:abc",
            "\uff11\uff12",
            "16:31",
        ),
        *("2017-02-30", "2017-05-21 ", "21-05-2017", "1500-02-28", '["2017-05-21"]', "[1, 2]", "[1],x", '["a\\"b"]'),
        *("[[1],[300]]", '[[1],["a"]]', " [", '[" "]', "[1e400,99999999999999999999]", "[2017-05-21,5]", '{"a":1,}'),
        '{"a":1,"a":2}',
    ],
)
def test_strict_text_that_prints_otherwise_stays_a_string(text: str) -> None:
    found = STRICT.parse_string(text)
    assert (found.schema, found.value) == (Schema.STRING_SCHEMA, text)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", Schema.INT8_SCHEMA, Int8(5)),
        ("1.5", Schema.FLOAT32_SCHEMA, Float32(1.5)),
        ("true", Schema.BOOLEAN_SCHEMA, True),
        ("1970-01-01", Schema.DATE_SCHEMA, Instant(0)),
        ("16:31:05.387Z", Schema.TIME_SCHEMA, Instant(59_465_387)),
        ("2017-05-21T00:00:00.000Z", Schema.TIMESTAMP_SCHEMA, MIDNIGHT),
        ("[1,2]", Schema.array(Schema.INT8_SCHEMA), [Int8(1), Int8(2)]),
        ("[[1],[2]]", Schema.array(Schema.array(Schema.INT8_SCHEMA)), [[Int8(1)], [Int8(2)]]),
        ('["a",1]', Schema.array(None), ["a", Int8(1)]),
        ('{"a":1}', Schema.map(Schema.STRING_SCHEMA, Schema.INT8_SCHEMA), {"a": Int8(1)}),
        ("1E+400", Schema.decimal(-400), Decimal("1E+400")),
    ],
)
def test_strict_text_that_prints_as_itself_is_what_kafka_takes_it_for(text: str, schema: Schema, value: Any) -> None:
    found = STRICT.parse_string(text)
    assert (found.schema, found.value, type(found.value)) == (schema, value, type(value))


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (Schema.DATE_SCHEMA, Instant(0), "1970-01-01"),
        (Schema.DATE_SCHEMA, Instant(-86_400_000), "1969-12-31"),
        (Schema.DATE_SCHEMA, Instant(1), "1970-01-01T00:00:00.001Z"),
        (Schema.TIME_SCHEMA, Instant(86_400_000), "1970-01-02T00:00:00.000Z"),
        (Schema.TIMESTAMP_SCHEMA, MIDNIGHT, "2017-05-21T00:00:00.000Z"),
        (Schema.TIMESTAMP_SCHEMA, Instant(-1), "1969-12-31T23:59:59.999Z"),
        (None, Instant(-1), "1969-12-31T23:59:59.999Z"),
        (None, MIDNIGHT, "2017-05-21"),
        (None, Instant(5), "00:00:00.005Z"),
        (Schema.array(Schema.TIMESTAMP_SCHEMA), [MIDNIGHT], "[2017-05-21T00:00:00.000Z]"),
        (None, TypedMap([(Int8(1), "a"), (True, None)]), '{1:"a",true:null}'),
    ],
)
def test_strict_texts_say_what_a_date_is_and_when(schema: Schema | None, value: Any, text: str) -> None:
    assert STRICT.convert_to_string(schema, value) == text


@pytest.mark.parametrize(
    ("conversion", "schema", "value"),
    [
        ("convert_to_byte", None, 300),
        ("convert_to_byte", None, "1.9"),
        ("convert_to_integer", None, float("nan")),
        ("convert_to_long", None, Decimal("1E+999999999")),
        ("convert_to_long", None, True),
        ("convert_to_long", None, AFTERNOON),
        ("convert_to_boolean", None, 2),
        ("convert_to_boolean", None, "0.5"),
        ("convert_to_boolean", None, "null"),
        ("convert_to_float", None, 0.1),
        ("convert_to_float", None, 16_777_217),
        ("convert_to_float", None, "16777217"),
        ("convert_to_float", None, "3.141592653589793"),
        ("convert_to_double", None, "1e400"),
        ("convert_to_double", None, "1e-400"),
        ("convert_to_double", None, 9_007_199_254_740_993),
        ("convert_to_double", None, "0.1234567890123456789"),
        ("convert_to_date", Schema.TIMESTAMP_SCHEMA, AFTERNOON),
        ("convert_to_date", None, "2017-02-30"),
        ("convert_to_date", None, "1500-02-29"),
        ("convert_to_date", Schema.TIME_SCHEMA, Instant(0)),
        ("convert_to_date", Schema.STRING_SCHEMA, MIDNIGHT),
        ("convert_to_date", None, 1 << 31),
        ("convert_to_date", None, "00:00:00.000Z"),
        ("convert_to_timestamp", None, "00:00:00.000Z"),
        ("convert_to_time", Schema.TIMESTAMP_SCHEMA, AFTERNOON),
        ("convert_to_time", None, -1),
        ("convert_to_timestamp", None, "x"),
        ("convert_to_timestamp", None, "10:99:00.000Z"),
        ("convert_to_list", None, "null"),
        ("convert_to_list", None, "[1"),
        ("convert_to_list", None, {}),
        ("convert_to_map", None, '{"a":1,"a":2}'),
        ("convert_to_map", None, '{"a" 1}'),
        ("convert_to_struct", None, "{}"),
        ("convert_to_string", None, object()),
        ("convert_to_string", None, Decimal("NaN")),
        ("convert_to_string", None, [10**5000]),
    ],
)
def test_strict_conversions_refuse_a_loss(conversion: str, schema: Schema | None, value: Any) -> None:
    with pytest.raises(DataException):
        getattr(STRICT, conversion)(schema, value)


@pytest.mark.parametrize(
    ("conversion", "schema", "value", "expected"),
    [
        ("convert_to_byte", None, "1e2", Int8(100)),
        ("convert_to_short", None, Float64(5), Int16(5)),
        ("convert_to_long", Schema.TIMESTAMP_SCHEMA, AFTERNOON, Int64(1_495_384_265_387)),
        ("convert_to_boolean", None, "1", True),
        ("convert_to_float", None, "0.1", Float32(0.1)),
        ("convert_to_float", None, Decimal("0.1"), Float32(0.1)),
        ("convert_to_double", None, "1.9999999999999998E23", Float64(2e23)),  # as Java 17 writes it
        ("convert_to_float", None, "1.17549435E-38", Float32(1.1754944e-38)),
        ("convert_to_double", None, "-Infinity", Float64("-inf")),
        ("convert_to_double", None, Float32(0.1), Float64(Float32(0.1))),
        ("convert_to_date", Schema.TIMESTAMP_SCHEMA, MIDNIGHT, MIDNIGHT),
        ("convert_to_date", None, "2017-05-21T00:00:00.000Z", MIDNIGHT),
        ("convert_to_date", None, -1, Instant(-86_400_000)),
        ("convert_to_time", None, "16:31:05.387Z", Instant(59_465_387)),
        ("convert_to_timestamp", None, "1495384265387", AFTERNOON),
        (
            "convert_to_list",
            None,
            '[ 1, null , "a\\"b", 1.50, 2017-05-21 ]',
            [1, None, 'a"b', Decimal("1.50"), MIDNIGHT],
        ),
        ("convert_to_map", None, "{1:[{}],16:31:05.387Z:2}", {1: [{}], Instant(59_465_387): 2}),
    ],
)
def test_strict_conversions(conversion: str, schema: Schema | None, value: Any, expected: Any) -> None:
    found = getattr(STRICT, conversion)(schema, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("scale", [2**31 - 1, 2_000_000, 0, -2_000_000, -(2**31)])
@pytest.mark.parametrize("zeros", [0, 23_999])
def test_decimals_of_all_scales_are_bytes_and_back(scale: int, zeros: int) -> None:
    schema, unscaled = Schema.decimal(scale), -5 * 10**zeros
    content = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    assert logical_types.decimal_to_bytes(schema, logical_types.decimal_from_bytes(schema, content)) == content


def test_decimals_beyond_all_use_are_refused() -> None:
    for scale in (2**31, -(2**31) - 1, 10**30):
        with pytest.raises(DataException, match="scale"):
            logical_types.decimal_from_bytes(Schema.decimal(scale), b"\5")
    with pytest.raises(DataException, match="10001 bytes"):
        logical_types.decimal_from_bytes(Schema.decimal(0), bytes(10_001))
    with pytest.raises(DataException, match="24001 digits"):
        logical_types.decimal_to_bytes(Schema.decimal(0), Decimal(10**24_000))


def test_a_strict_decimal_has_the_scale_that_is_asked_for() -> None:
    assert str(STRICT.convert_to_decimal(None, "1.5", 2)) == "1.50"
    assert str(STRICT.convert_to_decimal(None, 1500, -2)) == "1.5E+3"
    assert str(STRICT.convert_to_decimal(None, Float32(0.1), 1)) == "0.1"
    assert str(STRICT.convert_to_decimal(None, b"\x04\xd2", 2)) == "12.34"
    for value in ("1.55", "1E+999999999", float("nan"), "x", True):
        with pytest.raises(DataException):
            STRICT.convert_to_decimal(None, value, 1)
    with pytest.raises(NumberFormatException):
        STRICT.convert_to_decimal(None, "x", 1)


def test_none_is_none_where_nothing_is_lost() -> None:
    names = [name for name in dir(STRICT) if name.startswith("convert_to_") and name != "convert_to_decimal"]
    assert len(names) == 14
    assert [getattr(STRICT, name)(None, None) for name in names] == [None] * len(names)
    assert STRICT.convert_to_decimal(None, None, 2) is None


def test_a_strict_schema_is_one_that_the_value_follows() -> None:
    assert STRICT.infer_schema([[Int8(1)], [Int8(2)]]) == Schema.array(Schema.array(Schema.INT8_SCHEMA))
    assert STRICT.infer_schema({"a": Int8(1), "b": None}) == Schema.map(
        Schema.STRING_SCHEMA, Schema.OPTIONAL_INT8_SCHEMA
    )
    assert STRICT.infer_schema([Decimal("1.50")]) == Schema.array(Schema.decimal(2))
    assert STRICT.infer_schema(AFTERNOON) == Schema.TIMESTAMP_SCHEMA
    assert STRICT.infer_schema([]) == Schema.array(None)
    assert [STRICT.infer_schema(value) for value in ([None], [Int8(1), "a"], {"a": None}, object())] == [None] * 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"x":1,"x":1}',
        '{"x":1,"z":2}',
        '{"x":null}',
        '{"x":"1"}',
        '{"x":1}x',
        '{"x":1',
        "{x:1}",
        '{"x\\n":1}',
    ],
)
def test_a_text_that_is_not_of_its_schema_is_refused(text: str) -> None:
    with pytest.raises(DataException):
        STRICT.parse_as(Schema.struct({"x": Schema.INT32_SCHEMA}), text)


@pytest.mark.parametrize("schema", [Schema.DATE_SCHEMA, Schema.TIMESTAMP_SCHEMA])
def test_a_time_is_no_date_as_kafka_prints_old_ones(schema: Schema) -> None:
    text = COMPAT.convert_to_string(schema, Instant(-86_400_000))
    assert text == "00:00:00.000Z"
    with pytest.raises(DataException):
        STRICT.parse_as(schema, text)


def test_what_kafka_prints_of_a_later_timestamp_is_read() -> None:
    for value in (MIDNIGHT, AFTERNOON):
        assert (
            STRICT.parse_as(Schema.TIMESTAMP_SCHEMA, COMPAT.convert_to_string(Schema.TIMESTAMP_SCHEMA, value)) == value
        )


def test_a_field_has_a_name() -> None:
    with pytest.raises(SchemaBuilderException, match="fieldName cannot be null"):
        Schema.struct({"": Schema.INT8_SCHEMA})


def test_kafkas_date_formats() -> None:
    assert COMPAT.date_format_for(Instant(-1)) == "HH:mm:ss.SSS'Z'"
    assert STRICT.date_format_for(MIDNIGHT) == "yyyy-MM-dd"
    assert STRICT.date_format_for(AFTERNOON) == "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


@pytest.mark.parametrize(("exponent", "text"), [(-96, "1.2621775E-29"), (87, "1.5474251E26"), (90, "1.2379401E27")])
def test_powers_of_two_have_more_room_above_for_a_short_text(exponent: int, text: str) -> None:
    assert COMPAT.convert_to_string(None, Float32(2.0**exponent)) == text
    assert COMPAT.convert_to_float(None, text) == Float32(2.0**exponent)


@pytest.mark.parametrize("text", ["1e2147483647", "-1e999999999", "1e-999999999", "0e999999999", "1" + "0" * 100_000])
def test_kafkas_integers_of_huge_numbers_are_their_lowest_bits(text: str) -> None:
    assert COMPAT.convert_to_long(None, text) == 0


def test_no_digits_are_made_of_a_huge_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_text, "EXACT", None)  # what would make them
    assert COMPAT.convert_to_long(None, "7e2147483647") == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa01", "\ufffd1"),
        (b"\xed\xa0\x80\x80", "\ufffd\ufffd"),
        (b"\xed1", "\ufffd1"),
        (b"\xed", "\ufffd"),
        (b"\xf0\x9f\x981", "\ufffd1"),
        (b"\xe0\x80", "\ufffd\ufffd"),
        (b"\xf4\x90\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_malformed_utf8_is_replaced_as_in_java(content: bytes, text: str) -> None:
    assert UTF8.decode(content) == text


def test_halves_of_a_pair_are_one_character_to_java() -> None:
    assert UTF8.encode("\ud83d\ude00\ude00") == "\U0001f600?".encode()


@pytest.mark.parametrize("text", ["1\U0001d7cf", "\U0001d7cf", "1e\U0001d7cf", "1.\U0001d7cf", "[1,\U0001d7cf]"])
def test_digits_beyond_16_bits_are_none_to_java(text: str) -> None:
    found = COMPAT.parse_string(text)
    assert found is not None
    assert found.value == text


def test_a_failed_container_behind_blanks_leaves_kafka_with_the_blanks() -> None:
    found = COMPAT.parse_string("  [1")
    assert found is not None
    assert found.value == "  "
