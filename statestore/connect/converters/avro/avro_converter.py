"""Avro headers: with their schema, as a file of one value, or without, where the configuration has it.

    header := "Obj" 01  metadata:map of bytes  sync:u8[16]  1:varint  size:varint  datum:u8[size]  sync
            | datum                                             schema.content

The first is Avro's object container file, which any Avro reader takes. Its metadata are `avro.schema`, `avro.codec`
("null") and, of those that are written here, `connect.schema`: the typed schema as JSON headers have it, as Avro's says
less. The sync marker is the MD5 of `avro.schema`, so that equal values are equal bytes. No schema registry is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from statestore.connect.config import ConfigDef, Property
from statestore.connect.converters.avro.avro_schema import AvroType, avro_type_of, library, schema_to_avro
from statestore.connect.converters.avro.avro_values import AvroCodec
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.json_schema import SchemaReader, schema_to_json
from statestore.connect.converters.json_text import read_json, write_json
from statestore.connect.converters.json_values import PayloadReader, PayloadWriter
from statestore.connect.header import header_in_errors
from statestore.connect.schema import Schema, SchemaAndValue, Struct
from statestore.connect.values.strict import STRICT
from statestore.errors import DataException

_MAGIC: Final = b"Obj\x01"
_AVRO_SCHEMA: Final = "avro.schema"
_AVRO_CODEC: Final = "avro.codec"
_CONNECT_SCHEMA: Final = "connect.schema"
_SCHEMA_CONTENT: Final = "schema.content"
_LARGEST_SCHEMA_BYTES: Final = 1 << 20
_FILE_FIELDS: Final = {
    "magic": {"type": "fixed", "name": "Magic", "size": len(_MAGIC)},
    "metadata": {"type": "map", "values": "bytes"},
    "sync": {"type": "fixed", "name": "Sync", "size": 16},
    "count": "long",
    "datum": "bytes",
    "end": "Sync",
}


class AvroConverter(HeaderConverter):
    """Headers in Avro's binary encoding, each with its schema. What is read is what was written, type by type.

    With `schema.content`, an Avro schema as JSON, headers are values of it alone. A None that a schema does not allow
    is written as the schema's default.
    """

    _codec: AvroCodec | None

    def config(self) -> ConfigDef:
        """Return the properties that it has."""
        content = Property(_SCHEMA_CONTENT, default=None, doc="The Avro schema of all values, which stand without one.")
        return ConfigDef(*super().config().properties, content)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read its properties.

        Raises ConfigException, also without fastavro, and DataException if `schema.content` is not an Avro schema.
        """
        super().configure(properties)
        library()
        content = self.settings[_SCHEMA_CONTENT]
        self._codec = AvroCodec(avro_type_of(_read_schema(content.encode()))) if content else None

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return a value in Avro; None for None without a schema. Without one, the schema is taken from the value.

        Raises DataException if the value does not follow the schema, or has none.
        """
        assert self.settings
        if schema is None and value is None:
            return None
        with header_in_errors(key):
            if self._codec is not None:
                return self._codec.encode(value)
            schema = STRICT.infer_schema(value) if schema is None else schema
            if schema is None:
                raise DataException(f"{type(value).__name__} has no schema of its own: give it one")
            avro = schema_to_avro(schema)
            return _file(avro, schema, AvroCodec(avro_type_of(avro).with_schema(schema)).encode(value))

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue:
        """Return schema and value of Avro. Raises DataException if it is malformed, or no file where one is due."""
        assert self.settings
        if value is None:
            return SchemaAndValue(None, None)
        with header_in_errors(key):
            if self._codec is not None:
                return SchemaAndValue(self._codec.kind.schema, self._codec.decode(value))
            kind, datum = _parts_of_file(value)
            return SchemaAndValue(kind.schema, AvroCodec(kind).decode(datum))


@cache
def _files() -> AvroCodec:
    fields = [{"name": name, "type": kind} for name, kind in _FILE_FIELDS.items()]
    return AvroCodec(avro_type_of({"type": "record", "name": "File", "fields": fields}))


def _file(avro: Any, schema: Schema, datum: bytes) -> bytes:
    avro_json = write_json(avro)
    connect_json = write_json(schema_to_json(schema, _WRITER.write))
    metadata = {_AVRO_SCHEMA: avro_json, _AVRO_CODEC: b"null", _CONNECT_SCHEMA: connect_json}
    sync = hashlib.md5(avro_json, usedforsecurity=False).digest()
    parts = {"magic": _MAGIC, "metadata": metadata, "sync": sync, "count": 1, "datum": datum, "end": sync}
    files = _files()
    assert files.kind.schema is not None
    return files.encode(Struct(files.kind.schema, parts))


def _parts_of_file(data: bytes) -> tuple[AvroType, bytes]:
    if not data.startswith(_MAGIC):
        raise DataException("Malformed Avro: it does not begin as an object container file does")
    file = _files().decode(data)
    if file.get("count") != 1 or file.get("end") != file.get("sync"):
        raise DataException("Malformed Avro: a header is a file of one value")
    metadata, datum = file.get("metadata"), file.get("datum")
    if metadata.get(_AVRO_CODEC, b"null") != b"null":
        raise DataException("Avro headers are not compressed")
    if _AVRO_SCHEMA not in metadata:
        raise DataException("Malformed Avro: there is no schema")
    avro = _read_schema(metadata[_AVRO_SCHEMA])
    if _CONNECT_SCHEMA not in metadata:
        return avro_type_of(avro), datum
    schema = _SCHEMAS.read(_read_schema(metadata[_CONNECT_SCHEMA]))
    if schema is None or schema_to_avro(schema) != avro:
        raise DataException("Malformed Avro: its Avro schema and its Connect schema differ")
    return avro_type_of(avro).with_schema(schema), datum


def _read_schema(data: bytes) -> Any:
    if len(data) > _LARGEST_SCHEMA_BYTES:
        raise DataException(f"A schema is larger than {_LARGEST_SCHEMA_BYTES} bytes")
    return read_json(data, strict=True)


_WRITER: Final = PayloadWriter(strict=True, replace_null=False, decimals_are_numbers=False)
_SCHEMAS: Final = SchemaReader(PayloadReader(strict=True, replace_null=False).read, strict=True)
