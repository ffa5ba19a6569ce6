"""Joins of two tables by a foreign key: the left table subscribes to keys of the right one, which responds.

Source: Kafka's SubscriptionSend-, SubscriptionReceive-, SubscriptionJoin-, ForeignTableJoin- and ResponseJoinProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from statestore.dsl.change import Change
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.processors.joins.joining import JoinedHeaders, Joiner
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.table_views import TableView
from statestore.format.keys.entry_key import sized
from statestore.format.serde import Serde
from statestore.format.values.subscriptions import Instruction, Response, Subscription, hash128
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS
from statestore.processor.record import Record, RecordMetadata
from statestore.stores.holders import ValueTimestampHeaders


@dataclass(frozen=True)
class ForeignKeyJoin:
    """How two tables are joined by a foreign key. Travels to the executors."""

    foreign_key: Callable[[Any, Any], Any]
    """A function of a left key and value; returns None for no foreign key."""
    joiner: Joiner
    headers: HeaderPolicy
    keeps_left: bool
    """Whether a left value without a right one has a result."""
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    """The serde of the left table's values."""
    foreign_key_serde: Serde[Any]
    store: str
    """Where the right side keeps subscriptions."""
    left: TableView
    right: TableView
    left_is_versioned: bool
    right_is_versioned: bool
    """Whether changes are those of a versioned table: then those out of order are dropped and counted."""

    def hash(self, value: Any) -> bytes | None:
        """Return the hash by which a response finds the left value that it is for; None for None."""
        if value is None:
            return None
        return hash128(self.value_serde.on_topic(None).serialize(value, Headers()))


class SubscriptionSending(Planned[ForeignKeyJoin]):
    """Takes changes of the left table, and sends subscriptions by foreign key.

    A key that changes again before the batch ends wants a response in any case: it tells ResponseJoining that
    what earlier responses say is over.
    """

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        super().init(context)
        self._changed: set[bytes] = set()
        """The keys that the batch has changed."""

    def finish_batch(self) -> None:
        """Begin a batch."""
        self._changed = set()

    def process(self, record: Record[Any, Any]) -> None:
        """Subscribe a left key to its foreign key, and end its subscription to the one before."""
        join, key, change = self._plan, record.key, record.value
        if join.left_is_versioned and not change.is_latest:
            self._context.count(DROPPED_RECORDS)
            return
        new, old = change.new, change.old
        if new is None and old is None:
            return
        foreign = None if new is None else join.foreign_key(key, new)
        before = None if old is None else join.foreign_key(key, old)
        moves = before is not None and self._bytes(before) != self._bytes(foreign)
        key_bytes, value_hash = join.key_serde.serialize(key), join.hash(new)

        def send(foreign_key: Any, instruction: Instruction) -> None:
            subscription = Subscription(instruction, key_bytes, value_hash)
            self._context.forward(record.with_key(foreign_key).with_value(subscription))

        if moves and (join.keeps_left or foreign is not None):
            send(before, Instruction.DELETE_KEY_NO_PROPAGATE)
        if join.keeps_left or (foreign is not None and (moves or key_bytes in self._changed)):
            send(foreign, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        elif foreign is not None:
            send(foreign, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)
        else:
            if new is not None:
                self._context.count(DROPPED_RECORDS)
            if before is not None:
                send(before, Instruction.DELETE_KEY_AND_PROPAGATE)
        if not join.keeps_left:
            self._changed.add(key_bytes)

    def _bytes(self, foreign_key: Any) -> bytes | None:
        return None if foreign_key is None else self._plan.foreign_key_serde.serialize(foreign_key)


class SubscriptionReceiving(Planned[ForeignKeyJoin]):
    """Keeps the subscriptions to a right key, each with the timestamp and headers of its left record."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._store = context.state_store(self._plan.store)

    def process(self, record: Record[Any, Any]) -> None:
        """Keep or delete a subscription, and pass it on; one without a foreign key is not kept."""
        instruction, key, _ = record.value
        if record.key is not None:
            place = sized(self._plan.foreign_key_serde.serialize(record.key)) + key
            ends = instruction in (Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE)
            held = ValueTimestampHeaders(record.value, record.timestamp_ms, record.headers.to_bytes())
            self._store.put(place, None if ends else held)
        elif instruction is not Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
            self._context.count(DROPPED_RECORDS)
            return
        self._context.forward(record)


class _Responding(Planned[ForeignKeyJoin]):
    """Sends responses, with the headers of both sides."""

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        super().init(context)
        self._headers = JoinedHeaders(self._plan.headers, context)

    def _respond(
        self,
        subscription: Subscription,
        value: Any,
        timestamp_ms: int,
        headers: tuple[bytes, bytes | None],
        *,
        left_came_last: bool,
    ) -> None:
        """Tell a left key the right value; `headers` are those of both sides, None if nothing was there."""
        key = self._plan.key_serde.deserialize(subscription.key)
        joined = Headers.from_bytes(self._headers.of(*headers, left_came_last=left_came_last))
        self._context.forward(Record.adopt(key, Response(subscription.hash, value), timestamp_ms, joined))


class SubscriptionJoining(_Responding):
    """Answers a subscription with the right table's value."""

    def init(self, context: ProcessorContext) -> None:
        """Open the right table."""
        super().init(context)
        self._get = self._plan.right.open(context)

    def process(self, record: Record[Any, Any]) -> None:
        """Answer as the instruction says, at the later timestamp of both sides."""
        instruction = record.value.instruction
        if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return
        held = None if record.key is None else self._get(record.key)
        if held is None and instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            return
        timestamp_ms = record.timestamp_ms if held is None else max(record.timestamp_ms, held.timestamp_ms)
        if instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            held = None
        value, header_bytes = (None, None) if held is None else (held.value, held.header_bytes)
        headers = record.headers.to_bytes(), header_bytes
        self._respond(record.value, value, timestamp_ms, headers, left_came_last=True)


class ForeignTableJoining(_Responding):
    """Tells all that have subscribed to a right key that its value changed."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store of subscriptions."""
        super().init(context)
        self._store = context.state_store(self._plan.store)

    def process(self, record: Record[Any, Any]) -> None:
        """Send a response to each subscriber, in the order of the left keys' bytes."""
        change: Change = record.value
        if record.key is None or (self._plan.right_is_versioned and not change.is_latest):
            self._context.count(DROPPED_RECORDS)
            return
        header_bytes = record.headers.to_bytes()
        prefix = sized(self._plan.foreign_key_serde.serialize(record.key))
        with self._store.prefix_scan(prefix) as subscribers:
            for _, held in subscribers:
                headers = held.header_bytes, header_bytes
                self._respond(held.value, change.new, record.timestamp_ms, headers, left_came_last=False)


class ResponseJoining(Planned[ForeignKeyJoin]):
    """Joins a response with the left value that it is for; if that has changed since, another response may come.

    In an inner join it does not if the new value has no foreign key, or a right key that has no value. So a key is
    deleted if only earlier values have a response when the batch ends. Kafka keeps its last result.
    """

    def init(self, context: ProcessorContext) -> None:
        """Open the left table."""
        super().init(context)
        self._get = self._plan.left.open(context)
        self._late: dict[bytes, tuple[Record[Any, Any], RecordMetadata | None]] = {}
        """By key, the last response to a value that has changed since."""
        self._told: set[bytes] = set()
        """The keys whose last value has a response."""

    def process(self, record: Record[Any, Any]) -> None:
        """Send on the joined value, or None if there is none."""
        join, response = self._plan, record.value
        held = self._get(record.key)
        left = None if held is None else held.value
        is_late = join.hash(left) != response.hash
        if not join.keeps_left:
            key_bytes = join.key_serde.serialize(record.key)
            if is_late:
                self._late[key_bytes] = record, self._context.record_metadata
            else:
                self._told.add(key_bytes)
        if is_late:
            self._context.count(DROPPED_RECORDS)
            return
        has_result = response.value is not None or (join.keeps_left and left is not None)
        self._context.forward(record.with_value(join.joiner(left, response.value) if has_result else None))

    def finish_batch(self) -> None:
        """Delete the results of keys that got late responses only."""
        late, told = self._late, self._told
        self._late, self._told = {}, set()
        for key_bytes, (record, metadata) in late.items():
            if key_bytes not in told:
                with self._context.resumed(record, metadata):
                    self._context.forward(record.with_value(None))
