"""JSON values, one by one and as Arrow columns whose rows as Python objects are the values.

A column holds each value as the serde writes it, so that equal rows are equal bytes. The text `null` is a null row.
What can be read but not written, such as 1e999, which is infinite, stays as it came, after a space.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DeserializationError, SerializationError
from statestore.errors.readable import shape_of
from statestore.format.binary_columns import as_binary_array, as_one_array
from statestore.format.serde_columns import ColumnSerde


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _encoder() -> Callable[[object], str]:
    whole = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # not CPython
        return whole.encode
    # `encode` makes this anew for each value, which takes as long as small values do.
    chunks = make(None, whole.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_UNWRITABLE: Final = b" "
_encode: Final = _encoder()
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def serialize_json(value: object) -> bytes:
    """Return a value's text as UTF-8. Raises SerializationError for what JSON can't hold."""
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as cause:
        raise SerializationError(f"json: {cause}; got {shape_of(value)}") from cause


def deserialize_json(data: bytes) -> Any:
    """Return the value of a text. Raises DeserializationError for any other bytes."""
    try:
        text = data.decode()
        try:
            value, end = _DECODER.raw_decode(text)
        except ValueError:
            end = -1
        # Space around it, and errors, are for `decode`, which is slower.
        return value if end == len(text) else _DECODER.decode(text)
    except (ValueError, RecursionError) as cause:
        raise DeserializationError(f"json: {cause}; got {shape_of(data)}") from cause


class JsonArray(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow has no types
    """A column of JSON values."""

    def to_pylist(self, **options: Any) -> list[Any]:
        """Return the values, as new objects; None for null."""
        written = [b"null" if data is None else data for data in self.storage.to_pylist()]
        try:
            values: list[Any] = _DECODER.decode(f"[{b','.join(written).decode()}]")  # the bytes are the serde's
        except RecursionError:  # in a list, values nest one deeper
            return [deserialize_json(data) for data in written]
        return values


class _JsonScalar(pa.ExtensionScalar):  # type: ignore[misc]
    def as_py(self, **options: Any) -> Any:
        """Return the value."""
        data = None if self.value is None else self.value.as_py()
        return None if data is None else deserialize_json(data)


class JsonType(pa.ExtensionType):  # type: ignore[misc]
    """JSON values, as the bytes that their serde writes."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "statestore.json")

    def __hash__(self) -> int:
        """Return the same for all."""
        return hash(JsonType)

    def __arrow_ext_serialize__(self) -> bytes:
        """Return nothing: the storage type has everything."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> JsonType:
        """Return the type."""
        return cls()

    def __arrow_ext_class__(self) -> type:
        """Return the class of columns."""
        return JsonArray

    def __arrow_ext_scalar_class__(self) -> type:
        """Return the class of rows."""
        return _JsonScalar


def json_column(values: Iterable[Any]) -> pa.ExtensionArray:
    """Return a column of values; None is null. Raises SerializationError, naming the row, for what JSON can't hold."""
    written: list[bytes | None] = []
    try:
        for value in values:
            written.append(None if value is None else serialize_json(value))
    except SerializationError as cause:
        raise SerializationError(f"row {len(written)}: {cause}") from cause
    return pa.ExtensionArray.from_storage(JsonType(), pa.array(written, pa.binary()))


def _serialize(column: pa.Array) -> pa.BinaryArray:
    column = as_one_array(column, "json")
    if not isinstance(column.type, JsonType):
        return json_column(column.to_pylist()).storage
    if pc.any(pc.starts_with(column.storage, _UNWRITABLE)).as_py():
        return json_column(column.to_pylist()).storage  # which raises
    return column.storage


def _deserialize(column: pa.BinaryArray) -> pa.ExtensionArray:
    values: list[Any] = []
    try:
        for data in as_binary_array(column, "json").to_pylist():
            values.append(None if data is None else deserialize_json(data))
    except DeserializationError as cause:
        raise DeserializationError(f"row {len(values)}: {cause}") from cause
    try:
        return json_column(values)
    except SerializationError:
        written = [_written(value, data) for value, data in zip(values, column.to_pylist(), strict=True)]
        return pa.ExtensionArray.from_storage(JsonType(), pa.array(written, pa.binary()))


def _written(value: Any, data: bytes) -> bytes | None:
    try:
        return None if value is None else serialize_json(value)
    except SerializationError:
        return _UNWRITABLE + data


JSON_COLUMNS: Final = ColumnSerde("json", JsonType(), _serialize, _deserialize)
