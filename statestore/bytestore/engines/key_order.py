"""The keys of a dict in order, kept only once somebody asks for a range: most batches never do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

_MANY = 1_000
"""From this many new keys on, sorting them in costs less than inserting them one by one."""


class KeyOrder:
    """The keys of `keys`, which its owner adds to and removes from, in ascending order."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = keys
        self.is_kept = False
        """Whether anybody has asked for a range: before, nobody need say what is added or removed."""
        self._ordered: list[bytes] = []
        self._added: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Note that `key` is new among the keys."""
        if self.is_kept:
            self._added.append(key)

    def add_all(self, keys: Iterable[bytes]) -> None:
        """Note that all of these are new among the keys; they are not looked at while no order is kept."""
        if self.is_kept:
            self._added.extend(keys)

    def remove(self, key: bytes) -> None:
        """Note that `key` is gone from the keys."""
        if self.is_kept:
            self._settle()
            del self._ordered[bisect_left(self._ordered, key)]

    def forget(self) -> None:
        """Note that the keys are others now."""
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
