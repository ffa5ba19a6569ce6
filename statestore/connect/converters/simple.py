"""Header converters of text and bytes: text as what it looks like (the default), text as it is, bytes as they are.

Source: Kafka Connect's `SimpleHeaderConverter`, `StringConverter` and `ByteArrayConverter`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from statestore.connect.config import ConfigDef, Property
from statestore.connect.converters.base import MODE, HeaderConverter
from statestore.connect.converters.charsets import UTF8, Charset, charset_of
from statestore.connect.header import header_in_errors
from statestore.connect.recursion import Steps, all_of, settle
from statestore.connect.scalars import DAY_MS, Instant
from statestore.connect.schema import Schema, SchemaAndValue, Struct, Type, is_of_type
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.date_text import year_month_day
from statestore.connect.values.number_text import decimal_text, float_text
from statestore.connect.values.strict import STRICT
from statestore.errors import DataException
from statestore.errors.data import SerializationException

_LOG: Final = logging.getLogger(__name__)
_ENCODING: Final = "converter.encoding"
_UTF8: Final = "UTF-8"


class SimpleHeaderConverter(HeaderConverter):
    """Writes values as UTF-8 text without their schemas, and reads text as `parse_string` does.

    Strict, text that would not be written as the same bytes again is read as a string, and bytes that are no text as
    bytes. With `mode=compat` it reads and writes what Kafka does: it takes `1,2` for 1, and replaces malformed UTF-8.
    """

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        """Return what the text of a header stands for; None is Java's null, for the text "null".

        Bytes that can't be read are returned as they are, with a warning in the log.
        """
        if value is None:
            return SchemaAndValue(None, None)
        try:
            if self.is_strict:
                return STRICT.parse_string(value.decode("utf-8"))
            return COMPAT.parse_string(UTF8.decode(value))
        except (DataException, UnicodeDecodeError) as cause:
            what = f"header {key!r}" if key else "a key or value"
            _LOG.warning("%s of topic %r can't be read, its bytes are used as they are: %s", what, topic, cause)
            return SchemaAndValue(Schema.BYTES_SCHEMA, value)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a value, None for None. Raises DataException if it has none."""
        if value is None:
            return None
        with header_in_errors(key):
            text = (STRICT if self.is_strict else COMPAT).convert_to_string(schema, value)
            assert text is not None, "only None has no text"
            return _encoded(text) if self.is_strict else UTF8.encode(text)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as cause:
        raise DataException("a text with half of a surrogate pair has no UTF-8") from cause


class ByteArrayConverter(HeaderConverter):
    """Headers are bytes. Nothing else is converted; there is nothing to configure."""

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read its mode; other properties are those of Kafka's, which looks at none."""
        super().configure({name: value for name, value in properties.items() if name == MODE})

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return bytes as they are. Raises DataException if they, or their schema, are anything else."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {schema.type}", header=key)
        if value is None:
            return None
        if not is_of_type(value, Type.BYTES):
            problem = f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}"
            raise DataException(problem, header=key)
        return bytes(value)

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue:
        """Return the bytes with the schema of optional ones."""
        return SchemaAndValue(Schema.OPTIONAL_BYTES_SCHEMA, value)


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
