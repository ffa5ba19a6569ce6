"""The interceptors of a task: a copy of each, with its context, and the hooks for deserialized records."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pyarrow as pa

from statestore.errors import DataException, ProcessorError, RecordRefusedError, StateStoreError, TopologyError
from statestore.errors.readable import shape_of
from statestore.errors.state import SpilledDeltaCorruptedError
from statestore.headers.topic_columns import Send, SourceFields
from statestore.interception.failures import OnRefusal, Refusal
from statestore.interception.interceptor import IngestedRecord, Interceptor, defines
from statestore.interception.passage import source_of
from statestore.interception.task_passages import Ingest, TaskEmission
from statestore.processor.context import NO_FAULT_OF_USER_CODE, Receiver, ShardClock, TaskRecordContext, processor_error
from statestore.processor.earlier_times import NOWHERE, EarlierTimes, earlier_times
from statestore.processor.nodes import InterceptorNode
from statestore.processor.punctuation import Punctuations, PunctuationType
from statestore.processor.record import Record, RecordMetadata
from statestore.recovery.commit.changelog import ChangelogObserver, ChangelogRecord
from statestore.recovery.commit.pointer_fields import SHARD_CLOCK, EarlierShards
from statestore.stores.typed_store import TypedStore


class TaskInterceptorContext(ShardClock):
    """What an interceptor sees of its task: an InterceptorContext."""

    def __init__(
        self,
        node: InterceptorNode,
        shard: int,
        record_context: TaskRecordContext,
        stores: Mapping[str, Any],
        punctuations: Punctuations,
        refuse: OnRefusal,
        earlier: EarlierTimes | None,
    ) -> None:
        super().__init__(shard, record_context)
        self._earlier = earlier
        self._node = node
        self._stores = stores
        self._punctuations = punctuations
        self._refuse = refuse

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the current record; None if there is none, as in a punctuation."""
        return self._record_context.metadata

    def stream_time_ms_of(self, key: bytes | None) -> int:
        """Return the highest timestamp seen by this shard, or by the key's shard before the state was rescaled."""
        now_ms = self.current_stream_time_ms
        return now_ms if self._earlier is None else max(now_ms, self._earlier.of(key or b"", NOWHERE))

    def state_store(self, name: str) -> Any:
        """Return one of the interceptor's state stores. Raises TopologyError if it has none of that name."""
        if name not in self._node.stores:
            raise TopologyError(
                f"{self._node.name} asked for the state store {name!r}, which is not among its stores()"
            )
        return self._stores[name]

    def schedule_wall_clock(self, interval_ms: int, call: Callable[[int], None]) -> None:
        """Call `call` with the time whenever the wall clock has advanced by `interval_ms`. For `init` only."""
        if type(interval_ms) is not int or interval_ms < 1:
            raise ValueError(f"interval_ms must be a whole number, 1 or more, got {interval_ms!r}")
        clock, now_ms = PunctuationType.WALL_CLOCK_TIME, self.current_system_time_ms
        self._punctuations.schedule(self._node.name, clock, interval_ms, call, None, now_ms)

    def refuse(self, record: IngestedRecord, error: RecordRefusedError) -> None:
        """Refuse a record other than the current one. Raises `error` unless failure handling takes the record."""
        self._refuse(source_of(record), self._node.interceptor.name, error)


@contextmanager
def _failures_of(interceptor: Interceptor, doing: str, *passed: type[Exception]) -> Iterator[None]:
    """Wrap in ProcessorError what an interceptor raises, except `passed` and what is not its fault."""
    faultless: tuple[type[Exception], ...] = (*passed, *NO_FAULT_OF_USER_CODE)
    try:
        yield
    except faultless:
        raise
    except Exception as cause:
        raise ProcessorError(node=interceptor.name, doing=doing, cause=cause) from cause


def _see_expired(interceptor: Interceptor, store: str, key: bytes, value: bytes | None) -> None:
    with _failures_of(interceptor, f"in on_expiry() of store {store!r}"):
        interceptor.on_expiry(store, key, value)


class TaskInterceptors:
    """The interceptors of a topology, for one task."""

    def __init__(
        self,
        nodes: Iterable[InterceptorNode],
        shard: int,
        record_context: TaskRecordContext,
        stores: Mapping[str, TypedStore],
        punctuations: Punctuations,
        refuse: OnRefusal,
        earlier: Sequence[EarlierShards] = (),
    ) -> None:
        seen = earlier_times(earlier, SHARD_CLOCK)
        self._record_context = record_context
        self._punctuations = punctuations
        self._refuse = refuse
        self._made: Final = [
            (
                copy.copy(node.interceptor),
                TaskInterceptorContext(node, shard, record_context, stores, punctuations, refuse, seen),
                node.name,
            )
            for node in nodes
        ]
        self._ready: list[Interceptor] = []
        self.interceptors: Final[Sequence[Interceptor]] = tuple(made for made, _, _ in self._made)
        self.names: Final = frozenset(made.name for made in self.interceptors)
        self.ingest: Final = Ingest(self.interceptors, refuse)
        for interceptor in self._defining("on_expiry"):
            for name, store in stores.items():
                store.watch_expired(partial(_see_expired, interceptor, name))

    def emission(
        self,
        send: Send,
        send_batch: Callable[[pa.RecordBatch], None],
        current: Callable[[], SourceFields | None],
        original: Callable[[str, int, int], SourceFields | None] | None = None,
    ) -> TaskEmission:
        """Return what passes outgoing records through the interceptors to `send` and `send_batch`.

        `current` returns the current input record. `original` returns the input record at a topic, partition and offset
        as it came; None asks `ingest`.
        """
        return TaskEmission(
            self.interceptors, send, send_batch, self._refuse, current, original or self.ingest.original
        )

    def init(self) -> None:
        """Call each `init`. Wraps what one raises in ProcessorError, but not StateStoreError."""
        for interceptor, context, node in self._made:
            self._punctuations.initializing = node
            self._ready.append(interceptor)
            try:
                with _failures_of(interceptor, "in init()", StateStoreError):
                    interceptor.init(context)
            finally:
                self._punctuations.initializing = None

    @property
    def finishes_batches(self) -> bool:
        """Whether any has something to do at the end of a batch."""
        return bool(self._defining("finish_batch"))

    def finish_batch(self) -> None:
        """Let each finish what it held back. Raises ProcessorError."""
        for interceptor in self._defining("finish_batch"):
            with _failures_of(interceptor, "in finish_batch()", RecordRefusedError):
                interceptor.finish_batch()

    def close(self) -> list[tuple[str, Callable[[], None]]]:
        """Return the name and `close` of each that was initialised; of none at the second call."""
        ready, self._ready = self._ready, []
        return [(interceptor.name, interceptor.close) for interceptor in ready]

    @property
    def on_changelog(self) -> ChangelogObserver | None:
        """What shows interceptors the writes of a batch; None if none has a hook `on_changelog`."""
        observers = self._defining("on_changelog")
        if not observers:
            return None

        def show(store: str, records: Iterable[ChangelogRecord]) -> None:
            for interceptor in observers:
                # The hook reads the records, and so finds spilled files that the disk has damaged.
                with _failures_of(interceptor, f"in on_changelog() of store {store!r}", SpilledDeltaCorruptedError):
                    interceptor.on_changelog(store, records)

        return show

    def show_failure(self, error: Exception) -> None:
        """Show interceptors why a record is left out. Raises ProcessorError."""
        for interceptor in self._defining("on_failure"):
            try:
                interceptor.on_failure(error)
            except Exception as cause:
                raise ProcessorError(node=interceptor.name, doing="in on_failure()", cause=cause) from cause

    @property
    def consumes(self) -> bool:
        """Whether any has a hook `on_consume`."""
        return bool(self._defining("on_consume"))

    def consuming(self, children: Sequence[Receiver]) -> Sequence[Receiver]:
        """Return the receivers of a source's records: its children, behind the hooks `on_consume`, last one first."""
        hooks = [(each.name, each.on_consume) for each in reversed(self._defining("on_consume"))]
        if not hooks:
            return children
        context = self._record_context

        def receive(record: Record[Any, Any]) -> None:
            for made in self._passed(record, hooks):
                context.timestamp_ms, context.headers = made.timestamp_ms, made._headers
                for child in children:
                    child(made)

        return (receive,)

    @property
    def sending(self) -> Callable[[str, Record[Any, Any]], list[Record[Any, Any]]] | None:
        """What a sink passes records to a topic through before it writes them; None without hooks `on_send`."""
        senders = self._defining("on_send")
        if not senders:
            return None
        return lambda topic, record: self._passed(
            record, [(each.name, partial(each.on_send, topic)) for each in senders]
        )

    def _passed(
        self, record: Record[Any, Any], hooks: Iterable[tuple[str, Callable[[Any], Iterable[Any]]]]
    ) -> list[Record[Any, Any]]:
        records = [record]
        for name, hook in hooks:
            before, records = records, []
            for each in before:
                try:
                    made = list(hook(each))
                    for one in made:
                        if not isinstance(one, Record):
                            raise TypeError(f"it must return Records, not {shape_of(one)}")
                    records += made
                except (RecordRefusedError, DataException) as error:
                    self._leave_out(name, error)
                except NO_FAULT_OF_USER_CODE:
                    raise
                except Exception as cause:
                    raise processor_error(name, self._record_context, cause) from cause
        return records

    def _leave_out(self, name: str, error: Refusal) -> None:
        try:
            self._refuse(None, name, error)
        except DataException as cause:
            raise processor_error(name, self._record_context, cause) from cause

    def _defining(self, hook: str) -> list[Interceptor]:
        return [interceptor for interceptor in self.interceptors if defines(interceptor, hook)]
