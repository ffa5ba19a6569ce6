"""A Kafka transaction of the sink: rows, and a record in the topic of markers, of which both count or neither."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError
from statestore.errors.run import KafkaRefusedError, TransactionAbortedError, TransactionFencedError
from statestore.middleware.application import extra
from statestore.spark.kafka_sink.markers import MarkerTopic

with extra("kafka"):
    from confluent_kafka import KafkaError, KafkaException, Producer

_LOG: Final = logging.getLogger(__name__)
_FENCED: Final = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)
"""Another producer has taken over the transactional id."""
_ROWS_AT_ONCE: Final = 2_000
_POLL_S: Final = 0.1
_ANY_PARTITION: Final = -1
_NOW: Final = 0
"""What the client takes for no timestamp."""


class Transaction:
    """The transaction of an id. Once it is made, no earlier producer with that id can commit."""

    def __init__(self, topic: MarkerTopic, transactional_id: str, timeout_ms: int) -> None:
        self._topic = topic
        self._id = transactional_id
        self._timeout_s = topic.cluster.timeout_s
        self._producer: Producer = topic.cluster.producer(transactional_id, timeout_ms, self._note_failure)
        self._failure: KafkaError | None = None
        self._is_open = False
        with self._errors("taking over"):
            # If the client asks for the coordinator before it is connected to a broker, it waits for half a second. The
            # first answer comes from a bootstrap address, which it leaves then; the second from a broker.
            for _ in range(2):
                self._producer.list_topics(topic.name, self._timeout_s)
            self._until_done(self._producer.init_transactions)

    def begin(self) -> None:
        """Begin it."""
        with self._errors("beginning"):
            self._producer.begin_transaction()
        self._is_open = True

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows in their order, as the client has room. Raises InputError for a row that can't be sent."""
        with self._errors("writing to"):
            for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
                self._add(rows.slice(start, _ROWS_AT_ONCE))

    def commit(self, key: bytes, value: bytes, partitions: Sequence[int]) -> dict[int, int]:
        """Write a marker to these partitions, and commit; return for each the first offset that later ones can have."""
        with self._errors("committing"):
            for partition in partitions:
                self._send(self._topic.name, value, key, partition)
            self._producer.flush(self._timeout_s)
            # The markers are in the logs. The end of the transaction follows, before any later marker of the key.
            ends = self._topic.cluster.end_offsets(self._topic.name, partitions)
            self._until_done(self._producer.commit_transaction)
        self._is_open = False
        return {partition: end + 1 for partition, end in ends.items()}

    def close(self) -> None:
        """Close the client; abort a transaction that was not committed. If no broker answers, its timeout aborts it."""
        if self._is_open:
            self._is_open = False
            try:
                self._producer.abort_transaction(5.0)
            except (KafkaException, SystemError) as cause:
                # The next attempt aborts it, or transaction.timeout.ms does.
                _LOG.warning("can't abort the transaction of %s: %s", self._id, cause)
                self._producer.purge()

    def _add(self, rows: pa.RecordBatch) -> None:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        self._check(columns)
        partition, timestamp_ms = (
            columns[name].fill_null(default).to_pylist() if name in columns else repeat(default)
            for name, default in (("partition", _ANY_PARTITION), ("timestamp_ms", _NOW))
        )
        topic, value, key = (columns[name].to_pylist() for name in ("topic", "value", "key"))
        headers = _pairs(columns["headers"]) if "headers" in columns else repeat(None)
        in_order = zip(topic, value, key, partition, repeat(None), repeat(None), timestamp_ms, headers, strict=False)
        produce = self._producer.produce
        while True:
            try:
                # By position, as names take as long as half of the call.
                for row in in_order:
                    produce(*row)
            except BufferError:
                self._send(*row)
            else:
                break
        self._producer.poll(0)

    def _check(self, columns: dict[str, pa.Array]) -> None:
        """Raise InputError if a row can't be sent."""
        topics, times_ms = columns["topic"], columns.get("timestamp_ms")
        if topics.null_count:
            raise InputError(
                "a row for Kafka has no topic: fill the column, or name one with KafkaTransactions(topic=)"
            )
        if pc.any(pc.equal(topics, self._topic.name)).as_py():
            raise InputError(
                f"a row for Kafka has the topic {self._topic.name}, which holds the sink's markers, and could be taken "
                "for one: give it another topic"
            )
        if times_ms is not None and (first_ms := pc.min(times_ms).as_py() or _NOW) < 0:
            topic = topics[pc.index(times_ms, first_ms).as_py()]
            raise InputError(f"a row for topic {topic} has the timestamp {first_ms} ms, before 1970: correct it")
        if "headers" in columns and columns["headers"].flatten().flatten()[0].null_count:
            raise InputError("a row for Kafka has a header that is null or has a null key: filter such headers out")

    def _send(self, *record: Any) -> None:
        """Hand a record to the client as soon as it has room."""
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(*record)
            except BufferError as full:
                if time.monotonic() > give_up_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT_QUEUE)) from full
                self._producer.poll(_POLL_S)
            else:
                return

    def _until_done(self, step: Callable[[float], Any]) -> None:
        """Call a step, again after errors that are retriable."""
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            try:
                step(max(_POLL_S, give_up_s - time.monotonic()))
            except KafkaException as cause:
                if not cause.args[0].retriable() or time.monotonic() > give_up_s:
                    raise
            else:
                return

    def _note_failure(self, error: KafkaError | None, message: Any) -> None:
        self._failure = self._failure or error

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Raise our errors for the client's."""
        try:
            with self._topic.cluster.errors(f"{doing} the transaction of {self._id!r}"):
                try:
                    yield
                except KafkaException as cause:
                    is_hidden = cause.args[0].code() == KafkaError._FATAL
                    self._raise_for(self._fatal_error(cause) if is_hidden else cause)
                except SystemError as mixed:
                    # The client raised a fatal error, and then still called back for failed records, which Python
                    # turns into this error.
                    cause_of = mixed.__cause__
                    self._raise_for(cause_of if isinstance(cause_of, KafkaException) else self._fatal_error(mixed))
        except KafkaRefusedError as refused:
            refusal = refused.__cause__
            if self._is_open and isinstance(refusal, KafkaException) and not refusal.args[0].fatal():
                raise TransactionAbortedError(self._id, cause=refused.cause) from refusal
            raise

    def _fatal_error(self, lost: SystemError | KafkaException) -> KafkaException:
        """Return the fatal error in whose place the client raised `lost`. Raises `lost` if there was none."""
        try:
            # After a fatal error the client raises it at every call; without one, it refuses this call.
            self._producer.begin_transaction()
        except KafkaException as cause:
            error: KafkaError = cause.args[0]
            if error.fatal():
                return cause
        raise lost

    def _raise_for(self, cause: KafkaException) -> NoReturn:
        error: KafkaError = cause.args[0]
        if error.code() in _FENCED:
            raise TransactionFencedError(self._id, cause=error.str()) from cause
        if error.txn_requires_abort():
            raise TransactionAbortedError(self._id, cause=(self._failure or error).str()) from cause
        raise cause


def _pairs(headers: pa.ListArray) -> Iterator[list[tuple[str, bytes | None]] | None]:
    """Yield the headers of each row, as the client takes them."""
    keys, values = headers.flatten().flatten()
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    for count in headers.value_lengths().fill_null(0).to_pylist():
        yield list(islice(pairs, count)) if count else None
