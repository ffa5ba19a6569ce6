"""How the changes of a table go on: one by one, or with caching the last one of each key and micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from statestore.dsl.change import Change
from statestore.format.serde import Serde
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record, RecordMetadata
from statestore.stores.iterator import Windowed


@dataclass(frozen=True)
class ChangesPlan:
    """How a table's changes go on. Travels to the executors."""

    send_old: bool = False
    """Whether anybody below wants to know what a key was before."""
    is_cached: bool = False
    children: Sequence[str] | None = None
    """Who gets them; None is everybody below."""

    def open(self, context: ProcessorContext, key_serde: Serde[Any]) -> ChangesOut:
        """Return what sends changes on, for one task."""
        return _CachedChanges(self, context, key_serde) if self.is_cached else ChangesOut(self, context)


class ChangesOut:
    """Sends each change on as it is made."""

    def __init__(self, plan: ChangesPlan, context: ProcessorContext) -> None:
        self._context = context
        self._send_old = plan.send_old
        self._children = plan.children

    def send(
        self, key: Any, new: Any, old: Any, timestamp_ms: int, header_bytes: bytes, *, is_latest: bool = True
    ) -> None:
        """Send on what became of a key. `old` is left out if nobody below wants it."""
        change = Change(new, old if self._send_old else None, is_latest)
        self._forward(Record.adopt(key, change, timestamp_ms, Headers.from_bytes(header_bytes)))

    def finish(self) -> None:
        """Send on what was held back of the batch."""

    def _forward(self, record: Record[Any, Any]) -> None:
        if self._children is None:
            self._context.forward(record)
        else:
            for child in self._children:
                self._context.forward(record, child)


class _CachedChanges(ChangesOut):
    """Holds changes back until the batch ends, in the order in which their keys first changed."""

    def __init__(self, plan: ChangesPlan, context: ProcessorContext, key_serde: Serde[Any]) -> None:
        super().__init__(plan, context)
        self._key_bytes: Callable[[Any], bytes] = key_serde.serialize
        self._held: dict[Hashable, tuple[Record[Any, Any], Any, RecordMetadata | None]] = {}
        """Of each key what goes on, what was told of it before, and where the record came from."""

    def send(
        self, key: Any, new: Any, old: Any, timestamp_ms: int, header_bytes: bytes, *, is_latest: bool = True
    ) -> None:
        place = self._place(key)
        before = self._held.get(place)
        # What nobody was told of was never there.
        told = old if before is None else before[1]
        change = Change(new, told if self._send_old else None, is_latest)
        record = Record.adopt(key, change, timestamp_ms, Headers.from_bytes(header_bytes))
        self._held[place] = record, told, self._context.record_metadata

    def finish(self) -> None:
        held, self._held = self._held, {}
        for record, told, metadata in held.values():
            if record.value.new is not None or told is not None:
                with self._context.resumed(record, metadata):
                    self._forward(record)

    def _place(self, key: Any) -> Hashable:
        if isinstance(key, Windowed):
            return self._key_bytes(key.key), key.start_ms, key.end_ms
        return self._key_bytes(key)
