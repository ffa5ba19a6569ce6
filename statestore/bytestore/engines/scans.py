"""Scans: of keys in order, of those that begin with a prefix, and those that a byte store has handed out."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from statestore.bytestore.protocol import ByteStore, Pair, Range
from statestore.errors.state import StoreClosedError

_MANY = 1_000  # from so many new keys on, sorting is faster than inserting them one by one


class KeyOrder:
    """The keys of `keys`, a collection that its owner changes, in ascending order."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = keys
        self.is_kept = False
        """Whether a range was asked for: before that, additions and removals need not be noted."""
        self._ordered: list[bytes] = []
        self._added: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Note that `key` is new among the keys."""
        if self.is_kept:
            self._added.append(key)

    def add_all(self, keys: Iterable[bytes]) -> None:
        """Note that all of these are new among the keys; while no order is kept, `keys` is not iterated."""
        if self.is_kept:
            self._added.extend(keys)

    def remove(self, key: bytes) -> None:
        """Note that `key` is gone from the keys."""
        if self.is_kept:
            self._settle()
            del self._ordered[bisect_left(self._ordered, key)]

    def forget(self) -> None:
        """Drop the order: the keys have changed in other ways."""
        self.is_kept = False
        self._ordered = []
        self._added.clear()

    def between(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> list[bytes]:
        """Return the keys from `start` to `end`, both inclusive, None = open, descending if `reverse`."""
        ordered = self._settle()
        low = 0 if start is None else bisect_left(ordered, start)
        high = len(ordered) if end is None else bisect_right(ordered, end)
        found = ordered[low:high]
        return found[::-1] if reverse else found

    def _settle(self) -> list[bytes]:
        if not self.is_kept:
            self._ordered = sorted(self._keys)
            self.is_kept = True
        elif not self._added:
            return self._ordered
        elif len(self._added) < _MANY:
            for key in self._added:
                insort(self._ordered, key)
        else:
            self._ordered += self._added
            self._ordered.sort()
        self._added.clear()
        return self._ordered


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the least key after all that begin with `prefix`; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def pairs_with_prefix(store: ByteStore, prefix: bytes, start: bytes | None = None) -> Iterator[Pair]:
    """Yield the pairs whose keys begin with `prefix`, ascending, as of the call; from `prefix` + `start` on, if given.

    The range ends with the prefix, as a store that holds writes in memory copies the whole range.
    """
    pairs = store.range(prefix + (start or b""), prefix_end(prefix))
    # The end is inclusive, and may itself be a key.
    return takewhile(lambda pair: pair[0].startswith(prefix), pairs)


class ScannedStore(ByteStore):
    """A byte store that closes its scans when it is closed. Subclasses override what they can do faster."""

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
        self._scans.add(scan)
        return scan

    def _require_open(self) -> None:
        if not self.is_open:
            raise StoreClosedError(self.name)
