"""The places of a store of when windows end, in columns: `due_key` of `started_key`, vectorised."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import Integers, binary_array, interleave, positions_and_bytes, refuse_row
from statestore.format.keys.due_key import BY_TIME, window_end_key

_FRONT: Final = np.dtype([("by_time", "S1"), ("end_ms", ">i8"), ("start_ms", ">i8")])


class WindowEnds(NamedTuple):
    """The windows of keys, a row for each."""

    keys: pa.BinaryArray
    starts_ms: Integers
    ends_ms: Integers


def encode_window_ends(windows: WindowEnds) -> pa.BinaryArray:
    """Return where each window stands in order of time. Starts and ends are 0 or more."""
    fronts = np.zeros(len(windows.keys), _FRONT)
    fronts["by_time"], fronts["end_ms"], fronts["start_ms"] = BY_TIME, windows.ends_ms, windows.starts_ms
    columns = [binary_array(np.arange(len(fronts) + 1) * _FRONT.itemsize, fronts), windows.keys]
    positions, data = interleave(columns, "ends of windows")
    return binary_array(positions[::2], data)


def decode_window_ends(places: pa.BinaryArray) -> WindowEnds:
    """Return which window stands at each place. Raises FormatError for one that `window_end_key` would refuse."""
    positions, data = positions_and_bytes(places)
    sizes = positions[1:] - positions[:-1]
    if (sizes < _FRONT.itemsize).any():
        refuse_row(window_end_key, places, int((sizes < _FRONT.itemsize).argmax()))
    bytes_of_fronts = data[positions[:-1, np.newaxis] + np.arange(_FRONT.itemsize)]
    fronts = bytes_of_fronts.view(_FRONT).reshape(len(places))
    if (fronts["by_time"] != BY_TIME).any():
        refuse_row(window_end_key, places, int((fronts["by_time"] != BY_TIME).argmax()))
    parts = np.empty(2 * len(places) + 1, np.int64)
    parts[::2], parts[1::2] = positions, positions[:-1] + _FRONT.itemsize
    keys = binary_array(parts, data).take(pa.array(np.arange(1, len(parts), 2)))
    return WindowEnds(keys, fronts["start_ms"].astype(np.int64), fronts["end_ms"].astype(np.int64))
