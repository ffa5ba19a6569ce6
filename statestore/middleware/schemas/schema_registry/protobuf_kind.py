"""Protocol Buffers: values are messages, of a class that is given, or that is made of the registry's descriptor.

    behind the id := 00 | count:zigzag_varint index:zigzag_varint[count]

A schema is a file of types. The indexes lead to one: the first is its place in the file, each other one its place in
the type before. 00 stands for the first type of the file.

Schemas may come from anywhere: they are bounded in size and in types, and what they import is one of their references,
or comes with protobuf. protobuf itself bounds how deep messages nest.

Source: Confluent's ProtobufSerializer and its `SchemaId`.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from statestore.errors import DataException, FormatError, SerializationError
from statestore.errors.middleware import SchemaIdError
from statestore.format.varint import decode_varint, encode_varint
from statestore.middleware.schemas.schema_registry.ids import PlacedId, RegisteredSchema
from statestore.middleware.schemas.schema_registry.parsed_schema import ParsedSchema, SchemaKind

if TYPE_CHECKING:
    from google.protobuf.message import Message

_MOST_TYPES: Final = 10_000
"""The most messages, enums and fields of a file with all that it imports."""
_DEEPEST: Final = 100
_FIRST: Final = b"\0"
_KNOWN: Final = re.compile(r"(google/(?:protobuf|type)|confluent(?:/types?)?)/([a-z_]+)\.proto")
_MODULES: Final = {"confluent": "confluent_kafka.schema_registry.confluent"}


@contextmanager
def _library_errors(problem: str) -> Iterator[None]:
    from google.protobuf.message import DecodeError

    try:
        yield
    except (DecodeError, TypeError, ValueError, KeyError, RecursionError) as cause:
        raise DataException(f"{problem}: {type(cause).__name__}") from None


class _File:
    """The types of a file; `types` has the schemas of those that were asked for, by their indexes."""

    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor
        self.types: dict[tuple[int, ...], ParsedSchema] = {}

    def type_at(self, schema: ParsedSchema, indexes: tuple[int, ...]) -> ParsedSchema:
        """Return the schema of the file, of the type to which indexes lead."""
        if indexes not in self.types:
            from google.protobuf.message_factory import GetMessageClass

            types, found = list(self.descriptor.message_types_by_name.values()), None
            for index in indexes:
                if not 0 <= index < len(types):
                    raise DataException("The record names a type that is not in the file of its Protobuf schema")
                found = types[index]
                types = list(found.nested_types)
            messages = GetMessageClass(found)
            self.types[indexes] = replace(
                schema, name=messages.DESCRIPTOR.full_name, inner=messages, behind_id=_behind_id(indexes)
            )
        return self.types[indexes]


def schema_of_messages(messages: type[Message]) -> ParsedSchema:
    """Return the schema of a class of messages. Raises DataException if it is another class."""
    descriptor = getattr(messages, "DESCRIPTOR", None)
    if descriptor is None:
        raise DataException(f"A class of messages of Protobuf has a descriptor, and {messages.__name__} has none")
    references: dict[str, str] = {}
    _add_imports(descriptor.file, references)
    registered = RegisteredSchema(_text_of(descriptor.file), tuple(references.items()), "PROTOBUF")
    behind_id = _behind_id(_indexes_of(descriptor))
    return ParsedSchema(
        registered, PROTOBUF, descriptor.full_name, messages, behind_id, made_of=(schema_of_messages, messages)
    )


def _add_imports(file: Any, found: dict[str, str]) -> None:
    for imported in file.dependencies:
        if imported.name not in found and not _KNOWN.fullmatch(imported.name):
            _add_imports(imported, found)
            found[imported.name] = _text_of(imported)


def _text_of(file: Any) -> str:
    return b64encode(file.serialized_pb).decode()


def _indexes_of(descriptor: Any) -> tuple[int, ...]:
    indexes: list[int] = []
    while (outer := descriptor.containing_type) is not None:
        indexes.insert(0, list(outer.nested_types).index(descriptor))
        descriptor = outer
    indexes.insert(0, list(descriptor.file.message_types_by_name).index(descriptor.name))
    return tuple(indexes)


def _behind_id(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return _FIRST
    return b"".join(map(encode_varint, (len(indexes), *indexes)))


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes that bytes begin with, and how many bytes they are. Raises SchemaIdError."""
    try:
        count, position = decode_varint(data, 0, "indexes of a Protobuf type")
        if not 0 <= count <= _DEEPEST:
            raise SchemaIdError(f"a type of Protobuf stands in {_DEEPEST} others at most, and a record says {count}")
        indexes = []
        for _ in range(count):
            index, position = decode_varint(data, position, "indexes of a Protobuf type")
            indexes.append(index)
    except FormatError as cause:
        raise SchemaIdError(f"{cause}") from cause
    return tuple(indexes) or (0,), position


def _parse(registered: RegisteredSchema) -> ParsedSchema:
    """A text that is no descriptor names no type: with that a class has to be given."""
    from google.protobuf.descriptor_pool import DescriptorPool

    try:
        root = _file(registered.text, "")
    except ValueError:  # it is not base64
        return ParsedSchema(registered, PROTOBUF, None, None)
    pool = DescriptorPool()
    with _library_errors("Malformed Protobuf schema"):
        files = [_file(text, name) for name, text in registered.references if not _KNOWN.fullmatch(name)]
        if sum(map(_types, (root, *files))) > _MOST_TYPES:
            raise DataException(f"A Protobuf schema holds more than {_MOST_TYPES} types and fields")
        known: set[str] = set()
        for file in (*files, root):
            for name in file.dependency:
                _add_known(name, pool, known)
            pool.AddSerializedFile(file.SerializeToString())
        return ParsedSchema(registered, PROTOBUF, None, _File(pool.FindFileByName(root.name)))


def _file(text: str, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    data = b64decode(text, validate=True)
    with _library_errors("Malformed Protobuf schema"):
        file = FileDescriptorProto.FromString(data)
    file.name = name or "the schema itself"
    return file


def _types(file: Any) -> int:
    count, waiting = len(file.enum_type) + len(file.extension), list(file.message_type)
    while waiting:
        each = waiting.pop()
        count += 1 + len(each.field) + len(each.enum_type)
        waiting.extend(each.nested_type)
    return count


def _add_known(name: str, pool: Any, known: set[str]) -> None:
    """Add a file that comes with protobuf or with Confluent's client, if that is what an import names."""
    if (found := _KNOWN.fullmatch(name)) is None or name in known:
        return
    known.add(name)
    package, _, inner = found[1].partition("/")
    module = ".".join(filter(None, (_MODULES.get(package, package), inner.replace("/", "."), f"{found[2]}_pb2")))
    with suppress(ModuleNotFoundError):
        file = import_module(module).DESCRIPTOR
        for imported in file.dependencies:
            _add_known(imported.name, pool, known)
        pool.AddSerializedFile(file.serialized_pb)


def _of_record(schema: ParsedSchema, placed: PlacedId) -> tuple[ParsedSchema, bytes]:
    source = placed.datum if placed.behind is None else placed.behind
    indexes, size = _read_indexes(source)
    if placed.behind is None:
        datum = placed.datum[size:]
    elif size < len(placed.behind):
        raise SchemaIdError(f"malformed schema id: there are {len(placed.behind) - size} bytes behind it in the header")
    else:
        datum = placed.datum
    if schema.inner is None:
        return replace(schema, behind_id=_behind_id(indexes)), datum
    return schema.inner.type_at(schema, indexes), datum


def _of_type(schema: ParsedSchema, name: str | None) -> ParsedSchema:
    if schema.inner is None:
        raise DataException("The registry has the text of a Protobuf schema, and no descriptor: write with its class")
    package, types = schema.inner.descriptor.package, schema.inner.descriptor.message_types_by_name
    descriptor: Any = None
    for part in (name or "").removeprefix(f"{package}." if package else "").split("."):
        if (descriptor := types.get(part)) is None:
            raise DataException(f"There is no type {name} in the file of a Protobuf schema")
        types = descriptor.nested_types_by_name
    found: ParsedSchema = schema.inner.type_at(schema, _indexes_of(descriptor))
    return found


def _write(schema: ParsedSchema, value: Any) -> bytes:
    descriptor = getattr(value, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", None) != schema.name or isinstance(value, type):
        raise SerializationError(f"needs a message {schema.name}, not a value of type {type(value).__name__}")
    from google.protobuf.message import EncodeError

    try:
        return bytes(value.SerializeToString(deterministic=True))
    except EncodeError:
        raise SerializationError(f"a message {schema.name} lacks a field that its type requires") from None


def _read(writer: ParsedSchema, reader: ParsedSchema | None, datum: bytes) -> Any:
    chosen = reader or writer
    if chosen.inner is None:
        raise DataException(
            "The registry has the text of a Protobuf schema, and no descriptor: give the serde its class"
        )
    if writer.name not in (None, chosen.name):
        raise DataException(f"A message {writer.name} can't be read as {chosen.name}")
    with _library_errors(f"Malformed message {chosen.name}"):
        return chosen.inner.FromString(datum)


def _names(text: str) -> set[str]:
    return {f"\0{each}" for each in _file(text, "").dependency}


PROTOBUF: Final = SchemaKind(_parse, _write, _read, _names, _of_record, _of_type)
