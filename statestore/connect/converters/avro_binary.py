"""Avro's binary encoding of typed values.

    null := (nothing)        boolean := u8        int, long := zigzag varint of value
    float := f32 little end first                 double := f64 little end first
    bytes, string := size:varint u8[size]         fixed := u8[size]      enum := place:varint
    union := place:varint value                   record := field[..]
    array := (count:varint element[count])* 0     map := (count:varint (key:string value)[count])* 0

A count may be negative: then the size of the block in bytes follows. Source: the Avro 1.12 specification.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from statestore.connect.converters.avro_schema import AvroType, holds_pairs, logical_name_of
from statestore.connect.instant import Instant
from statestore.connect.numbers import Float32, Float64, Int8, Int16, Int32, Int64
from statestore.connect.schema import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    Struct,
    Type,
    is_of_type,
)
from statestore.connect.schemas import (
    date_to_days,
    days_to_date,
    decimal_from_bytes,
    decimal_to_bytes,
    milliseconds_to_time,
    time_to_milliseconds,
)
from statestore.connect.typed_map import TypedMap
from statestore.errors import DataException, FormatError
from statestore.format.varint import decode_varlong, encode_varlong

_FORMS: Final[dict[Type, Callable[[Any], Any]]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: Int64,
    Type.FLOAT32: Float32,
    Type.FLOAT64: Float64,
}
_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_EMPTY_ELEMENTS: Final = 10_000
"""How many elements may be there beside one for each byte: those without any bytes."""
_ORDINALS: Final[dict[str | None, tuple[Callable[[Any], int], Callable[[int], Instant]]]] = {
    DATE_NAME: (date_to_days, days_to_date),
    TIME_NAME: (time_to_milliseconds, milliseconds_to_time),
    TIMESTAMP_NAME: (lambda value: value.epoch_ms, Instant),
}


def encode_datum(kind: AvroType, value: Any) -> bytes:
    """Return a value in Avro. Raises DataException if it does not follow the type's schema."""
    parts: list[bytes] = []
    _Writer(parts).write(kind, value)
    return b"".join(parts)


class _Writer:
    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def write(self, kind: AvroType, value: Any) -> None:
        schema = kind.schema
        if schema is None:
            if value is not None:
                raise DataException("Avro's null holds nothing")
            return
        if value is None and not schema.optional:
            value = schema.default
        if value is None and kind.null_branch is None:
            raise DataException("Conversion error: null value for field that is required and has no default value")
        if kind.null_branch is not None:
            self._parts.append(encode_varlong(kind.null_branch if value is None else 1 - kind.null_branch))
        if value is not None:
            self._present(kind, schema, value)

    def _present(self, kind: AvroType, schema: Schema, value: Any) -> None:
        logical_name = logical_name_of(schema)
        if logical_name in _ORDINALS:
            if not isinstance(value, Instant):
                raise _wrong(schema, value)
            value = _FORMS[schema.type](_ORDINALS[logical_name][0](value))
        elif logical_name == DECIMAL_NAME:
            if not isinstance(value, Decimal):
                raise _wrong(schema, value)
            value = decimal_to_bytes(schema, value)
        if not is_of_type(value, schema.type):
            raise _wrong(schema, value)
        if kind.kind in ("int", "long"):
            self._parts.append(encode_varlong(int(value)))
        elif kind.kind == "boolean":
            self._parts.append(b"\1" if value else b"\0")
        elif kind.kind in _FLOATS:
            form = Float32(value) if kind.kind == "float" else value
            self._parts.append(_FLOATS[kind.kind].pack(form))
        elif kind.kind in ("bytes", "string"):
            self._bytes(_utf8(value) if isinstance(value, str) else bytes(value))
        elif kind.kind == "fixed":
            self._fixed(kind, schema, bytes(value))
        elif kind.kind == "enum":
            if value not in kind.symbols:
                raise _wrong(schema, value)
            self._parts.append(encode_varlong(kind.symbols.index(value)))
        else:
            self._container(kind, schema, value)

    def _container(self, kind: AvroType, schema: Schema, value: Any) -> None:
        if kind.kind == "record":
            if value.schema != schema:
                raise DataException("Mismatching schema.")
            for part, each in zip(kind.parts, schema.fields, strict=True):
                self.write(part, value.get_without_default(each.name))
            return
        (element,) = kind.parts
        if len(value):
            self._parts.append(encode_varlong(len(value)))
        if holds_pairs(schema):
            of_key, of_value = element.parts
            for key, each in value.items():
                self.write(of_key, key)
                self.write(of_value, each)
        elif isinstance(value, Mapping):
            for key, each in value.items():
                if not isinstance(key, str):
                    raise _wrong(schema, key)
                self._bytes(_utf8(key))
                self.write(element, each)
        else:
            for each in value:
                self.write(element, each)
        self._parts.append(b"\0")

    def _fixed(self, kind: AvroType, schema: Schema, value: bytes) -> None:
        if logical_name_of(schema) == DECIMAL_NAME and value:
            value = (b"\xff" if value[0] > 127 else b"\0") * (kind.size_bytes - len(value)) + value
        if len(value) != kind.size_bytes:
            raise DataException(f"{len(value)} bytes are no Avro fixed of {kind.size_bytes}")
        self._parts.append(value)

    def _bytes(self, value: bytes) -> None:
        self._parts += (encode_varlong(len(value)), value)


def decode_datum(kind: AvroType, data: bytes) -> Any:
    """Return the value that bytes are, all of them. Raises DataException if they are none of the type."""
    reader = AvroReader(data)
    try:
        value = reader.read(kind)
    except FormatError as cause:
        raise DataException(f"Malformed Avro: {cause}") from cause
    if reader.position != len(data):
        raise DataException(f"Malformed Avro: there are {len(data) - reader.position} bytes behind the value")
    return value


class AvroReader:
    """Reads Avro's binary encoding; `position` is where it is. Raises FormatError and DataException."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._elements_left = len(data) + _EMPTY_ELEMENTS
        self.position = 0

    def read(self, kind: AvroType) -> Any:
        """Return the next value, of this type."""
        schema = kind.schema
        if schema is None:
            return None
        if kind.null_branch is not None:
            place = self.integer()
            if place not in (0, 1):
                raise DataException(f"Malformed Avro: a union of two has no place {place}")
            if place == kind.null_branch:
                return None
        value = self._present(kind, schema)
        logical_name = logical_name_of(schema)
        if logical_name in _ORDINALS:
            return _ORDINALS[logical_name][1](value)
        if logical_name == DECIMAL_NAME:
            return decimal_from_bytes(schema, value)
        return _FORMS[schema.type](value) if schema.type in _FORMS else value

    def _present(self, kind: AvroType, schema: Schema) -> Any:
        if kind.kind in ("int", "long"):
            return self.integer()
        if kind.kind == "boolean":
            flag = self.take(1)[0]
            if flag > 1:
                raise DataException("Malformed Avro: a boolean is neither 0 nor 1")
            return flag == 1
        if kind.kind in _FLOATS:
            return _FLOATS[kind.kind].unpack(self.take(_FLOATS[kind.kind].size))[0]
        if kind.kind == "bytes":
            return self.take(self.integer())
        if kind.kind == "string":
            return self.text()
        if kind.kind == "fixed":
            return self.take(kind.size_bytes)
        if kind.kind == "enum":
            place = self.integer()
            if not 0 <= place < len(kind.symbols):
                raise DataException(f"Malformed Avro: an enum has no place {place}")
            return kind.symbols[place]
        if kind.kind == "record":
            values = {each.name: self.read(part) for part, each in zip(kind.parts, schema.fields, strict=True)}
            return Struct.of_checked(schema, values)
        return self._container(kind, schema)

    def _container(self, kind: AvroType, schema: Schema) -> Any:
        (element,) = kind.parts
        if schema.type is Type.ARRAY:
            return [self.read(element) for _ in self._places()]
        if holds_pairs(schema):
            of_key, of_value = element.parts
            pairs = [(self.read(of_key), self.read(of_value)) for _ in self._places()]
        else:
            pairs = [(self.text(), self.read(element)) for _ in self._places()]
        made: Mapping[Any, Any] = TypedMap(pairs) if holds_pairs(schema) else dict(pairs)
        if len(made) < len(pairs):
            raise DataException("A map has a key a second time")
        return made

    def _places(self) -> Any:
        """Yield once for each element of the blocks that follow."""
        while count := self.integer():
            if count < 0:
                count = -count
                self.integer()  # the size of the block, for who passes over it
            self._elements_left -= count
            if self._elements_left < 0:
                raise DataException("Malformed Avro: there are fewer bytes than elements")
            yield from range(count)

    def integer(self) -> int:
        """Return the next int or long."""
        value, self.position = decode_varlong(self._data, self.position, "Avro number")
        return value

    def text(self) -> str:
        """Return the next string."""
        try:
            return self.take(self.integer()).decode()
        except UnicodeDecodeError as cause:
            raise DataException("Malformed Avro: a string is not UTF-8") from cause

    def take(self, size: int) -> bytes:
        """Return so many of the next bytes."""
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise DataException(f"Malformed Avro: {size} bytes are wanted, {len(self._data) - self.position} are left")
        taken = self._data[self.position : end]
        self.position = end
        return taken


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as cause:
        raise DataException("a text with half of a surrogate pair has no UTF-8") from cause


def _wrong(schema: Schema, value: Any) -> DataException:
    return DataException(f"Invalid type for {schema}: {type(value).__name__}")
