"""Conversions that lose nothing: what can't be converted without a loss raises DataException, and text stays text.

print     `convert_to_string`: Kafka's text, but for points in time and for fields that were not given. A date prints
          as a date, a time as a time, a timestamp in full, whatever its value, by the Gregorian calendar; a field
          that has a default and was not given prints as null. So every value that follows a schema can be read
          again by `parse_as` with that schema, and is equal to what was printed.
parse     `parse_string`: what Kafka takes a text for, if that follows its schema and prints as the same text again;
          else the text is a string. So what is parsed always prints as what it was: "null", "007", "1.0", "1,2" and
          2017-02-30 are strings.
convert   A number has to be in the range of its type, and whole for an integer. A float has to be equal to the
          number, or be written as it. Of dates, times and timestamps, each becomes another only if that is the same
          point in time. None is None.
nesting   Arrays, maps and structs within one another are at most 100; deeper text is a string, the rest raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from statestore.connect import logical_types
from statestore.connect.recursion import Steps, call
from statestore.connect.scalars import Float32, Float64, Instant, Int64
from statestore.connect.schema import LogicalName, Schema, SchemaAndValue, Struct, Type, type_of, validate_value
from statestore.connect.values.compat import aligned, refusal, required
from statestore.connect.values.exact import exact_float, exact_instant, exact_integer, exact_scale, lossless_text
from statestore.connect.values.printing import Style, text_of
from statestore.connect.values.reading import ValueReader
from statestore.connect.values.typed_text import value_of
from statestore.connect.values.values import Values, Width
from statestore.errors import DataException

DEEPEST_STRICT: Final = 100
_BOOLEANS: Final = {"true": True, "false": False}
_STYLE: Final = Style(lossless_text, Struct.get_without_default)


class StrictValues(Values):
    """Converts without a loss, or raises DataException; None is None."""

    def convert_to_boolean(self, schema: Schema | None, value: Any) -> bool | None:
        """Return a boolean: of true and false, or of 1 and 0, or of their texts."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _BOOLEANS:
            return _BOOLEANS[value]
        number = exact_integer(schema, value, Int64.bits)
        if number not in (0, 1):
            raise refusal(value, Type.BOOLEAN)
        return number == 1

    def _integer(self, width: type[Width], schema: Schema | None, value: Any) -> Width | None:
        return None if value is None else width(exact_integer(schema, value, width.bits))

    def convert_to_float(self, schema: Schema | None, value: Any) -> Float32 | None:
        """Return a float of single precision, which 0.1 of double precision is not."""
        return None if value is None else exact_float(schema, value, Float32)

    def convert_to_double(self, schema: Schema | None, value: Any) -> Float64 | None:
        """Return a float of double precision."""
        return None if value is None else exact_float(schema, value, Float64)

    def convert_to_decimal(self, schema: Schema | None, value: Any, scale: int) -> Decimal | None:
        """Return a decimal of this scale. Raises NumberFormatException for a text that is not a number."""
        if value is None:
            return None
        if isinstance(value, bytes | bytearray | memoryview):
            return logical_types.decimal_from_bytes(Schema.decimal(scale), bytes(value))
        return exact_scale(value, scale)

    def convert_to_date(self, schema: Schema | None, value: Any) -> Instant | None:
        """Return a date, of a text such as 2017-05-21 or a count of days too."""
        return None if value is None else exact_instant(schema, value, LogicalName.DATE)

    def convert_to_time(self, schema: Schema | None, value: Any) -> Instant | None:
        """Return a time, of a text such as 16:31:05.387Z or a count of milliseconds too."""
        return None if value is None else exact_instant(schema, value, LogicalName.TIME)

    def convert_to_timestamp(self, schema: Schema | None, value: Any) -> Instant | None:
        """Return a timestamp, of a text such as 2017-05-21T16:31:05.387Z or a count of milliseconds too."""
        return None if value is None else exact_instant(schema, value, LogicalName.TIMESTAMP)

    def convert_to_list(self, schema: Schema | None, value: Any) -> Sequence[Any] | None:
        """Return an array, of a text too."""
        found = self.parse_as(Schema.array(None), value) if isinstance(value, str) else value
        if found is not None and not isinstance(found, list | tuple):
            raise refusal(value, Type.ARRAY)
        return found

    def convert_to_map(self, schema: Schema | None, value: Any) -> Mapping[Any, Any] | None:
        """Return a map, of a text too."""
        found = self.parse_as(Schema.map(None, None), value) if isinstance(value, str) else value
        if found is not None and not isinstance(found, Mapping):
            raise refusal(value, Type.MAP)
        return found

    def convert_to_struct(self, schema: Schema | None, value: Any) -> Struct | None:
        """Return a struct; of a text too, if the schema is a struct's."""
        if isinstance(value, str) and schema is not None and schema.type is Type.STRUCT:
            value = self.parse_as(schema, value)
        if value is not None and not isinstance(value, Struct):
            raise refusal(value, Type.STRUCT)
        return value

    def convert_to_string(self, schema: Schema | None, value: Any) -> str | None:
        """Return the text of a value, None for None; `parse_as` with the same schema reads it."""
        return None if value is None else text_of(schema, value, _STYLE, deepest=DEEPEST_STRICT)

    def parse_string(self, text: str | None) -> SchemaAndValue:
        """Return what Kafka takes a text for, if it prints as that text again and follows its schema; else a string."""
        if text is None:
            return SchemaAndValue(None, None)
        try:
            found = ValueReader(text, aligned, deepest=DEEPEST_STRICT).read()
        except DataException:  # nests too deeply
            found = None
        is_kept = (
            found is not None
            and not isinstance(found.value, str)
            and _follows(found.schema, found.value)
            and self.convert_to_string(found.schema, found.value) == text
        )
        return found if found is not None and is_kept else SchemaAndValue(Schema.STRING_SCHEMA, text)

    def parse_as(self, schema: Schema, text: str | None) -> Any:
        """Return the value of a schema that `convert_to_string` printed with it; None for None if that is one."""
        if text is None:
            return None if schema.optional else required(text)
        return value_of(schema, text, self.parse_string, deepest=DEEPEST_STRICT)

    def infer_schema(self, value: Any) -> Schema | None:
        """Return a schema that a value follows, elements too; None if there is none. An instant is a timestamp."""
        found: Schema | None = call(_inferred, value, deepest=DEEPEST_STRICT + 1)
        return found


def _follows(schema: Schema | None, value: Any) -> bool:
    """Return whether a value of limited depth follows its schema; None says nothing about it."""
    if schema is None:
        return True
    if isinstance(value, list):
        return schema.type is Type.ARRAY and all(_follows(schema.value_schema, each) for each in value)
    if isinstance(value, Mapping):
        return schema.type is Type.MAP and all(
            _follows(schema.key_schema, key) and _follows(schema.value_schema, each) for key, each in value.items()
        )
    try:
        validate_value(schema, value)
    except DataException:
        return False
    return schema.name != LogicalName.DECIMAL or schema == Schema.decimal(logical_types.scale_of(value))


def _inferred(value: Any) -> Steps:
    """Infer the schema of a value, in steps for the elements of containers."""
    if isinstance(value, Struct):
        return value.schema
    if isinstance(value, Decimal):
        return Schema.decimal(logical_types.scale_of(value))
    if isinstance(value, Instant):
        return Schema.TIMESTAMP_SCHEMA
    if isinstance(value, list | tuple):
        of_values = yield from _in_common(value)
        return Schema.array(of_values) if of_values is not None or not value else None
    if isinstance(value, Mapping):
        keys, values = list(value.keys()), list(value.values())
        of_keys = yield from _in_common(keys)
        of_values = yield from _in_common(values)
        is_known = (of_keys is not None and of_values is not None) or not value
        return Schema.map(of_keys, of_values) if is_known else None
    known = type_of(value)
    return None if known is None else Schema(known)


def _in_common(values: Sequence[Any]) -> Steps:
    """Return the schema that all values have, optional if one is None; None if they differ."""
    common: Schema | None = None
    is_optional = False
    for value in values:
        if value is None:
            is_optional = True
            continue
        schema = yield value
        if schema is None or (common is not None and schema != common):
            return None
        common = schema
    return common.as_optional() if common is not None and is_optional else common


STRICT: Final = StrictValues()
"""Conversions without a loss."""
