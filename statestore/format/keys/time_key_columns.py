"""Columns of keys with times: `window_key`, `session_key` and places in order of time, vectorised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.format.binary_columns import (
    Integers,
    binary_array,
    join_rows,
    positions_and_bytes,
    refuse_unsound,
    rows_of_numbers,
)
from statestore.format.keys.due_key import BY_TIME, expiry_key, window_end_key
from statestore.format.keys.window_key import encode_session_key, split_session_key, split_window_key

_WINDOW_SUFFIX: Final = np.dtype([("start_ms", ">i8"), ("sequence", ">i4")])
_SESSION_SUFFIX: Final = np.dtype([("end_ms", ">i8"), ("start_ms", ">i8")])


def encode_window_keys(keys: pa.BinaryArray, starts_ms: Integers, sequences: Integers | int = 0) -> pa.BinaryArray:
    """Return `encode_window_key` of each key, start and sequence number, which are 0 or more."""
    suffixes = np.zeros(len(keys), _WINDOW_SUFFIX)
    suffixes["start_ms"], suffixes["sequence"] = starts_ms, sequences
    return _with_suffixes(keys, suffixes)


def encode_session_keys(keys: pa.BinaryArray, starts_ms: Integers, ends_ms: Integers) -> pa.BinaryArray:
    """Return `encode_session_key` of each key, start and end. Raises ValueError for one that ends before it starts."""
    if (starts_ms > ends_ms).any():
        row = int(np.argmax(starts_ms > ends_ms))
        encode_session_key(b"", int(starts_ms[row]), int(ends_ms[row]))
    suffixes = np.zeros(len(keys), _SESSION_SUFFIX)
    suffixes["start_ms"], suffixes["end_ms"] = starts_ms, ends_ms
    return _with_suffixes(keys, suffixes)


def _with_suffixes(keys: pa.BinaryArray, suffixes: npt.NDArray[np.void]) -> pa.BinaryArray:
    return join_rows([keys, rows_of_numbers(suffixes)], "keys with times")


def window_starts(keys: pa.BinaryArray) -> Integers:
    """Return when each window starts, in ms. Raises FormatError for a key that `split_window_key` would refuse."""
    suffixes = _suffixes(keys, _WINDOW_SUFFIX, split_window_key)
    refuse_unsound((suffixes["start_ms"] < 0) | (suffixes["sequence"] < 0), split_window_key, keys)
    return suffixes["start_ms"].astype(np.int64)


def session_times(keys: pa.BinaryArray) -> tuple[Integers, Integers]:
    """Return when each session starts, and ends, in ms. Raises FormatError where `split_session_key` does."""
    suffixes = _suffixes(keys, _SESSION_SUFFIX, split_session_key)
    is_unsound = (suffixes["start_ms"] < 0) | (suffixes["start_ms"] > suffixes["end_ms"])
    refuse_unsound(is_unsound, split_session_key, keys)
    return suffixes["start_ms"].astype(np.int64), suffixes["end_ms"].astype(np.int64)


def _suffixes(
    keys: pa.BinaryArray, suffix: np.dtype[np.void], split: Callable[[bytes], object]
) -> npt.NDArray[np.void]:
    positions, data = positions_and_bytes(keys)
    ends = positions[1:]
    refuse_unsound(ends - positions[:-1] < suffix.itemsize, split, keys)
    places = (ends - suffix.itemsize)[:, np.newaxis] + np.arange(suffix.itemsize)
    suffixes: npt.NDArray[np.void] = data[places].view(suffix)
    return suffixes.reshape(len(keys))


_FRONT: Final = np.dtype([("by_time", "S1"), ("end_ms", ">i8"), ("start_ms", ">i8")])
_DUE: Final = np.dtype([("by_time", "S1"), ("time_ms", ">i8")])


class WindowEnds(NamedTuple):
    """The windows of keys, a row for each."""

    keys: pa.BinaryArray
    starts_ms: Integers
    ends_ms: Integers


def encode_window_ends(windows: WindowEnds) -> pa.BinaryArray:
    """Return where each window stands in order of time. Starts and ends are 0 or more."""
    fronts = np.zeros(len(windows.keys), _FRONT)
    fronts["by_time"], fronts["end_ms"], fronts["start_ms"] = BY_TIME, windows.ends_ms, windows.starts_ms
    return join_rows([rows_of_numbers(fronts), windows.keys], "ends of windows")


def decode_window_ends(places: pa.BinaryArray) -> WindowEnds:
    """Return which window stands at each place. Raises FormatError for one that `window_end_key` would refuse."""
    fronts, keys = _split_fronts(places, _FRONT)
    return WindowEnds(keys, fronts["start_ms"].astype(np.int64), fronts["end_ms"].astype(np.int64))


def encode_due_keys(times_ms: Integers, keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return `due_key` of each time and key. Times are 0 or more."""
    fronts = np.zeros(len(keys), _DUE)
    fronts["by_time"], fronts["time_ms"] = BY_TIME, times_ms
    return join_rows([rows_of_numbers(fronts), keys], "keys by time")


def encode_expiry_keys(keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return `expiry_key` of each key."""
    return join_rows([pa.repeat(pa.scalar(expiry_key(b""), pa.binary()), len(keys)), keys], "keys of expiries")


def decode_due_keys(places: pa.BinaryArray) -> tuple[Integers, pa.BinaryArray]:
    """Return `time_and_key` of each place. Raises FormatError for a place of another kind."""
    fronts, keys = _split_fronts(places, _DUE)
    return fronts["time_ms"].astype(np.int64), keys


def _split_fronts(places: pa.BinaryArray, front: np.dtype[np.void]) -> tuple[npt.NDArray[np.void], pa.BinaryArray]:
    """Return the fronts of places, and the keys behind them."""
    positions, data = positions_and_bytes(places)
    sizes = positions[1:] - positions[:-1]
    refuse_unsound(sizes < front.itemsize, window_end_key, places)
    bytes_of_fronts = data[positions[:-1, np.newaxis] + np.arange(front.itemsize)]
    fronts: npt.NDArray[np.void] = bytes_of_fronts.view(front).reshape(len(places))
    refuse_unsound(fronts["by_time"] != BY_TIME, window_end_key, places)
    parts = np.empty(2 * len(places) + 1, np.int64)
    parts[::2], parts[1::2] = positions, positions[:-1] + front.itemsize
    return fronts, binary_array(parts, data).take(pa.array(np.arange(1, len(parts), 2)))
