"""Binary columns: Arrow arrays seen as numpy positions into one block of bytes, the ground of the vectorised codecs.

row i of a column := bytes[positions[i]:positions[i + 1]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import FormatError

T = TypeVar("T")
Integers: TypeAlias = npt.NDArray[np.int64]
Positions: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

MAX_COLUMN_BYTES: Final = 2**31 - 1  # what one Arrow binary array can hold: its positions have 32 bits
END_OF_ROW: Final = MAX_COLUMN_BYTES
"""The end of any row: without one, Arrow's binary_slice fails or reads beyond the rows (pyarrow 26)."""


def as_binary_array(column: pa.Array | pa.ChunkedArray, what: str) -> pa.BinaryArray:
    """Return a binary column as one array; `what` names it. Raises TypeError, and what `as_one_array` raises."""
    if not pa.types.is_binary(column.type):
        raise TypeError(f"{what} must be a binary column, got {column.type}")
    return as_one_array(column, what)


def as_one_array(column: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    """Return the chunks of a column as one array. Raises ValueError if they hold more than 2^31 - 1 bytes together."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid as cause:
        raise ValueError(f"{what} do not fit into one Arrow array ({cause}): take fewer rows at a time") from cause


def as_column(column: object, what: str) -> pa.Array:
    """Return a user's Arrow or numpy array as one array; `what` names it. Raises TypeError, and as `as_one_array`."""
    if isinstance(column, np.ndarray):
        return pa.array(column)
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return as_one_array(column, what)
    raise TypeError(f"{what} must be an Arrow or numpy array, not {type(column).__name__}")


def numbers_at_each_byte(data: Bytes, layout: str) -> npt.NDArray[np.generic]:
    """Return a view of which item i is the number that begins at data[i], in a layout of numpy's, such as >i8."""
    size = np.dtype(layout).itemsize
    view: npt.NDArray[np.generic] = np.ndarray(max(data.size - size + 1, 0), layout, data, strides=(1,))
    return view


def columns_of_rows(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Return the columns of rows with `width` fields.

    `zip(*rows)` takes 15 times as long: it makes an iterator for each row, which have the garbage collector run.
    """
    held = rows if isinstance(rows, list) else list(rows)
    return [list(map(itemgetter(field), held)) for field in range(width)]


def row_objects(column: pa.Array) -> list[Any]:
    """Return the Python object in each row, None for null: as `to_pylist`, but of a dictionary 50 times as fast."""
    if not pa.types.is_dictionary(column.type):
        found: list[Any] = column.to_pylist()
        return found
    objects = [*column.dictionary.to_pylist(), None]
    return [objects[index] for index in pc.fill_null(column.indices, -1).to_pylist()]


def is_valid(column: pa.Array) -> Flags:
    """Return for each row whether it is not null."""
    return np.asarray(column.is_valid())


def row_sizes(column: pa.Array) -> Integers:
    """Return the size in bytes of each row of a binary or string column; 0 where it is null."""
    sizes: Integers = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def positions_of(sizes: Integers) -> Integers:
    """Return the positions of rows of these sizes that follow each other, from 0 to the end of the last one."""
    positions = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=positions[1:])
    return positions


def positions_and_bytes(column: pa.BinaryArray) -> tuple[Integers, Bytes]:
    """Return the positions of a column's rows and the bytes they point into: a view, and at least one byte."""
    nothing = np.zeros(1, np.uint8)
    if len(column) == 0:
        return np.zeros(1, np.int64), nothing
    _, offsets, data = column.buffers()
    positions = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    return positions, np.frombuffer(data, np.uint8) if data else nothing


def binary_array(positions: Positions, data: npt.NDArray[np.generic], valid: Flags | None = None) -> pa.BinaryArray:
    """Return the rows at `positions` in `data`, null where not `valid`; `data` is not copied.

    The positions must ascend (two may be equal), lie within `data` and have 32 bits: the caller has checked.
    """
    validity = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    offsets = pa.py_buffer(positions.astype(np.int32, copy=False))
    return pa.Array.from_buffers(pa.binary(), len(positions) - 1, [validity, offsets, pa.py_buffer(data)])


def cut_rows(data: Bytes, starts: Integers, ends: Integers, valid: Flags) -> pa.BinaryArray:
    """Return the bytes from each start to its end, null where not `valid`. Starts and ends ascend where they are."""
    starts = np.where(valid, starts, ends)
    cuts = np.append(np.stack([starts, ends], axis=1).ravel(), ends[-1] if len(ends) else 0)
    return binary_array(cuts, data).take(pa.array(np.arange(0, 2 * len(starts), 2), mask=~valid))


def rows_of_numbers(numbers: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return the bytes of each number, or of each struct of numbers."""
    return binary_array(np.arange(len(numbers) + 1) * numbers.dtype.itemsize, numbers)


def join_rows(columns: list[pa.BinaryArray], what: str) -> pa.BinaryArray:
    """Return the bytes of each row of all columns, one behind the other. Raises what `interleave` raises."""
    positions, data = interleave(columns, what)
    return binary_array(positions[:: len(columns)], data)


def interleave(columns: list[pa.BinaryArray], what: str) -> tuple[Integers, Bytes]:
    """Return positions and bytes of row 0 of each column in turn, then row 1 of each, and so on; nulls take no bytes.

    The columns have the same length. Raises ValueError if the bytes do not fit into one array.
    """
    size = sum(int(row_sizes(column).sum()) for column in columns)
    if size > MAX_COLUMN_BYTES:
        raise ValueError(
            f"{what} take {size} bytes, one Arrow array holds {MAX_COLUMN_BYTES}: take fewer rows at a time"
        )
    rows = len(columns[0])
    count = len(columns) * rows
    order = np.arange(count, dtype=np.int32 if count <= np.iinfo(np.int32).max else np.int64)
    order = order.reshape(len(columns), rows).T.ravel()
    return positions_and_bytes(pc.take(pa.concat_arrays(columns), pa.array(order), boundscheck=False))


def varint_array(values: Integers) -> pa.BinaryArray:
    """Return `varint.encode_varint` of each value; the values have 32 bits."""
    zigzag = (values << 1) ^ (values >> 63)
    if zigzag.max(initial=0) < 1 << 7:
        return binary_array(np.arange(len(values) + 1), zigzag.astype(np.uint8))
    sizes = np.searchsorted([1 << 7, 1 << 14, 1 << 21, 1 << 28], zigzag, side="right") + 1
    positions = positions_of(sizes)
    data = np.empty(positions[-1], np.uint8)
    position, rest = positions[:-1], zigzag
    while True:
        more = rest > 0x7F
        data[position] = rest & 0x7F | more << 7
        if not more.any():
            return binary_array(positions, data)
        position, rest = position[more] + 1, rest[more] >> 7


def read_varints(data: Bytes, positions: Integers, ends: Integers) -> tuple[Integers, Integers, Flags]:
    """Do `varint.decode_varint` at each position: return values, positions after them, and whether they are sound.

    A varint must not reach its end. Value and position of an unsound one mean nothing.
    """
    sound = positions < ends
    zigzag = data.take(positions, mode="clip").astype(np.int64)
    after = positions + 1
    more = np.flatnonzero(zigzag > 0x7F)
    if more.size:
        zigzag[more] &= 0x7F
        for shift in (7, 14, 21, 28):
            position = after[more]
            sound[more] &= position < ends[more]
            group = data.take(position, mode="clip").astype(np.int64)
            zigzag[more] |= (group & 0x7F) << shift
            after[more] = position + 1
            more = more[group > 0x7F]
        sound[more] = False
        sound &= zigzag <= 0xFFFFFFFF
    return (zigzag >> 1) ^ -(zigzag & 1), after, sound


def decode_row(decode: Callable[[bytes], T], column: pa.BinaryArray, row: int) -> T:
    """Do the scalar `decode` of one row; a FormatError that it raises names the row."""
    try:
        return decode(column[row].as_py())
    except FormatError as error:
        error.what = f"row {row}: {error.what}"
        error.__post_init__()
        raise


def refuse_unsound(unsound: Flags, decode: Callable[[bytes], object], column: pa.BinaryArray) -> None:
    """Raise what the scalar `decode` has against the first unsound row, if there is one."""
    if unsound.any():
        refuse_row(decode, column, int(np.argmax(unsound)))


def refuse_row(decode: Callable[[bytes], object], column: pa.BinaryArray, row: int) -> NoReturn:
    """Raise what the scalar `decode` has against a row that its vectorised counterpart found unsound."""
    decode_row(decode, column, row)
    raise AssertionError(f"row {row} is unsound for the vectorised codec, but not for the scalar one")
