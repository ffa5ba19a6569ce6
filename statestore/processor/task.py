"""Runs a topology over the records of one shard: the one code path under every driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from statestore.errors import (
    DeserializationError,
    LocalStateCorruptedError,
    ProcessorError,
    StateStoreError,
    UnknownTopicError,
)
from statestore.processor.context import ProcessorContext, Receiver, TaskRecordContext
from statestore.processor.nodes import ProcessorNode, SourceNode
from statestore.processor.processor import Processor
from statestore.processor.punctuation import NEVER_MS, Punctuations, Schedule
from statestore.processor.receivers import (
    SinkRecord,
    SourceReceiver,
    SourceRecord,
    locate_failures,
    sink_receiver,
    source_receiver,
)
from statestore.processor.task_stores import flush_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.batch_end import BatchEnd
from statestore.recovery.commit.punctuations import RecordedPunctuation, RecordedPunctuations
from statestore.stores.typed_store import TypedStore

_LOG = logging.getLogger(__name__)
_SKIPS_LOGGED = 10


class OnDeserializationError(Enum):
    """What to do with a record that the source's serdes can't read. Source: Kafka's DeserializationExceptionHandler."""

    FAIL = "fail"
    SKIP = "skip"


class Task:
    """One instance of a topology, for one shard and one batch."""

    def __init__(
        self,
        topology: Topology,
        shard: int,
        stores: Mapping[str, TypedStore],
        context: TaskRecordContext,
        *,
        on_deserialization_error: OnDeserializationError = OnDeserializationError.FAIL,
        punctuations: RecordedPunctuations | None = None,
        send: Callable[[SinkRecord], None] | None = None,
    ) -> None:
        self.skipped_records = 0
        self.punctuation_count = 0
        self.outputs: list[SinkRecord] = []
        """What the sinks were sent since the driver last took it, unless it is given to `send`."""
        self._send = send or self.outputs.append
        self.shard = shard
        self._topology = topology
        self._context = context
        self._skip = on_deserialization_error is OnDeserializationError.SKIP
        self._stores = stores
        self._expiring = [store for store in stores.values() if store.stack.expiring is not None]
        self._global_views = {name: stores[name].read_only() for name in topology.global_stores}
        self._punctuations = Punctuations(punctuations or {})
        self._processors: dict[str, Processor] = {}
        """Those whose `init` was called."""
        self._contexts: list[ProcessorContext] = []
        self._sources: dict[str | None, SourceReceiver] = {}
        self._connect()
        self.holds_back = bool(self._expiring) or any(
            type(processor).finish_batch is not Processor.finish_batch for processor in self._processors.values()
        )
        """Whether `finish_batch` has anything to do."""

    def process(self, records: Iterable[SourceRecord]) -> int:
        """Run the records through the topology, in their order, and return how many they were.

        After each record, punctuators run that its timestamp makes due. Raises ProcessorError around what user code
        raises, DeserializationError, SerializationError, InvalidTimestampError and UnknownTopicError. After an error
        the task must not be used again.
        """
        sources, catch_all = self._sources, self._sources.get(None)
        context, stream_time = self._context, self._punctuations.stream_time
        processed = 0
        for record in records:
            processed += 1
            receive = sources.get(record[0]) or catch_all
            if receive is None:
                raise UnknownTopicError(topic=record[0], sources=sorted(topic for topic in sources if topic))
            receive(record)
            if context.stream_time_ms >= stream_time.next_ms:
                self.punctuation_count += stream_time.punctuate(context.stream_time_ms, self._punctuate)
        return processed

    def end_batch(self, now_ms: int) -> None:
        """Finish what was held back, set the wall clock, and finish what its punctuators have sent to who holds back.

        The driver's to call when a batch's records are processed. Raises what `process` raises.
        """
        self.finish_batch()
        if self.advance_wall_clock(now_ms):
            self.finish_batch()

    def finish_batch(self) -> None:
        """Have processors finish what they held back of the batch, then delete some of the entries that have expired.

        It does no harm after each record. Raises what `process` raises.
        """
        for name, processor in self._processors.items():
            self._leave_record("in finish_batch()")
            locate_failures(name, _finish_batch, self._context)(processor)
        self._leave_record()
        for store in self._expiring:
            store.delete_expired()

    def advance_wall_clock(self, now_ms: int) -> int:
        """Set the wall clock, run the punctuators that it makes due, and return how many they were."""
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
        return BatchEnd(self.skipped_records, self._context.stream_time_ms, times_ms, punctuations)

    def abandon(self) -> None:
        """Close the processors after a failure, which is what to tell: what fails now is only logged."""
        try:
            self.close()
        except (ProcessorError, LocalStateCorruptedError):
            _LOG.warning("closing the processors after a failure failed too; see above")

    def close(self) -> None:
        """Close the processors that were made, in their order.

        Raises ProcessorError for the first that fails, but LocalStateCorruptedError if one found the state damaged.
        """
        processors, self._processors = self._processors, {}
        for context in self._contexts:
            context.disconnect()
        self._leave_record("in close()")
        failures: list[tuple[str, Exception]] = []
        for name, processor in processors.items():
            try:
                processor.close()
            except Exception as cause:
                _LOG.exception("node %r failed in close()", name)
                failures.append((name, cause))
        for _, failure in failures:
            if isinstance(failure, LocalStateCorruptedError):
                raise failure
        for name, failure in failures:
            raise ProcessorError(node=name, doing="in close()", cause=failure) from failure

    def _connect(self) -> None:
        """Make the nodes, run every `init` in their order, and connect them: nothing can be forwarded before."""
        topology, context = self._topology, self._context
        receivers: dict[str, Receiver] = {}
        for sink in topology.sinks.values():
            receivers[sink.name] = sink_receiver(sink, self._send, context)
        made: dict[str, tuple[Processor, ProcessorContext]] = {}
        for node in topology.processors.values():
            processor = _make_processor(node)
            stores = {**self._global_views, **{name: self._stores[name] for name in node.stores}}
            made[node.name] = (
                processor,
                ProcessorContext(
                    node.name,
                    self.shard,
                    context,
                    stores,
                    self._punctuations,
                    is_global=topology.is_global(node.name),
                ),
            )
            receivers[node.name] = locate_failures(node.name, processor.process, context)
        children = {name: {child: receivers[child] for child in topology.children(name)} for name in topology.nodes}
        for source in topology.sources.values():
            # The node that forwards to a sink names what fails there. A source runs no user code, so it does it here.
            below = tuple(
                locate_failures(name, receive, context) if name in topology.sinks else receive
                for name, receive in children[source.name].items()
            )
            receive = source_receiver(source, below, context, self._unreadable)
            for topic in source.topics or (None,):
                self._sources[topic] = receive
        self._contexts = [processor_context for _, processor_context in made.values()]
        self._leave_record()
        for name, (processor, processor_context) in made.items():
            self._init(name, processor, processor_context)
        for name, (_, processor_context) in made.items():
            processor_context.connect(children[name])

    def _init(self, name: str, processor: Processor, context: ProcessorContext) -> None:
        self._punctuations.set_initializing(name)
        self._processors[name] = processor
        try:
            processor.init(context)
        except BaseException as cause:
            self.abandon()
            if isinstance(cause, StateStoreError) or not isinstance(cause, Exception):
                raise
            raise ProcessorError(node=name, doing="in init()", cause=cause) from cause
        finally:
            self._punctuations.set_initializing(None)

    def _leave_record(self, doing: str = "") -> None:
        """Say that no record is processed; what is written now has stream time for a timestamp."""
        self._context.leave_record(max(0, self._context.stream_time_ms), doing)

    def _punctuate(self, schedule: Schedule, now_ms: int) -> None:
        self._context.leave_record(now_ms, f"in a punctuation at {now_ms} ms")
        locate_failures(schedule.node, schedule.punctuator, self._context)(now_ms)

    def _unreadable(self, node: SourceNode, source: SourceRecord, cause: DeserializationError) -> None:
        topic, partition, offset = source[:3]
        where = f"source {node.name!r} can't read record {topic}-{partition} at offset {offset}"
        if not self._skip:
            raise DeserializationError(
                f"{where}: {cause}. Nothing was committed. Mend the record or the serde, or start with "
                'on_deserialization_error="skip" to leave such records out'
            ) from cause
        self.skipped_records += 1
        if self.skipped_records <= _SKIPS_LOGGED:
            _LOG.warning("skipped: %s: %s", where, cause)


def _finish_batch(processor: Processor) -> None:
    processor.finish_batch()


def _make_processor(node: ProcessorNode) -> Processor:
    try:
        processor = node.supplier()
    except Exception as cause:
        raise ProcessorError(node=node.name, doing="when it was made", cause=cause) from cause
    if not isinstance(processor, Processor):
        raise TypeError(f"the supplier of processor {node.name!r} made {processor!r}, which is not a Processor")
    return processor
