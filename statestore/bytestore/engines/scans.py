"""Scans: of the keys that begin with a prefix, and those that a byte store has handed out."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator, Sequence
from itertools import takewhile
from typing import Any

from statestore.bytestore.protocol import ByteStore, Pair, Range
from statestore.errors.state import StoreClosedError


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least key that stands behind all that begin with `prefix`; None if none does."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def pairs_with_prefix(store: ByteStore, prefix: bytes, start: bytes | None = None) -> Iterator[Pair]:
    """Yield the pairs whose keys begin with `prefix`, ascending, as of the call; from `prefix` + `start` on, if given.

    A store that holds writes in memory copies what it is asked for, so it is not asked for more.
    """
    pairs = store.range(prefix + (start or b""), prefix_end(prefix))
    # The end is inclusive, and may be a key.
    return takewhile(lambda pair: pair[0].startswith(prefix), pairs)


class ScannedStore(ByteStore):
    """A byte store of which scans may be under way when it is closed; a store of its own has what is faster there."""

    name = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self._scans: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return not self._closed

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        return [self.get(key) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        self.write([(key, value)])

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        return [list(self.range(start, end)) for start, end in ranges]

    def close(self) -> None:
        """Close the store and its scans."""
        self._closed = True
        for scan in list(self._scans):
            scan.close()

    def _hand_out(self, scan: Generator[Pair, None, None]) -> Generator[Pair, None, None]:
        """Return a scan, which is closed with the store."""
        self._scans.add(scan)
        return scan

    def _require_open(self) -> None:
        if not self.is_open:
            raise StoreClosedError(self.name)
