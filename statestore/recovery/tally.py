"""Counts and checksums of what stores hold, to compare two states without holding either in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from statestore.recovery.logical_writes import LogicalWrite

_HEAD: Final = struct.Struct(">qq?")
_DIGEST_SIZE_BYTES: Final = 16
_DIGESTS: Final = 1 << (8 * _DIGEST_SIZE_BYTES)


class Tally:
    """How many entries there are, of how many bytes, and a checksum of them in whatever order they come."""

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0
        """Of keys and values."""
        self._digest = 0

    def add(self, writes: Iterable[LogicalWrite]) -> int:
        """Count entries in; return how many bytes they are."""
        entries = size_bytes = digests = 0
        for key, stored, timestamp_ms in writes:
            head = _HEAD.pack(len(key), -1 if timestamp_ms is None else timestamp_ms, stored is not None)
            content = b"".join((head, key, stored or b""))
            # The sum of all: in whatever order, and each as often as it is there.
            digests += int.from_bytes(blake2b(content, digest_size=_DIGEST_SIZE_BYTES).digest(), "big")
            entries += 1
            size_bytes += len(content) - _HEAD.size
        self.entries += entries
        self.size_bytes += size_bytes
        self._digest = (self._digest + digests) % _DIGESTS
        return size_bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.entries, self._digest) == (other.entries, other._digest)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.entries} entries with the checksum {self._digest:032x}"
