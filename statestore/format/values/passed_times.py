"""The times of records that are the same and passed `deduplicate`, without that of the last one: what it keeps.

    passed := (time_ms:i64_be)*     ascending

The record that passed last is the entry itself, with its timestamp. A value of no bytes means that no other one passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from statestore.errors import FormatError
from statestore.format.binary_columns import Integers, binary_array, positions_of, refuse_unsound, row_sizes

_SIZE: Final = 8
_LAYOUT: Final = ">i8"


def encode_passed_times(times_ms: Sequence[int]) -> bytes:
    """Return the bytes of times, which ascend."""
    return np.array(times_ms, _LAYOUT).tobytes()


def decode_passed_times(data: bytes) -> list[int]:
    """Return the times. Raises FormatError for bytes that are not a multiple of 8."""
    if len(data) % _SIZE:
        raise FormatError("passed times", f"{len(data)} bytes are not a multiple of {_SIZE}")
    found: list[int] = np.frombuffer(data, _LAYOUT).tolist()
    return found


def encode_passed_columns(counts: Integers, times_ms: Integers) -> pa.BinaryArray:
    """Return a row for each count, of as many of the times, which ascend within a row."""
    return binary_array(positions_of(counts * _SIZE), times_ms.astype(_LAYOUT))


def decode_passed_columns(column: pa.BinaryArray) -> tuple[Integers, Integers]:
    """Return all times of a column, and the row of each; a null has none. Raises FormatError naming the row."""
    sizes = row_sizes(column)
    refuse_unsound(sizes % _SIZE != 0, decode_passed_times, column)
    rows = np.repeat(np.arange(len(column)), sizes // _SIZE)
    times_ms = np.frombuffer(b"".join(column.filter(pa.array(sizes > 0)).to_pylist()), _LAYOUT)
    return rows, times_ms.astype(np.int64)
