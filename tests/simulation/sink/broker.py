"""Kafka, as far as the sink depends on it: logs, transactions and their coordinator, and what clients see of them.

    coordinator   by transactional id: the epoch of its latest producer, which fences those before it, and the
                  transaction of that
    log           records in order; each belongs to a transaction, whose end comes to each log of it by itself, some
                  time after the coordinator has decided on it
    client        queues what is produced; sends it when it is full, polled or flushed; asks again by itself

Up to the first record of a transaction that has not come to its end there, a read_committed consumer sees a log. What
the coordinator has not heard of for too long it aborts. A log of markers is compacted now and then. Source: Kafka's
TransactionCoordinator and ProducerStateManager, KIP-98, KIP-360, and librdkafka's producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from statestore.errors.run import KafkaTimeoutError
from statestore.spark.kafka_sink.cluster import KafkaCluster, KeptRecord
from tests.simulation.decisions import Effect
from tests.simulation.scheduler import Process, Scheduler

ANSWER: Final = (Effect.KILL, Effect.KILL_AFTER, Effect.ERROR, Effect.LOST, Effect.OUTAGE)
SEND: Final = (Effect.KILL, Effect.KILL_AFTER, Effect.OUTAGE, Effect.IMPATIENT)
ASK: Final = (Effect.KILL, Effect.OUTAGE, Effect.FLUSH)
_QUEUED: Final = 3
_WAITS: Final = 3
_WAIT_NS: Final = 20 * 10**9
_PATIENCE_NS: Final = 61 * 10**9
"""What a client waits for an answer, and a little."""


@dataclass(eq=False)
class OneTransaction:
    """A transaction of a producer."""

    began_ns: int
    timeout_ms: int
    committed: bool | None = None
    """What the coordinator has decided; None is nothing yet."""
    open_in: dict[tuple[str, int], int] = field(default_factory=dict)
    """By log, where its first record there is, as long as its end is not there."""


@dataclass
class Entry:
    """A record of a log; one of the ends of transactions has no transaction."""

    transaction: OneTransaction | None
    key: bytes | None = None
    value: bytes | None = None
    is_gone: bool = False
    """Whether it was compacted away."""


@dataclass
class Coordinated:
    """What the coordinator knows of a transactional id."""

    query: int | None = None
    """Which has written with it."""
    epoch: int = 0
    transaction: OneTransaction | None = None


class SimulatedBroker:
    """The brokers, which do not fail: what is lost is lost on the way to a client."""

    def __init__(self, scheduler: Scheduler, topics: Mapping[str, int], compacted: str) -> None:
        self.scheduler = scheduler
        self.process = Process("broker")
        self.topics = topics
        self.compacted = compacted
        self.logs: dict[tuple[str, int], list[Entry]] = {
            (topic, partition): [] for topic, partitions in topics.items() for partition in range(partitions)
        }
        self.ids: dict[str, Coordinated] = {}
        self.on_committed: Callable[[Process], None] = lambda process: None
        self._ended = 0

    # What the coordinator does.

    def new_epoch(self, transactional_id: str) -> int:
        """Fence whoever has the id, end what was begun under it, and return the epoch of its new owner."""
        known = self.ids.setdefault(transactional_id, Coordinated())
        known.epoch += 1
        # Who comes meanwhile may begin another one.
        while (begun := known.transaction) is not None:
            self._decide(begun, committed=False)
            self.scheduler.wait(lambda begun=begun: not begun.open_in)
            if known.transaction is begun:
                known.transaction = None
            known.epoch += 1
        return known.epoch

    def append(self, transactional_id: str, epoch: int, timeout_ms: int, records: Iterable[Any]) -> bool:
        """Append records to the transaction of a producer; return whether it may still do so."""
        known = self.ids[transactional_id]
        if known.epoch != epoch:
            return False
        query = self.scheduler.current.process.memory["query"]  # type: ignore[union-attr]
        known.query = query if known.query is None else known.query
        if known.query != query:
            self.scheduler.fail(f"two queries write with the transactional id {transactional_id}")
        if known.transaction is None:
            known.transaction = OneTransaction(self.scheduler.now_ns, timeout_ms)
        for topic, partition, key, value in records:
            log = self.logs[topic, partition]
            known.transaction.open_in.setdefault((topic, partition), len(log))
            log.append(Entry(known.transaction, key, value))
        return True

    def end(self, transactional_id: str, epoch: int, *, committed: bool) -> bool:
        """Decide on the transaction of a producer; return whether it may still do so. To ask again is no harm."""
        known = self.ids[transactional_id]
        if known.epoch != epoch:
            return False
        if known.transaction is not None:
            self._decide(known.transaction, committed=committed)
        return True

    def _decide(self, transaction: OneTransaction, *, committed: bool) -> None:
        if transaction.committed is not None:
            return
        transaction.committed = committed
        if committed:
            assert self.scheduler.current is not None
            self.on_committed(self.scheduler.current.process)
        self._ended += 1
        self.scheduler.spawn(f"end{self._ended}", self.process, lambda: self._write_ends(transaction))

    def _write_ends(self, transaction: OneTransaction) -> None:
        for log in sorted(transaction.open_in):
            self.scheduler.op("broker.end", log[0])
            del transaction.open_in[log]
            self.logs[log].append(Entry(None))

    def time_out(self, *, all_late: bool) -> None:
        """Abort transactions that took too long, or the one that was begun first."""
        found = [known for known in self.ids.values() if known.transaction and known.transaction.committed is None]
        now_ns = self.scheduler.now_ns
        late = [k for k in found if now_ns - k.transaction.began_ns > k.transaction.timeout_ms * 10**6]  # type: ignore[union-attr]
        first = sorted(found, key=lambda known: known.transaction.began_ns)[:1]  # type: ignore[union-attr]
        for known in late if all_late else first:
            known.epoch += 1
            assert known.transaction is not None
            self._decide(known.transaction, committed=False)

    # What is to be seen.

    def stable_end(self, log: tuple[str, int]) -> int:
        """Return up to where a log is decided on."""
        starts = [entry.transaction.open_in.get(log) for entry in self.logs[log] if entry.transaction is not None]
        return min((start for start in starts if start is not None), default=len(self.logs[log]))

    def committed(self, log: tuple[str, int]) -> list[Entry]:
        """Return the records of a log that count, or will as soon as their end is written."""
        return [entry for entry in self.logs[log] if entry.transaction is not None and entry.transaction.committed]

    def compact(self) -> None:
        """Leave out of the compacted topic what was aborted, or has a later committed record of its key."""
        for log, entries in self.logs.items():
            if log[0] != self.compacted:
                continue
            later: set[bytes | None] = set()
            for entry in reversed(entries[: self.stable_end(log)]):
                if entry.transaction is None:
                    continue
                entry.is_gone |= not entry.transaction.committed or entry.key in later
                if entry.transaction.committed:
                    later.add(entry.key)


class SimulatedProducer:
    """What stands for librdkafka's producer of transactions."""

    def __init__(self, broker: SimulatedBroker, transactional_id: str, timeout_ms: int) -> None:
        self._broker = broker
        self._scheduler = broker.scheduler
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._epoch = 0
        self._queue: list[tuple[str, int, bytes | None, bytes | None]] = []
        self._is_fenced = False

    def list_topics(self, *_: Any) -> None:
        self._answer("topics", lambda: True)

    def init_transactions(self, *_: Any) -> None:
        def take() -> bool:
            self._epoch = self._broker.new_epoch(self._id)
            return True

        self._answer("init", take)

    def begin_transaction(self, *_: Any) -> None:
        self._check()

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int, *_: Any) -> None:
        self._check()
        if len(self._queue) >= _QUEUED:
            raise BufferError
        self._queue.append((topic, partition, key, value))

    def poll(self, *_: Any) -> None:
        self._send()

    def flush(self, *_: Any) -> None:
        self._send()

    def purge(self) -> None:
        self._queue.clear()

    def commit_transaction(self, *_: Any) -> None:
        self._send()
        self._answer("commit", lambda: self._broker.end(self._id, self._epoch, committed=True))

    def abort_transaction(self, *_: Any) -> None:
        self._check()
        self._queue.clear()
        self._answer("abort", lambda: self._broker.end(self._id, self._epoch, committed=False))

    def _send(self) -> None:
        self._check()
        if not self._queue:
            return
        effect = self._scheduler.op("kafka.send", self._queue[0][0], SEND)
        if effect is Effect.IMPATIENT:
            self._broker.time_out(all_late=False)
        if effect is Effect.OUTAGE:
            self._scheduler.now_ns += _PATIENCE_NS
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if not self._broker.append(self._id, self._epoch, self._timeout_ms, self._queue):
            self._is_fenced = True
        self._queue.clear()
        if effect is Effect.KILL_AFTER:
            self._scheduler.kill(self._scheduler.current.process)  # type: ignore[union-attr]
        self._check()

    def _answer(self, request: str, do: Callable[[], bool]) -> None:
        """Ask the coordinator for something, of which the request or the answer may be lost."""
        self._check()
        effect = self._scheduler.op(f"kafka.{request}", self._id, ANSWER)
        if effect in (Effect.ERROR, Effect.OUTAGE):
            self._raise_silence(effect)
        if not do():
            self._is_fenced = True
        if effect is Effect.KILL_AFTER:
            self._scheduler.kill(self._scheduler.current.process)  # type: ignore[union-attr]
        if effect is Effect.LOST:
            self._raise_silence(Effect.OUTAGE)
        self._check()

    def _raise_silence(self, effect: Effect) -> None:
        if effect is Effect.OUTAGE:
            self._scheduler.now_ns += _PATIENCE_NS
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    def _check(self) -> None:
        if self._is_fenced:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by another producer", fatal=True))


@dataclass(frozen=True)
class SimulatedCluster(KafkaCluster):
    """The way of clients to the broker."""

    broker: Any = None

    def producer(self, transactional_id: str, timeout_ms: int, on_failure: Any, kind: Any = None) -> Any:
        return SimulatedProducer(self.broker, transactional_id, timeout_ms)

    def partitions(self, topic: str) -> int | None:
        return self.broker.topics.get(topic)

    def cleanup_policies(self, topic: str) -> frozenset[str]:
        return frozenset({"compact"})

    def end_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        self._ask("kafka.ends", topic)
        return {partition: len(self.broker.logs[topic, partition]) for partition in partitions}

    def read(
        self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], *, committed: bool = True
    ) -> Iterator[KeptRecord]:
        broker, scheduler = self.broker, self.broker.scheduler
        for partition, start in starts.items():
            end, log = ends[partition], (topic, partition)
            if start >= end:
                continue
            self._ask("kafka.read", topic)
            for _ in range(_WAITS):
                if not committed or broker.stable_end(log) >= end:
                    break
                scheduler.rest(40)
                scheduler.now_ns += _WAIT_NS
                broker.time_out(all_late=True)
            if committed and broker.stable_end(log) < end:
                raise KafkaTimeoutError(
                    action=f"reading {topic}", timeout_s=60, cause="a transaction in it may be open"
                )
            for offset in range(start, end):
                entry = broker.logs[log][offset]
                transaction = entry.transaction
                if transaction is not None and not entry.is_gone and (transaction.committed or not committed):
                    yield KeptRecord(partition, offset, entry.key, entry.value)

    def _ask(self, point: str, topic: str) -> None:
        scheduler = self.broker.scheduler
        effect = scheduler.op(point, topic, ASK)
        if effect is Effect.FLUSH:
            self.broker.compact()
        if effect is Effect.OUTAGE:
            scheduler.now_ns += _PATIENCE_NS
            raise KafkaTimeoutError(action=f"reading {topic}", timeout_s=60, cause="no answer")
