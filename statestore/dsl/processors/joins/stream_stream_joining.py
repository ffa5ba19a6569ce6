"""Joins of two streams within windows of time. Source: Kafka's KStreamKStreamJoin and KStreamJoinWindow.

Each side keeps its records in a window store, and each record is joined with the other side's records within the
window. In left and outer joins, an unmatched record waits in a store that both sides share, until a record matches it
or its window has closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.join_serdes import WaitingKey
from statestore.dsl.processors.joins.joining import JoinedRecords, Joiner, ValueBytes
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.windows.closing import EarlierTimesOfKeys, SharedTime, Times, latest_closed
from statestore.dsl.windows import JoinWindows
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import Serde
from statestore.format.values.waiting_values import WaitingValue, decode_waiting_values, encode_waiting_values
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS
from statestore.processor.record import Record
from statestore.stores.holders import ValueTimestampHeaders


@dataclass(frozen=True)
class StreamJoin:
    """How two streams are joined. Travels to the executors."""

    joiner: Joiner
    headers: HeaderPolicy
    windows: JoinWindows
    left_store: str
    right_store: str
    waiting_store: str | None
    """Where unmatched records wait; None in inner joins."""
    key_serde: Serde[Any]
    left_serde: Serde[Any]
    right_serde: Serde[Any]
    node: str
    """The node to which both sides send."""
    joined_serde: Serde[Any] | None
    """That of joined values; None if they go on as the joiner makes them."""


@dataclass(frozen=True)
class KeptSide:
    """Where the records of one side are kept. Travels to the executors."""

    join: StreamJoin
    is_left: bool
    retention_ms: int

    @property
    def store(self) -> str:
        """The name of the store."""
        return self.join.left_store if self.is_left else self.join.right_store


class KeepingWindow(Planned[KeptSide]):
    """Sends each record of one side on to be joined, and then keeps it."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        super().init(context)
        self._store = context.state_store(self._plan.store)
        self._earlier = EarlierTimesOfKeys(context, "store", self._plan.store, self._plan.join.key_serde)

    def process(self, record: Record[Any, Any]) -> None:
        """Send a record on, and keep it."""
        self._context.forward(record)
        if record.key is not None and self._outlives(record.timestamp_ms, self._earlier.earlier(record)):
            # A value of None changes nothing, but is logged, as in Kafka.
            held = ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers)
            self._store.put(record.key, held, record.timestamp_ms)

    def _outlives(self, times_ms: Times, earlier_ms: Times) -> Any:
        """Return whether what has these times had not expired by the times of its keys' earlier shards."""
        return times_ms > earlier_ms - self._plan.retention_ms


@dataclass(frozen=True)
class StreamSidePlan:
    """How the records of one side are joined. Travels to the executors."""

    join: StreamJoin
    is_left: bool
    sends_unmatched: bool
    """Whether an unmatched record of this side is joined with None once its window has closed."""


class WaitingRecords:
    """The unmatched records of both sides whose windows have not closed yet.

    They are scanned only if one of them may be due. As in Kafka, the earliest is then assumed to be where the scan
    ended, so some are sent on later than they could be: at the latest when the window of the last one has closed.
    """

    def __init__(self, join: StreamJoin, store: Any, context: ProcessorContext, joined: JoinedRecords) -> None:
        self._store, self._context, self._joined = store, context, joined
        self._least_waiting = f"{join.left_store}-join-least-waiting"
        self._closes_after_ms = {is_left: join.windows.closes_after_ms(is_left=is_left) for is_left in (True, False)}
        keeps = not join.headers.keeps_none
        self._values = {
            is_left: ValueBytes(serde, keeps_headers=keeps)
            for is_left, serde in ((True, join.left_serde), (False, join.right_serde))
        }

    def add(self, record: Record[Any, Any], *, is_left: bool) -> None:
        """Have a record wait."""
        timestamp_ms, known_ms = record.timestamp_ms, self._known_least_ms
        place = WaitingKey(timestamp_ms, is_left, record.key)
        waiting = WaitingValue(is_left, *self._values[is_left].write(record))
        if known_ms is None or timestamp_ms < known_ms:
            self._set_least(min(self._least_ms(), timestamp_ms))
        before = self._store.get(place)
        values = [waiting] if before is None else [*decode_waiting_values(before), waiting]
        self._store.put(place, encode_waiting_values(values))

    def remove(self, place: WaitingKey) -> None:
        """Remove the records that wait under a key."""
        if self._store.get(place) is not None:
            self._store.put(place, None)

    def send_closed(self, stream_time_ms: int, *, by_left: bool) -> None:
        """Send on the records whose windows have closed, earliest first, right before left."""
        closed_ms = {
            is_left: latest_closed(stream_time_ms, after_ms) for is_left, after_ms in self._closes_after_ms.items()
        }
        if self._least_ms() > closed_ms[by_left]:
            return
        least_ms = MAX_TIME_MS
        open_sides: set[bool] = set()
        with self._store.all() as waiting:
            for place, held in waiting:
                least_ms = place.timestamp_ms
                if len(open_sides) == 2:
                    break
                if least_ms <= closed_ms[place.is_left]:
                    self._send(place, decode_waiting_values(held))
                    self._store.put(place, None)
                    continue
                open_sides.add(place.is_left)
                if len(open_sides) == 2 and len(decode_waiting_values(held)) > 1:
                    break  # Kafka stops at the next record of this key
        self._set_least(least_ms)

    def _send(self, place: WaitingKey, values: list[WaitingValue]) -> None:
        for is_left, value, header_bytes in values:
            held = self._values[is_left].read(value, header_bytes), header_bytes
            left, right = (held, None) if is_left else (None, held)
            self._joined.send(place.key, left, right, place.timestamp_ms, left_came_last=is_left)

    @property
    def _known_least_ms(self) -> int | None:
        """The earliest timestamp of waiting records, as either side last saw it; None if unknown."""
        return self._context.processor_metadata(self._least_waiting)

    def _set_least(self, timestamp_ms: int) -> None:
        if timestamp_ms != self._known_least_ms:
            self._context.set_processor_metadata(self._least_waiting, timestamp_ms)

    def _least_ms(self) -> int:
        known_ms = self._known_least_ms
        if known_ms is not None:
            return known_ms
        with self._store.all() as waiting:
            return next((place.timestamp_ms for place, _ in waiting), MAX_TIME_MS)


class StreamSideJoining(Planned[StreamSidePlan]):
    """Joins the records of one side."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store of the other side, and that of the records that wait."""
        super().init(context)
        plan, join = self._plan, self._plan.join
        spans_ms = join.windows.before_ms, join.windows.after_ms
        self._before_ms, self._after_ms = spans_ms if plan.is_left else spans_ms[::-1]
        self._other = context.state_store(join.right_store if plan.is_left else join.left_store)
        self._joined = JoinedRecords(join.joiner, join.headers, context, join.joined_serde)
        self._time = SharedTime(context, join.left_store, join.key_serde)
        self._waiting = None
        if join.waiting_store is not None:
            store = context.state_store(join.waiting_store)
            self._waiting = WaitingRecords(join, store, context, self._joined)

    def process(self, record: Record[Any, Any]) -> None:
        """Join a record with those of the other side."""
        plan, timestamp_ms = self._plan, record.timestamp_ms
        stream_time_ms = self._time.advance(record)
        if record.value is None or (record.key is None and not plan.sends_unmatched):
            self._context.count(DROPPED_RECORDS)
            return
        if record.key is None:
            self._send(record, None, timestamp_ms)
            return
        if self._waiting is not None and timestamp_ms == stream_time_ms:
            self._waiting.send_closed(stream_time_ms, by_left=plan.is_left)
        if self._join(record) or not plan.sends_unmatched:
            return
        seen_ms = max(stream_time_ms, self._time.earlier(record))
        if self._waiting is None or max(0, timestamp_ms + self._after_ms) < seen_ms:
            self._send(record, None, timestamp_ms)
        else:
            self._waiting.add(record, is_left=plan.is_left)

    def _join(self, record: Record[Any, Any]) -> bool:
        """Join a record with those of the other side, and return whether there were any."""
        timestamp_ms, is_matched = record.timestamp_ms, False
        first_ms, last_ms = max(0, timestamp_ms - self._before_ms), max(0, timestamp_ms + self._after_ms)
        with self._other.fetch(record.key, first_ms, last_ms) as found:
            for other_ms, other in found:
                is_matched = True
                if self._waiting is not None:
                    self._waiting.remove(WaitingKey(other_ms, not self._plan.is_left, record.key))
                self._send(record, (other.value, other.header_bytes), max(timestamp_ms, other_ms))
        return is_matched

    def _send(self, record: Record[Any, Any], other: tuple[Any, bytes] | None, timestamp_ms: int) -> None:
        this, is_left = (record.value, record.headers.to_bytes()), self._plan.is_left
        left, right = (this, other) if is_left else (other, this)
        self._joined.send(record.key, left, right, timestamp_ms, left_came_last=is_left)
