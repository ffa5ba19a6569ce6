"""Conversions as Kafka 4.3.1 does them, in UTC, even where it loses or invents something.

Integers wrap around, fractions are cut off, text is read as Kafka reads it. Use `strict` where nothing has to agree
with Kafka.

Source: Kafka Connect's `Values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from statestore.connect import logical_types
from statestore.connect.recursion import Steps, call
from statestore.connect.scalars import DAY_MS, Float32, Float64, Instant, Int32
from statestore.connect.schema import LogicalName, Schema, SchemaAndValue, Struct, Type, type_of
from statestore.connect.values.date_text import EPOCH_DAY, days_to_year_month, instant_text
from statestore.connect.values.number_text import decimal_of, float_text, long_of
from statestore.connect.values.printing import Style, text_of
from statestore.connect.values.reading import ValueReader
from statestore.connect.values.values import Values, Width
from statestore.errors import DataException
from statestore.errors.data import NullValueException, NumberFormatException, SchemaBuilderException
from statestore.errors.readable import shape_of

DEEPEST_COMPAT: Final = 500
"""How deep arrays and maps may nest; Java's stack overflows somewhere past a thousand."""
_FIRST_OF_OUR_ERA_MS: Final = (days_to_year_month(1, 0, is_julian=True) - EPOCH_DAY) * DAY_MS
_1970_BEFORE_OUR_ERA_MS: Final = (days_to_year_month(1 - 1970, 0, is_julian=True) - EPOCH_DAY) * DAY_MS
_STYLE: Final = Style(instant_text, Struct.get)


def is_number(value: Any) -> bool:
    """Return whether Java would call a value a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def refusal(value: Any, target: object) -> DataException:
    """Return the error of a value that can't be converted to a target."""
    return DataException(f"Unable to convert {shape_of(value)} to {target}")


def required(value: Any) -> Any:
    """Return a value. Raises DataException for None."""
    if value is None:
        raise DataException("Unable to convert a null value to a schema that requires a value")
    return value


class CompatValues(Values):
    """Converts as Kafka 4.3.1 does."""

    def convert_to_boolean(self, schema: Schema | None, value: Any) -> bool | None:
        """Return whether a value is not zero; None for None. Raises NullValueException for "null"."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and isinstance(parsed := self._parsed(value), bool):
            return parsed
        return self._long(schema, value) != 0

    def convert_to_float(self, schema: Schema | None, value: Any) -> Float32 | None:
        """Return the nearest float to the nearest double, infinity if there is none; None for None."""
        if value is None or isinstance(value, Float32):
            return value
        return Float32(self._double(schema, value))

    def convert_to_double(self, schema: Schema | None, value: Any) -> Float64 | None:
        """Return the nearest double, infinity if there is none; None for None."""
        return None if value is None else Float64(self._double(schema, value))

    def convert_to_decimal(self, schema: Schema | None, value: Any, scale: int) -> Decimal:
        """Return a decimal; other numbers become doubles first. Raises NumberFormatException for other text."""
        return self._decimal(Schema.decimal(scale), required(value))

    def convert_to_date(self, schema: Schema | None, value: Any) -> Instant:
        """Return a date; an instant without a schema keeps its time of the day."""
        found = self._read(value)
        if isinstance(found, Instant):
            if schema is None or schema.name == LogicalName.DATE:
                return found
            if schema.name == LogicalName.TIMESTAMP:
                return logical_types.days_to_date(Int32.wrapped(_quotient(found.epoch_ms, DAY_MS)))
        return logical_types.days_to_date(Int32.wrapped(self._long(schema, found)))

    def convert_to_time(self, schema: Schema | None, value: Any) -> Instant:
        """Return a time; an instant without a schema keeps its date."""
        found = self._read(value)
        if isinstance(found, Instant):
            if schema is None or schema.name == LogicalName.TIME:
                return found
            if schema.name == LogicalName.TIMESTAMP:
                is_of_our_era = found.epoch_ms >= _FIRST_OF_OUR_ERA_MS
                day_ms = 0 if is_of_our_era else _1970_BEFORE_OUR_ERA_MS  # Kafka sets the year, not the era
                return logical_types.milliseconds_to_time(Int32.wrapped(day_ms + found.epoch_ms % DAY_MS))
        return logical_types.milliseconds_to_time(Int32.wrapped(self._long(schema, found)))

    def convert_to_timestamp(self, schema: Schema | None, value: Any) -> Instant:
        """Return a timestamp."""
        found = self._read(value)
        if isinstance(found, Instant):
            if schema is None or schema.name == LogicalName.TIMESTAMP:
                return found
            if schema.name == LogicalName.DATE:
                return logical_types.days_to_date(Int32.wrapped(logical_types.date_to_days(found)))
            if schema.name == LogicalName.TIME:
                return Instant(logical_types.time_to_milliseconds(found))
        return Instant(self._long(schema, found))

    def convert_to_list(self, schema: Schema | None, value: Any) -> Sequence[Any]:
        """Return an array. Raises NullValueException for "null"."""
        found: Sequence[Any] = self._container(value, (list, tuple), Schema.array(Schema.STRING_SCHEMA))
        return found

    def convert_to_map(self, schema: Schema | None, value: Any) -> Mapping[Any, Any]:
        """Return a map. Raises NullValueException for "null"."""
        found: Mapping[Any, Any] = self._container(
            value, (Mapping,), Schema.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA)
        )
        return found

    def convert_to_struct(self, schema: Schema | None, value: Any) -> Struct:
        """Return a struct."""
        if not isinstance(required(value), Struct):
            raise refusal(value, Schema(Type.STRUCT))
        found: Struct = value
        return found

    def convert_to_string(self, schema: Schema | None, value: Any) -> str | None:
        """Return the text of a value, None for None. All instants before 1970-01-02 print as times of the day."""
        return None if value is None else text_of(schema, value, _STYLE, deepest=DEEPEST_COMPAT)

    def parse_string(self, text: str | None) -> SchemaAndValue | None:
        """Return what Kafka takes a text for; None, Java's null, for the text "null"."""
        if text is None:
            return SchemaAndValue(None, None)
        return ValueReader(text, aligned, deepest=DEEPEST_COMPAT).read()

    def infer_schema(self, value: Any) -> Schema | None:
        """Return a schema by the type of a value, and by the types of elements alone.

        None for decimals, instants, empty containers, and elements of different types. Raises SchemaBuilderException if
        all elements are None.
        """
        found: Schema | None = call(_inferred, value, deepest=DEEPEST_COMPAT + 1)
        return found

    def _parsed(self, text: str) -> Any:
        found = self.parse_string(text)
        if found is None:
            raise NullValueException('the text "null" has no value')
        return found.value

    def _long(self, schema: Schema | None, value: Any) -> int:
        if is_number(value):
            return long_of(value)
        if isinstance(value, str):
            return long_of(_number_of(schema, value))
        if isinstance(value, Instant) and schema is not None and schema.name in logical_types.ORDINALS:
            number = logical_types.ORDINALS[schema.name][0](value)
            return Int32.wrapped(number) if schema.name == LogicalName.DATE else number
        raise refusal(value, "a number" if schema is None else schema)

    def _double(self, schema: Schema | None, value: Any) -> float:
        if isinstance(value, str):
            return float(_number_of(schema, value))
        if not is_number(value):
            return float(self._long(schema, value))
        try:
            return float(value)
        except OverflowError:  # an integer of a thousand bits
            return math.copysign(math.inf, value)

    def _integer(self, width: type[Width], schema: Schema | None, value: Any) -> Width | None:
        if value is None or isinstance(value, width):
            return value
        return width.wrapped(self._long(schema, value))

    def _decimal(self, schema: Schema, value: Any) -> Decimal:
        if isinstance(value, bytes | bytearray | memoryview):
            if not len(value):
                raise NumberFormatException("a decimal of no bytes")
            return logical_types.decimal_from_bytes(schema, bytes(value))
        if isinstance(value, Decimal) and value.is_finite():
            return value
        if is_number(value):
            return decimal_of(float_text(self._double(None, value)))
        if isinstance(value, str):
            return decimal_of(value)
        raise refusal(value, schema)

    def _read(self, value: Any) -> Any:
        return self._parsed(value) if isinstance(value, str) else required(value)

    def _container(self, value: Any, classes: tuple[type, ...], target: Schema) -> Any:
        found = self._read(value)
        if not isinstance(found, classes):
            raise refusal(found, target)
        return found


def _inferred(value: Any) -> Steps:
    """Infer the schema of a value, in steps for the elements of containers."""
    if isinstance(value, Struct):
        return value.schema
    if isinstance(value, list | tuple):
        elements = _Elements()
        for element in value:
            if not (yield from elements.take(element)):
                return None
        return Schema.array(elements.schema()) if value else None
    if isinstance(value, Mapping):
        keys, values = _Elements(), _Elements()
        for key, element in value.items():
            if not (yield from keys.take(key)) or not (yield from values.take(element)):
                return None
        return Schema.map(keys.schema(), values.schema()) if value else None
    known = type_of(value)
    return None if known is None else Schema(known)


class _Elements:
    """The type that elements have in common."""

    def __init__(self) -> None:
        self._type: Type | None = None
        self._is_optional = False

    def take(self, element: Any) -> Steps:
        """Return whether one more element is of the type of those before it."""
        if element is None:
            self._is_optional = True
            return True
        schema = yield element
        if schema is None:
            return False
        self._type = self._type or schema.type
        return schema.type is self._type

    def schema(self) -> Schema:
        if self._type is None:
            raise SchemaBuilderException("Invalid SchemaBuilder call: type must be specified and non-null")
        return Schema(self._type, optional=self._is_optional)


def _number_of(schema: Schema | None, text: str) -> Decimal:
    try:
        return decimal_of(text)
    except NumberFormatException as cause:
        raise refusal(text, "a number" if schema is None else schema) from cause


def _quotient(value: int, divisor: int) -> int:
    """Return a quotient, cut off towards zero as Java does."""
    return value // divisor if value >= 0 else -(-value // divisor)


COMPAT: Final = CompatValues()
"""Kafka's conversions."""


def aligned(schema: Schema, value: Any) -> Any:
    """Return an element as Kafka converts it to the schema of the others. Raises DataException."""
    if schema.name == LogicalName.DECIMAL:
        return COMPAT.convert_to_decimal(None, value, 0)  # it is one already
    return (_LOGICAL.get(schema.name) or _CONVERSIONS[schema.type])(None, required(value))


_Conversion = Callable[[Schema | None, Any], Any]
_LOGICAL: Final[dict[str | None, _Conversion]] = {
    LogicalName.DATE: COMPAT.convert_to_date,
    LogicalName.TIME: COMPAT.convert_to_time,
    LogicalName.TIMESTAMP: COMPAT.convert_to_timestamp,
}
_CONVERSIONS: Final[dict[Type, _Conversion]] = {
    Type.BOOLEAN: COMPAT.convert_to_boolean,
    Type.INT8: COMPAT.convert_to_byte,
    Type.INT16: COMPAT.convert_to_short,
    Type.INT32: COMPAT.convert_to_integer,
    Type.INT64: COMPAT.convert_to_long,
    Type.FLOAT32: COMPAT.convert_to_float,
    Type.FLOAT64: COMPAT.convert_to_double,
    Type.STRING: COMPAT.convert_to_string,
    Type.ARRAY: COMPAT.convert_to_list,
    Type.MAP: COMPAT.convert_to_map,
}
