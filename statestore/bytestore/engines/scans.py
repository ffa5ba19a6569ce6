"""Scans: of keys in order, of those that begin with a prefix, and those that a byte store has handed out."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Generic, TypeVar

from statestore.bytestore.protocol import ByteStore, Pair, Range
from statestore.errors.state import StoreClosedError

_MANY = 128  # from so many new keys on, sorting is faster than inserting them one by one
_FEW = 32  # pairs: of no more, all are copied at once

V = TypeVar("V")


class KeyOrder(Generic[V]):
    """The keys of `held`, which its owner changes, in ascending order, and scans of what it holds."""

    def __init__(self, held: Mapping[bytes, V]) -> None:
        self._held = held
        self.is_kept = False
        """Whether a range was asked for: before that, changes need not be announced."""
        self._ordered: list[bytes] = []
        self._added: list[bytes] = []
        self._scans: weakref.WeakSet[PairScan[V]] | None = None
        """Those that may not have copied all; None if none has begun since the last change: every put looks here."""

    def expect(self, *keys: bytes) -> None:
        """Note that these keys are about to be set; while no order is kept, that need not be called."""
        if self._scans is not None:
            self._copy_scans()
        for key in keys:
            if key not in self._held:
                self._added.append(key)

    def remove(self, key: bytes) -> None:
        """Note that `key` is about to go."""
        if self.is_kept:
            self._copy_scans()
            self._settle()
            del self._ordered[bisect_left(self._ordered, key)]

    def remove_below(self, end: bytes) -> list[bytes]:
        """Return the keys below `end`, which are about to go."""
        self._copy_scans()
        ordered = self._settle()
        gone = bisect_left(ordered, end)
        keys = ordered[:gone]
        del ordered[:gone]
        return keys

    def forget(self) -> None:
        """Drop the order: the keys are about to change in other ways."""
        self._copy_scans()
        self.is_kept = False
        self._ordered = []
        self._added = []

    def between(self, start: bytes | None, end: bytes | None) -> list[bytes]:
        """Return the keys from `start` to `end`, both inclusive, None = open, ascending."""
        low, high = self._span(start, end)
        return self._ordered[low:high]

    def pairs(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> list[tuple[bytes, V]] | PairScan[V]:
        """Return the pairs of these keys as of the call, descending if `reverse`, to be iterated once; false if none.

        Many are copied when they are read, or before a change: who looks at the first one alone pays for no other.
        """
        low, high = self._span(start, end)
        if high - low > _FEW:
            scan = PairScan(self._held, self._ordered, low, high, reverse)
            if self._scans is None:
                self._scans = weakref.WeakSet()
            self._scans.add(scan)
            return scan
        found = [(key, self._held[key]) for key in self._ordered[low:high]]
        return found[::-1] if reverse else found

    def _copy_scans(self) -> None:
        for scan in self._scans or ():
            scan.copy()
        self._scans = None

    def _span(self, start: bytes | None, end: bytes | None) -> tuple[int, int]:
        ordered = self._settle()
        low = 0 if start is None else bisect_left(ordered, start)
        high = len(ordered) if end is None else bisect_right(ordered, end)
        return low, max(low, high)

    def _settle(self) -> list[bytes]:
        if not self.is_kept:
            self._ordered = sorted(self._held)
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


class PairScan(Generic[V]):
    """The pairs of the keys from `low` to before `high` in `ordered`, as they are until `copy` is called."""

    def __init__(self, held: Mapping[bytes, V], ordered: list[bytes], low: int, high: int, reverse: bool) -> None:
        self._held, self._ordered = held, ordered
        self._low, self._high = low, high
        self._reverse = reverse
        self._copied: list[tuple[bytes, V]] = []

    def copy(self) -> None:
        """Copy what was not read yet."""
        self._copied = self._take(self._high - self._low)

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        count = _FEW
        while self._low < self._high:
            yield from self._take(count)
            count *= 2
        yield from self._copied

    def _take(self, count: int) -> list[tuple[bytes, V]]:
        if self._reverse:
            end, self._high = self._high, max(self._low, self._high - count)
            keys = self._ordered[self._high : end][::-1]
        else:
            start, self._low = self._low, min(self._low + count, self._high)
            keys = self._ordered[start : self._low]
        return [(key, self._held[key]) for key in keys]


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
