"""ChainClient: runs interceptors around a plain producer or consumer, without a topology or a query.

    with ChainClient([Tracing(provider), Signing(keys)]) as client:
        for record in client.emit(ProducerRecord(...)):
            producer.produce(record.topic, record.value, record.key, headers=list(record.headers))

Interceptors keep their stores in memory here, for as long as the client lives.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors import ProcessorError
from statestore.headers.topic_columns import SourceFields
from statestore.interception.chain import Interceptors, chain_of
from statestore.interception.failures import Refusal
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.interception.passage import EmitPassage, IngestPassage, record_of, source_of
from statestore.processor.context import TaskRecordContext
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.punctuation import Punctuations
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.processor.topology import Topology

__all__ = ["ChainClient"]


def _system_time_ms() -> int:
    return int(time.time() * 1000)


class ChainClient:
    """Passes records through a chain on their way from or to Kafka. Use it in a `with`, or close it.

    Not thread-safe. Each client has its own stores: a consumer group can't join slices or refuse replays together.
    """

    def __init__(
        self,
        interceptors: Interceptors,
        *,
        on_refusal: Callable[[IngestedRecord | None, str, Refusal], None] | None = None,
        shard: int = 0,
        clock: Callable[[], int] = _system_time_ms,
    ) -> None:
        """Start the interceptors.

        Args:
            interceptors: a Chain, interceptors in the order of one, or a configuration that names them.
            on_refusal: called with a refused incoming record (None for an outgoing one), the interceptor's name and the
                error; the record is then left out. None raises the error.
            shard: the shard number that interceptors see.
            clock: returns the time in milliseconds since the epoch; asked at each call.

        Raises what a chain and its interceptors raise.
        """
        self.chain = chain_of(interceptors).complete()
        self._clock = clock
        self._context = TaskRecordContext(system_time_ms=clock())
        self._on_refusal = on_refusal
        around = Topology().with_interceptors(self.chain)
        stores = build_stores(around, self._context, lambda name: StoreBacking(MemoryByteStore(name)))
        self._stores = stores.values()
        self._punctuations = Punctuations({})
        self._made = TaskInterceptors(
            around.interceptors.values(), shard, self._context, stores, self._punctuations, self._refused
        )
        self._came: SourceFields | None = None
        self._ingest = IngestPassage(self._made.interceptors, self._refused_now)
        self._emit = EmitPassage(self._made.interceptors, self._refused_now)
        try:
            self._made.init()
        except BaseException:
            self.close()
            raise

    def ingest(self, record: IngestedRecord) -> list[IngestedRecord]:
        """Return what the chain makes of a polled record; the last interceptor goes first."""
        self._tick()
        self._came = source_of(record)
        passed = self._ingest.pass_record(record)
        for made in passed:
            self._context.stream_time_ms = max(self._context.stream_time_ms, made.timestamp_ms)
        return passed

    def emit(self, record: EmittedRecord) -> list[EmittedRecord]:
        """Return what the chain makes of a record to send; the first interceptor goes first."""
        self._tick()
        self._came = None
        return self._emit.pass_record(record)

    def finish_batch(self) -> None:
        """End a batch, for example after each poll: interceptors finish what they hold back, and fetch keys again.

        Entries of their stores that have expired are deleted.
        """
        self._tick()
        self._made.finish_batch()
        for store in self._stores:
            store.delete_expired()

    def close(self) -> None:
        """Close the interceptors. Raises ProcessorError for the first that fails."""
        failures = []
        for name, close in self._made.close():
            try:
                close()
            except Exception as cause:
                failures.append(ProcessorError(node=name, doing="in close()", cause=cause))
        if failures:
            raise failures[0]

    def __enter__(self) -> ChainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refused_now(self, record: object, interceptor: str, error: Refusal) -> None:
        self._refused(self._came, interceptor, error)

    def _refused(self, source: SourceFields | None, interceptor: str, error: Refusal) -> None:
        if self._on_refusal is None:
            raise error
        self._on_refusal(None if source is None else record_of(source), interceptor, error)

    def _tick(self) -> None:
        self._context.system_time_ms = now_ms = self._clock()
        self._punctuations.wall_clock.punctuate(now_ms, lambda schedule, due_ms: schedule.punctuator(due_ms))
