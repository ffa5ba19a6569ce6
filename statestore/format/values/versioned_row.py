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

import reprlib
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import gt, neg
from typing import Final, NamedTuple, TypeAlias

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError

_BOUNDS: Final = struct.Struct(">qq")
_VERSION: Final = struct.Struct(">qi")
_LATEST: Final = struct.Struct(">q")
LATEST_TIME_SIZE: Final = _LATEST.size
"""How many bytes of a latest row stand before the value."""
_LEAST_SIZE: Final = _BOUNDS.size + _VERSION.size
_TOMBSTONE_SIZE: Final = -1
_FEW_VERSIONS: Final = 64
"""The most versions that one layout unpacks. That is more than twice as fast, but each layout takes memory."""
_Listed: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


class Version(NamedTuple):
    """One version of a key; a value of None is a tombstone."""

    valid_from_ms: int
    value: bytes | None


make_version: Final[Callable[[tuple[int, bytes | None]], Version]] = partial(tuple.__new__, Version)
"""Makes one of a tuple of its fields, in a third of the time that a call of Version takes."""


def latest_start_ms(row: bytes) -> int:
    """Return when the latest version became valid, in ms. Raises TruncatedError."""
    if len(row) < _LATEST.size:
        raise TruncatedError("latest version", wanted=_LATEST.size, got=len(row))
    start_ms: int = _LATEST.unpack_from(row)[0]
    return start_ms


def encode_latest_row(valid_from_ms: int, value: bytes) -> bytes:
    """Return the row of a key's latest version."""
    return _LATEST.pack(valid_from_ms) + value


def decode_latest_row(row: bytes) -> tuple[int, bytes]:
    """Return when the latest version became valid, in ms, and its value. Raises TruncatedError."""
    return latest_start_ms(row), row[_LATEST.size :]


class SegmentRow:
    """The versions of one key in one segment, newest first, the newest valid until `next_timestamp_ms`. Never empty.

    It is a view of the row's bytes, and what changes it returns the bytes of another row. The list of versions is read
    only where it is needed: all but the constructor raise FormatError if it is not one, as `decode_segment_row` does.
    """

    __slots__ = ("_listed", "encoded", "min_timestamp_ms", "next_timestamp_ms")

    def __init__(self, encoded: bytes) -> None:
        """Make the row of its bytes. Raises TruncatedError if they are too few for one."""
        if len(encoded) < _LEAST_SIZE:
            raise TruncatedError("versions of a segment", wanted=_LEAST_SIZE, got=len(encoded))
        self.encoded = encoded
        self.next_timestamp_ms, self.min_timestamp_ms = _BOUNDS.unpack_from(encoded)
        """Until when the newest version is valid, and since when the oldest."""
        self._listed: _Listed | None = None

    @property
    def is_degenerate(self) -> bool:
        """Whether the row holds a tombstone and nothing that it ends."""
        return bool(self.next_timestamp_ms == self.min_timestamp_ms)

    @property
    def versions(self) -> list[Version]:
        """The versions, newest first."""
        starts_ms, sizes = self._list()
        row, end, versions = self.encoded, len(self.encoded), []
        for start_ms, size in zip(starts_ms, sizes, strict=True):
            start = end - max(size, 0)
            versions.append(make_version((start_ms, None if size == _TOMBSTONE_SIZE else row[start:end])))
            end = start
        return versions

    def intervals(self) -> Iterator[tuple[Version, int]]:
        """Yield each version, newest first, with the time at which it stops being valid."""
        versions = self.versions
        return zip(versions, (self.next_timestamp_ms, *(start_ms for start_ms, _ in versions)), strict=False)

    def find(self, timestamp_ms: int) -> tuple[int, Version, int]:
        """Return index, version and end of what was valid at a time from `min_timestamp_ms` on."""
        starts_ms, sizes = self._list()
        index = bisect_left(starts_ms, -timestamp_ms, key=neg)
        if index == len(starts_ms):
            raise ValueError(f"the row begins at {self.min_timestamp_ms}, after {timestamp_ms}")
        start = _BOUNDS.size + _VERSION.size * len(starts_ms) + _total(sizes[index + 1 :])
        value = None if sizes[index] == _TOMBSTONE_SIZE else self.encoded[start : start + sizes[index]]
        valid_to_ms = starts_ms[index - 1] if index else self.next_timestamp_ms
        return index, make_version((starts_ms[index], value)), valid_to_ms

    def with_latest(self, version: Version, valid_to_ms: int) -> bytes:
        """Return the row with a version that is newer than all others; what there was since its time goes.

        A row that reaches beyond that time was left by a crash between two writes of Kafka Streams.
        """
        start_ms, value = version
        next_ms = self.next_timestamp_ms
        if start_ms == next_ms != self.min_timestamp_ms:  # nearly always; and values are oldest first for this
            row, size = self.encoded, _TOMBSTONE_SIZE if value is None else len(value)
            bounds = _BOUNDS.pack(valid_to_ms, self.min_timestamp_ms)
            return b"".join((bounds, _VERSION.pack(start_ms, size), row[_BOUNDS.size :], value or b""))
        gone = 0
        if start_ms < next_ms:
            gone = bisect_left(self._list()[0], 1 - start_ms, key=neg)
        elif self.is_degenerate:
            gone = 1
        gap = [Version(next_ms, None)] if start_ms > next_ms else []
        return self._spliced(0, gone, [version, *gap], valid_to_ms)

    def with_earliest(self, version: Version) -> bytes:
        """Return the row with a version that is older than all others."""
        count = len(self._list()[0])
        return self._spliced(0 if self.is_degenerate else count, count, [version], self.next_timestamp_ms)

    def with_version(self, version: Version, *, keeps_ended: bool) -> tuple[bytes, int, Version | None]:
        """Return the row with a version that begins from `min_timestamp_ms` to before `next_timestamp_ms`.

        Also return when it ceases to be valid, and the version that it ends, if that leaves the row: one that began
        earlier stays if the row `keeps_ended`.
        """
        start_ms, value = version
        starts_ms, sizes = self._list()
        index = bisect_left(starts_ms, -start_ms, key=neg)
        found_ms, size = starts_ms[index], sizes[index]
        row, older = self.encoded, sizes[index + 1 :]
        begin = _BOUNDS.size + _VERSION.size * len(starts_ms) + sum(older) + older.count(_TOMBSTONE_SIZE)
        end = begin if size == _TOMBSTONE_SIZE else begin + size
        listed_at = _BOUNDS.size + _VERSION.size * index
        bounds, listed_behind, ended = row[: _BOUNDS.size], listed_at, None
        if found_ms != start_ms and keeps_ended:
            begin = end
        else:
            listed_behind += _VERSION.size
            if found_ms != start_ms:
                ended = Version(found_ms, None if size == _TOMBSTONE_SIZE else row[begin:end])
                if not older:
                    bounds = _BOUNDS.pack(self.next_timestamp_ms, start_ms)
        listed = _VERSION.pack(start_ms, _TOMBSTONE_SIZE if value is None else len(value))
        older_values = row[listed_behind:begin]  # and the list of the older versions
        changed = b"".join((bounds, row[_BOUNDS.size : listed_at], listed, older_values, value or b"", row[end:]))
        return changed, starts_ms[index - 1] if index else self.next_timestamp_ms, ended

    def _spliced(self, first: int, end: int, versions: list[Version], next_timestamp_ms: int) -> bytes:
        """Return the row with `versions` in the place of those from `first` to before `end`."""
        row, (starts_ms, sizes) = self.encoded, self._list()
        values_at = _BOUNDS.size + _VERSION.size * len(starts_ms)
        min_ms = self.min_timestamp_ms if end < len(starts_ms) else versions[-1].valid_from_ms
        return b"".join(
            (
                _BOUNDS.pack(next_timestamp_ms, min_ms),
                row[_BOUNDS.size : _BOUNDS.size + _VERSION.size * first],
                *[_listed_version(version) for version in versions],
                row[_BOUNDS.size + _VERSION.size * end : values_at + _total(sizes[end:])],  # and the older values
                *[version.value for version in reversed(versions) if version.value],
                row[values_at + _total(sizes[first:]) :],
            )
        )

    def _list(self) -> _Listed:
        if self._listed is None:
            self._listed = _read_list(self.encoded, self.next_timestamp_ms)
        return self._listed


def encode_segment_row(next_timestamp_ms: int, versions: Sequence[Version]) -> bytes:
    """Return the row of one or more versions, newest first, of which the newest is valid until `next_timestamp_ms`."""
    listed = [_listed_version(version) for version in versions]
    values = [version.value for version in reversed(versions) if version.value]
    return b"".join((_BOUNDS.pack(next_timestamp_ms, versions[-1].valid_from_ms), *listed, *values))


def decode_segment_row(row: bytes) -> SegmentRow:
    """Return the row in `row`. Raises TruncatedError, NegativeLengthError or FormatError if it is not one."""
    decoded = SegmentRow(row)
    decoded._list()
    return decoded


@lru_cache(_FEW_VERSIONS)
def _list_layout(count: int) -> struct.Struct:
    return struct.Struct(">" + "qi" * count)


def _listed_version(version: Version) -> bytes:
    return _VERSION.pack(version.valid_from_ms, _TOMBSTONE_SIZE if version.value is None else len(version.value))


def _total(sizes: tuple[int, ...]) -> int:
    return sum(sizes) + sizes.count(_TOMBSTONE_SIZE)


def _read_list(row: bytes, next_timestamp_ms: int) -> _Listed:
    # The list ends with the first version that begins at the row's minimum; nothing here loops over versions in Python.
    last_start = row[_LATEST.size : _BOUNDS.size]
    position = row.find(last_start, _BOUNDS.size)
    while position >= 0 and (position - _BOUNDS.size) % _VERSION.size:
        position = row.find(last_start, position + 1)
    values_at = position + _VERSION.size
    if position < 0 or values_at > len(row):
        raise FormatError("list of versions", "it has none that begins when the row does")
    count = (position - _BOUNDS.size) // _VERSION.size + 1
    if count <= _FEW_VERSIONS:
        listed = _list_layout(count).unpack_from(row, _BOUNDS.size)
    else:
        listed = tuple(chain.from_iterable(_VERSION.iter_unpack(row[_BOUNDS.size : values_at])))
    starts_ms, sizes = listed[::2], listed[1::2]
    if min(sizes) < _TOMBSTONE_SIZE:
        raise NegativeLengthError("version", length=min(sizes))
    if starts_ms[0] > next_timestamp_ms or not all(map(gt, starts_ms, starts_ms[1:])):
        raise FormatError("list of versions", f"its times are out of order: {reprlib.repr(starts_ms)}")
    if (needed := _total(sizes)) != len(row) - values_at:
        raise TruncatedError("values of versions", wanted=needed, got=len(row) - values_at)
    return starts_ms, sizes


def convert_latest_row(row: bytes, convert: Callable[[bytes | None], bytes | None]) -> bytes:
    """Return a latest row with its value converted."""
    valid_from_ms, value = decode_latest_row(row)
    converted = convert(value)
    assert converted is not None  # a conversion returns None for None only
    return encode_latest_row(valid_from_ms, converted)


def convert_segment_row(row: bytes, convert: Callable[[bytes | None], bytes | None]) -> bytes:
    """Return a segment row with each of its values converted."""
    decoded = decode_segment_row(row)
    versions = [Version(start_ms, convert(value)) for start_ms, value in decoded.versions]
    return encode_segment_row(decoded.next_timestamp_ms, versions)
