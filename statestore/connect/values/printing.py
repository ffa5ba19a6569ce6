"""The text of a value: what Kafka prints, and how strict conversions differ from it.

Open containers are kept in a list instead of nested function calls, so that depth costs no stack. It is limited too.

Source: `Values.convertToString`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from statestore.connect.recursion import too_deep
from statestore.connect.scalars import Instant
from statestore.connect.schema import Schema, Struct
from statestore.connect.values.number_text import decimal_text, float_text
from statestore.errors import DataException


@dataclass(frozen=True)
class Style:
    """What prints differently in the two modes: the text of a point in time, and the value of a struct's field."""

    instant_text: Callable[[Schema | None, Instant], str]
    field_of: Callable[[Struct, str], Any]


@dataclass(frozen=True)
class _Part:
    """A value within a container, to be printed."""

    value: Any
    schema: Schema | None


def text_of(schema: Schema | None, value: Any, style: Style, *, deepest: int) -> str:
    """Return the text of a value. Raises DataException if it is of no known type, or nests deeper than `deepest`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, _CONTAINERS):
        return _scalar_text(schema, value, style, is_within=False)
    written: list[str] = []
    open_containers = [_pieces(schema, value, style)]
    while open_containers:
        for piece in open_containers[-1]:
            if isinstance(piece, str):
                written.append(piece)
            elif isinstance(piece.value, _CONTAINERS):
                open_containers.append(_pieces(piece.schema, piece.value, style))
                break
            else:
                written.append(_scalar_text(piece.schema, piece.value, style, is_within=True))
        else:
            open_containers.pop()
        if len(open_containers) > deepest:
            raise too_deep(deepest)
    return "".join(written)


_CONTAINERS = (list, tuple, Mapping, Struct)


def _pieces(schema: Schema | None, value: Any, style: Style) -> Iterator[str | _Part]:
    if isinstance(value, Struct):
        return _struct_pieces(value, style)
    of_keys = schema.key_schema if schema is not None else None
    of_values = schema.value_schema if schema is not None else None
    if isinstance(value, Mapping):
        return _map_pieces(value, of_keys, of_values)
    return _list_pieces(value, of_values)


def _list_pieces(values: list[Any] | tuple[Any, ...], schema: Schema | None) -> Iterator[str | _Part]:
    before = "["
    for value in values:
        yield before
        yield _Part(value, schema)
        before = ","
    yield "[]" if before == "[" else "]"


def _map_pieces(values: Mapping[Any, Any], of_keys: Schema | None, of_values: Schema | None) -> Iterator[str | _Part]:
    before = "{"
    for key, value in values.items():
        yield before
        yield _Part(key, of_keys)
        yield ":"
        yield _Part(value, of_values)
        before = ","
    yield "{}" if before == "{" else "}"


def _struct_pieces(struct: Struct, style: Style) -> Iterator[str | _Part]:
    before = "{"
    for each in struct.schema.fields:
        yield f"{before}{_quoted(each.name)}:"
        yield _Part(style.field_of(struct, each.name), each.schema)
        before = ","
    yield "{}" if before == "{" else "}"


def _scalar_text(schema: Schema | None, value: Any, style: Style, *, is_within: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, int):
        try:
            return str(int(value))
        except ValueError as cause:  # Python limits the digits
            raise DataException(f"an integer of {value.bit_length()} bits is too large to print") from cause
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        text = base64.b64encode(value).decode("ascii")
        return f'"{text}"' if is_within else text
    if isinstance(value, Instant):
        return style.instant_text(schema, value)
    raise DataException(f"Failed to serialize unexpected value type {type(value).__name__}")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
