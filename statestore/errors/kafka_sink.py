"""Errors of the sink that writes to Kafka exactly once: Spark has not committed the batch then, and repeats it."""

from __future__ import annotations

from statestore.errors.root import StateStoreError, field, text


class KafkaSinkError(StateStoreError):
    """A batch can't be written to Kafka; what of it is there counts once all the same, as Spark repeats the batch."""


class KafkaRefusedError(KafkaSinkError):
    """Kafka refuses what `action` says; `cause` is its answer."""

    action: str
    cause: str
    message: str = text(
        "{action}: Kafka refuses: {cause}. Check the address, what the listeners ask for, and what this user may do: "
        "write and describe the transactional ids, write and describe the topics, read and write the marker topic"
    )


class KafkaTimeoutError(KafkaSinkError):
    """Kafka has not answered in time to what `action` says, which may have been done or not."""

    action: str
    timeout_s: float
    cause: str
    message: str = text(
        "{action}: Kafka has not answered within {timeout_s} s ({cause}). Whether it was done is known to the next "
        "attempt, which asks the marker. Check that brokers run, and start the query again"
    )


class TransactionFencedError(KafkaSinkError):
    """The transaction `transactional_id` belongs to another attempt by now, or took too long and was aborted."""

    transactional_id: str = field(kw_only=False)
    cause: str
    message: str = text(
        "the transaction of {transactional_id!r} was taken over ({cause}): another attempt of the task or another run "
        "of the query has it, or it took longer than transaction_timeout_ms. Nothing of it counts. If no other run is "
        "there, raise transaction_timeout_ms"
    )


class TransactionAbortedError(KafkaSinkError):
    """Kafka does not take a record of the transaction `transactional_id`, which was aborted: nothing of it counts."""

    transactional_id: str = field(kw_only=False)
    cause: str
    message: str = text(
        "the transaction of {transactional_id!r} was aborted: {cause}. Nothing of it counts. Mend what Kafka refuses "
        "(a topic that is missing, a record that is too large, rights), and start the query again"
    )


class InputCutOffError(KafkaSinkError):
    """The rows of partition `partition` stopped before their end: Spark has lost or given up the task."""

    partition: int = field(kw_only=False)
    message: str = text(
        "the rows of partition {partition} stopped before their end, as they do when Spark gives a task up or its "
        "process dies. Nothing was committed; look for what ended the task"
    )


class MarkerTopicError(KafkaSinkError):
    """The topic for markers can't hold them."""

    topic: str = field(kw_only=False)
    problem: str
    message: str = text("marker topic {topic!r}: {problem}")


class SinkAheadError(KafkaSinkError):
    """A marker names a later batch than the one that Spark has planned, or one that the checkpoint has otherwise."""

    query_id: str = field(kw_only=False)
    batch_id: int
    written: int
    message: str = text(
        "batch {batch_id} of query {query_id} is to be written, and batch {written} is in Kafka already, by another "
        "plan: the checkpoint is older than that, or a copy that another one has gone on without. Go on with the "
        "latest checkpoint, or begin a new one, which puts out again"
    )


class BatchChangedError(KafkaSinkError):
    """A batch that was written in part is repeated with other rows in a partition than before."""

    batch_id: int = field(kw_only=False)
    problem: str
    message: str = text(
        "batch {batch_id} was written in part, and is not the same now: {problem}. Repeat it with the settings and the "
        "code that it was begun with, or give rows that come in no set way to KafkaTransactions with partitions=..."
    )
