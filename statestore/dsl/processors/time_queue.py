"""What is to be done when: keys in order of time, in a store of plain bytes, where all of it need not be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from statestore.format.due_key import due_key, last_due_place, time_and_key
from statestore.format.window_key import MAX_TIME_MS
from statestore.processor.context import ProcessorContext

_NEVER_MS: Final = MAX_TIME_MS


class TimeQueue:
    """Keys by time, of a shard. The earliest time of all is committed with the batch, as processor metadata.

    So most records look nothing up, and what was taken from the front before, of which RocksDB keeps tombstones for a
    while, is not gone through again.
    """

    def __init__(self, context: ProcessorContext, store: str) -> None:
        self._context, self._name = context, store
        self._store = context.state_store(store)
        recorded = context.processor_metadata(store)
        self.is_unknown = recorded is None
        """Whether it is not known what is in the queue: it is new, or its state came from elsewhere."""
        self.first_ms = self._recorded_ms = _NEVER_MS if recorded is None else recorded
        """No time is earlier; in an empty queue the last one that there is."""

    def put(self, time_ms: int, key: bytes) -> None:
        """Add a key at a time; one that is there already stays."""
        self._store.put(due_key(time_ms, key), b"")
        self.first_ms = min(self.first_ms, time_ms)

    def remove(self, time_ms: int, key: bytes) -> None:
        """Take a key out at a time, if it is there."""
        self._store.put(due_key(time_ms, key), None)

    def take(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, bytes]]:
        """Take times and keys out, earliest first and in order of keys within one, as long as a time is wanted.

        `is_wanted` is asked before each, with its time. Nothing may be put meanwhile.
        """
        if not is_wanted(self.first_ms):
            return
        with self._store.range(due_key(self.first_ms, b""), last_due_place()) as places:
            for place, _ in places:
                time_ms, key = time_and_key(place)
                self.first_ms = time_ms
                if not is_wanted(time_ms):
                    return
                self._store.put(place, None)
                yield time_ms, key
        self.first_ms = _NEVER_MS

    def record(self) -> None:
        """Have the earliest time committed with the batch."""
        if self.is_unknown or self.first_ms != self._recorded_ms:
            self._context.set_processor_metadata(self._name, self.first_ms)
            self._recorded_ms, self.is_unknown = self.first_ms, False
