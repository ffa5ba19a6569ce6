"""Serdes of whole Arrow columns: the standard serdes for every row, without a Python object for each.

A null row stays null both ways. A column's type holds every value of the scalar serde, and no others.

    string   string           int32   int32           double    double
    bytes    binary           int64   int64           boolean   bool
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DeserializationError, SerializationError
from statestore.errors.readable import shape_of
from statestore.format.binary_columns import (
    as_binary_array,
    as_one_array,
    binary_array,
    is_valid,
    numbers_at_each_byte,
    positions_and_bytes,
    positions_of,
)


@dataclass(frozen=True)
class ColumnSerde:
    """A name for messages, the type of columns of values, and two functions; picklable if they are.

    `serialize` raises SerializationError for a column that it can't take, `deserialize` DeserializationError for the
    first row that is not the bytes of a value. An error of one row names the row.
    """

    name: str
    type: pa.DataType
    serialize: Callable[[pa.Array], pa.BinaryArray]
    deserialize: Callable[[pa.BinaryArray], pa.Array]


_PYTHON_TYPES: Final = {
    pa.string(): str,
    pa.binary(): bytes,
    pa.int32(): int,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
}


def is_plain(value: object, columns: ColumnSerde | None) -> bool:
    """Return whether a value is of the Python type that rows of a serde's columns have."""
    return columns is not None and type(value) is _PYTHON_TYPES.get(columns.type)


def plain_column(values: Sequence[Any], columns: ColumnSerde) -> pa.Array | None:
    """Return values as a column, null for None; None if one of them is not plain, or too large."""
    plain = _PYTHON_TYPES.get(columns.type)
    if plain is not None and {*map(type, values)} <= {plain, type(None)}:
        try:
            return pa.array(values, columns.type)
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            return None  # the serde says what is wrong with which
    return None


def cast_column(name: str, type_: pa.DataType, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one of type `type_`, if that loses nothing. Raises SerializationError; `name` is the serde."""
    column = as_one_array(column, name)
    if column.type == type_:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    related = any(of_kind(column.type) and of_kind(type_) for of_kind in _RELATED)
    if related or pa.types.is_null(column.type):
        try:
            return column.cast(type_)
        except pa.ArrowInvalid:
            # Arrow's message would quote the value.
            raise SerializationError(f"{name}: a column of {column.type} has what does not fit {type_}") from None
    raise SerializationError(f"{name} needs a column of type {type_}, got {column.type}")


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


_RELATED: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    _is_bytes,
    _is_text,
    pa.types.is_integer,
    pa.types.is_floating,
)


@dataclass(frozen=True)
class _Numbers:
    """Numbers of one size, in a layout of numpy."""

    name: str
    type: pa.DataType
    layout: str


class _WriteNumbers(_Numbers):
    def __call__(self, column: pa.Array) -> pa.BinaryArray:
        numbers, layout = cast_column(self.name, self.type, column), np.dtype(self.layout)
        valid = is_valid(numbers)
        filled = pc.fill_null(numbers, 0) if numbers.null_count else numbers
        written = filled.to_numpy(zero_copy_only=False)[valid].astype(layout)
        return binary_array(positions_of(np.where(valid, layout.itemsize, 0)), written, valid)


class _ReadNumbers(_Numbers):
    def __call__(self, column: pa.BinaryArray) -> pa.Array:
        column, layout = as_binary_array(column, self.name), np.dtype(self.layout)
        positions, data = positions_and_bytes(column)
        valid, size = is_valid(column), layout.itemsize
        unsound = valid & (np.diff(positions) != size)
        if unsound.any():
            row = int(np.argmax(unsound))
            found = int(positions[row + 1] - positions[row])
            raise DeserializationError(f"row {row}: {self.name} needs {size} bytes, got {found}")
        numbers = np.zeros(len(column), layout.newbyteorder("="))
        numbers[valid] = numbers_at_each_byte(data, self.layout)[positions[:-1][valid]]
        return pa.array(numbers, self.type, mask=~valid)


def _numbers(name: str, type_: pa.DataType, layout: str) -> ColumnSerde:
    return ColumnSerde(name, type_, _WriteNumbers(name, type_, layout), _ReadNumbers(name, type_, layout))


def _serialize_bytes(column: pa.Array) -> pa.BinaryArray:
    return cast_column("bytes", pa.binary(), column)


def _deserialize_bytes(column: pa.BinaryArray) -> pa.BinaryArray:
    return as_binary_array(column, "bytes")


def _serialize_string(column: pa.Array) -> pa.BinaryArray:
    return cast_column("string", pa.string(), column).cast(pa.binary())


def _deserialize_string(column: pa.BinaryArray) -> pa.StringArray:
    try:
        return as_binary_array(column, "string").cast(pa.string())
    except pa.ArrowInvalid:
        for row, data in enumerate(column.to_pylist()):
            try:
                _ = None if data is None else data.decode()
            except UnicodeDecodeError as cause:
                problem = f"not UTF-8 ({cause.reason} at byte {cause.start})"
                raise DeserializationError(f"row {row}: string: {problem}; got {shape_of(data)}") from cause
        raise


def _serialize_boolean(column: pa.Array) -> pa.BinaryArray:
    flags = cast_column("boolean", pa.bool_(), column)
    valid = is_valid(flags)
    written = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)[valid].astype(np.uint8)
    return binary_array(positions_of(valid.astype(np.int64)), written, valid)


def _deserialize_boolean(column: pa.BinaryArray) -> pa.BooleanArray:
    column = as_binary_array(column, "boolean")
    is_true, is_false = (pc.fill_null(pc.equal(column, pa.scalar(data)), False) for data in (b"\x01", b"\x00"))
    unsound = is_valid(column) & ~np.asarray(is_true) & ~np.asarray(is_false)
    if unsound.any():
        row = int(np.argmax(unsound))
        data = column[row].as_py()
        problem = f" needs 1 bytes, got {len(data)}" if len(data) != 1 else f": needs 00 or 01; got {shape_of(data)}"
        raise DeserializationError(f"row {row}: boolean{problem}")
    return pa.array(np.asarray(is_true), pa.bool_(), mask=~is_valid(column))


STRING_COLUMNS: Final = ColumnSerde("string", pa.string(), _serialize_string, _deserialize_string)
BYTES_COLUMNS: Final = ColumnSerde("bytes", pa.binary(), _serialize_bytes, _deserialize_bytes)
INT32_COLUMNS: Final = _numbers("int32", pa.int32(), ">i4")
INT64_COLUMNS: Final = _numbers("int64", pa.int64(), ">i8")
DOUBLE_COLUMNS: Final = _numbers("double", pa.float64(), ">f8")
BOOLEAN_COLUMNS: Final = ColumnSerde("boolean", pa.bool_(), _serialize_boolean, _deserialize_boolean)
