"""Kafka's default partitioning of keys: murmur2 of the key bytes, made positive, modulo the partition count.

So the shard of a key is the partition that a Kafka producer would choose for a topic with as many partitions.
Source: Utils.murmur2, Utils.toPositive, BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Partitions: TypeAlias = npt.NDArray[np.int32]
Hashes: TypeAlias = npt.NDArray[np.uint32]

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_M = np.uint32(_FACTOR)
_MASK = 0xFFFFFFFF
_WORD = struct.Struct("<I")
_FEW: Final = 32
"""Keys: of fewer, each is hashed alone in less time than all take a turn for each word of the longest one."""


def partition_column(keys: pa.BinaryArray, partitions: int) -> Partitions:
    """Return the partition, from 0 to `partitions` - 1, of each key; keys must not be null."""
    if partitions < 1:
        raise ValueError(f"partitions must be at least 1, not {partitions}")
    positive = murmur2_column(keys) & np.uint32(0x7FFFFFFF)
    found: Partitions = (positive % np.uint32(partitions)).astype(np.int32)
    return found


def partition_of(key: bytes, partitions: int) -> int:
    """Return what `partition_column` returns for one key, without the cost of a column."""
    whole = len(key) & ~3
    hashed = _mix_words(_SEED ^ len(key), key[:whole])
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions


def murmur2_column(keys: pa.BinaryArray) -> Hashes:
    """Return Kafka's murmur2 of each key, unsigned. Keys must not be null."""
    if keys.null_count:
        raise ValueError("keys must not be null")
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = keys.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    hashes: Hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths // 4
    rows, mixed = np.flatnonzero(words), 0
    while len(rows) >= _FEW:
        shortest = int(words[rows].min())
        for index in range(mixed, shortest):
            hashes[rows] = _mix(hashes[rows], _little_endian(content, starts[rows] + 4 * index, 4))
        rows, mixed = rows[words[rows] > shortest], shortest
    for row in rows.tolist():
        left = content[starts[row] + 4 * mixed : starts[row] + 4 * words[row]]
        hashes[row] = _mix_words(int(hashes[row]), left.tobytes())
    for tail in (1, 2, 3):
        rows = np.nonzero(lengths % 4 == tail)[0]
        hashes[rows] = (hashes[rows] ^ _little_endian(content, starts[rows] + 4 * words[rows], tail)) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _mix_words(hashed: int, words: bytes) -> int:
    for (word,) in _WORD.iter_unpack(words):
        word = word * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ ((word ^ word >> 24) * _FACTOR & _MASK)
    return hashed


def _mix(hashes: Any, word: Any) -> Any:
    word = word * _M
    word ^= word >> np.uint32(24)
    return (hashes * _M) ^ (word * _M)


def _little_endian(content: Any, positions: Any, size: int) -> Any:
    word = np.zeros(len(positions), np.uint32)
    for byte in range(size):
        word |= content[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
