"""Headers that are text: of whatever a value is, the text that Java has for it. Source: Kafka's `StringConverter`."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from statestore.connect.config import ConfigDef, Property
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.charsets import Charset, charset_of
from statestore.connect.header import header_in_errors
from statestore.connect.instant import DAY_MS, Instant
from statestore.connect.recursion import Steps, all_of, settle
from statestore.connect.schema import Schema, SchemaAndValue, Struct
from statestore.connect.values.date_text import year_month_day
from statestore.connect.values.number_text import decimal_text, float_text
from statestore.errors import DataException
from statestore.errors.data import SerializationException

_ENCODING: Final = "converter.encoding"
_UTF8: Final = "UTF-8"


class StringConverter(HeaderConverter):
    """Headers are text in the encoding `converter.encoding`. What a value was is lost: it comes back as text.

    In strict mode what has no text of its own (bytes, less than a second of a time) is an error, and so is what the
    encoding does not have.
    """

    _charset: Charset

    def config(self) -> ConfigDef:
        """Return the properties that it has."""
        encoding = Property(_ENCODING, default=_UTF8, doc="The encoding of text, under one of Java's names.")
        return ConfigDef(*super().config().properties, encoding)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read its properties. Raises ConfigException, and SerializationException for an unknown encoding."""
        super().configure(properties)
        name = self.settings[_ENCODING]
        charset = charset_of(_UTF8 if name is None else name)
        if charset is None:
            raise SerializationException(f"Unsupported encoding {name}", name=_ENCODING, value=name)
        self._charset = charset

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a value in bytes, None for None. Raises DataException in strict mode."""
        assert self.settings
        if value is None:
            return None
        with header_in_errors(key):
            text: str = settle(_text(value, strict=self.is_strict))
            if self.is_strict and not self._charset.can_encode(text):
                raise DataException(f"Failed to serialize to a string: {self.settings[_ENCODING]} lacks a character")
            return self._charset.encode(text)

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue:
        """Return the text that bytes are, with the schema of optional ones. Raises DataException in strict mode."""
        assert self.settings
        if value is not None and self.is_strict and not self._charset.can_decode(value):
            problem = f"Failed to deserialize string: the bytes are not {self.settings[_ENCODING]}"
            raise DataException(problem, header=key)
        return SchemaAndValue(Schema.OPTIONAL_STRING_SCHEMA, None if value is None else self._charset.decode(value))


def _text(value: Any, *, strict: bool) -> str | Steps:
    """Return what `toString` returns in Java."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, Instant):
        if strict and value.epoch_ms % 1000:
            raise DataException("The text of a point in time has no milliseconds")
        return date_text(value)
    if isinstance(value, list | tuple | Mapping | Struct):
        return _text_of_container(value, strict=strict)
    if isinstance(value, memoryview) and not strict:
        return f"java.nio.HeapByteBuffer[pos=0 lim={value.nbytes} cap={value.nbytes}]"
    if strict or isinstance(value, bytes | bytearray):
        raise DataException(f"{type(value).__name__} has no text that says what is in it")
    return str(value)


def _text_of_container(value: Any, *, strict: bool) -> Steps:
    if isinstance(value, list | tuple):
        elements = yield from all_of(_text(element, strict=strict) for element in value)
        return f"[{', '.join(elements)}]"
    if isinstance(value, Struct):
        names = [each.name for each in value.schema.fields if value.get_without_default(each.name) is not None]
        texts = yield from all_of(_text(value.get_without_default(name), strict=strict) for name in names)
        fields = [f"{name}={text}" for name, text in zip(names, texts, strict=True)]
        return f"Struct{{{','.join(fields)}}}"
    parts = yield from all_of(_text(part, strict=strict) for entry in value.items() for part in entry)
    entries = [f"{key}={content}" for key, content in zip(parts[::2], parts[1::2], strict=True)]
    return f"{{{', '.join(entries)}}}"


_DAY_NAMES: Final = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
_MONTH_NAMES: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


_FIRST_GREGORIAN_DAY: Final = -141_427
"""1582-10-15, the day after 1582-10-04: Java's calendar is the Julian one before."""
_JULIAN_ERA_DAY: Final = 719_470
"""Days from March of year 0 to 1970, in that calendar."""


def date_text(value: Instant) -> str:
    """Return the text that `java.util.Date` has in UTC: `Sun May 21 16:31:05 UTC 2017`; years before 1 have no sign."""
    days, rest_ms = divmod(value.epoch_ms, DAY_MS)
    year, month, day = year_month_day(days) if days >= _FIRST_GREGORIAN_DAY else _julian_year_month_day(days)
    seconds = rest_ms // 1000
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    shown_year = year if year > 0 else 1 - year
    return f"{_DAY_NAMES[days % 7]} {_MONTH_NAMES[month - 1]} {day:02} {clock} UTC {shown_year}"


def _julian_year_month_day(days: int) -> tuple[int, int, int]:
    cycles, day_of_cycle = divmod(days + _JULIAN_ERA_DAY, 1461)
    year_of_cycle = (day_of_cycle - day_of_cycle // 1460) // 365
    day_of_year = day_of_cycle - 365 * year_of_cycle
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return 4 * cycles + year_of_cycle + (month <= 2), month, day_of_year - (153 * month_from_march + 2) // 5 + 1
