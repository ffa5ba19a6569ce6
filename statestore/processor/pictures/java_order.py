"""The orders in which Java's collections list names, which are those of Kafka's descriptions.

Source: java.util.HashMap, TreeMap and String.hashCode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_SMALLEST_TABLE: Final = 16


def in_hash_order(names: Iterable[str]) -> list[str]:
    """Return different names in the order of a HashMap or HashSet to which they were added one by one."""
    added = list(names)
    buckets = _SMALLEST_TABLE
    while 4 * len(added) > 3 * buckets:
        buckets *= 2
    return sorted(added, key=lambda name: _spread(_hash_code(name)) % buckets)


def _hash_code(text: str) -> int:
    """Return String.hashCode, without a sign."""
    units = text.encode("utf-16-be")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code


def _spread(code: int) -> int:
    return code ^ code >> 16


@dataclass(eq=False)
class _Entry(Generic[T]):
    value: T
    parent: _Entry[T] | None
    left: _Entry[T] | None = None
    right: _Entry[T] | None = None
    is_red: bool = True


class JavaTreeSet(Generic[T]):
    """A TreeSet that is only added to, and whose comparator may change its answer between two calls.

    A sorted list would not do: the shape of the tree decides which values a new one is compared with, and so where it
    ends up. So the tree has the shape of Java's.
    """

    def __init__(self, is_before: Callable[[T, T], bool]) -> None:
        self._is_before = is_before
        self._root: _Entry[T] | None = None

    def add(self, value: T) -> None:
        """Add a value that is not there yet."""
        parent, below = None, self._root
        while below is not None:
            parent, goes_left = below, self._is_before(value, below.value)
            below = below.left if goes_left else below.right
        entry = _Entry(value, parent)
        if parent is None:
            self._root = entry
        elif goes_left:
            parent.left = entry
        else:
            parent.right = entry
        self._repair(entry)

    def __iter__(self) -> Iterator[T]:
        above: list[_Entry[T]] = []
        entry = self._root
        while above or entry is not None:
            while entry is not None:
                above.append(entry)
                entry = entry.left
            entry = above.pop()
            yield entry.value
            entry = entry.right

    def _repair(self, entry: _Entry[T]) -> None:
        """Let no red entry be below a red one."""
        while (parent := entry.parent) is not None and parent.is_red and (grand := parent.parent) is not None:
            is_left = parent is grand.left
            uncle = grand.right if is_left else grand.left
            if uncle is not None and uncle.is_red:
                parent.is_red = uncle.is_red = False
                grand.is_red = True
                entry = grand
                continue
            if entry is (parent.right if is_left else parent.left):
                self._lift(entry)
                entry, parent = parent, entry
            parent.is_red, grand.is_red = False, True
            self._lift(parent)
        assert self._root is not None
        self._root.is_red = False

    def _lift(self, entry: _Entry[T]) -> None:
        """Put an entry in its parent's place, and the parent below it."""
        parent = entry.parent
        assert parent is not None
        if entry is parent.left:
            parent.left, entry.right, moved = entry.right, parent, entry.right
        else:
            parent.right, entry.left, moved = entry.left, parent, entry.left
        if moved is not None:
            moved.parent = parent
        above = parent.parent
        entry.parent, parent.parent = above, entry
        if above is None:
            self._root = entry
        elif parent is above.left:
            above.left = entry
        else:
            above.right = entry
