"""Schemas, their ids in a registry, and the places in a record where those stand.

    __key_schema_id, __value_schema_id := 01 guid:u8[16] | 00 number:u32_be        the bytes behind them are Avro alone
    content-type: application/avro-binary, avro-schema-md5 := md5:u8[16]           likewise; of values only
    data := 00 number:u32_be avro | 01 guid:u8[16] avro                             no header says anything

Of Protobuf the place of the type in its schema stands behind the id, wherever that is: `protobuf_kind`.

Source: confluent-kafka's `header_schema_id_serializer`, `prefix_schema_id_serializer` and
`dual_schema_id_deserializer`; the third form is the one that the architecture of metadata proposes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from statestore.errors import SerializationError
from statestore.errors.middleware import SchemaIdError
from statestore.middleware.schemas.content_type import CONTENT_TYPE, ContentType

if TYPE_CHECKING:
    from statestore.headers.record_headers import Headers

T = TypeVar("T")

KEY_SCHEMA_ID: Final = "__key_schema_id"
"""The header with the id of the key's schema."""
VALUE_SCHEMA_ID: Final = "__value_schema_id"
"""The header with the id of the value's schema."""
AVRO_SCHEMA_MD5: Final = "avro-schema-md5"
"""The header with the MD5 of the value's schema."""
VALUE_IDS: Final = (VALUE_SCHEMA_ID, AVRO_SCHEMA_MD5)
"""The headers that have the id of the value's schema."""
AVRO_BINARY: Final = "application/avro-binary"
"""The content type of values whose schema has an MD5 in the header for that."""

_NUMBER: Final = 0
_GUID: Final = 1
_SIZES: Final = {_NUMBER: 5, _GUID: 17}


class RegisteredSchema(NamedTuple):
    """A schema as a registry has it, or as it is to have it."""

    text: str
    """The schema in JSON; of Protobuf a FileDescriptorProto in base64."""
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it names, each after those that it names itself."""
    kind: str = "AVRO"
    """What it is a schema of: "AVRO", "JSON" or "PROTOBUF"."""
    migrations: tuple[str, ...] = ()
    """The rules by which a value of another version becomes one of this: they are not run."""


class SchemaIds(NamedTuple):
    """The ids of a schema in a registry; None for an id that the registry does not have."""

    number: int | None = None
    guid: bytes | None = None
    """The 16 bytes of a UUID."""
    md5: bytes | None = None
    """The MD5 of the schema's text: see `schema_md5`."""
    latest: RegisteredSchema | None = None
    """What they are of, if that is the subject's latest, and not what was deposited."""


class SchemaId(NamedTuple):
    """One of the ids of a schema, under the name of its field in SchemaIds."""

    form: str
    value: int | bytes

    def __str__(self) -> str:
        if self.form == "guid" and isinstance(self.value, bytes):
            return f"GUID {UUID(bytes=self.value)}"
        return f"MD5 {self.value.hex()}" if isinstance(self.value, bytes) else f"id {self.value}"


class PlacedId(NamedTuple):
    """An id, as it was read from a record."""

    schema_id: SchemaId
    behind: bytes | None
    """What stands behind it in its header; None if it stands before the value."""
    datum: bytes
    """The bytes of the value, with what stands behind an id that is there."""


class IdPlace(Enum):
    """Where a schema's id is written. A reader finds it in each of these places."""

    HEADER = "header"
    """In a header, as GUID, or as number if the registry has no GUIDs. Where there are no headers: PREFIX."""
    PREFIX = "prefix"
    """In five bytes before those of the value, as number."""
    MD5 = "md5"
    """In headers, as content type and MD5. Of values in Avro only, and only where there are headers."""


@dataclass(frozen=True)
class IdWriter:
    """Writes ids of the schemas of keys or values."""

    place: IdPlace
    for_key: bool

    def __post_init__(self) -> None:
        if self.for_key and self.place is IdPlace.MD5:
            raise ValueError(
                "IdPlace.MD5 is for values only: write the id of a key's schema by IdPlace.HEADER or IdPlace.PREFIX"
            )

    def write(self, ids: SchemaIds, headers: Headers | None, behind_id: bytes, datum: bytes) -> bytes:
        """Return the bytes of a key or value with its schema's id, and what is behind that, in them or in the headers.

        What the headers said of another schema is taken out. Raises SerializationError if the registry has no such id.
        """
        if headers is not None:
            remove_ids(headers, for_key=self.for_key)
            if self.place is IdPlace.HEADER:
                headers.add(_header(self.for_key), _framed(ids.guid, ids.number) + behind_id)
                return datum
            if self.place is IdPlace.MD5:
                headers.remove(CONTENT_TYPE)
                headers.add(CONTENT_TYPE, AVRO_BINARY.encode()).add(AVRO_SCHEMA_MD5, _known(ids.md5, "MD5"))
                return datum
        if self.place is IdPlace.MD5:
            raise SerializationError(
                "the MD5 of a schema is written in headers, and the store keeps none: give the store headers, or a "
                "serde whose schema ids are numbers"
            )
        return _framed(None, _known(ids.number, "number")) + behind_id + datum


def read_id(headers: Headers | None, data: bytes, *, for_key: bool) -> PlacedId:
    """Return the id of a key's or value's schema, wherever it stands, and the other bytes. Raises SchemaIdError."""
    if headers is not None:
        name = _header(for_key)
        if (found := headers.last_header(name)) is not None:
            return PlacedId(*_read_frame(found.value or b"", f"header {name!r}"), data)
        found = None if for_key else headers.last_header(AVRO_SCHEMA_MD5)
        if found is not None:
            return PlacedId(_read_md5(headers, found.value or b""), b"", data)
    schema_id, rest = _read_frame(data, "the key" if for_key else "the value")
    return PlacedId(schema_id, None, rest)


def _read_md5(headers: Headers, value: bytes) -> SchemaId:
    content_type = headers.last_header(CONTENT_TYPE)
    if content_type is None or ContentType.parse(content_type.value or b"").type != AVRO_BINARY:
        raise SchemaIdError(f"header {AVRO_SCHEMA_MD5!r} is there, but the content type is not {AVRO_BINARY}")
    if len(value) != 16:
        raise SchemaIdError(f"header {AVRO_SCHEMA_MD5!r} must have 16 bytes, and has {len(value)}")
    return SchemaId("md5", value)


def _read_frame(data: bytes, where: str) -> tuple[SchemaId, bytes]:
    size = _SIZES.get(data[0]) if data else None
    if size is None or len(data) < size:
        raise SchemaIdError(
            f"no schema id in {where}, nor in a header for it: it begins with {data[:1].hex() or 'nothing'}, and an id "
            "is 00 and 4 bytes, or 01 and 16 bytes"
        )
    inner = data[1:size]
    schema_id = SchemaId("guid", inner) if data[0] == _GUID else SchemaId("number", int.from_bytes(inner, "big"))
    return schema_id, data[size:]


def _framed(guid: bytes | None, number: int | None) -> bytes:
    if guid is not None:
        return bytes([_GUID]) + guid
    return bytes([_NUMBER]) + _known(number, "number").to_bytes(4, "big")


def _known(found: T | None, what: str) -> T:
    if found is None:
        raise SerializationError(f"the schema registry has no {what} for a schema: write another kind of id")
    return found


def _header(for_key: bool) -> str:
    return KEY_SCHEMA_ID if for_key else VALUE_SCHEMA_ID


def remove_ids(headers: Headers, *, for_key: bool) -> None:
    """Take the ids of the key's or the value's schema out of headers; a content type stays."""
    for name in (KEY_SCHEMA_ID,) if for_key else VALUE_IDS:
        if headers.last_header(name) is not None:
            headers.remove(name)
