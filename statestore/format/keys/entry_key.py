"""Where the entries of one key stand in a store: side by side, with no other key's between them.

    list entry   key_size:u32_be  key  index:u64_be
    map entry    key_size:u32_be  key  00  map_key
    windowed     key  start_ms:i64_be
    session      key  end_ms:i64_be  start_ms:i64_be

The size makes sure that no key's entries begin like another's, whatever bytes the keys have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors.data import TruncatedError
from statestore.format.binary_columns import join_rows, row_sizes, rows_of_numbers

VALUE_KEYS: Final = "value"
LIST_KEYS: Final = "list"
MAP_KEYS: Final = "map"
"""What is recorded of the keys of a store whose entries are values, or those of lists or of maps. Never rename."""
WINDOWED_KEYS: Final = "windowed"
SESSION_KEYS: Final = "session"
"""What is recorded of keys that have a window behind them, as in topics: its start, or end and start. Never rename.

It stands behind what is recorded of what they stand in: "map windowed" are maps of windowed keys.
"""

_KEY_SIZE: Final = struct.Struct(">I")
_INDEX: Final = struct.Struct(">Q")
_TIME_SIZE: Final = 8
_BEFORE_MAP_KEY: Final = b"\x00"
_BEHIND_MAP_KEYS: Final = b"\x01"


def sized(key: bytes) -> bytes:
    """Return a key behind its size: no other sized key begins with that."""
    return _KEY_SIZE.pack(len(key)) + key


def list_entry_key(key: bytes, index: int) -> bytes:
    """Return where entry `index` of a key's list stands."""
    return sized(key) + _INDEX.pack(index)


def list_bounds(key: bytes) -> tuple[bytes, bytes]:
    """Return the first and the last place of a key's list, both inclusive."""
    prefix = sized(key)
    return prefix + b"\x00" * _INDEX.size, prefix + b"\xff" * _INDEX.size


def list_index(entry_key: bytes) -> int:
    """Return the index of the list entry that stands there."""
    (index,) = _INDEX.unpack(entry_key[-_INDEX.size :])
    return int(index)


def map_entry_key(key: bytes, map_key: bytes) -> bytes:
    """Return where the entry `map_key` of a key's map stands."""
    return sized(key) + _BEFORE_MAP_KEY + map_key


def map_entry_keys(keys: pa.BinaryArray, map_keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return `map_entry_key` of each key and the map key beside it. Raises ValueError beyond 2^31 - 1 bytes."""
    between = pa.repeat(pa.scalar(_BEFORE_MAP_KEY, pa.binary()), len(keys))
    return join_rows([rows_of_numbers(row_sizes(keys).astype(">u4")), keys, between, map_keys], "keys of entries")


def map_bounds(key: bytes) -> tuple[bytes, bytes]:
    """Return where a key's map begins, and a place behind it where nothing stands."""
    prefix = sized(key)
    return prefix + _BEFORE_MAP_KEY, prefix + _BEHIND_MAP_KEYS


def key_at_front(entry_key: bytes) -> bytes:
    """Return the key that an entry of a list or a map belongs to. Raises TruncatedError if it has none."""
    start = _KEY_SIZE.size
    if len(entry_key) < start:
        raise TruncatedError("size of a key", wanted=start, got=len(entry_key))
    end = start + _KEY_SIZE.unpack_from(entry_key)[0]
    if len(entry_key) < end:
        raise TruncatedError("key of an entry", wanted=end, got=len(entry_key))
    return entry_key[start:end]


def map_key_of(key: bytes, entry_key: bytes) -> bytes:
    """Return the map key of the entry of `key`'s map that stands there."""
    return entry_key[_KEY_SIZE.size + len(key) + len(_BEFORE_MAP_KEY) :]


def with_windows(keys: str, are_sessions: Iterable[bool]) -> str:
    """Return what is recorded of `keys` if a record's key in them has windows behind it, the outermost first."""
    windows = [SESSION_KEYS if is_session else WINDOWED_KEYS for is_session in are_sessions]
    return " ".join(windows if windows and keys == VALUE_KEYS else [keys, *windows])


def windowed_key(entry_key: bytes) -> bytes:
    """Return the key that has a window behind it. Raises TruncatedError if there is none."""
    return _before_times(entry_key, 1)


def session_key(entry_key: bytes) -> bytes:
    """Return the key that has a session behind it. Raises TruncatedError if there is none."""
    return _before_times(entry_key, 2)


def before_times(entry_keys: pa.BinaryArray, times: int) -> pa.BinaryArray:
    """Return the keys that have so many times behind them."""
    return pc.binary_slice(entry_keys, 0, -times * _TIME_SIZE) if times else entry_keys


def _before_times(entry_key: bytes, times: int) -> bytes:
    size = times * _TIME_SIZE
    if len(entry_key) < size:
        raise TruncatedError("window of a key", wanted=size, got=len(entry_key))
    return entry_key[:-size]
