"""Runs a topology over the records of one shard: the one code path under every driver."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from statestore.errors import (
    ProcessorError,
    StateStoreError,
    TopologyError,
)
from statestore.errors.run import UnknownTopicError
from statestore.errors.state import LocalStateCorruptedError
from statestore.headers.topic_columns import Send, SinkFields, SourceFields, sink_records, source_batch, source_records
from statestore.interception.failures import FAIL_ALWAYS, FailureHandling, FailureStage, TaskFailures
from statestore.interception.interceptor import header_converter_of
from statestore.processor.column_receivers import as_columns, one_by_one, processor_batches, sink_batches
from statestore.processor.column_sources import (
    ColumnSource,
    ColumnSources,
    Meeting,
    ReadColumns,
    source_runs,
    sources_by_topic,
    topic_runs,
)
from statestore.processor.context import BatchReceiver, ProcessorContext, Receiver, TaskRecordContext
from statestore.processor.earlier_times import earlier_times
from statestore.processor.failing_records import FailingRecords
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.nodes import SourceNode
from statestore.processor.processor import BatchProcessor, Processor, needs_columns
from statestore.processor.processor_metadata import ProcessorMetadata
from statestore.processor.punctuation import NEVER_MS, Punctuations, Schedule
from statestore.processor.receivers import SourceReceiver, locate_failures, sink_receiver, source_receiver
from statestore.processor.task_stores import flush_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.changelog import ChangelogObserver
from statestore.recovery.commit.pointer_fields import (
    SHARD_CLOCK,
    BatchEnd,
    EarlierShards,
    RecordedPunctuation,
    RecordedPunctuations,
)
from statestore.stores.typed_store import TypedStore

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class Outlet(Protocol):
    """Takes what the sinks send, as far as a task looks at it."""

    @property
    def waiting(self) -> int:
        """How much is to be taken before more records are processed."""
        ...


class _NoOutlet:
    waiting = 0


_NO_OUTLET: Final = _NoOutlet()


class _Sources(dict["str | None", SourceReceiver]):
    """The receiver of each topic's records; None is the key for topics that no source names, added when met."""

    def __missing__(self, topic: str | None) -> SourceReceiver:
        catch_all = self.get(None)
        if catch_all is None:
            raise UnknownTopicError(topic=str(topic), sources=sorted(known for known in self if known))
        self[topic] = catch_all
        return catch_all


class Task:
    """One instance of a topology, for one shard and one batch. `by_records` has nodes that take either take records."""

    def __init__(
        self,
        topology: Topology,
        shard: int,
        stores: Mapping[str, TypedStore],
        context: TaskRecordContext,
        *,
        handling: FailureHandling = FAIL_ALWAYS,
        punctuations: RecordedPunctuations | None = None,
        processor_metadata: Mapping[str, int] | None = None,
        earlier: Sequence[EarlierShards] = (),
        by_records: bool = False,
        send: Send | None = None,
        send_batch: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        self.punctuation_count = 0
        self.outputs: list[SinkFields] = []
        """What the sinks were sent since the driver last took it, unless it is given to `send` and `send_batch`."""
        self.shard = shard
        self._topology, self._context, self._stores = topology, context, stores
        self._expiring = [store for store in stores.values() if store.stack.expiring is not None]
        self._global_views = {name: stores[name].read_only() for name in topology.global_stores}
        self._punctuations = Punctuations(punctuations or {})
        self.processor_metadata = ProcessorMetadata(processor_metadata or {})
        self._earlier = earlier
        self.counted: Counter[str] = Counter()
        """What the processors have counted, by `<node>.<what>`."""
        send = send or (lambda *record: self.outputs.append(record))
        send_batch = send_batch or (lambda batch: self.outputs.extend(sink_records(batch)))
        self.failures = TaskFailures(handling, shard, send)
        self._failing = FailingRecords(self.failures, context, lambda: self._interceptors)
        self._interceptors = TaskInterceptors(
            topology.interceptors.values(), shard, context, stores, self._punctuations, self._failing.refused, earlier
        )
        self._header_converter = header_converter_of(self._interceptors.interceptors)
        self._ingest = self._interceptors.ingest
        self._emission = self._interceptors.emission(send, send_batch, self._failing.current)
        self._to_own_topics = send, lambda batch, origin: send_batch(batch), None
        self._taking: set[str] = set()
        """The processors that take columns."""
        self._needing: set[str] = set()
        """Those of them that take nothing else."""
        self._processors: dict[str, Processor] = {}
        """Those whose `init` was called."""
        self._contexts: list[ProcessorContext] = []
        self._sources = _Sources()
        """What takes a record of each topic, by itself."""
        self._column_sources: dict[str | None, ColumnSources | None] = {}
        """What takes columns of each topic; None if its records are taken by themselves only."""
        self._meetings: dict[str, Meeting] = {}
        self._connect(by_records)
        self.holds_back = (
            bool(self._expiring)
            or self._interceptors.finishes_batches
            or self._emission.is_in_columns
            or any(
                type(processor).finish_batch is not Processor.finish_batch for processor in self._processors.values()
            )
        )
        """Whether `finish_batch` has anything to do."""

    @property
    def skipped_records(self) -> int:
        """How many records were left out because no serde could read them."""
        return self.failures.by_stage[FailureStage.DESERIALIZATION]

    @property
    def on_changelog(self) -> ChangelogObserver | None:
        """What must see the writes of the batch before they are committed; None if nothing must."""
        return self._interceptors.on_changelog

    def ingest(self, records: Iterable[SourceFields]) -> Iterator[SourceFields]:
        """Yield what the interceptors leave of records, for `process`. Raises what `Ingest.records` raises.

        Records of repartition topics pass as they are.
        """
        own, ingest = self._topology.repartition_topics, self._ingest.records
        if not own:
            return ingest(records)
        return (left for each in records for left in ((each,) if each[0] in own else ingest((each,))))

    def ingest_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what the interceptors leave of a batch of SOURCE_COLUMNS, in parts for `process_batch`."""
        own = self._topology.repartition_topics
        if not own:
            return self._ingest.batches(batch)
        runs = topic_runs(batch, lambda topic: topic in own)
        parts = ((is_own, batch.slice(start, end - start)) for is_own, start, end in runs)
        return (left for is_own, part in parts for left in ((part,) if is_own else self._ingest.batches(part)))

    def process(self, records: Iterable[SourceFields], outlet: Outlet = _NO_OUTLET) -> int:
        """Run the records through the topology, in their order, and return how many there were.

        Stops after a record if `outlet` then has something waiting: an iterator still has the other records.
        After each record, the punctuators run that its timestamp makes due. Raises ProcessorError around what user code
        raises, DeserializationError, SerializationError, InvalidTimestampError and UnknownTopicError. After an error
        the task must not be used again.
        """
        if self._needs_columns:
            processed = 0
            for record in records:
                processed += self.process_batch(source_batch([record]))
                if outlet.waiting:
                    break
            return processed
        return self._process(records, outlet)

    def process_batch(self, batch: pa.RecordBatch) -> int:
        """Do what `process` does, with the rows of a batch of SOURCE_COLUMNS: in columns where the topology takes some.

        Raises what `process` raises.
        """
        for source, run in source_runs(batch, self._column_sources):
            if source is None:
                self._process(source_records(run))
            else:
                self._process_columns(source, run)
        # Before `ingest` forgets the records as they came.
        self._emission.flush()
        return int(batch.num_rows)

    @property
    def takes_batches(self) -> bool:
        """Whether any source has a batch processor below it, or the interceptors want records in columns."""
        return self._ingest.is_in_columns or any(self._column_sources.values())

    @property
    def _needs_columns(self) -> bool:
        """Whether any source has processors below it that take nothing else."""
        return any(source is not None and not source.rows_min for source in self._column_sources.values())

    def _process(self, records: Iterable[SourceFields], outlet: Outlet = _NO_OUTLET) -> int:
        sources = self._sources
        context, stream_time = self._context, self._punctuations.stream_time
        processed = 0
        for record in records:
            processed += 1
            try:
                sources[record[0]](record)
            except ProcessorError as error:
                self._failing.failed(record, error)
            if context.stream_time_ms >= stream_time.next_ms:
                self.punctuation_count += stream_time.punctuate(context.stream_time_ms, self._punctuate)
            if outlet.waiting:
                break
        return processed

    def end_batch(self, now_ms: int) -> None:
        """Finish what was held back, set the wall clock, and finish what its punctuators led processors to hold back.

        The driver calls this after a batch's records. Raises what `process` raises.
        """
        self.finish_batch()
        if self.advance_wall_clock(now_ms):
            self.finish_batch()

    def finish_batch(self) -> None:
        """Let processors finish what they held back, then delete some of the entries that have expired.

        It does no harm after each record. Raises what `process` raises.
        """
        for name, processor in self._processors.items():
            self._leave_record("in finish_batch()")
            locate_failures(name, _finish_batch, self._context)(processor)
        self._leave_record()
        self._emission.flush()
        self._interceptors.finish_batch()
        for store in self._expiring:
            store.delete_expired()

    def advance_wall_clock(self, now_ms: int) -> int:
        """Set the wall clock, run the punctuators that it makes due, and return how many ran."""
        self._context.system_time_ms = now_ms
        count = self._punctuations.wall_clock.punctuate(now_ms, self._punctuate)
        self.punctuation_count += count
        return count

    @property
    def next_wall_clock_ms(self) -> int | None:
        """When the next punctuator on the wall clock is due; None if there is none."""
        wall_clock = self._punctuations.wall_clock
        wall_clock.drop_cancelled()
        return wall_clock.next_ms if wall_clock.next_ms < NEVER_MS else None

    def punctuations(self) -> dict[str, tuple[RecordedPunctuation, ...]]:
        """Return when each schedule is due next: what the task after this one is made with."""
        return self._punctuations.recorded()

    def leave(self) -> BatchEnd:
        """Close the processors, flush the stores, and return what the batch leaves. Raises what `close` raises."""
        # Read before close: a processor that cancels its schedules in close() still has them in the next batch.
        punctuations = self.punctuations()
        self.close()
        times_ms = flush_stores(self._stores)
        for name, store in self._stores.items():
            if store.metrics is not None:
                _LOG.info("shard %d: store %s: %s", self.shard, name, store.metrics.values())
        return BatchEnd(
            self.skipped_records, self._context.stream_time_ms, times_ms, punctuations, self.processor_metadata.changes
        )

    def abandon(self) -> None:
        """Close the processors after a failure, which the caller reports: what fails now is only logged."""
        try:
            self.close()
        except (ProcessorError, LocalStateCorruptedError):
            _LOG.warning("closing the processors after a failure failed too; see above")

    def close(self) -> None:
        """Close the processors that were made, in their order.

        Raises ProcessorError for the first that fails, or LocalStateCorruptedError if any found the state damaged.
        """
        processors, self._processors = self._processors, {}
        for context in self._contexts:
            context.disconnect()
        self._leave_record("in close()")
        failures: list[tuple[str, Exception]] = []
        closing = [(name, processor.close) for name, processor in processors.items()]
        for name, close in (*closing, *self._interceptors.close()):
            try:
                close()
            except Exception as cause:
                _LOG.exception("node %r failed in close()", name)
                failures.append((name, cause))
        for _, failure in failures:
            if isinstance(failure, LocalStateCorruptedError):
                raise failure
        for name, failure in failures:
            raise ProcessorError(node=name, doing="in close()", cause=failure) from failure

    def _process_columns(self, sources: ColumnSources, batch: pa.RecordBatch) -> None:
        """Have the children of sources process rows of a batch, in parts between which punctuators run."""
        context, stream_time = self._context, self._punctuations.stream_time
        context.batch = batch
        keeps_on = FailureStage.DESERIALIZATION in self.failures.keeps_on
        read = sources.read(batch, context.stream_time_ms, keeps_on=keeps_on)
        start = 0
        while start < batch.num_rows:
            end = read.end_of_part(start, stream_time.next_ms)
            if end == start:
                end += 1
                self._process(source_records(batch.slice(start, 1)))
            else:
                self._hand_on(batch, read, start, end)
            start = end
            if context.stream_time_ms >= stream_time.next_ms:
                self.punctuation_count += stream_time.punctuate(context.stream_time_ms, self._punctuate)

    def _hand_on(self, batch: pa.RecordBatch, read: ReadColumns, start: int, end: int) -> None:
        for row in start + np.flatnonzero(~read.is_readable[start:end]):
            self._process(source_records(batch.slice(row, 1)))
        self._context.stream_time_ms = int(read.stream_times_ms[end - 1])
        for meeting in self._meetings.values():
            meeting.waits = True
        for source, rows, records in read.parts:
            first, stop = np.searchsorted(rows, (start, end)).tolist()
            part, is_readable = records.slice(first, stop - first), read.is_readable[rows[first:stop]]
            if not is_readable.all():
                part = part.filter(is_readable)
            if len(part):
                for receive in source.children:
                    receive(part)
        for name, meeting in self._meetings.items():
            meeting.waits = False
            locate_failures(name, _finish, self._context)(meeting)

    def _connect(self, by_records: bool) -> None:
        """Make the nodes, run every `init` in their order, and connect them: nothing can be forwarded before."""
        topology, context = self._topology, self._context
        to_others = self._emission.send, self._emission.send_batch, self._interceptors.sending
        receivers: dict[str, Receiver] = {}
        batch_receivers: dict[str, BatchReceiver] = {}
        for sink in topology.sinks.values():
            is_own = sink.topic in topology.repartition_topics
            send, send_batch, before = self._to_own_topics if is_own else to_others
            receiver = receivers[sink.name] = sink_receiver(sink, send, context, self._failing.unwritable, before)
            batch_receivers[sink.name] = sink_batches(
                sink, send_batch, receiver, context, is_by_rows=before is not None
            )
        made: dict[str, tuple[Processor, ProcessorContext]] = {}
        by_records |= self._interceptors.consumes or FailureStage.PROCESSING in self.failures.keeps_on
        for node in topology.processors.values():
            processor = node.make(by_records=by_records)
            stores = {**self._global_views, **{name: self._stores[name] for name in node.stores}}
            made[node.name] = (
                processor,
                ProcessorContext(
                    node.name,
                    self.shard,
                    context,
                    stores,
                    self._punctuations,
                    self.processor_metadata,
                    self.counted,
                    self._earlier,
                    self._meetings,
                    times_behind_keys=node.times_behind_keys,
                    is_global=topology.is_global(node.name),
                    header_converter=self._header_converter,
                ),
            )
            if needs_columns(processor):
                self._refuse_to_leave_out(node.name)
                self._needing.add(node.name)
            else:
                receivers[node.name] = locate_failures(node.name, processor.process, context)
            if isinstance(processor, BatchProcessor) and (node.name in self._needing or not by_records):
                self._taking.add(node.name)
                batch_receivers[node.name] = processor_batches(node.name, processor, context)
                receivers.setdefault(node.name, as_columns(node.name, batch_receivers[node.name], context))
            else:
                batch_receivers[node.name] = one_by_one(receivers[node.name], context)
        connected = [self._connect_source(each, receivers, batch_receivers) for each in topology.sources.values()]
        self._column_sources = sources_by_topic(topology, {each.node.name: each for each in connected if each})
        self._contexts = [processor_context for _, processor_context in made.values()]
        self._leave_record()
        self._init_interceptors()
        for name, (processor, processor_context) in made.items():
            self._init(name, processor, processor_context)
        for name, (_, processor_context) in made.items():
            children = topology.children(name)
            processor_context.connect(
                {child: receivers[child] for child in children}, {child: batch_receivers[child] for child in children}
            )

    def _refuse_to_leave_out(self, name: str) -> None:
        if FailureStage.PROCESSING in self.failures.keeps_on:
            raise TopologyError(
                f"processor {name!r} takes records in columns, so a failure has no single record to leave out: "
                'leave FailureHandling(processing=...) at "fail", or let it process single records'
            )

    def _connect_source(
        self, source: SourceNode, receivers: Mapping[str, Receiver], batch_receivers: Mapping[str, BatchReceiver]
    ) -> ColumnSource | None:
        topology, context = self._topology, self._context
        children = topology.children(source.name)

        def below(receivers: Mapping[str, Callable[[T], None]]) -> tuple[Callable[[T], None], ...]:
            # The node that forwards to a sink locates its failures. A source runs no user code, so it is done here.
            return tuple(
                locate_failures(name, receivers[name], context) if name in topology.sinks else receivers[name]
                for name in children
            )

        earlier = earlier_times(self._earlier, SHARD_CLOCK)
        consumers = self._interceptors.consuming(below(receivers))
        receive = source_receiver(source, consumers, context, self._failing.unreadable, earlier)
        is_needed = self._is_above_columns(source.name)
        if is_needed and self._interceptors.consumes:
            raise TopologyError(
                f"source {source.name!r} has a batch processor below it, and on_consume of an interceptor takes single "
                "records: use on_ingest_columns instead"
            )
        has_columns = source.key_serde.columns is not None and source.value_serde.columns is not None
        pays = has_columns and bool(self._taking.intersection(children))
        columns = None
        if is_needed or (pays and self._is_above_no_records(source.name)):
            columns = ColumnSource(source, below(batch_receivers), earlier, is_needed=is_needed)
        self._sources.update(dict.fromkeys(source.topics or (None,), receive))
        return columns

    def _is_above_no_records(self, name: str) -> bool:
        """Return whether all below a node takes columns; what takes records would make objects of every row."""
        below = self._topology.processors.keys() & self._topology.children(name)
        return below <= self._taking and all(map(self._is_above_no_records, below))

    def _is_above_columns(self, name: str) -> bool:
        """Return whether columns that a node sends on reach a processor that takes nothing else."""
        below = self._taking.intersection(self._topology.children(name))
        return bool(below & self._needing) or any(map(self._is_above_columns, below))

    def _init_interceptors(self) -> None:
        try:
            self._interceptors.init()
        except BaseException:
            self.abandon()
            raise

    def _init(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        self._punctuations.initializing = name
        self._processors[name] = processor
        try:
            processor.init(context)
        except BaseException as cause:
            self.abandon()
            if isinstance(cause, StateStoreError) or not isinstance(cause, Exception):
                raise
            raise ProcessorError(node=name, doing="in init()", cause=cause) from cause
        finally:
            self._punctuations.initializing = None

    def _leave_record(self, doing: str = "") -> None:
        """Note that no record is current: writes now get stream time as their timestamp."""
        self._context.leave_record(max(0, self._context.stream_time_ms), doing)

    def _punctuate(self, schedule: Schedule, now_ms: int) -> None:
        self._context.leave_record(now_ms, f"in a punctuation at {now_ms} ms")
        locate_failures(schedule.node, schedule.punctuator, self._context)(now_ms)


def _finish_batch(processor: Processor) -> None:
    processor.finish_batch()


def _finish(meeting: Meeting) -> None:
    meeting.finish()
