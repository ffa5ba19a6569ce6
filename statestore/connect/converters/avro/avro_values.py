"""Typed values in Avro's binary encoding, which fastavro writes and reads.

fastavro gets schemas that are made here and stand for the same bytes, with other types for those that it reads in a way
of its own:

    boolean        fixed of one byte: fastavro takes any byte but 0 for true
    enum           int: it counts negative places from the end
    map            array of records of key and value: it drops all but the last of equal keys
    logical types  the types below them: it makes Python's dates of them, which begin in year 1

It does not notice two kinds of malformed bytes: the places -1 and -2 of a union, which it reads as 1 and 0, and numbers
of more than 64 bits, which it cuts.

Source: the Avro 1.12 specification; fastavro 1.13's `_read.pyx` and `_write.pyx`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from io import BytesIO
from itertools import count
from typing import Any, Final

from statestore.connect.converters.avro.avro_schema import AvroType, holds_pairs, library, library_errors
from statestore.connect.logical_types import ORDINALS, decimal_from_bytes, decimal_to_bytes
from statestore.connect.scalars import Float32, Instant
from statestore.connect.schema import NUMBER_TYPES, LogicalName, Schema, Struct, Type, is_of_type, logical_name_of
from statestore.connect.typed_map import TypedMap
from statestore.errors import DataException

_BOOLEANS: Final = {b"\0": False, b"\1": True}


class AvroCodec:
    """Writes and reads the values of a type."""

    def __init__(self, kind: AvroType) -> None:
        self.kind: Final = kind
        # A record is its fields and nothing else, and fastavro marks it as a schema that need not be parsed again.
        record = AvroType("record", None, parts=(kind,))
        with library_errors("Malformed Avro schema", of_schema=True):
            self._wire_schema = library().parse_schema(_wire_schema(record, count()))

    def encode(self, value: Any) -> bytes:
        """Return a value in Avro. Raises DataException if it does not follow the type's schema."""
        plain = _plain(self.kind, value)
        written = BytesIO()
        with library_errors("A value can't be written in Avro"):
            library().schemaless_writer(written, self._wire_schema, {_field(0): plain})
        return written.getvalue()

    def decode(self, data: bytes) -> Any:
        """Return the value that bytes are, all of them. Raises DataException if they do not follow the type."""
        source = BytesIO(data)
        with library_errors("Malformed Avro"):
            plain = library().schemaless_reader(source, self._wire_schema)
        if source.tell() != len(data):
            raise DataException(f"Malformed Avro: there are {len(data) - source.tell()} bytes behind the value")
        return _typed(self.kind, plain[_field(0)])


def _wire_schema(kind: AvroType, names: Iterator[int]) -> Any:
    """Return what fastavro is given for a type; `names` are those of records, each of which has to have one."""
    made: Any = "int" if kind.kind == "enum" else kind.kind
    if kind.kind == "record":
        parts = [{"name": _field(place), "type": _wire_schema(part, names)} for place, part in enumerate(kind.parts)]
        made = {"type": "record", "name": f"record{next(names)}", "fields": parts}
    elif kind.kind == "array":
        made = {"type": "array", "items": _wire_schema(kind.parts[0], names)}
    elif kind.kind in ("fixed", "boolean"):
        made = {"type": "fixed", "name": f"fixed{next(names)}", "size": kind.size_bytes or int(kind.kind == "boolean")}
    if kind.null_branch is None:
        return made
    return ["null", made] if kind.null_branch == 0 else [made, "null"]


def _field(place: int) -> str:
    return f"field{place}"


def _plain(kind: AvroType, value: Any) -> Any:
    """Return what fastavro is given for a typed value."""
    schema = kind.schema
    if schema is None:
        if value is not None:
            raise DataException("A value of Avro's type null must be None")
        return None
    if value is None and not schema.optional:
        value = schema.default
    if value is None:
        if kind.null_branch is None:
            raise DataException("Conversion error: null value for field that is required and has no default value")
        return None
    logical_name = logical_name_of(schema)
    if logical_name in ORDINALS:
        if not isinstance(value, Instant):
            raise _wrong(schema, value)
        value = NUMBER_TYPES[schema.type](ORDINALS[logical_name][0](value))
    elif logical_name == LogicalName.DECIMAL:
        if not isinstance(value, Decimal):
            raise _wrong(schema, value)
        value = decimal_to_bytes(schema, value)
    if not is_of_type(value, schema.type):
        raise _wrong(schema, value)
    return _PLAIN[kind.kind](kind, schema, value) if kind.kind in _PLAIN else value


def _plain_enum(kind: AvroType, schema: Schema, value: str) -> int:
    if value not in kind.symbols:
        raise _wrong(schema, value)
    return kind.symbols.index(value)


def _plain_fixed(kind: AvroType, schema: Schema, value: Any) -> bytes:
    content = bytes(value)
    if logical_name_of(schema) == LogicalName.DECIMAL and content:
        content = (b"\xff" if content[0] > 127 else b"\0") * (kind.size_bytes - len(content)) + content
    if len(content) != kind.size_bytes:
        raise DataException(f"An Avro fixed of {kind.size_bytes} bytes can't hold {len(content)}")
    return content


def _plain_record(kind: AvroType, schema: Schema, value: Struct) -> dict[str, Any]:
    if value.schema != schema:
        raise DataException("Mismatching schema.")
    values = [value.get_without_default(each.name) for each in schema.fields]
    return _plain_fields(kind, values)


def _plain_array(kind: AvroType, schema: Schema, value: Any) -> list[Any]:
    (element,) = kind.parts
    if schema.type is Type.MAP:
        return [_plain_fields(element, pair) for pair in value.items()]
    return [_plain(element, each) for each in value]


def _plain_fields(kind: AvroType, values: Any) -> dict[str, Any]:
    return {_field(place): _plain(*each) for place, each in enumerate(zip(kind.parts, values, strict=True))}


_PLAIN: Final[dict[str, Callable[[AvroType, Schema, Any], Any]]] = {
    "boolean": lambda kind, schema, value: b"\1" if value else b"\0",
    "float": lambda kind, schema, value: Float32(value),
    "bytes": lambda kind, schema, value: bytes(value),
    "fixed": _plain_fixed,
    "enum": _plain_enum,
    "record": _plain_record,
    "array": _plain_array,
}


def _typed(kind: AvroType, plain: Any) -> Any:
    """Return the typed value of what fastavro read."""
    schema = kind.schema
    if schema is None or plain is None:
        return None
    if kind.kind == "boolean":
        if plain not in _BOOLEANS:
            raise DataException("Malformed Avro: a boolean is neither 0 nor 1")
        return _BOOLEANS[plain]
    if kind.kind == "enum":
        if not 0 <= plain < len(kind.symbols):
            raise DataException(f"Malformed Avro: an enum has no place {plain}")
        return kind.symbols[plain]
    if kind.kind == "record":
        values = [_typed(*each) for each in zip(kind.parts, plain.values(), strict=True)]
        return Struct.of_checked(schema, {each.name: value for each, value in zip(schema.fields, values, strict=True)})
    if kind.kind == "array":
        return _typed_array(kind, schema, plain)
    value = NUMBER_TYPES[schema.type](plain) if schema.type in NUMBER_TYPES else plain
    logical_name = logical_name_of(schema)
    if logical_name in ORDINALS:
        return ORDINALS[logical_name][1](value)
    return decimal_from_bytes(schema, value) if logical_name == LogicalName.DECIMAL else value


def _typed_array(kind: AvroType, schema: Schema, plain: list[Any]) -> Any:
    (element,) = kind.parts
    if schema.type is Type.ARRAY:
        return [_typed(element, each) for each in plain]
    of_key, of_value = element.parts
    pairs = [(_typed(of_key, each[_field(0)]), _typed(of_value, each[_field(1)])) for each in plain]
    made: Mapping[Any, Any] = TypedMap(pairs) if holds_pairs(schema) else dict(pairs)
    if len(made) < len(pairs):
        raise DataException("A map has a key a second time")
    return made


def _wrong(schema: Schema, value: Any) -> DataException:
    return DataException(f"Invalid type for {schema}: {type(value).__name__}")
