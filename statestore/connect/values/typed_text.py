"""Text that is read by a schema: what strict conversions print of any value that follows one, and so lose nothing.

    array  := "[" (element ("," element)*)? "]"
    map    := "{" (element ":" element ("," element ":" element)*)? "}", as is a struct, by the names of its fields
    string := raw at the top; within, between quotes, with a backslash before each quote and backslash
    bytes  := base64, within between quotes
    None   := "null", within

Blanks may stand around elements. Raises DataException for any other text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

from statestore.connect.logical_types import ORDINALS
from statestore.connect.recursion import Steps, call, too_deep
from statestore.connect.scalars import Float32, Float64
from statestore.connect.schema import INTEGER_TYPES, LogicalName, Schema, SchemaAndValue, Struct, Type
from statestore.connect.typed_map import TypedMap, map_of_distinct
from statestore.connect.values.compat import refusal
from statestore.connect.values.exact import TEMPORAL, exact_float, exact_integer, instant_of
from statestore.connect.values.number_text import decimal_of, decimal_text
from statestore.errors import DataException
from statestore.errors.readable import shape_of

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_BARE: Final = re.compile(r'[^ \t\r\n,:{}\[\]"\\]+')
_PLAIN: Final = re.compile(r'[^"\\]+')
_CONTAINERS: Final = (Type.ARRAY, Type.MAP, Type.STRUCT)

Guess = Callable[[str], SchemaAndValue | None]
"""Reads a text without a schema."""


def value_of(schema: Schema, text: str, guess: Guess, *, deepest: int) -> Any:
    """Return the value of a schema that a text stands for; `guess` is for elements without a schema."""
    if schema.type not in _CONTAINERS:
        return text if schema.type is Type.STRING else _scalar(schema, text)
    reader = _Reader(text, guess, deepest=deepest)
    found = call(reader.read, schema, deepest=deepest + 1)
    if reader.place != len(text):
        raise reader.unexpected("the end")
    return found


def _scalar(schema: Schema, text: str) -> Any:
    """Return the value of a text that is neither a string nor a container's."""
    if schema.name == LogicalName.DECIMAL:
        return decimal_of(text)
    if schema.name in ORDINALS:
        found = instant_of(text, schema.name)
        if found is None:
            raise refusal(text, schema)
        return found
    if schema.type is Type.BOOLEAN:
        if text not in ("true", "false"):
            raise refusal(text, schema)
        return text == "true"
    if schema.type is Type.BYTES:
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as cause:
            raise refusal(text, schema) from cause
    if schema.type in INTEGER_TYPES:
        kind = INTEGER_TYPES[schema.type]
        return kind(exact_integer(None, text, kind.bits))
    return exact_float(None, text, Float32) if schema.type is Type.FLOAT32 else exact_float(None, text, Float64)


class _Reader:
    """Reads one text from its beginning; `place` is where the next element begins."""

    def __init__(self, text: str, guess: Guess, *, deepest: int) -> None:
        self._text = text
        self._guess = guess
        self._deepest = deepest
        self._depth = 0
        self.place = 0

    def read(self, schema: Schema | None) -> Steps:
        """Read an element, in steps for those in it; None is one of any type."""
        self._skip_blanks()
        found = yield from self._element(schema)
        self._skip_blanks()
        return found

    def unexpected(self, wanted: str) -> DataException:
        """Return the error of a text that goes on otherwise than wanted."""
        return DataException(f"{wanted} is missing in {shape_of(self._text)} at character {self.place}")

    def _element(self, schema: Schema | None) -> Steps:
        first = self._text[self.place : self.place + 1]
        if self._match(_BARE) == "null" and (schema is None or schema.optional):
            self.place += len("null")
            return None
        if schema is None:
            if first == "[":
                return (yield from self._array(None))
            return (yield from self._map(None, None)) if first == "{" else self._guessed()
        if schema.type is Type.ARRAY:
            return (yield from self._array(schema.value_schema))
        if schema.type is Type.MAP:
            return (yield from self._map(schema.key_schema, schema.value_schema))
        if schema.type is Type.STRUCT:
            return (yield from self._struct(schema))
        if schema.type is Type.STRING:
            return self._quoted()
        if schema.type is Type.BYTES and schema.name != LogicalName.DECIMAL:
            return _scalar(schema, self._quoted())
        text = self._match(TEMPORAL) if schema.name in ORDINALS else self._match(_BARE)
        self.place += len(text)
        return _scalar(schema, text)

    def _array(self, schema: Schema | None) -> Steps:
        values: list[Any] = []
        self._begin("[")
        while self._has_another("]", is_first=not values):
            values.append((yield schema))
        return values

    def _map(self, of_keys: Schema | None, of_values: Schema | None) -> Steps:
        entries: list[tuple[Any, Any]] = []
        self._begin("{")
        while self._has_another("}", is_first=not entries):
            key = yield of_keys
            self._take(":")
            entries.append((key, (yield of_values)))
        made = TypedMap(entries)
        if len(made) != len(entries):
            raise DataException(f"a key is there twice in {shape_of(self._text)}")
        return map_of_distinct(entries)

    def _struct(self, schema: Schema) -> Steps:
        values: dict[str, Any] = {}
        is_first = True
        self._begin("{")
        while self._has_another("}", is_first=is_first):
            is_first = False
            name = self._quoted()
            field = schema.field(name)
            if field is None or name in values:
                raise DataException("A name is not a valid field name" if field is None else "A field is there twice")
            self._skip_blanks()
            self._take(":")
            self._skip_blanks()
            if field.schema.default is not None and self._match(_BARE) == "null":
                self.place += len("null")
                self._skip_blanks()
                continue  # what was not given
            values[name] = yield field.schema
        made = Struct(schema, values)
        made.validate()
        return made

    def _begin(self, delimiter: str) -> None:
        self._take(delimiter)
        self._depth += 1
        if self._depth > self._deepest:
            raise too_deep(self._deepest)

    def _has_another(self, end: str, *, is_first: bool) -> bool:
        """Return whether there is one more element, at its beginning; else go behind the end."""
        self._skip_blanks()
        if self._text.startswith(end, self.place):
            self.place += 1
            self._depth -= 1
            return False
        if not is_first:
            self._take(",")
            self._skip_blanks()
        return True

    def _take(self, delimiter: str) -> None:
        if not self._text.startswith(delimiter, self.place):
            raise self.unexpected(repr(delimiter))
        self.place += 1

    def _skip_blanks(self) -> None:
        self.place += len(self._match(_BLANKS))

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self.place)
        return "" if found is None else found[0]

    def _quoted(self) -> str:
        self._take('"')
        parts = []
        while not self._text.startswith('"', self.place):
            plain = _PLAIN.match(self._text, self.place)
            if plain is not None:
                parts.append(plain[0])
                self.place = plain.end()
                continue
            escaped = self._text[self.place : self.place + 2]
            if escaped not in ("\\\\", '\\"'):
                raise self.unexpected("a quote's end")
            parts.append(escaped[1])
            self.place += 2
        self.place += 1
        return "".join(parts)

    def _guessed(self) -> Any:
        """Read a scalar without a schema: what a strict parser takes it for, or a decimal that prints as it."""
        if self._text.startswith('"', self.place):
            return self._quoted()
        text = self._match(TEMPORAL) or self._match(_BARE)
        found = self._guess(text)
        self.place += len(text)
        if found is not None and not isinstance(found.value, str):
            return found.value
        value = decimal_of(text)
        if decimal_text(value) != text:
            raise refusal(text, "a value without a schema")
        return value
