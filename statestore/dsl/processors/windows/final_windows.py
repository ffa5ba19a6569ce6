"""Windows that are put out once, when they close. Source: Kafka's EmitStrategy.onWindowClose (KIP-825).

When each window ends stands beside the store of windows, in `<name>-ends`: the end, the start and the key of each, in
this order, which is the one of Kafka's stores in order of time. So a record that closes nothing looks nothing up, and
one that does reads what it closes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from statestore.dsl.processors.changes_out import ChangesOut
from statestore.dsl.processors.time_queue import TimeQueue
from statestore.format.keys.due_key import WINDOW_END_KEYS, start_and_key, started_key
from statestore.format.serde import Serde, Serdes
from statestore.processor.context import ProcessorContext
from statestore.stores.builder import PartStore
from statestore.stores.holders import ValueTimestampHeaders
from statestore.stores.iterator import Windowed
from statestore.stores.stores import Stores

_ENDS = "{}-ends"


def store_of_ends(windows: str, *, is_persistent: bool) -> PartStore:
    """Return the store of when the windows of another store end."""
    make = Stores.persistent_key_value_store if is_persistent else Stores.in_memory_key_value_store
    builder = Stores.key_value_store_builder(make(_ENDS.format(windows)), Serdes.bytes(), Serdes.bytes())
    return PartStore(builder, WINDOW_END_KEYS)


def open_ends(
    context: ProcessorContext, store: str, key_serde: Serde[Any], windows: Callable[[], Iterable[Windowed]]
) -> TimeQueue:
    """Return when the windows of a store end; where that is not known, with all `windows` that there are."""
    queue = TimeQueue(context, _ENDS.format(store))
    if queue.is_unknown:
        for window in windows():
            queue.put(window.end_ms, started_key(window.start_ms, key_serde.serialize(window.key)))
    return queue


class FinalWindows:
    """Puts out windows that have closed, earliest first, each once over batches and restarts.

    `read` returns what is held of a window, `windows` those that there are, in any order.
    """

    def __init__(
        self,
        context: ProcessorContext,
        store: str,
        key_serde: Serde[Any],
        read: Callable[[Windowed], ValueTimestampHeaders[Any] | None],
        windows: Callable[[], Iterable[Windowed]],
    ) -> None:
        self._key_bytes, self._key = key_serde.serialize, key_serde.deserialize
        self._read = read
        self._queue = open_ends(context, store, key_serde, windows)

    def note(self, window: Windowed) -> None:
        """Take down that a window is there."""
        self._queue.put(window.end_ms, started_key(window.start_ms, self._key_bytes(window.key)))

    def forget(self, window: Windowed) -> None:
        """Take down that a window is gone."""
        self._queue.remove(window.end_ms, started_key(window.start_ms, self._key_bytes(window.key)))

    def put_out(self, closed_ms: int, changes: ChangesOut) -> None:
        """Send on the windows that end by `closed_ms`, in order of end, start and serialized key."""
        for end_ms, place in self._queue.take(lambda time_ms: time_ms <= closed_ms):
            start_ms, key_bytes = start_and_key(place)
            window = Windowed(self._key(key_bytes), start_ms, end_ms)
            held = self._read(window)
            if held is not None:
                changes.send(window, held.value, None, held.timestamp_ms, held.header_bytes)

    def record(self) -> None:
        """Have what is left to be closed first committed with the batch."""
        self._queue.record()
