"""The iterators that stores hand out, and what they yield of windows and sessions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, Generic, NamedTuple, TypeVar

from statestore.errors import StoreError

E = TypeVar("E")


class Windowed(NamedTuple):
    """A key with the window or session that it belongs to.

    Times are milliseconds since the epoch. A window's end is not part of it; a session's is. Kafka's Windowed.
    """

    key: Any
    start_ms: int
    end_ms: int


class StoreIterator(Generic[E]):
    """Yields entries of a store as it was when the iterator was asked for. Use it in a `with`, or close it.

    One that was read to its end is closed already. Raises StoreClosedError where it would go on after its store was
    closed.
    """

    def __init__(self, store: str, entries: Generator[E, None, None]) -> None:
        self._store = store
        self._entries = entries
        self._peeked: list[E] = []
        self._closed = False
        self._when_closed: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there may be more to come: not closed, and not read to the end."""
        return not self._closed and (bool(self._peeked) or getgeneratorstate(self._entries) != GEN_CLOSED)

    def __iter__(self) -> Iterator[E]:
        # A for loop over the generator itself is twice as fast as one through __next__.
        return self if self._peeked or self._closed else self._entries

    def __next__(self) -> E:
        if self._closed:
            raise StoreError(self._store, "this iterator was closed")
        return self._peeked.pop() if self._peeked else next(self._entries)

    def peek_next(self) -> E:
        """Return the entry that comes next without moving on. Raises StopIteration at the end."""
        if not self._peeked:
            self._peeked.append(next(self))
        return self._peeked[0]

    def peek_next_key(self) -> Any:
        """Return the key of the entry that comes next without moving on. Raises StopIteration at the end."""
        entry: Any = self.peek_next()
        return entry[0]

    def on_close(self, notify: Callable[[], None]) -> None:
        """Have `notify` called once, when the iterator is closed, read to its end, or forgotten."""
        # Watch the generator, not this object: a for loop keeps only the generator.
        self._when_closed = weakref.finalize(self._entries, notify)
        self._entries = _notify_at_end(self._entries, self._when_closed)

    def close(self) -> None:
        """Let go of what the iterator holds. Closing twice is harmless."""
        self._closed = True
        self._peeked.clear()
        self._entries.close()
        if self._when_closed is not None:
            self._when_closed()

    def __enter__(self) -> StoreIterator[E]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _notify_at_end(entries: Generator[E, None, None], notify: Callable[[], None]) -> Generator[E, None, None]:
    yield from entries
    notify()
