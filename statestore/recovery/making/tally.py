"""Counts and checksums of what stores hold, to compare two states without holding either in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statestore.errors.new_state import StateCheckError
from statestore.recovery.making.logical_writes import LogicalWrite

_CHECKSUMS: Final = 1 << 64


class Tally:
    """How many entries there are, of how many bytes, and a checksum of them in whatever order they come.

    The checksum is of 64 bits, made of Python's own keyed hashes: those of one process can be compared, others can't.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0
        """Of keys and values."""
        self._checksum = 0

    def add(self, writes: Sequence[LogicalWrite]) -> int:
        """Count entries in; return how many bytes they are."""
        size_bytes = sum([len(key) + (0 if stored is None else len(stored)) for key, stored, _ in writes])
        self.entries += len(writes)
        self.size_bytes += size_bytes
        # The sum of all: in whatever order, and each as often as it is there.
        self._checksum = (self._checksum + sum(map(hash, writes))) % _CHECKSUMS
        return size_bytes

    def require(self, found: Tally, store: str, shard: int) -> None:
        """Raise StateCheckError unless the same was found in a shard's store."""
        if found != self:
            raise StateCheckError(store, shard=shard, expected=str(self), found=str(found))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.entries, self._checksum) == (other.entries, other._checksum)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return f"{self.entries} entries with the checksum {self._checksum:016x}"
