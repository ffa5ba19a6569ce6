"""What a test driver keeps of topics: outputs until they are read, changelogs, and what is to be piped again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Protocol, TypeAlias

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import RecordContext
from statestore.bytestore.write_sets.write_set import last_writes
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from statestore.headers.topic_columns import SinkFields
from statestore.recovery.commit.changelog import (
    Changelog,
    ChangelogObserver,
    ChangelogRecord,
    WrittenRecords,
    changelog_record,
)

_Write: TypeAlias = "tuple[StoreFormat, bytes, bytes | None, int, bytes]"
"""Format, key, stored bytes or None, and the record's timestamp and header bytes, where the stored bytes have none."""


class ReadableTopic(Protocol):
    """A topic of which each record is read once, in order."""

    def __len__(self) -> int:
        """Return how many records were not read yet."""
        ...

    def take(self) -> SinkFields:
        """Return the next record; it counts as read. Raises IndexError if there is none."""
        ...


class OutputLog(deque[SinkFields]):
    """What sinks wrote to a topic."""

    take = deque.popleft


class StoreLog(Changelog):
    """The changelog of a store: what was written to it, as long as the driver lives, from `first_offset` on.

    Writes are kept as they were stored, with the format that they are in: most changelogs are never looked at.
    """

    def __init__(self, topic: str, spec: StoreSpec) -> None:
        self.topic = topic
        self.spec = spec
        """The store as it was opened last."""
        self.first_offset = 0
        self.missing = ""
        """Why the log does not hold all of the store; empty if it does."""
        self._writes: list[_Write] = []
        self._committed = 0
        self._committed_before = 0
        self._read = 0
        self._given = 0
        self.open_as(spec)

    def open_as(self, spec: StoreSpec) -> None:
        """Note that the store is opened with this format."""
        self.spec = spec
        self._format = spec.format
        self._complete = spec.format is StoreFormat.TIMESTAMPED_WITH_HEADERS

    def append(self, key: bytes, stored: bytes | None, context: RecordContext, timestamp_ms: int | None = None) -> None:
        """Note that `key` was set to `stored`, or deleted if that is None, for the record in `context`."""
        if stored is not None and self._complete:
            self._writes.append((self._format, key, stored, 0, b""))
        else:
            time_ms = context.timestamp_ms if timestamp_ms is None else timestamp_ms
            self._writes.append((self._format, key, stored, time_ms, context.header_bytes))

    def begin_with(self, records: Iterable[ChangelogRecord]) -> None:
        """Note what the topic held before the driver was made; it counts as read."""
        for key, value, timestamp_ms, header_bytes in records:
            stored = join_stored(self._format, value, timestamp_ms, header_bytes)
            self._writes.append((self._format, key, stored, timestamp_ms, header_bytes))
        self._committed = self._read = self._given = len(self._writes)

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.first_offset + self._committed

    @property
    def was_written(self) -> bool:
        """Whether there are records of this driver."""
        return self._committed > self._given

    def leave_last_writes(self) -> None:
        """Drop uncommitted writes that a micro-batch does not log: all but each key's last; none of versions."""
        if not LAYOUTS[self.spec.kind].keeps_versions:
            written = [(write[1], write) for write in self._writes[self._committed :]]
            self._writes[self._committed :] = last_writes(written).values()

    def show(self, observer: ChangelogObserver) -> None:
        """Call `observer` with the writes since the last commit, unless there are none. Raises what it does."""
        if len(self._writes) > self._committed:
            observer(self.spec.name, WrittenRecords(lambda: map(_record, self._writes[self._committed :])))

    def commit(self) -> None:
        """Make the writes since the last commit records of the topic."""
        self._committed_before, self._committed = self._committed, len(self._writes)

    def discard(self) -> None:
        """Forget the writes since the last commit."""
        del self._writes[self._committed :]

    def written_by_format(self, offset: int) -> Iterator[tuple[StoreFormat, list[ChangelogRecord]]]:
        """Yield the committed records from `offset` on, those of one format after the other."""
        writes = self._writes[max(0, offset - self.first_offset) : self._committed]
        for store_format, group in groupby(writes, key=itemgetter(0)):
            yield store_format, [_record(write) for write in group]

    def new_records(self) -> list[SinkFields]:
        """Return the records that the last commit made."""
        return [self._sink_record(write) for write in self._writes[self._committed_before : self._committed]]

    def __len__(self) -> int:
        return self._committed - self._read

    def take(self) -> SinkFields:
        """Return the next record; it counts as read. Raises IndexError if there is none."""
        if self._read >= self._committed:
            raise IndexError(self.topic)
        self._read += 1
        return self._sink_record(self._writes[self._read - 1])

    def _sink_record(self, write: _Write) -> SinkFields:
        key, value, timestamp_ms, header_bytes = _record(write)
        return self.topic, timestamp_ms, key, value, header_bytes


def _record(write: _Write) -> ChangelogRecord:
    store_format, key, stored, timestamp_ms, header_bytes = write
    return changelog_record(store_format, key, stored, timestamp_ms, header_bytes)


class PipedAgain:
    """Records that were written to topics which the topology reads: those of the earliest timestamp come first.

    Of each topic they come in their order, and those of global topics before all others. Between topics whose next
    records have the same timestamp, Kafka's PartitionGroup leaves the choice to java.util.PriorityQueue, a heap that
    keeps no order of arrival; so does this one, by the same steps.
    """

    def __init__(self) -> None:
        self._global: deque[SinkFields] = deque()
        self._waiting: dict[str, deque[SinkFields]] = {}
        self._heap: list[deque[SinkFields]] = []
        """Those of `_waiting` that are not empty."""

    def __bool__(self) -> bool:
        return bool(self._global) or bool(self._heap)

    def add(self, record: SinkFields, *, is_global: bool) -> None:
        """Add a record behind those of its topic."""
        if is_global:
            self._global.append(record)
            return
        waiting = self._waiting.setdefault(record[0], deque())
        waiting.append(record)
        if len(waiting) == 1:
            self._offer(waiting)

    def take(self) -> SinkFields:
        """Return the record that is next, and remove it. Raises IndexError if there is none."""
        if self._global:
            return self._global.popleft()
        waiting = self._poll()
        record = waiting.popleft()
        if waiting:
            self._offer(waiting)
        return record

    def put_back(self, record: SinkFields, *, is_global: bool) -> None:
        """Put the record that was taken last in front of its topic's again."""
        if is_global:
            self._global.appendleft(record)
            return
        waiting = self._waiting[record[0]]
        waiting.appendleft(record)
        others = [other for other in self._heap if other is not waiting]
        self._heap = []
        for each in (waiting, *others):
            self._offer(each)

    def _offer(self, waiting: deque[SinkFields]) -> None:
        heap, place = self._heap, len(self._heap)
        heap.append(waiting)
        while place and waiting[0][1] < heap[(place - 1) // 2][0][1]:
            heap[place] = heap[(place - 1) // 2]
            place = (place - 1) // 2
        heap[place] = waiting

    def _poll(self) -> deque[SinkFields]:
        heap, place = self._heap, 0
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        while (child := 2 * place + 1) < len(heap):
            if child + 1 < len(heap) and heap[child][0][1] > heap[child + 1][0][1]:
                child += 1
            if last[0][1] <= heap[child][0][1]:
                break
            heap[place] = heap[child]
            place = child
        heap[place] = last
        return first
