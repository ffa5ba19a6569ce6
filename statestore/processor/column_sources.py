"""Which rows of a batch go on together in columns, and what sources make of them.

Rows of one source do that follow each other, and those of several sources that alternate where all that both reach is
made for it: nodes that meet (`ProcessorNode.meeting`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DeserializationError, TopologyError
from statestore.format.binary_columns import Flags, Integers, row_sizes
from statestore.format.serde import Serde, columns_of
from statestore.format.serde_columns import ColumnSerde
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.processor.context import BatchReceiver
from statestore.processor.earlier_times import EarlierTimes
from statestore.processor.nodes import NodeGraph, SourceNode, names_by_topic
from statestore.processor.processor import EitherWay
from statestore.processor.punctuation import NEVER_MS, stream_time_intervals_ms
from statestore.processor.topology import Topology
from statestore.recovery.commit.pointer_fields import RecordedPunctuations

_ROWS_MIN: Final = 128
"""From here on, columns are faster than single records."""
T = TypeVar("T")


class Meeting(ABC):
    """What nodes do together that meet: each hands it the rows that it gets.

    Rows of several sources go on together, source by source, and in the order of `ORIGIN.row` once they have met.
    """

    waits = False
    """Whether other nodes may still get rows that go on together with these."""

    @abstractmethod
    def finish(self) -> None:
        """Process what was handed over: nothing that belongs to it is to come. May find nothing to do."""


class ReadRows(NamedTuple):
    """What a source makes of its rows of a batch; each column has a row for each of them."""

    source: ColumnSource
    rows: Integers
    """Their places in the batch, ascending."""
    records: RecordColumns
    """Key and value of a row that is not readable are null."""


class ReadColumns(NamedTuple):
    """What sources make of a batch; each column has a row for each row of the batch."""

    parts: Sequence[ReadRows]
    is_readable: Flags
    stream_times_ms: Integers
    """The shard's stream time after each row."""
    alone: Integers
    """The rows that columns can't take: they go the way of single records, which says what is wrong with them."""

    def end_of_part(self, start: int, next_ms: int) -> int:
        """Return the end of the rows from `start` on that can go on together; `start` itself if that row can't.

        The part ends where the stream time reaches `next_ms`.
        """
        end = int(next(iter(self.alone[np.searchsorted(self.alone, start) :]), len(self.stream_times_ms)))
        if next_ms < NEVER_MS:
            due = start + int(np.searchsorted(self.stream_times_ms[start:], next_ms))
            end = min(end, due + 1)
        return end


class ColumnSource:
    """Turns batches of its topics into RecordColumns. Raises TopologyError unless both its serdes have columns."""

    def __init__(
        self,
        node: SourceNode,
        children: Sequence[BatchReceiver],
        earlier: EarlierTimes | None = None,
        *,
        is_needed: bool = True,
    ) -> None:
        """`is_needed` of False means that all below take single records, too."""
        self.node = node
        self.rows_min = 0 if is_needed else _ROWS_MIN
        """Fewer rows are faster one by one."""
        self._earlier = earlier if node.takes_time_on else None
        self.children = children
        self._key = columns_of(node.key_serde, "key", self._no_columns)
        self._value = columns_of(node.value_serde, "value", self._no_columns)

    def _no_columns(self, problem: str) -> TopologyError:
        return TopologyError(
            f"source {self.node.name!r} has a batch processor below it, but {problem}: give it Serdes.bytes() and "
            "decode the column in process_batch(), or a serde with columns (Serdes.of)"
        )

    def deserialized(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array, Flags]:
        """Return keys and values of a batch of SOURCE_COLUMNS, and which rows could be read; the others are null."""
        key, key_is_readable = _deserialized(self.node.key_serde, self._key, batch.column("key"))
        value, value_is_readable = _deserialized(self.node.value_serde, self._value, batch.column("value"))
        return key, value, key_is_readable & value_is_readable

    def origin(self, batch: pa.RecordBatch, stream_times_ms: Integers, rows: Integers) -> pa.RecordBatch:
        """Return where the rows of a batch of SOURCE_COLUMNS come from."""
        sizes = sum(row_sizes(batch.column(name)) for name in ("key", "value", "headers"))
        of_records = stream_times_ms
        if self._earlier is not None:
            keys = pc.fill_null(batch.column("key"), b"")
            of_records = np.maximum(stream_times_ms, self._earlier.of_many(keys, batch.column("partition").to_numpy()))
        origin = [batch.column(name) for name in ("topic", "partition", "offset")]
        origin += [pa.array(numbers, pa.int64()) for numbers in (of_records, sizes, rows)]
        return pa.record_batch(origin, schema=ORIGIN)


class ColumnSources:
    """Sources whose rows go on together: most often there is one."""

    def __init__(self, by_topic: Mapping[str | None, ColumnSource]) -> None:
        """`by_topic` has the source of each topic, and under None that of all others, if there is one."""
        self._of_topic = _by_topic(by_topic)
        self._sources = tuple(dict.fromkeys(by_topic.values()))
        self.rows_min = min(source.rows_min for source in self._sources)
        """Fewer rows are faster one by one."""

    def read(self, batch: pa.RecordBatch, stream_time_ms: int, *, keeps_on: bool) -> ReadColumns:
        """Return what a batch of SOURCE_COLUMNS holds; `stream_time_ms` is the shard's before it.

        `keeps_on` of False means that a record that can't be read is an error.
        """
        times: Integers = batch.column("timestamp_ms").to_numpy()
        is_readable, clock = np.ones(len(times), np.bool_), np.full(len(times), -1)
        read = []
        for source, rows in self._rows(batch):
            own = batch if len(rows) == len(times) else batch.take(pa.array(rows))
            key, value, is_readable[rows] = source.deserialized(own)
            if source.node.takes_time_on:
                clock[rows] = np.where(is_readable[rows], times[rows], -1)
            read.append((source, rows, own, key, value))
        stream_times_ms = np.maximum(np.maximum.accumulate(clock), stream_time_ms)
        parts = []
        for source, rows, own, key, value in read:
            origin = source.origin(own, stream_times_ms[rows], rows)
            columns = own.column("timestamp_ms"), own.column("headers")
            parts.append(ReadRows(source, rows, RecordColumns.adopt(key, value, *columns, origin)))
        alone = np.flatnonzero((times < 0) | ~(is_readable | keeps_on))
        return ReadColumns(parts, is_readable, stream_times_ms, alone)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[ColumnSource, Integers]]:
        """Yield each source that has rows in a batch, and their places there."""
        if len(self._sources) == 1:
            yield self._sources[0], np.arange(batch.num_rows)
            return
        topics = batch.column("topic")
        of_topics = [self._of_topic(topic) for topic in topics.dictionary.to_pylist()]
        for source in self._sources:
            is_own = np.array([each is source for each in of_topics])
            rows = np.flatnonzero(is_own[topics.indices.to_numpy()])
            if len(rows):
                yield source, rows


def sources_by_topic(topology: Topology, made: Mapping[str, ColumnSource]) -> dict[str | None, ColumnSources | None]:
    """Return which sources, of those that take columns, take each topic's rows together; None if its source doesn't.

    `made` has them by name. Under None are those of all other topics.
    """
    together = sources_together(topology)
    groups: dict[str, list[SourceNode]] = {}
    for name, node in topology.sources.items():
        groups.setdefault(together.get(name, name), []).append(node)
    found: dict[str | None, ColumnSources | None] = {}
    for nodes in groups.values():
        are_made = all(node.name in made for node in nodes)
        for part in (nodes,) if are_made else ([node] for node in nodes):
            of_topics = {topic: made.get(node.name) for node in part for topic in node.topics or (None,)}
            taking = {topic: source for topic, source in of_topics.items() if source is not None}
            found.update(dict.fromkeys(of_topics, ColumnSources(taking) if taking else None))
    return found


def sources_together(graph: NodeGraph) -> dict[str, str]:
    """Return the sources whose rows may go on together, each with the name of the first one of them.

    They are the sources above nodes that meet, if all nodes below take either way, and unless their rows reach a node,
    a store or a topic in another way, too.
    """
    meeting_of = {name: node.meeting for name, node in graph.processors.items() if node.meeting is not None}
    if not meeting_of:
        return {}
    origins: dict[str, set[str]] = {}
    """The sources and meetings that hand a node its rows."""
    above: dict[str, set[str]] = {}
    """The sources above each of those."""
    for name, node in graph.nodes.items():
        origins[name] = handed = set[str]().union(*(origins[parent] for parent in node.parents))
        meeting = meeting_of.get(name)
        if meeting is not None:
            above.setdefault(meeting, set()).update(*(above[origin] for origin in handed))
            origins[name] = {meeting}
        elif not node.parents:
            origins[name], above[name] = {name}, {name}
    groups: list[set[str]] = []
    for meeting in dict.fromkeys(meeting_of.values()):
        joined = [group for group in groups if group & above[meeting]]
        groups = [group for group in groups if group not in joined] + [above[meeting].union(*joined)]
    others = [{name} for name, node in graph.processors.items() if node.meeting is None]
    places = [
        *others,
        *_users_of_stores(graph),
        *names_by_topic({name: sink.topic for name, sink in graph.sinks.items()}),
    ]
    met = [set[str]().union(*(origins[name] for name in names)) for names in places]
    one_way = set[str]().union(
        *(origins[node.name] for node in graph.processors.values() if not isinstance(node.supplier, EitherWay))
    )
    found: dict[str, str] = {}
    for group in groups:
        is_whole = not any(above[origin] & group for origin in one_way)
        if is_whole and not any(sum(above[origin] <= group for origin in each) > 1 for each in met):
            first = next(name for name in graph.sources if name in group)
            found |= dict.fromkeys(group, first)
    return found


def _users_of_stores(graph: NodeGraph) -> Iterable[set[str]]:
    users: dict[str, set[str]] = {}
    for name, node in graph.processors.items():
        for store in node.stores:
            users.setdefault(store, set()).add(name)
    return users.values()


def source_runs(
    batch: pa.RecordBatch, sources: Mapping[str | None, ColumnSources | None]
) -> Iterator[tuple[ColumnSources | None, pa.RecordBatch]]:
    """Yield the rows of a batch in their order, those together that follow each other and go to the same sources.

    None is for rows that go one by one. `sources` has those of each topic, and under None those of all others.
    """
    runs: list[tuple[ColumnSources | None, int, int]] = []
    for source, start, end in topic_runs(batch, _by_topic(sources)):
        if source is not None and end - start < source.rows_min:
            source = None
        if source is None and runs and runs[-1][0] is None:
            start = runs.pop()[1]
        runs.append((source, start, end))
    return ((source, batch.slice(start, end - start)) for source, start, end in runs)


def are_cut_short(
    topology: Topology, recorded: RecordedPunctuations, first: Callable[[], pa.RecordBatch | None]
) -> bool:
    """Return whether columns would be so short that nodes that take either way are faster with single records.

    They are where sources alternate, or punctuators by stream time that earlier batches `recorded` run often. `first`
    returns the first records of a batch, None if it has none; it is only called where the answer depends on them.
    """
    intervals_ms = stream_time_intervals_ms(recorded)
    if not topology.has_nodes_either_way or (len(topology.sources) < 2 and not intervals_ms):
        return False
    batch = first()
    if batch is None:
        return False
    together = sources_together(topology)
    sources = {
        topic: together.get(name, name) for name, each in topology.sources.items() for topic in each.topics or (None,)
    }
    runs = sum(1 for _ in topic_runs(batch, _by_topic(sources)))
    span_ms = int(np.ptp(batch.column("timestamp_ms").to_numpy()))
    runs += sum(span_ms // interval_ms for interval_ms in intervals_ms)
    return runs > 1 and batch.num_rows < runs * _ROWS_MIN


def _by_topic(sources: Mapping[str | None, T]) -> Callable[[str], T | None]:
    """Return what gives the source of a topic; under None is that of all others."""
    return lambda topic: sources.get(topic, sources.get(None))


def topic_runs(batch: pa.RecordBatch, of: Callable[[str], T]) -> Iterator[tuple[T, int, int]]:
    """Yield start and end of the runs of rows whose topics have the same value of `of`, in order, with that value."""
    if not batch.num_rows:
        return
    topics = batch.column("topic")
    of_topic = [of(topic) for topic in topics.dictionary.to_pylist()]
    number_of = {id(each): number for number, each in enumerate(of_topic)}
    numbers = np.array([number_of[id(each)] for each in of_topic])[topics.indices.to_numpy()]
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield of_topic[numbers[start]], start, end


def _deserialized(serde: Serde[Any], columns: ColumnSerde, data: pa.BinaryArray) -> tuple[pa.Array, Flags]:
    """Return the deserialized column, and which rows could be read; the others are null."""
    try:
        return columns.deserialize(data), np.ones(len(data), np.bool_)
    except DeserializationError:
        is_readable = np.array([_is_readable(serde, item) for item in data.to_pylist()], np.bool_)
        kept = pc.if_else(pa.array(is_readable), data, pa.scalar(None, pa.binary()))
        return columns.deserialize(kept), is_readable


def _is_readable(serde: Serde[Any], data: bytes | None) -> bool:
    try:
        if data is not None:
            serde.deserialize(data)
    except DeserializationError:
        return False
    return True
