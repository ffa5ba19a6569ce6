"""What a processor sees of the task that runs it. Source: Kafka Streams' api.ProcessorContext."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, get_origin, overload

import pyarrow as pa

from statestore.errors import ProcessorError, ServiceUnavailableError, SuppressionBufferFullError, TopologyError
from statestore.errors.middleware import KeyUnusableError
from statestore.errors.readable import content_facts, shape_of
from statestore.errors.state import LocalStateCorruptedError
from statestore.format.binary_columns import row_objects
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.topic_columns import SourceFields, record_at
from statestore.processor.earlier_times import EarlierTimes, earlier_times
from statestore.processor.processor_metadata import ProcessorMetadata
from statestore.processor.punctuation import LAST_MS, Cancellable, Punctuations, PunctuationType, Punctuator
from statestore.processor.record import Record, RecordMetadata
from statestore.recovery.commit.pointer_fields import Clock, EarlierShards

if TYPE_CHECKING:
    from statestore.connect.converters.base import HeaderConverter
    from statestore.connect.typed_headers import TypedHeaders

StoreClass = TypeVar("StoreClass")
MeetingClass = TypeVar("MeetingClass")
Receiver = Callable[[Record[Any, Any]], None]
BatchReceiver = Callable[[RecordColumns], None]


class TaskRecordContext:
    """The record that a task is processing: where it came from, and its timestamp and headers at this node.

    During a punctuation there is no record: topic and headers are empty, and the timestamp is the punctuation's.
    `system_time_ms` is the wall clock as the driver sets it, `stream_time_ms` the highest timestamp so far.
    """

    __slots__ = (
        "batch",
        "doing",
        "headers",
        "offset",
        "partition",
        "row",
        "row_size_bytes",
        "source",
        "stream_time_ms",
        "system_time_ms",
        "timestamp_ms",
        "topic",
    )

    def __init__(self, stream_time_ms: int = -1, system_time_ms: int = 0) -> None:
        self.stream_time_ms = stream_time_ms
        self.system_time_ms = system_time_ms
        self.batch: pa.RecordBatch | None = None
        """What the source of the current records was given, if it takes columns."""
        self.leave_record(-1)

    def leave_record(self, timestamp_ms: int, doing: str = "") -> None:
        """Note that no record is current at `timestamp_ms`; `doing` says what the task does instead, for errors."""
        self.doing = doing
        self.topic = ""
        self.partition = -1
        self.offset = -1
        self.source: SourceFields | None = None
        self.row_size_bytes = self.row = 0
        self.timestamp_ms = timestamp_ms
        self.headers = Headers()

    def enter_record(self, timestamp_ms: int, headers: Headers, metadata: RecordMetadata | None) -> None:
        """Note that a record is current; `metadata` of None means that it did not come from a topic."""
        self.topic, self.partition, self.offset = ("", -1, -1) if metadata is None else metadata
        self.source = None
        self.row_size_bytes = self.row = 0
        self.timestamp_ms = timestamp_ms
        self.headers = headers

    @contextmanager
    def in_batch(self, doing: str) -> Iterator[None]:
        """Make no record current inside the `with`, at stream time; `doing` says what the task does, for errors."""
        before = self._fields()
        self.leave_record(max(0, self.stream_time_ms), doing)
        try:
            yield
        finally:
            self._restore(before)

    def rows(self, records: RecordColumns) -> Generator[int, None, None]:
        """Make each record the current one in turn, and yield its row. Closing the generator restores the context.

        Records without an origin keep the stream time of the batch.
        """
        before, origin = self._fields(), records.origin
        try:
            if origin is None:
                self.leave_record(0, self.doing)
            columns = (records.timestamp_ms, records.headers, *([] if origin is None else origin.columns))
            for row, fields in enumerate(zip(*map(row_objects, columns), strict=True)):
                self.timestamp_ms, header_bytes = fields[:2]
                self.headers = Headers.from_bytes(header_bytes)
                if origin is not None:
                    self.source = None
                    self.topic, self.partition, self.offset = fields[2:5]
                    self.stream_time_ms, self.row_size_bytes, self.row = fields[5:]
                yield row
        finally:
            self._restore(before)

    def origin(self) -> pa.RecordBatch | None:
        """Return where the current record came from, as a batch of ORIGIN; None if there is none."""
        if not self.topic:
            return None
        fields = (self.topic, self.partition, self.offset, self.stream_time_ms, self.size_bytes, self.row)
        columns = [pa.array([field]).cast(type_) for field, type_ in zip(fields, ORIGIN.types, strict=True)]
        return pa.record_batch(columns, schema=ORIGIN)

    def came(self) -> SourceFields | None:
        """Return the current record as its source was given it, looked up among columns; None if there is none."""
        if self.source is not None or self.batch is None or not self.topic:
            return self.source
        return record_at(self.batch, (self.topic, self.partition, self.offset))

    @property
    def size_bytes(self) -> int:
        """The size of the current input record's key, value and headers in bytes, as they came; 0 if there is none."""
        return self.row_size_bytes if self.source is None else sum(len(part or b"") for part in self.source[-3:])

    def _fields(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    def _restore(self, fields: list[Any]) -> None:
        for name, field in zip(self.__slots__, fields, strict=True):
            setattr(self, name, field)

    @property
    def metadata(self) -> RecordMetadata | None:
        """Where the record came from; None if there is none."""
        return RecordMetadata(self.topic, self.partition, self.offset) if self.topic else None

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""
        return self.headers.to_bytes()


NO_FAULT_OF_USER_CODE: Final = (
    KeyUnusableError,
    LocalStateCorruptedError,
    ServiceUnavailableError,
    SuppressionBufferFullError,
)
"""Errors that neither user code nor the record causes: they are raised as they are, and end the task."""


def processor_error(node: str, context: TaskRecordContext, cause: BaseException) -> ProcessorError:
    """Return the error that says where user code raised `cause`: the node, and the record or the call."""
    if not context.topic:
        return ProcessorError(node=node, doing=context.doing, cause=cause)
    place: dict[str, Any] = {"topic": context.topic, "partition": context.partition, "offset": context.offset}
    came = context.came()
    content = {} if came is None else content_facts(*came[4:])
    return ProcessorError(node=node, cause=cause, timestamp_ms=context.timestamp_ms, **place, **content)


class ShardClock:
    """The shard that user code runs in, and its two clocks."""

    def __init__(self, shard: int, record_context: TaskRecordContext) -> None:
        self.shard = shard
        self._record_context = record_context

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp that this shard has seen, in milliseconds since the epoch; -1 before the first.

        After a rescaling, while a record is processed, it is at least what the earlier shard of its key had seen.
        """
        return self._record_context.stream_time_ms

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch; under Spark the micro-batch's start, also when retried."""
        return self._record_context.system_time_ms


class ProcessorContext(ShardClock):
    """Forwards records to the node's children, hands out its state stores, keeps numbers, and knows the time."""

    def __init__(
        self,
        node: str,
        shard: int,
        record_context: TaskRecordContext,
        stores: Mapping[str, Any],
        punctuations: Punctuations,
        processor_metadata: ProcessorMetadata,
        counted: Counter[str],
        earlier: Sequence[Any] = (),
        meetings: dict[str, Any] | None = None,
        *,
        times_behind_keys: int = 0,
        is_global: bool = False,
        header_converter: HeaderConverter | None = None,
    ) -> None:
        super().__init__(shard, record_context)
        self.node = node
        self._stores = stores
        self._punctuations = punctuations
        self._processor_metadata = processor_metadata
        self._counted = counted
        self._earlier: Sequence[EarlierShards] = earlier
        self._meetings = {} if meetings is None else meetings
        self._times_behind_keys = times_behind_keys
        self._is_global = is_global
        self._header_converter = header_converter
        self.disconnect()

    def connect(self, children: Mapping[str, Receiver], batch_children: Mapping[str, BatchReceiver]) -> None:
        """Set who receives the records and columns that this node forwards. The task calls this."""
        self._children: Mapping[str, Receiver] | None = children
        self._batch_children = batch_children
        self._receivers: Sequence[Receiver] = tuple(children.values())

    def disconnect(self) -> None:
        """Let forwarding raise TopologyError from now on. The task calls this."""
        self._children = None
        self._batch_children = {}
        self._receivers = (self._refuse_to_forward,)

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Send `record` to all children in the order they were added, or to the one named `child`.

        Returns when they have processed it. All children receive the very same record: a child that changes its headers
        changes them for the children after it, as in Kafka. Meanwhile stores log the record's timestamp and headers;
        topic, partition and offset stay those of the input record. Of a record of unknown time (-1), a copy with the
        current timestamp is forwarded. Kafka has no such record.

        Raises TopologyError if there is no such child, and in `init` and `close`, which belong to no record; TypeError
        for anything but a Record.
        """
        if record.__class__ is not Record and not isinstance(record, Record):
            raise TypeError(f"node {self.node!r} can only forward a Record, not {shape_of(record)}")
        context = self._record_context
        timestamp_ms, headers = context.timestamp_ms, context.headers
        if record.timestamp_ms < 0:
            record = record.with_timestamp_ms(timestamp_ms)
        context.timestamp_ms, context.headers = record.timestamp_ms, record._headers
        try:
            receivers = self._receivers if child is None else (self._child(child),)
            for receive in receivers:
                receive(record)
        finally:
            context.timestamp_ms, context.headers = timestamp_ms, headers

    def forward_batch(self, records: RecordColumns, child: str | None = None) -> None:
        """Send records in columns to all children in the order they were added, or to the one named `child`.

        Returns when they have processed all of it. A child that takes records one by one gets each row as a record of
        its own, whose topic, partition and offset are those of the row. Empty columns are not forwarded.

        Raises TopologyError as `forward` does.
        """
        if not isinstance(records, RecordColumns):
            raise TypeError(f"node {self.node!r} can only forward RecordColumns, not {type(records).__name__}")
        if self._children is None:
            self._refuse_to_forward()
        if child is not None:
            self._child(child)
        if len(records):
            for receive in self._batch_children.values() if child is None else (self._batch_children[child],):
                receive(records)

    def forward_rows(self, records: RecordColumns, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Send the rows of columns one by one, each as the current record, with keys and values that no column holds.

        Raises TopologyError as `forward` does.
        """
        context = self._record_context
        with closing(context.rows(records)) as rows:
            for row in rows:
                with self._locating():
                    self.forward(Record.adopt(keys[row], values[row], context.timestamp_ms, context.headers))

    def fail_on(self, records: RecordColumns, row: int, cause: Exception) -> NoReturn:
        """Raise the error that says on which of the records in columns user code raised `cause`."""
        with closing(self._record_context.rows(records.slice(row, 1))) as rows, self._locating():
            next(rows)
            raise cause

    @overload
    def state_store(self, name: str) -> Any: ...

    @overload
    def state_store(self, name: str, kind: type[StoreClass]) -> StoreClass: ...

    def state_store(self, name: str, kind: type[Any] | None = None) -> Any:
        """Return the state store `name`, or a read-only view of a global store. Raises TopologyError if not attached.

        `kind` is its class, such as `KeyValueStore[str, int]`: type checkers then know it, and a store of another class
        raises TopologyError. The types of keys and values in the brackets are not checked.
        """
        try:
            store = self._stores[name]
        except KeyError:
            raise TopologyError(
                f"processor {self.node!r} asked for the state store {name!r}, which is not attached to it (attached: "
                f"{sorted(self._stores)}). Name the processor in Topology.add_state_store(builder, {self.node!r}), or "
                f"the store in KStream.process(..., {name!r})"
            ) from None
        wanted = get_origin(kind) or kind
        if wanted is not None and not isinstance(store, wanted):
            raise TopologyError(
                f"processor {self.node!r} asked for the state store {name!r} as {wanted.__name__}, but it is a "
                f"{type(store).__name__}. Ask for the class that its builder makes; a global store is read-only"
            )
        return store

    def schedule(
        self,
        interval_ms: int,
        punctuation_type: PunctuationType,
        punctuator: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        """Call `punctuator` with the time whenever `interval_ms` has passed. For `init` only.

        STREAM_TIME advances with the timestamps of records: the first call comes with the first record, then after each
        record that reaches or passes the next multiple of the interval. WALL_CLOCK_TIME advances by itself: the first
        call comes an interval after the shard's first start. However many intervals were missed, there is one call.
        With `start_ms`, times are `start_ms` plus multiples of the interval. The next due time is committed with the
        state, so a schedule goes on after a restart. Source: Kafka's ProcessingContext.schedule (KIP-138, KIP-1146).

        Raises ValueError for an interval below 1 ms, a negative start, and times above 2^63 - 1, and TopologyError
        outside of `init` and in the processor of a global store, whose topic has no time of its own.
        """
        if self._is_global:
            raise TopologyError(f"node {self.node!r} feeds a global store: it can't schedule punctuation")
        if type(interval_ms) is not int or interval_ms < 1:
            raise ValueError(f"interval_ms must be a whole number, 1 or more, got {interval_ms!r}")
        if not isinstance(punctuation_type, PunctuationType):
            raise TypeError(f"punctuation_type must be a PunctuationType, got {punctuation_type!r}")
        if start_ms is not None and (type(start_ms) is not int or start_ms < 0):
            raise ValueError(f"start_ms must be a whole number, 0 or more, got {start_ms!r}")
        for name, time_ms in (("interval_ms", interval_ms), ("start_ms", start_ms or 0)):
            if time_ms > LAST_MS:
                raise ValueError(f"{name} must be at most 2^63 - 1, got {time_ms}")
        if not callable(punctuator):
            raise TypeError(f"punctuator must be a function of the time, got {punctuator!r}")
        return self._punctuations.schedule(
            self.node, punctuation_type, interval_ms, punctuator, start_ms, self._record_context.system_time_ms
        )

    def processor_metadata(self, key: str) -> int | None:
        """Return the whole number that a processor of this shard last set under this name; None if none has.

        It is what was set in this batch or committed by the last one, also after a restart. Raises TopologyError in
        the processor of a global store. Source: KIP-825, InternalProcessorContext.processorMetadataForKey.
        """
        self._refuse_global_metadata()
        return self._processor_metadata.get(key)

    def set_processor_metadata(self, key: str, value: int) -> None:
        """Keep a whole number under a name, over batches and restarts: it counts once the batch is committed.

        All nodes of the topology share the names of a shard: use the name of your state store, as Kafka does. A batch
        that fails sets nothing. Keep a few times of the shard here; what belongs to a key goes into a store.
        When the state is rescaled, each new shard starts with the lowest number that an old one had; with none, if an
        old one in use had none. Under a name that ends in `-stream-time`, keep up to what time records were seen.
        Source: KIP-825, InternalProcessorContext.addProcessorMetadataKeyValue.

        Raises TypeError for anything but str and int, ValueError for a name that is empty or above 249 bytes of UTF-8
        and a value that does not fit in 64 bits, signed, ProcessorMetadataError when the shard has 1,000 names, and
        TopologyError in the processor of a global store, which belongs to no shard.
        """
        self._refuse_global_metadata()
        self._processor_metadata.set(self.node, key, value)

    def _earlier_times(self, kind: str, name: str) -> EarlierTimes | None:
        """Return what a store's or processor's clock showed in each key's shard before the state was rescaled.

        `name` is the store's, or that of the processor's metadata, which ends as such clocks' names do. None: this
        shard has seen as much.
        """
        return earlier_times(self._earlier, Clock(kind, name), self._times_behind_keys)

    def _meeting(self, name: str, make: Callable[[], MeetingClass]) -> MeetingClass:
        """Return the meeting of this name, which the first node that asks for it makes. For `init` only."""
        if name not in self._meetings:
            self._meetings[name] = make()
        meeting: MeetingClass = self._meetings[name]
        return meeting

    def count(self, what: str, number: int = 1) -> None:
        """Count something, such as records left out; the batch's figures have it in `counted` as `<node>.<what>`."""
        self._counted[f"{self.node}.{what}"] += number

    @contextmanager
    def resumed(self, record: Record[Any, Any], metadata: RecordMetadata | None) -> Iterator[None]:
        """Make `record`, which was held back, the current one inside the `with`.

        Writes are logged with its timestamp and headers; with the current timestamp if its own is unknown (-1).
        `metadata` of None means that it came from no topic.
        """
        context = self._record_context
        before = context._fields()
        timestamp_ms = context.timestamp_ms if record.timestamp_ms < 0 else record.timestamp_ms
        context.enter_record(timestamp_ms, record.headers, metadata)
        try:
            with self._locating():  # here, because outside of the `with` another record is current
                yield
        finally:
            context._restore(before)

    @contextmanager
    def _locating(self) -> Iterator[None]:
        """Say of what user code raises inside of the `with` that it fails on the current record."""
        try:
            yield
        except (ProcessorError, *NO_FAULT_OF_USER_CODE):
            raise
        except Exception as cause:
            raise processor_error(self.node, self._record_context, cause) from cause

    def commit(self) -> None:
        """Do nothing: Spark commits each micro-batch, the test driver each record. In Kafka, it asks for a commit."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the input record that is being processed; None during a punctuation."""
        return self._record_context.metadata

    @property
    def record_size_bytes(self) -> int:
        """The size of the input record's key, value and headers in bytes, as they came; 0 during a punctuation."""
        return self._record_context.size_bytes

    @property
    def current_timestamp_ms(self) -> int:
        """The timestamp of the record at this node, or of the punctuation, in milliseconds since the epoch."""
        return self._record_context.timestamp_ms

    @property
    def current_headers(self) -> Headers:
        """The headers of the record at this node, the very same that it has; none during a punctuation."""
        return self._record_context.headers

    def typed_headers(self, headers: Headers | None = None, *, topic: str | None = None) -> TypedHeaders:
        """Return headers as the query's header converter reads them, each when it is asked for.

        Args:
            headers: those of any record; None means those of the record at this node.
            topic: whose converter to use; None means the topic of the input record.

        The converter is that of a ConnectIngest among the interceptors, else the session's
        (`spark.statestore.header.converter`), else Kafka's SimpleHeaderConverter.
        """
        # Imported here, because most processors never ask for typed headers.
        from statestore.connect.converters.registry import header_converter
        from statestore.connect.typed_headers import TypedHeaders

        if self._header_converter is None:
            self._header_converter = header_converter()
        context = self._record_context
        return TypedHeaders(
            context.headers if headers is None else headers,
            self._header_converter,
            context.topic if topic is None else topic,
        )

    def _refuse_global_metadata(self) -> None:
        if self._is_global:
            raise TopologyError(
                f"node {self.node!r} feeds a global store, which belongs to no shard: it has no processor metadata. "
                "Keep it in the global store"
            )

    def _refuse_to_forward(self, record: Record[Any, Any] | None = None) -> None:
        raise TopologyError(
            f"node {self.node!r} forwards in init() or close(): under Spark both run in every micro-batch, "
            "without a record. Forward from process(), a punctuator or finish_batch()"
        )

    def _child(self, name: str) -> Receiver:
        if self._children is None:
            return self._refuse_to_forward
        try:
            return self._children[name]
        except KeyError:
            raise TopologyError(
                f"node {self.node!r} forwards to {name!r}, which is not a child of it (children: "
                f"{sorted(self._children)})"
            ) from None
