"""Rows of a versioned store: the latest version of a key, and its older versions in one time segment.

    latest_row  := valid_from_ms:i64_be value:u8[..]                   never a tombstone
    segment_row := next_timestamp_ms:i64_be min_timestamp_ms:i64_be
                   { valid_from_ms:i64_be value_size:i32_be }+         newest first; the last has min_timestamp_ms
                   { value:u8[value_size] }*                           oldest first

A value size of -1 is a tombstone, which has no bytes; 0 is an empty value. A version is valid until the one listed
before it begins, the newest until `next_timestamp_ms`. A *degenerate* row says only that the key was deleted: one
tombstone, with `next_timestamp_ms` equal to its own timestamp.
Source: RocksDBVersionedStore and RocksDBVersionedStoreSegmentValueFormatter of Kafka Streams. In a versioned store with
headers, `value` is a `value_headers`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from statestore.errors import FormatError, NegativeLengthError, TruncatedError

_BOUNDS: Final = struct.Struct(">qq")
_VERSION: Final = struct.Struct(">qi")
_LATEST: Final = struct.Struct(">q")
_TOMBSTONE_SIZE: Final = -1


class Version(NamedTuple):
    """One version of a key; a value of None is a tombstone."""

    valid_from_ms: int
    value: bytes | None


def encode_latest_row(valid_from_ms: int, value: bytes) -> bytes:
    """Return the row of a key's latest version."""
    return _LATEST.pack(valid_from_ms) + value


def decode_latest_row(row: bytes) -> tuple[int, bytes]:
    """Return when the latest version became valid, in ms, and its value. Raises TruncatedError."""
    if len(row) < _LATEST.size:
        raise TruncatedError("latest version", wanted=_LATEST.size, got=len(row))
    return _LATEST.unpack_from(row)[0], row[_LATEST.size :]


@dataclass
class SegmentRow:
    """The versions of one key in one segment, newest first, the newest valid until `next_timestamp_ms`. Never empty."""

    next_timestamp_ms: int
    versions: list[Version]

    @property
    def min_timestamp_ms(self) -> int:
        """When the oldest version became valid."""
        return self.versions[-1].valid_from_ms

    @property
    def is_degenerate(self) -> bool:
        """Whether the row holds a tombstone and nothing that it ends."""
        return self.next_timestamp_ms == self.min_timestamp_ms

    def intervals(self) -> Iterator[tuple[Version, int]]:
        """Yield each version, newest first, with the time at which it stops being valid."""
        valid_to_ms = self.next_timestamp_ms
        for version in self.versions:
            yield version, valid_to_ms
            valid_to_ms = version.valid_from_ms

    def find(self, timestamp_ms: int) -> tuple[int, Version, int]:
        """Return index, version and end of what was valid at a time from `min_timestamp_ms` on."""
        for index, (version, valid_to_ms) in enumerate(self.intervals()):
            if version.valid_from_ms <= timestamp_ms:
                return index, version, valid_to_ms
        raise ValueError(f"the row begins at {self.min_timestamp_ms}, after {timestamp_ms}")

    def insert_as_latest(self, version: Version, valid_to_ms: int) -> None:
        """Add a version that is newer than all others; what there was since its time goes.

        A row that reaches beyond that time was left by a crash between two writes of Kafka Streams.
        """
        start_ms = version.valid_from_ms
        if start_ms < self.next_timestamp_ms:
            self.versions = [older for older in self.versions if older.valid_from_ms < start_ms]
            self.next_timestamp_ms = start_ms
        elif self.is_degenerate:
            self.versions = []
        if self.next_timestamp_ms != start_ms:
            self.versions.insert(0, Version(self.next_timestamp_ms, None))
        self.versions.insert(0, version)
        self.next_timestamp_ms = valid_to_ms

    def insert_as_earliest(self, version: Version) -> None:
        """Add a version that is older than all others."""
        if self.is_degenerate:
            self.versions = []
        self.versions.append(version)

    def encode(self) -> bytes:
        """Return the row's bytes."""
        parts = [_BOUNDS.pack(self.next_timestamp_ms, self.min_timestamp_ms)]
        parts += [
            _VERSION.pack(start_ms, _TOMBSTONE_SIZE if value is None else len(value))
            for start_ms, value in self.versions
        ]
        parts += [value for _, value in reversed(self.versions) if value]
        return b"".join(parts)


def decode_segment_row(row: bytes) -> SegmentRow:
    """Return the row in `row`. Raises TruncatedError, NegativeLengthError or FormatError if it is none."""
    if len(row) < _BOUNDS.size + _VERSION.size:
        raise TruncatedError("versions of a segment", wanted=_BOUNDS.size + _VERSION.size, got=len(row))
    next_timestamp_ms, min_timestamp_ms = _BOUNDS.unpack_from(row)
    starts, sizes = [], []
    position, newer_ms = _BOUNDS.size, next_timestamp_ms + 1
    while newer_ms != min_timestamp_ms:
        if position + _VERSION.size > len(row):
            raise TruncatedError("list of versions", wanted=_VERSION.size, got=len(row) - position)
        start_ms, size = _VERSION.unpack_from(row, position)
        if size < _TOMBSTONE_SIZE:
            raise NegativeLengthError("version", length=size)
        if not min_timestamp_ms <= start_ms < newer_ms:
            raise FormatError("list of versions", f"{start_ms} is out of order")
        starts.append(start_ms)
        sizes.append(size)
        newer_ms = start_ms
        position += _VERSION.size
    end = len(row)
    needed = sum(size for size in sizes if size > 0)
    if needed != end - position:
        raise TruncatedError("values of versions", wanted=needed, got=end - position)
    versions = []
    for start_ms, size in zip(starts, sizes, strict=True):
        start = end - max(size, 0)
        versions.append(Version(start_ms, None if size == _TOMBSTONE_SIZE else row[start:end]))
        end = start
    return SegmentRow(next_timestamp_ms, versions)


def convert_latest_row(row: bytes, convert: Callable[[bytes | None], bytes | None]) -> bytes:
    """Return a latest row with its value converted."""
    valid_from_ms, value = decode_latest_row(row)
    converted = convert(value)
    assert converted is not None  # a conversion returns None for None only
    return encode_latest_row(valid_from_ms, converted)


def convert_segment_row(row: bytes, convert: Callable[[bytes | None], bytes | None]) -> bytes:
    """Return a segment row with each of its values converted."""
    decoded = decode_segment_row(row)
    decoded.versions = [Version(start_ms, convert(value)) for start_ms, value in decoded.versions]
    return decoded.encode()
