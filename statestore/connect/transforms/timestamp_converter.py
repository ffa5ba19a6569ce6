"""TimestampConverter: points in time as texts, numbers, dates, times or timestamps. Source: Kafka's class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Any, ClassVar, Final

from statestore.connect.config import ConfigDef, Property, non_null, one_of
from statestore.connect.converters.base import COMPAT_MODE, MODE_PROPERTY, STRICT_MODE
from statestore.connect.records import ConnectRecord
from statestore.connect.scalars import DAY_MS, Instant, Int64, in_range
from statestore.connect.schema import Field, LogicalName, Schema, Struct, Type, type_of
from statestore.connect.transforms.sides import NULLS, Sided, of_both_sides, with_entries
from statestore.connect.transforms.topic_steps import date_format
from statestore.connect.values.compat import refusal
from statestore.connect.values.date_text import DateFormat
from statestore.errors import ConfigException, ConnectException, DataException
from statestore.errors.data import NullValueException
from statestore.errors.readable import shape_of

_STRING: Final = "string"
_UNIX: Final = "unix"
_DATE: Final = "Date"
_TIME: Final = "Time"
_TIMESTAMP: Final = "Timestamp"
_SCHEMAS: Final = {
    _STRING: Schema.STRING_SCHEMA,
    _UNIX: Schema.INT64_SCHEMA,
    _DATE: Schema.DATE_SCHEMA,
    _TIME: Schema.TIME_SCHEMA,
    _TIMESTAMP: Schema.TIMESTAMP_SCHEMA,
}
_BY_NAME: Final = {LogicalName.TIMESTAMP: _TIMESTAMP, LogicalName.DATE: _DATE, LogicalName.TIME: _TIME}
_BY_TYPE: Final = {Type.STRING: _STRING, Type.INT64: _UNIX}
_NS_OF_UNITS: Final = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_NS_OF_MS: Final = _NS_OF_UNITS["milliseconds"]


@of_both_sides
@dataclass(frozen=True)
class TimestampConverter(Sided):
    """Converts a field, or the whole, to another form of a point in time, in UTC, as coarse as asked for.

    Args:
        target_type: "string", "unix", "Date", "Time" or "Timestamp".
        field: its name; "" is the whole.
        format: pattern of SimpleDateFormat for texts that are read or made.
        unix_precision: the unit of numbers: "seconds", "milliseconds", "microseconds" or "nanoseconds".
        mode: "strict" refuses a text that does not print as itself, such as 2017-02-30, and a number that is no whole
            count of milliseconds; "compat" reads them as Kafka does.

    Raises ConfigException for texts without a format. Raises, when applied, DataException for what can't be read,
    NullValueException for a text if there is no format, ConnectException for a schema of no point in time.
    """

    target_type: str
    field: str = ""
    format: str | None = ""
    unix_precision: str = "milliseconds"
    mode: str = STRICT_MODE
    replace_null_with_default: bool = True
    pattern: DateFormat | None = attribute(init=False, repr=False, compare=False)
    """What the format was compiled to."""
    purpose = "converting timestamp formats"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("field", default="", rule=non_null, doc="name of the field; empty is the whole"),
        Property("target.type", rule=one_of(*_SCHEMAS), doc="what to make of it"),
        Property("format", default="", rule=date_format, doc="pattern of SimpleDateFormat for texts"),
        Property("unix.precision", default="milliseconds", rule=one_of(*_NS_OF_UNITS), doc="the unit of numbers"),
        MODE_PROPERTY,
        NULLS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_type == _STRING and not self.format:
            raise ConfigException(
                "TimestampConverter requires format option to be specified when using string timestamps",
                name="format",
                value=self.format,
            )
        object.__setattr__(self, "pattern", DateFormat(self.format) if self.format else None)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the point in time in its other form."""
        schema, value = self.source_of(record)
        if schema is None:
            if value is None or not self.field:
                return self.with_side(record, None, self._converted(None, value))
            given = self.require_map(value)
            put = {self.field: self._converted(None, given.get(self.field))}
            return self.with_side(record, None, with_entries(given, put))
        if not self.field:
            return self.with_side(record, self.schema_from(schema), self._converted(schema, value))
        struct = None if value is None else self.require_struct(value)
        made = self.schema_from(schema)
        return self.with_side(record, made, None if struct is None else self._struct(struct, made))

    def _struct(self, given: Struct, schema: Schema) -> Struct:
        made = Struct(schema)
        for each in given.schema.fields:
            value = self.field_value(given, each.name)
            made.put(each.name, self._converted(each.schema, value) if each.name == self.field else value)
        return made

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema with the other form."""
        made = _SCHEMAS[self.target_type]
        if not self.field:
            return made.as_optional() if schema.optional else made
        if schema.type is not Type.STRUCT:
            raise DataException("Cannot list fields on non-struct type")
        return replace(
            schema,
            fields=[
                Field(each.name, made.as_optional() if each.schema.optional else made)
                if each.name == self.field
                else each
                for each in schema.fields
            ],
        )

    def _converted(self, schema: Schema | None, value: Any) -> Any:
        form = None if schema is None else _form_of_schema(schema)
        if value is None:
            return None
        return self._made(self._read(form or _form_of(value), value))

    def _read(self, form: str, value: Any) -> int:
        """Return the milliseconds of a value."""
        known = isinstance(value, Instant)
        if form == _STRING:
            known = isinstance(value, str)
        elif form == _UNIX:
            known = type_of(value) is Type.INT64
        if not known:
            raise DataException(f"A {form} timestamp can't be one of {type(value).__name__}")
        if form == _STRING:
            return self._parsed(value)
        if form != _UNIX:
            return int(value.epoch_ms)
        number, rest = divmod(abs(value) * _NS_OF_UNITS[self.unix_precision], _NS_OF_MS)
        if rest and self.mode == STRICT_MODE:
            raise refusal(value, "whole milliseconds")
        return self._within(number if value >= 0 else -number)

    def _parsed(self, text: str) -> int:
        if self.pattern is None:
            raise NullValueException("A text is no timestamp without a format")
        found = self.pattern.instant_of(text, is_exact=self.mode == STRICT_MODE)
        if found is None:
            raise DataException(
                f"Could not parse timestamp: value ({shape_of(text)}) does not match pattern ({self.format})"
            )
        return found

    def _made(self, epoch_ms: int) -> Any:
        if self.target_type == _STRING:
            assert self.pattern is not None, "texts have a format"
            return self.pattern.text_of(epoch_ms)
        if self.target_type == _UNIX:
            number = abs(epoch_ms) * _NS_OF_MS // _NS_OF_UNITS[self.unix_precision]
            return Int64(self._within(number if epoch_ms >= 0 else -number))
        if self.target_type == _TIME:
            return Instant(epoch_ms % DAY_MS)
        return Instant(epoch_ms - epoch_ms % DAY_MS if self.target_type == _DATE else epoch_ms)

    def _within(self, number: int) -> int:
        """Return a number that 64 bits hold; in mode "compat" the nearest of them."""
        if in_range(number, 64) or self.mode != COMPAT_MODE:
            return number
        return (1 << 63) - 1 if number > 0 else -(1 << 63)


def _form_of_schema(schema: Schema) -> str:
    found = _BY_NAME.get(schema.name or "") or _BY_TYPE.get(schema.type)
    if found is None:
        raise ConnectException(f"Schema {schema} does not correspond to a known timestamp type format")
    return found


def _form_of(value: Any) -> str:
    found = _TIMESTAMP if isinstance(value, Instant) else _BY_TYPE.get(type_of(value) or Type.BYTES)
    if found is None:
        raise DataException(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")
    return found
