"""What Kafka takes a text for: a boolean, a number, a date, an array or a map of them, or a string.

Text is cut into tokens once: the delimiters `: , { } [ ] "`, and what is between them; a backslash escapes a delimiter.
Open containers are kept in a list, so depth costs no stack. Each token is looked at a fixed number of times.

Source: `Values.parseString`, its `ValueParser` and `SchemaMerger`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from statestore.connect import logical_types
from statestore.connect.recursion import too_deep
from statestore.connect.scalars import Float64, Int8, Int64, in_range
from statestore.connect.schema import INTEGER_TYPES, NUMBER_TYPES, Schema, SchemaAndValue
from statestore.connect.typed_map import identity_of, map_of_distinct
from statestore.connect.values.date_text import LONGEST, temporal_of
from statestore.connect.values.number_text import decimal_of, float32_of, is_digit
from statestore.errors import DataException
from statestore.errors.data import NumberFormatException

_Align = Callable[[Schema, Any], Any]
"""Converts a value to the schema that all elements of its container have."""

_MARKS: Final = re.compile(r'\\.?|[:,{}\[\]"]', re.DOTALL)
_TRIMMED: Final = "".join(map(chr, range(33)))
"""What Java's `String.trim` takes away."""
_LITERALS: Final = {
    "null": None,
    "true": SchemaAndValue(Schema.BOOLEAN_SCHEMA, True),
    "false": SchemaAndValue(Schema.BOOLEAN_SCHEMA, False),
}
_INTEGERS: Final = [(number, Schema(known)) for known, number in INTEGER_TYPES.items()]
_BEGINS: Final = {"[": "]", "{": "}"}
_DIGITS_OF_ALL_INT64: Final = 18
"""A number of so many digits always fits into 64 bits."""
_SMALL_INTEGERS: Final = {str(value): SchemaAndValue(Schema.INT8_SCHEMA, Int8(value)) for value in range(128)}
"""Most elements of long arrays are such numbers."""
_TOKENS_OF_TIME: Final = 4
"""How many tokens follow the first one of a time whose colons are not escaped."""
_MOST_OPEN: Final = 2000
"""How deep containers may nest, closed or not. Java's stack overflows somewhere past a thousand."""
_NUMBERS_BY_SIZE: Final = list(NUMBER_TYPES)
"""A number of a type fits each type behind it, too."""


class _UnreadableError(Exception):
    """An element is nothing that Kafka knows, so the whole text is a string."""


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text; joined, they are the text."""
    tokens: list[str] = []
    start = 0
    for mark in _MARKS.finditer(text):
        if mark[0][0] == "\\":
            continue
        if start < mark.start():
            tokens.append(text[start : mark.start()])
        tokens.append(mark[0])
        start = mark.end()
    if start < len(text):
        tokens.append(text[start:])
    return tokens


class _Merger:
    """The schema that values have in common, if there is one: of numbers the largest, else that of the last value."""

    __slots__ = ("_is_mixed", "_may_be_any", "common")

    def __init__(self) -> None:
        self.common: Schema | None = None
        self._may_be_any = True
        self._is_mixed = False

    def merge(self, found: SchemaAndValue | None) -> None:
        """Take one more value into account, None for Java's null."""
        schema = None if found is None else found.schema
        if schema is self.common and schema is not None:
            return
        if schema is None:
            self._is_mixed = True
        elif self.common is None:
            if self._may_be_any:
                self.common = schema
        else:
            self._is_mixed = self._is_mixed or schema.type is not self.common.type or schema.name != self.common.name
            self.common = _merged(self.common, schema)
            self._may_be_any = self.common is not None

    def aligned(self, values: list[Any], align: _Align) -> list[Any]:
        """Return values in their common schema. Raises DataException if one can't be converted."""
        common = self.common
        return [align(common, value) for value in values] if common is not None and self._is_mixed else values


def _merged(previous: Schema, following: Schema) -> Schema | None:
    if previous.type is following.type:
        return following
    if previous.type in _NUMBERS_BY_SIZE and following.type in _NUMBERS_BY_SIZE:
        return max(previous, following, key=lambda schema: _NUMBERS_BY_SIZE.index(schema.type))
    return None


class _OpenContainer:
    """An array or a map whose end was not read yet; `key` is one whose value was not read yet."""

    __slots__ = ("end", "is_in_key", "key", "key_schemas", "keys", "value_schemas", "values")

    def __init__(self, end: str, *, is_in_key: bool) -> None:
        self.end = end
        self.is_in_key = is_in_key
        """Whether it is, or is within, the key of a map around it."""
        self.values: list[Any] = []
        self.value_schemas = _Merger()
        self.key: SchemaAndValue | None = None
        if end == "}":
            self.keys: list[Any] = []
            self.key_schemas = _Merger()

    @property
    def is_map(self) -> bool:
        return self.end == "}"

    @property
    def holds_keys(self) -> bool:
        """Whether the next element is a key, or within one."""
        return self.is_in_key or (self.is_map and self.key is None)


class ValueReader:
    """Reads one text; `align` converts elements to the schema of the others, `deepest` limits how they nest."""

    def __init__(self, text: str, align: _Align, *, deepest: int) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._place = 0
        self._align = align
        self._deepest = deepest
        self._depth_reached = 0
        self._open: list[_OpenContainer] = []
        self._identities: dict[Hashable, int] = {}
        self._identities_of_containers: dict[int, int] = {}

    def read(self) -> SchemaAndValue | None:
        """Return what the text stands for; None is Java's null. Raises DataException if it nests too deeply."""
        trimmed = self._text.strip(_TRIMMED)
        if trimmed in _LITERALS:
            return _LITERALS[trimmed]
        if not trimmed:
            return SchemaAndValue(Schema.STRING_SCHEMA, self._text)
        token = self._peek()
        if token not in _BEGINS:
            self._place += 1
            return self._scalar(token.strip(_TRIMMED)) or SchemaAndValue(Schema.STRING_SCHEMA, self._text)
        try:
            found = self._container(token)
        except _UnreadableError:
            # Kafka goes back to the first token. Where that is blank, it is all that is left of the text.
            first = self._tokens[0]
            return SchemaAndValue(Schema.STRING_SCHEMA, self._text if first.strip(_TRIMMED) else first)
        if self._depth_reached > self._deepest:
            raise too_deep(self._deepest)
        return found

    def _peek(self) -> str:
        """Return the next token, "" at the end. Go past a blank one, for good, if another one follows."""
        tokens, place = self._tokens, self._place
        if place >= len(tokens):
            return ""
        token = tokens[place]
        if token[0] <= " " and place + 1 < len(tokens) and not token.strip(_TRIMMED):
            self._place += 1
            token = tokens[place + 1]  # a delimiter: what is between two of them is one token
        return token

    def _takes(self, delimiter: str) -> bool:
        if self._peek() != delimiter:
            return False
        self._place += 1
        return True

    def _container(self, first: str) -> SchemaAndValue:
        """Return the array or map at the place. Raises _UnreadableError."""
        self._begin(first)
        while True:
            inmost = self._open[-1]
            token = self._peek()
            if inmost.key is None and token == inmost.end:
                self._place += 1
                closed = self._close(self._open.pop())
                if not self._open:
                    return closed
                self._put(self._open[-1], closed)
            elif inmost.key is None and token == ",":
                raise _UnreadableError  # an element is missing
            elif token in _BEGINS:
                self._begin(token)
            else:
                self._put(inmost, self._element(token))

    def _begin(self, token: str) -> None:
        self._place += 1
        is_in_key = bool(self._open) and self._open[-1].holds_keys
        self._open.append(_OpenContainer(_BEGINS[token], is_in_key=is_in_key))
        self._depth_reached = max(self._depth_reached, len(self._open))
        if len(self._open) > _MOST_OPEN:
            raise too_deep(_MOST_OPEN)

    def _element(self, token: str) -> SchemaAndValue | None:
        if token == '"':
            return self._quoted()
        self._place += 1
        known = _SMALL_INTEGERS.get(token)
        if known is not None and self._tokens[self._place : self._place + 1] != [":"]:
            return known
        trimmed = token.strip(_TRIMMED)
        if trimmed in _LITERALS:
            return _LITERALS[trimmed]
        found = self._scalar(trimmed) if trimmed else None
        if found is None:
            raise _UnreadableError
        return found

    def _put(self, container: _OpenContainer, found: SchemaAndValue | None) -> None:
        if not container.is_map:
            container.value_schemas.merge(found)
            container.values.append(None if found is None else found.value)
            if not self._takes(",") and self._peek() != "]":
                raise _UnreadableError
        elif container.key is None:
            if found is None or not self._takes(":"):
                raise _UnreadableError
            container.key = found
        else:
            container.keys.append(container.key.value)
            container.key_schemas.merge(container.key)
            container.values.append(None if found is None else found.value)
            container.value_schemas.merge(found)
            container.key = None
            self._takes(",")  # there may be one

    def _quoted(self) -> SchemaAndValue:
        self._place += 1
        parts = []
        while (token := self._peek()) != '"':
            if not token:
                raise _UnreadableError
            parts.append(token)
            self._place += 1
        self._place += 1
        content = "".join(parts)
        return _temporal(content) or SchemaAndValue(Schema.STRING_SCHEMA, content)

    def _scalar(self, token: str) -> SchemaAndValue | None:
        """Return the date or number that a token is or begins, None if neither. A date takes the tokens it needs."""
        begins_with_digit = is_digit(token[0])
        if begins_with_digit:
            following = self._tokens[self._place : self._place + _TOKENS_OF_TIME]
            if token.isdecimal() and following[:1] != [":"]:
                return _number(token)
            if len(following) == _TOKENS_OF_TIME and len(token) + sum(map(len, following)) <= LONGEST:
                temporal = _temporal(token + "".join(following))
                if temporal is not None:
                    self._place += _TOKENS_OF_TIME
                    return temporal
            temporal = _temporal(token)
            if temporal is not None:
                return temporal
        return _number(token) if begins_with_digit or token[0] in "+-" else None

    def _close(self, container: _OpenContainer) -> SchemaAndValue:
        try:
            made = self._map(container) if container.is_map else self._array(container)
        except DataException as cause:  # an element can't be what the others are
            raise _UnreadableError from cause
        if container.is_in_key:
            identity = self._identity_of_container(made.value)
            self._identities_of_containers[id(made.value)] = self._identities.setdefault(
                identity, len(self._identities)
            )
        return made

    def _array(self, container: _OpenContainer) -> SchemaAndValue:
        values = container.value_schemas.aligned(container.values, self._align)
        return SchemaAndValue(Schema.array(container.value_schemas.common), values)

    def _map(self, container: _OpenContainer) -> SchemaAndValue:
        of_keys, of_values = container.key_schemas.common, container.value_schemas.common
        entries = self._entries(container.keys, container.values)
        if of_keys is None:
            return SchemaAndValue(Schema.map(None, None), map_of_distinct(entries))
        keys = container.key_schemas.aligned([key for key, _ in entries], self._align)
        values = container.value_schemas.aligned([value for _, value in entries], self._align)
        return SchemaAndValue(Schema.map(of_keys, of_values), map_of_distinct(self._entries(keys, values)))

    def _entries(self, keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
        """Return entries; of equal keys the last one, at the place of the first."""
        found: dict[Hashable, tuple[Any, Any]] = {}
        for key, value in zip(keys, values, strict=True):
            found[self._identity(key)] = (key, value)
        return list(found.values())

    def _identity(self, value: Any) -> Hashable:
        """Return what equal values have in common. A container's is a number, which hashes fast, however deep it is."""
        if isinstance(value, list | Mapping):
            return list, self._identities_of_containers[id(value)]
        return identity_of(value)

    def _identity_of_container(self, value: list[Any] | Mapping[Any, Any]) -> Hashable:
        if isinstance(value, list):
            return list, tuple(map(self._identity, value))
        return dict, frozenset((self._identity(key), self._identity(each)) for key, each in value.items())


def _temporal(text: str) -> SchemaAndValue | None:
    found = temporal_of(text)
    return None if found is None else SchemaAndValue(*found)


def _number(token: str) -> SchemaAndValue | None:
    """Return a token as the smallest kind of number, integers before floats and decimals; None if it is not one."""
    if token.isdecimal() and token.isascii() and len(token) <= _DIGITS_OF_ALL_INT64:
        return _integer(int(token))
    try:
        value = decimal_of(token)
    except NumberFormatException:
        return None
    if not value:
        return _integer(0)
    if 0 <= value.adjusted() <= _DIGITS_OF_ALL_INT64 and value == (whole := value.to_integral_value()):
        integer = int(whole)
        if in_range(integer, Int64.bits):
            return _integer(integer)
    scale = logical_types.scale_of(value)
    if scale and math.isfinite(single := float32_of(value)):
        return SchemaAndValue(Schema.FLOAT32_SCHEMA, single)
    if scale and math.isfinite(double := float(value)):
        return SchemaAndValue(Schema.FLOAT64_SCHEMA, Float64(double))
    return SchemaAndValue(Schema.decimal(scale), value)


def _integer(value: int) -> SchemaAndValue:
    kind, schema = next(each for each in _INTEGERS if in_range(value, each[0].bits))
    return SchemaAndValue(schema, kind(value))
