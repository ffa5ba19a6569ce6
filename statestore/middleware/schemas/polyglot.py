"""polyglot_serde: values of a topic whose producers do not agree on a format, each read as its content type says.

Formats are given by content type: those here, which need the extra `polyglot`, or any serde. None of these allocates
more than a record's bytes can fill, and none runs code from them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from statestore.errors import DeserializationError, SerializationError
from statestore.errors.middleware import UnknownContentTypeError
from statestore.format.json_fields import distinct
from statestore.format.serde import Serde, Serdes
from statestore.middleware.application import extra, value_of
from statestore.middleware.schemas.content_type import CONTENT_TYPE, ContentType
from statestore.middleware.schemas.schema_registry.serde import plain_avro_serde

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from statestore.headers.record_headers import Headers

__all__ = ["Format", "polyglot_serde"]

_CODECS: Final = {
    "utf-8": "utf-8",
    "us-ascii": "ascii",
    "iso-8859-1": "latin-1",
    "windows-1252": "cp1252",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
}
_LINE_END: Final = "\r\n"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?")


@dataclass(frozen=True)
class Format:
    """How values of a content type are written and read."""

    serde: Serde[Any]
    is_text: bool = False
    """Whether the content type may say `charset`; the serde has UTF-8 whatever it says."""

    @staticmethod
    def json() -> Format:
        """Return the format of JSON, as `Serdes.json` has it."""
        return Format(Serdes.json(), is_text=True)

    @staticmethod
    def text() -> Format:
        """Return the format of text."""
        return Format(Serdes.string(), is_text=True)

    @staticmethod
    def avro(schema: str | dict[str, Any] | list[Any]) -> Format:
        """Return the format of values in Avro under one schema. For a registry's give its `avro_serde` instead.

        Raises DataException if it is not a schema, and ConfigException without fastavro.
        """
        return Format(plain_avro_serde(schema))

    @staticmethod
    def msgpack() -> Format:
        """Return the format of MessagePack, without its extension types, times among them; keys are text or bytes.

        Raises ExtraMissingError without msgpack.
        """
        with extra("polyglot"):
            import msgpack  # noqa: F401
        return Format(Serdes.of("msgpack", _write_msgpack, _read_msgpack))

    @staticmethod
    def csv(columns: Sequence[str] | Mapping[str, type], *, delimiter: str = ",") -> Format:
        """Return the format of one row of CSV, without a row of names: a dict by column. Source: RFC 4180.

        `columns` are names of text, or names with str, int, float or bool, which is "true" or "false". Raises
        ValueError for no columns, and for columns of other types.
        """
        made = _Csv(dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns, str), delimiter)
        return Format(Serdes.of("csv", made.write, made.read), is_text=True)

    @staticmethod
    def protobuf(message: type[Message]) -> Format:
        """Return the format of one class of messages of Protocol Buffers."""
        made = _Protobuf(message)
        return Format(Serdes.of("protobuf", made.write, made.read))

    @staticmethod
    def standard() -> dict[str, Format]:
        """Return the formats that need no schema, under their content types; a dict of one's own, to add others to.

        Raises ExtraMissingError without msgpack.
        """
        msgpack = Format.msgpack()
        return {
            "application/json": Format.json(),
            "application/msgpack": msgpack,
            "application/octet-stream": Format(Serdes.bytes()),
            "application/x-msgpack": msgpack,
            "text/plain": Format.text(),
        }


def polyglot_serde(
    formats: Mapping[str, Format | Serde[Any]],
    *,
    writes: str,
    default: str | None = None,
    header: str = CONTENT_TYPE,
    largest_bytes: int = 16 << 20,
) -> Serde[Any]:
    """Return the serde that reads each value in the format of its content type.

    formats         by content type, without regard to case; parameters of a record's are left out when it is looked up
    writes          the content type that values are written in, with parameters if it has any; the header says so
    default         the content type of records that name none; None refuses them
    header          the name of the header
    largest_bytes   larger values are refused

    A store without headers has what `writes` says. Raises ValueError if a content type is malformed, or `writes` or
    `default` have no format. Its functions raise SerializationError and DeserializationError, and for want of a format
    UnknownContentTypeError.
    """
    known = {_given(name).type: one if isinstance(one, Format) else Format(one) for name, one in formats.items()}
    for name in (writes, *([] if default is None else [default])):
        content_type = _given(name)
        if content_type.type not in known:
            raise ValueError(f"there is no format for {name!r}, only for {', '.join(sorted(known))}")
        _codec_of(content_type, known[content_type.type])
    made = _Polyglot(known, writes, default, header, largest_bytes)
    return Serdes.of_topics("polyglot", made.write, made.read)


def _given(name: str) -> ContentType:
    try:
        return ContentType.parse(name.encode())
    except DeserializationError as cause:
        raise ValueError(str(cause)) from cause


@dataclass(frozen=True)
class _Polyglot:
    formats: dict[str, Format]
    writes: str
    default: str | None
    header: str
    largest_bytes: int

    @cached_property
    def written(self) -> ContentType:
        return ContentType.parse(self.writes.encode())

    def write(self, topic: str | None, headers: Headers | None, value: Any) -> bytes:
        chosen = self.formats[self.written.type]
        data = chosen.serde.on_topic(topic).serialize(value, headers)
        if codec := _codec_of(self.written, chosen):
            data = data.decode().encode(codec)
        if len(data) > self.largest_bytes:
            raise SerializationError(f"a value of {len(data)} bytes is larger than {self.largest_bytes}")
        if headers is not None:
            headers.remove(self.header).add(self.header, self.writes.encode())
        return data

    def read(self, topic: str | None, headers: Headers | None, data: bytes) -> Any:
        if len(data) > self.largest_bytes:
            raise DeserializationError(f"a value of {len(data)} bytes is larger than {self.largest_bytes}")
        content_type = self.written if headers is None else self._type_of(headers)
        if (chosen := self.formats.get(content_type.type)) is None:
            raise UnknownContentTypeError(content_type.type, known=", ".join(sorted(self.formats)))
        try:
            if codec := _codec_of(content_type, chosen):
                data = data.decode(codec).encode()
        except UnicodeDecodeError as cause:
            raise DeserializationError(f"the text is not {codec}: {cause.reason} at byte {cause.start}") from cause
        return chosen.serde.on_topic(topic).deserialize(data, headers)

    def _type_of(self, headers: Headers) -> ContentType:
        named = value_of(headers, self.header)
        if named is None and self.default is None:
            raise UnknownContentTypeError(None, known=", ".join(sorted(self.formats)))
        return ContentType.parse((self.default or "").encode() if named is None else named)


def _codec_of(content_type: ContentType, chosen: Format) -> str | None:
    """Return the codec of a text that is not in UTF-8, None for all else. Raises DeserializationError if unknown."""
    charset = content_type.parameters.get("charset")
    if charset is None or not chosen.is_text or charset.lower() == "utf-8":
        return None
    if (codec := _CODECS.get(charset.lower())) is None:
        raise DeserializationError(f"its charset must be one of {', '.join(_CODECS)}")
    return codec


def _write_msgpack(value: Any) -> bytes:
    import msgpack

    return bytes(msgpack.packb(value, use_bin_type=True, strict_types=True))


def _read_msgpack(data: bytes) -> Any:
    import msgpack

    # msgpack bounds lengths by the number of bytes.
    return msgpack.unpackb(
        data, raw=False, strict_map_key=True, max_ext_len=0, ext_hook=_refuse_ext, object_pairs_hook=distinct
    )


def _refuse_ext(code: int, _: bytes) -> Any:
    raise ValueError(f"extension types are not read, and this is one of code {code}")


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("neither true nor false")
    return text == "true"


def _read_number(form: re.Pattern[str], make: Callable[[str], Any], text: str) -> Any:
    if not form.fullmatch(text):
        raise ValueError("not a number")
    return make(text)


_CSV_TYPES: Final[dict[type, tuple[Callable[[str], Any], Callable[[Any], str]]]] = {
    str: (str, str),
    int: (partial(_read_number, _WHOLE_NUMBER, int), str),
    float: (partial(_read_number, _NUMBER, float), repr),
    bool: (_read_bool, lambda value: "true" if value else "false"),
}


@dataclass(frozen=True)
class _Csv:
    columns: dict[str, type]
    delimiter: str

    def __post_init__(self) -> None:
        if not self.columns or not set(self.columns.values()) <= _CSV_TYPES.keys():
            raise ValueError(f"columns of CSV are str, int, float or bool, and at least one; got {self.columns}")
        csv.reader([], delimiter=self.delimiter)

    def write(self, value: Any) -> bytes:
        if not isinstance(value, Mapping) or value.keys() != self.columns.keys():
            raise SerializationError(f"a row of CSV is a dict of {', '.join(self.columns)}")
        fields = []
        for name, kind in self.columns.items():
            if type(value[name]) is not kind:
                raise SerializationError(f"column {name!r} must be {kind.__name__}, not {type(value[name]).__name__}")
            read, write = _CSV_TYPES[kind]
            fields.append(write(value[name]))
            if kind is float or kind is int:
                read(fields[-1])
        if max(map(len, fields)) > csv.field_size_limit():
            raise SerializationError(f"a field of CSV has more than {csv.field_size_limit()} characters")
        row = StringIO(newline="")
        # By the end of the line the writer knows which fields to quote.
        csv.writer(row, delimiter=self.delimiter, lineterminator=_LINE_END).writerow(fields)
        return row.getvalue().removesuffix(_LINE_END).encode()

    def read(self, data: bytes) -> dict[str, Any]:
        reader = csv.reader(StringIO(data.decode(), newline=""), delimiter=self.delimiter, strict=True)
        rows = list(islice(reader, 2))
        if len(rows) != 1 or len(rows[0]) != len(self.columns):
            found = f"{len(rows[0])} fields" if len(rows) == 1 else "no row" if not rows else "more than one row"
            raise DeserializationError(f"a record's CSV is one row of {len(self.columns)} fields, and this is {found}")
        made = {}
        for (name, kind), text in zip(self.columns.items(), rows[0], strict=True):
            try:
                made[name] = _CSV_TYPES[kind][0](text)
            except ValueError:
                # The cause quotes the text.
                raise DeserializationError(f"column {name!r} must be {kind.__name__}") from None
        return made


@dataclass(frozen=True)
class _Protobuf:
    message: type[Message]

    def write(self, value: Message) -> bytes:
        if type(value) is not self.message:
            raise SerializationError(f"needs a {self.message.DESCRIPTOR.full_name}, not a {type(value).__name__}")
        return bytes(value.SerializeToString(deterministic=True))

    def read(self, data: bytes) -> Message:
        return self.message.FromString(data)
