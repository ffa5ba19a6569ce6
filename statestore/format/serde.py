"""Serdes: how keys and values become bytes. The standard ones write what Kafka's serializers write.

    string   UTF-8                              StringSerializer
    bytes    as they are                        ByteArraySerializer
    int32    i32_be                             IntegerSerializer
    int64    i64_be                             LongSerializer
    double   IEEE 754, 8 bytes, big-endian      DoubleSerializer
    boolean  00 or 01                           BooleanSerializer
    json     RFC 8259 in UTF-8, no blanks between tokens, object keys in insertion order

No serde is ever passed a null: stores and topologies keep null (a delete, a record without a value) to themselves.
Bytes that no serializer wrote (invalid UTF-8, a boolean 02) are errors here, but not for Kafka's deserializers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

import pyarrow as pa

from statestore.errors import DeserializationError, SerializationError, ServiceUnavailableError
from statestore.errors.data import SerdeError
from statestore.errors.readable import shape_of
from statestore.format.json_serde import JSON_COLUMNS, deserialize_json, serialize_json
from statestore.format.serde_columns import (
    BOOLEAN_COLUMNS,
    BYTES_COLUMNS,
    DOUBLE_COLUMNS,
    INT32_COLUMNS,
    INT64_COLUMNS,
    STRING_COLUMNS,
    ColumnSerde,
    is_plain,
    plain_column,
)

T = TypeVar("T")
Bytes: TypeAlias = bytes  # inside Serdes, `bytes` is a serde


@dataclass(frozen=True)
class HeaderSerde(Generic[T]):
    """Two functions that take the record's Headers, too; `serialize` may add to them, such as a schema id."""

    serialize: Callable[[T, Any], bytes]
    deserialize: Callable[[bytes, Any], T]
    for_topic: Callable[[str], HeaderSerde[T]] | None = None
    """Makes the serde of one topic; None if topics make no difference."""


@dataclass(frozen=True)
class Serde(Generic[T]):
    """A name for messages and two functions; picklable if they are. Neither function is ever passed None.

    `serialize` raises SerializationError and `deserialize` DeserializationError, the cause chained.
    """

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]
    with_headers: HeaderSerde[T] | None = None
    """What to use where there are headers; None if the serde has no use for them."""
    columns: ColumnSerde | None = None
    """The same for whole columns, if there is; never where the serde takes headers."""

    @property
    def is_identity(self) -> bool:
        """Whether `deserialize` returns its bytes as they are, so that it need not be called."""
        return self.deserialize is _deserialize_bytes

    @property
    def writes_bytes(self) -> bool:
        """Whether `serialize` returns bytes as they are, and takes nothing else, so that it need not be called."""
        return self.serialize is _serialize_bytes

    def on_topic(self, topic: str | None) -> HeaderSerde[T]:
        """Return this serde as one for the records of a topic, or of a store (None): both functions take Headers.

        A plain serde is wrapped, and leaves headers as they are. Whatever has a record's headers calls this. Source:
        KIP-82, Kafka's ExtendedSerializer.Wrapper.
        """
        if self.with_headers is None:
            serialize, deserialize = self.serialize, self.deserialize
            return HeaderSerde(lambda value, headers: serialize(value), lambda data, headers: deserialize(data))
        if topic is None or self.with_headers.for_topic is None:
            return self.with_headers
        return self.with_headers.for_topic(topic)


def as_read(serde: Serde[T], value: T) -> T:
    """Return what a serde with columns reads of what it writes, such as 1.0 for 1; as it is, what it can't write."""
    if value is None or is_plain(value, serde.columns):
        return value
    try:
        return serde.deserialize(serde.serialize(value))
    except SerializationError:
        return value


def column_of(serde: Serde[Any], values: Sequence[Any]) -> pa.Array | None:
    """Return a column of what a serde with columns reads of each value; None if there is one that it can't write."""
    assert serde.columns is not None  # whoever has values of others has no use for a column
    plain = plain_column(values, serde.columns)
    if plain is not None:
        return plain
    try:
        written = [None if value is None else serde.serialize(value) for value in values]
    except SerializationError:
        return None
    return serde.columns.deserialize(pa.array(written, pa.binary()))


def columns_of(serde: Serde[Any], role: str, refuse: Callable[[str], Exception]) -> ColumnSerde:
    """Return a serde's columns. Raises what `refuse` makes of the problem if it has none."""
    if serde.columns is None:
        raise refuse(f"its {role} serde {serde.name!r} has no columns")
    return serde.columns


def standard_serde(encoding: str | Serde[Any]) -> Serde[Any]:
    """Return the standard serde of a name, such as int64, or the one given. Raises ValueError for any other."""
    found = STANDARD_SERDES.get(encoding if isinstance(encoding, str) else encoding.name)
    if found is None or encoding not in (found.name, found):
        given = repr(encoding) if isinstance(encoding, str) else f"the serde {encoding.name!r} of your own"
        raise ValueError(f"an encoding is one of {', '.join(STANDARD_SERDES)}, or such a serde of Serdes, not {given}")
    return found


class Serdes:
    """The standard serdes, and `of` for your own."""

    @staticmethod
    def string() -> Serde[str]:
        """Return the serde of text as UTF-8. Lone surrogates, and bytes that are not UTF-8, are errors."""
        return _STRING

    @staticmethod
    def bytes() -> Serde[Bytes]:
        """Return the serde of bytes as they are. A bytearray is an error: it could change after it was stored."""
        return _BYTES

    @staticmethod
    def json() -> Serde[Any]:
        """Return the serde of JSON values. NaN and the infinities are errors both ways: JSON has none.

        As with Python's json module, tuples come back as lists, object keys as str, and the text `null` as None.
        """
        return _JSON

    @staticmethod
    def int32() -> Serde[int]:
        """Return the serde of signed integers of 32 bits."""
        return _INT32

    @staticmethod
    def int64() -> Serde[int]:
        """Return the serde of signed integers of 64 bits."""
        return _INT64

    @staticmethod
    def double() -> Serde[float]:
        """Return the serde of floats, NaN and the infinities among them."""
        return _DOUBLE

    @staticmethod
    def boolean() -> Serde[bool]:
        """Return the serde of True and False; other truth values are errors."""
        return _BOOLEAN

    @staticmethod
    def of(
        name: str,
        serialize: Callable[[T], Bytes],
        deserialize: Callable[[Bytes], T],
        columns: ColumnSerde | None = None,
    ) -> Serde[T]:
        """Return a serde of your own. What the functions raise becomes the cause of a SerdeError that names the serde.

        A ServiceUnavailableError passes as it is: it says nothing about the data, so no record is left out for it.

        The serde is picklable if they are functions of a module. `serialize` must return bytes, not None: write None to
        delete. `columns` must do the same to every row of a column.
        """
        return Serde(name, _CheckedSerialize(name, serialize), _CheckedDeserialize(name, deserialize), columns=columns)

    @staticmethod
    def of_headers(name: str, serialize: Callable[[T, Any], Bytes], deserialize: Callable[[Bytes, Any], T]) -> Serde[T]:
        """Return a serde of your own whose functions take the record's Headers, too, None where there are none.

        `serialize` may add to the headers. All else is as with `of`.
        """
        checked = HeaderSerde(_CheckedSerialize(name, serialize), _CheckedDeserialize(name, deserialize))
        return Serde(name, _WithoutHeaders(checked.serialize), _WithoutHeaders(checked.deserialize), checked)

    @staticmethod
    def of_topics(
        name: str, serialize: Callable[[str | None, Any, T], Bytes], deserialize: Callable[[str | None, Any, Bytes], T]
    ) -> Serde[T]:
        """Return a serde of your own whose functions take topic, headers and argument, as Kafka's serializers do.

        The topic is None in a store. All else is as with `of_headers`.
        """
        for_topic = _ForTopic(name, serialize, deserialize)
        in_store = for_topic(None)
        plain = _WithoutHeaders(in_store.serialize), _WithoutHeaders(in_store.deserialize)
        return Serde(name, *plain, HeaderSerde(in_store.serialize, in_store.deserialize, for_topic))


@dataclass(frozen=True)
class _WithoutHeaders:
    function: Callable[[Any, Any], Any]

    def __call__(self, argument: Any) -> Any:
        return self.function(argument, None)


@dataclass(frozen=True)
class _OnTopic:
    function: Callable[[str | None, Any, Any], Any]
    topic: str | None

    def __call__(self, argument: Any, headers: Any) -> Any:
        return self.function(self.topic, headers, argument)


@dataclass(frozen=True)
class _ForTopic(Generic[T]):
    name: str
    serialize: Callable[[str | None, Any, T], bytes]
    deserialize: Callable[[str | None, Any, bytes], T]

    def __call__(self, topic: str | None) -> HeaderSerde[T]:
        return HeaderSerde(
            _CheckedSerialize(self.name, _OnTopic(self.serialize, topic)),
            _CheckedDeserialize(self.name, _OnTopic(self.deserialize, topic)),
        )


@dataclass(frozen=True)
class _CheckedSerialize:
    name: str
    function: Callable[..., bytes]

    def __call__(self, value: Any, *headers: Any) -> bytes:
        try:
            data = self.function(value, *headers)
        except (SerdeError, ServiceUnavailableError):
            raise
        except Exception as cause:
            _refuse_value(self.name, str(cause) or type(cause).__name__, value, cause)
        if not isinstance(data, bytes):
            raise SerializationError(f"{self.name}: serialize must return bytes, returned {shape_of(data)}")
        return data


@dataclass(frozen=True)
class _CheckedDeserialize(Generic[T]):
    name: str
    function: Callable[..., T]

    def __call__(self, data: bytes, *headers: Any) -> T:
        try:
            return self.function(data, *headers)
        except (SerdeError, ServiceUnavailableError):
            raise
        except Exception as cause:
            _refuse_bytes(self.name, str(cause) or type(cause).__name__, data, cause)


def _refuse_value(name: str, problem: str, value: object, cause: Exception | None = None) -> NoReturn:
    raise SerializationError(f"{name}: {problem}; got {shape_of(value)}") from cause


def _refuse_bytes(name: str, problem: str, data: bytes, cause: Exception | None = None) -> NoReturn:
    raise DeserializationError(f"{name}: {problem}; got {shape_of(data)}") from cause


def _refuse_size(name: str, wanted: int, data: bytes, cause: Exception | None = None) -> NoReturn:
    raise DeserializationError(f"{name} needs {wanted} bytes, got {len(data)}") from cause


def _serialize_string(value: str) -> bytes:
    try:
        return str.encode(value)
    except (TypeError, UnicodeEncodeError) as cause:
        _refuse_value("string", "needs text that UTF-8 can hold", value, cause)


def _deserialize_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        _refuse_bytes("string", f"not UTF-8 ({cause.reason} at byte {cause.start})", data, cause)


def _serialize_bytes(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        _refuse_value("bytes", "needs bytes", value)
    return value


def _deserialize_bytes(data: bytes) -> bytes:
    return data


class _Numbers(Generic[T]):
    """Numbers of one size. Pickled as a constant of the module, so that a serde stays equal to itself."""

    __slots__ = ("_constant", "_layout", "_name", "_pack", "_refused", "_unpack", "_wanted")

    def __init__(self, constant: str, name: str, layout: str, wanted: str, *refused: type[Exception]) -> None:
        self._constant, self._name, self._wanted = constant, name, wanted
        self._layout = struct.Struct(layout)
        self._pack, self._unpack = self._layout.pack, self._layout.unpack
        self._refused: tuple[type[Exception], ...] = (struct.error, *refused)

    def __reduce__(self) -> str:
        return self._constant

    def serialize(self, value: T) -> bytes:
        """Return its bytes. Raises SerializationError for anything but such a number."""
        try:
            return self._pack(value)
        except self._refused as cause:
            _refuse_value(self._name, f"needs {self._wanted}", value, cause)

    def deserialize(self, data: bytes) -> T:
        """Return the number. Raises DeserializationError for bytes of another size."""
        number: T
        try:
            (number,) = self._unpack(data)
        except struct.error as cause:
            _refuse_size(self._name, self._layout.size, data, cause)
        return number


def _serialize_boolean(value: bool) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    _refuse_value("boolean", "needs True or False", value)


def _deserialize_boolean(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    if len(data) != 1:
        _refuse_size("boolean", 1, data)
    _refuse_bytes("boolean", "needs 00 or 01", data)


_INT32_NUMBERS: Final = _Numbers[int]("_INT32_NUMBERS", "int32", ">i", "a signed integer of 32 bits")
_INT64_NUMBERS: Final = _Numbers[int]("_INT64_NUMBERS", "int64", ">q", "a signed integer of 64 bits")
_DOUBLE_NUMBERS: Final = _Numbers[float]("_DOUBLE_NUMBERS", "double", ">d", "a float", OverflowError)

_STRING: Final = Serde("string", _serialize_string, _deserialize_string, columns=STRING_COLUMNS)
_BYTES: Final = Serde("bytes", _serialize_bytes, _deserialize_bytes, columns=BYTES_COLUMNS)
_INT32: Final = Serde("int32", _INT32_NUMBERS.serialize, _INT32_NUMBERS.deserialize, columns=INT32_COLUMNS)
_INT64: Final = Serde("int64", _INT64_NUMBERS.serialize, _INT64_NUMBERS.deserialize, columns=INT64_COLUMNS)
_DOUBLE: Final = Serde("double", _DOUBLE_NUMBERS.serialize, _DOUBLE_NUMBERS.deserialize, columns=DOUBLE_COLUMNS)
_BOOLEAN: Final = Serde("boolean", _serialize_boolean, _deserialize_boolean, columns=BOOLEAN_COLUMNS)
_JSON: Final[Serde[Any]] = Serde("json", serialize_json, deserialize_json, columns=JSON_COLUMNS)

STANDARD_SERDES: Final[Mapping[str, Serde[Any]]] = MappingProxyType(
    {serde.name: serde for serde in (_STRING, _BYTES, _INT32, _INT64, _DOUBLE, _BOOLEAN, _JSON)}
)
"""The serdes without arguments, by their names."""
