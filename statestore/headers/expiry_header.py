"""The header that says when its record expires: the record is there until that moment, and gone from then on.

    "expires-at"    milliseconds since the epoch, as int64, big-endian (Kafka's LongSerializer)

Also read, as that is what other producers write: decimal digits as text. Eight digits are text: as an int64 they would
be a time in the year 110,000,000. Of several headers the last one counts; a null value, and none at all, mean never.
All else is malformed. Whoever looks decides what to do about that: stores let such an entry live, `ExpiryHeader`
refuses such a record.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import FormatError
from statestore.format.binary_columns import Integers, is_valid, numbers_at_each_byte, positions_and_bytes, row_sizes
from statestore.format.keys.window_key import MAX_TIME_MS, check_time
from statestore.format.records.header_bytes import last_header_value
from statestore.format.records.header_lists import last_header_column

__all__ = ["EXPIRY_HEADER", "expiry_time", "expiry_value"]

EXPIRY_HEADER: Final = "expires-at"
"""The name that is looked for, unless another is given."""
NO_EXPIRY_MS: Final = MAX_TIME_MS
"""What `expiry_column` has for a record that does not expire: the latest time there is."""

_TIME: Final = struct.Struct(">q")
_MAX_DIGITS: Final = len(str(MAX_TIME_MS))


def expiry_value(time_ms: int) -> bytes:
    """Return the header's value for a time, in milliseconds since the epoch. Raises ValueError unless 0 to 2^63 - 1."""
    check_time("time_ms", time_ms)
    return _TIME.pack(time_ms)


def expiry_time(value: bytes) -> int:
    """Return the time in a header's value, in milliseconds since the epoch. Raises FormatError for a malformed one."""
    time_ms = -1
    if len(value) <= _MAX_DIGITS and value.isdigit():
        time_ms = int(value)
    elif len(value) == _TIME.size:
        (time_ms,) = _TIME.unpack(value)
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise FormatError(
            "expiry header", f"its {len(value)} bytes are not a time: write 8 bytes of an int64, or decimal digits"
        )
    return time_ms


def expiry_in_headers(header_bytes: bytes, name: str = EXPIRY_HEADER) -> int | None:
    """Return when a record with these headers expires, in milliseconds since the epoch; None if it does not.

    Headers without the bytes of the name in them are not parsed. Raises FormatError for malformed headers, and values.
    """
    value = last_header_value(header_bytes, name)
    return None if value is None else expiry_time(value)


def expiry_column(headers: pa.BinaryArray, name: str = EXPIRY_HEADER) -> tuple[Integers, Integers]:
    """Return what `expiry_in_headers` does of each row: the times, and which rows have a malformed value.

    A row that does not expire has NO_EXPIRY_MS, also one with a malformed value. Raises FormatError for headers that
    can't be read.
    """
    times_ms = np.full(len(headers), NO_EXPIRY_MS, np.int64)
    rows = np.flatnonzero(pc.match_substring(headers, name))
    if not rows.size:
        return times_ms, rows
    values = last_header_column(headers.take(pa.array(rows)), name)
    is_text = np.asarray(pc.match_substring_regex(values, "^[0-9]+$").fill_null(False))
    is_number = (row_sizes(values) == _TIME.size) & ~is_text
    positions, data = positions_and_bytes(values)
    times_ms[rows[is_number]] = numbers_at_each_byte(data, ">i8")[positions[:-1][is_number]]
    malformed = times_ms[rows] < 0
    for place in np.flatnonzero(is_valid(values) & ~is_number):
        try:
            times_ms[rows[place]] = expiry_time(values[int(place)].as_py())
        except FormatError:
            malformed[place] = True
    times_ms[rows[malformed]] = NO_EXPIRY_MS
    return times_ms, rows[malformed]
