"""Changes that are held back: the last one of each key. Source: Kafka's InMemoryTimeOrderedKeyValueChangeBuffer.

Kafka has them in memory and in a changelog. Here a processor lives for one micro-batch, so they are in a store by key,
which has the bytes of Kafka's changelog, and in a second one in order of time, `<name>-times`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from statestore.dsl.change import Change
from statestore.dsl.processors.time_queue import TimeQueue
from statestore.format.serde import Serde, Serdes
from statestore.format.values.buffered_record import (
    TIMES_SUFFIX,
    BufferedRecord,
    decode_logged_record,
    encode_buffered_record,
)
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record, RecordMetadata
from statestore.recovery.commit.pointer_fields import COUNT_PREFIX
from statestore.stores.builder import StoreBuilder
from statestore.stores.stores import Stores

FROM_NOWHERE: Final = RecordMetadata("", -1, -1)
_READ_AT_MOST: Final = 16_384
"""The most decoded entries of a batch that are kept in memory."""


class _Entry(NamedTuple):
    """What is held back of a key, as stored and decoded."""

    stored: bytes
    held: BufferedRecord
    due_ms: int
    counted_bytes: int


@dataclass(frozen=True)
class BufferPlan:
    """Where changes are held back, and how their keys and values are written. Travels to the executors."""

    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    @property
    def times(self) -> str:
        """The name of the store in order of time."""
        return f"{self.store}{TIMES_SUFFIX}"

    def builders(self) -> tuple[StoreBuilder[Any], StoreBuilder[Any]]:
        """Return the builders of the store by key and of the one in order of time.

        The first logs once per key and batch, as Kafka does: a key that changes often, or goes on at once, costs no
        more than one that changes once.
        """
        by_key, by_time = (
            Stores.key_value_store_builder(Stores.persistent_key_value_store(name), Serdes.bytes(), Serdes.bytes())
            for name in (self.store, self.times)
        )
        return by_key.with_caching_enabled(), by_time


class SuppressionBuffer:
    """The changes held back in a shard. Their number and size are committed with the batch."""

    def __init__(self, plan: BufferPlan, context: ProcessorContext) -> None:
        self._plan, self._context = plan, context
        self.store = context.state_store(plan.store)
        self._read: dict[bytes, _Entry] = {}
        """What this batch has put: much of it goes on in the same batch, without being decoded again."""
        self.queue = TimeQueue(context, plan.times)
        self._counts = [f"{COUNT_PREFIX}{plan.store}-{what}" for what in ("records", "bytes")]
        self._recorded = [context.processor_metadata(name) for name in self._counts]
        if self.queue.is_unknown or None in self._recorded:
            self._count_anew()
        else:
            self.records, self.size_bytes = (number or 0 for number in self._recorded)

    def put(self, time_ms: int, record: Record[Any, Change]) -> None:
        """Hold back a change until `time_ms`; a key that is held back already keeps its time."""
        key, change = self._plan.key_serde.serialize(record.key), record.value
        new, old = self._bytes(change.new), self._bytes(change.old)
        before = self._get(key)
        made = BufferedRecord(
            record.timestamp_ms,
            new,
            record.headers.to_bytes(),
            *(self._context.record_metadata or FROM_NOWHERE),
            old=old,
            prior=old if before is None else before.held.prior,
        )
        due_ms = time_ms if before is None else before.due_ms
        stored = encode_buffered_record(made, buffer_time_ms=due_ms)
        entry = _Entry(stored, made, due_ms, made.counted_bytes(key))
        self.store.put(key, stored)
        if len(self._read) >= _READ_AT_MOST:
            self._read.clear()
        self._read[key] = entry
        self.size_bytes += entry.counted_bytes
        if before is None:
            self.queue.put(time_ms, key)
            self.records += 1
        else:
            self.size_bytes -= before.counted_bytes

    def take(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[Record[Any, Change], RecordMetadata | None]]:
        """Take changes out as long as their time is wanted, in order of time and then of key.

        Yields each with the topic, partition and offset of its record.
        """
        for _, key in self.queue.take(is_wanted):
            found = self._get(key)
            if found is not None:  # else something else has deleted it from the store
                yield self._taken(key, found)

    def take_of_key(self, key: Any, due_ms: int) -> Iterator[tuple[Record[Any, Change], RecordMetadata | None]]:
        """Take out the change of a key if it is due by `due_ms`, and yield it as `take` does."""
        place = self._plan.key_serde.serialize(key)
        found = self._get(place)
        if found is not None and found.due_ms <= due_ms:
            self.queue.remove(found.due_ms, place)
            yield self._taken(place, found)

    def record(self) -> None:
        """Have the earliest time, and how much is held back, committed with the batch."""
        self.queue.record()
        counted = [self.records, self.size_bytes]
        for name, number, recorded in zip(self._counts, counted, self._recorded, strict=True):
            if number != recorded:
                self._context.set_processor_metadata(name, number)
        self._recorded = [*counted]

    def _taken(self, key: bytes, found: _Entry) -> tuple[Record[Any, Change], RecordMetadata | None]:
        held = found.held
        self.store.put(key, None)
        self._read.pop(key, None)
        self.records -= 1
        self.size_bytes -= found.counted_bytes
        change = Change(self._value(held.new), self._value(held.old))
        record = Record(
            self._plan.key_serde.deserialize(key), change, held.timestamp_ms, Headers.from_bytes(held.header_bytes)
        )
        return record, RecordMetadata(held.topic, held.partition, held.offset) if held.topic else None

    def _count_anew(self) -> None:
        """Count all changes, for state that is new or came from elsewhere."""
        self.records = self.size_bytes = 0
        with self.store.all() as entries:
            for key, stored in entries:
                held, due_ms = decode_logged_record(stored)
                self.records += 1
                self.size_bytes += held.counted_bytes(key)
                if self.queue.is_unknown:
                    self.queue.put(due_ms, key)

    def _get(self, key: bytes) -> _Entry | None:
        stored = self.store.get(key)
        if stored is None:
            return None
        known = self._read.get(key)
        if known is not None and known.stored == stored:
            return known
        held, due_ms = decode_logged_record(stored)
        return _Entry(stored, held, due_ms, held.counted_bytes(key))

    def _bytes(self, value: Any) -> bytes | None:
        return None if value is None else self._plan.value_serde.serialize(value)

    def _value(self, stored: bytes | None) -> Any:
        return None if stored is None else self._plan.value_serde.deserialize(stored)
