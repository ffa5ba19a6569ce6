"""Errors of topologies, their input, the user code in them, what they run on, and the Kafka sink."""

from __future__ import annotations

from typing import Any

from statestore.errors.data import RecordError
from statestore.errors.readable import listed, record_place, user_line, utc_text
from statestore.errors.root import StateStoreError, field, text


class TopologyError(StateStoreError):
    """The program is wrong: its topology, or what a processor asks of it."""


class AggregatesError(TopologyError):
    """Aggregates don't go with the records that they are of; `problems` is all that was found."""

    problems: list[str]
    message: str = text("agg(): {_listed}")

    @property
    def _listed(self) -> str:
        return listed(self.problems)


class NotPicklableError(TopologyError):
    """A part of the query can't travel to the workers: its `attribute` can't, or all of it if that is empty."""

    part: str = field(kw_only=False)
    attribute: str
    problem: str
    message: str = text(
        "{part} can't travel to the workers: {_what} can't be pickled ({problem}). Make such things in "
        "the init() of a processor or an interceptor, which runs on the worker"
    )

    @property
    def _what(self) -> str:
        return f"its {self.attribute!r}" if self.attribute else "it"


class ModuleNotOnWorkersError(TopologyError):
    """A part of the query is pickled by the name of its module, which the workers can't import."""

    module: str = field(kw_only=False)
    part: str
    message: str = text(
        "{part} is of module {module!r}, which Spark's workers can't import: install it where they run, send it along "
        "(`spark-submit --py-files`, addPyFile; with Spark Connect spark.addArtifacts(path, pyfile=True), after "
        "spark.sql.artifact.isolation.enabled was set to false), or have it pickled whole: import {module}; "
        "pyspark.cloudpickle.register_pickle_by_value({module})"
    )


class TopologyChangedError(TopologyError):
    """The topology is not the one that the state was made with."""

    location: str = field(kw_only=False)
    differences: list[str]
    remedy: str
    message: str = text("the topology differs from the one recorded in {location}: {_listed}. {remedy}")

    @property
    def _listed(self) -> str:
        return "; ".join(self.differences)


class EntryPointChangedError(TopologyError):
    """The checkpoint was made through Spark's other entry point. Spark refuses it, and `error_of` makes it this."""

    recorded: str
    asked: str
    message: str = text(
        'the checkpoint was made with via="{recorded}", and via="{asked}" was asked for: neither reads the state '
        'of the other. Start with via="{recorded}", or with a new state_location and a new checkpoint'
    )


class ShardCountChangedError(TopologyError):
    """The shard count is fixed at the first start of a query."""

    location: str = field(kw_only=False)
    recorded: int
    asked: int
    message: str = text(
        "shards={asked} was asked for, but the state in {location} has {recorded} shards: with another count, "
        "keys would look for their state in the wrong shard. Start with shards={recorded}; or make a state with "
        "{asked} of it, with rescale(); or start anew with a new state_location and a new checkpoint"
    )


class StatePartitionsError(StateStoreError):
    """A query began with Spark's default number of state partitions, not with what `stateful()` planned."""

    planned: int
    found: int
    message: str = text(
        "Spark began this query with {found} state partitions, its default, where stateful() planned {planned}: its "
        "checkpoint would keep that for ever. Nothing was committed. If the query was started in the session of its "
        "stateful(), the driver's log says what failed. Set spark.sql.shuffle.partitions to {planned} in the session "
        "that starts it, and start with a new checkpoint"
    )


class BatchNotEvaluatedError(StateStoreError):
    """The function of `foreachBatch` took only some of a batch's rows. Spark refuses it; `error_of` makes it this."""

    evaluated: int
    partitions: int
    message: str = text(
        "the function of foreachBatch took the rows of {evaluated} of the batch's {partitions} partitions, so the "
        "state of the others was not committed, and Spark stops. Take all rows, also of a batch that is left out: "
        "rows.persist() and rows.count() before show(), limit() or first()"
    )


class ProcessorMetadataError(TopologyError):
    """A shard has no room for one more name of processor metadata; nothing of the batch was committed."""

    node: str
    name: str
    limit: int
    message: str = text(
        "node {node!r} can't keep processor metadata by the name {name!r}: the shard has {limit:,} names, and no room "
        "for more. Take few names that never change, as a store's own; keep what belongs to a key in a state store"
    )


class SuppressionBufferFullError(StateStoreError):
    """A buffer of suppressed changes that shuts down when it is full holds more than it may; nothing was committed.

    `max_records` or `max_bytes` of None is no bound. `size_bytes` is as Kafka Streams counts it.
    """

    node: str
    records: int
    max_records: int | None
    size_bytes: int
    max_bytes: int | None
    message: str = text(
        "node {node!r} holds back {records:,} keys of {size_bytes:,} bytes, and may hold {_bounds}. Nothing of the "
        "batch was committed. Give its BufferConfig higher bounds, or let it emit_early_when_full()"
    )

    @property
    def _bounds(self) -> str:
        bounds = ((self.max_records, "keys"), (self.max_bytes, "bytes"))
        return " and ".join(f"{bound:,} {what}" for bound, what in bounds if bound is not None)


class InputError(StateStoreError):
    """The input can't be processed."""


class InputSchemaError(InputError):
    """A column is missing, unknown or of the wrong type."""

    column: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("column {column!r}: {problem}")


class RecordColumnsError(InputError):
    """`function` can't make records of columns, or columns of records; `problems` is all that it found."""

    function: str = field(kw_only=False)
    problems: list[str]
    message: str = text("{function}(): {_listed}")

    @property
    def _listed(self) -> str:
        return listed(self.problems)


class InputRecordError(InputError):
    """A record of the input can't be processed."""

    topic: str
    partition: int
    offset: int

    @property
    def _record(self) -> str:
        return record_place(self.topic, self.partition, self.offset)


class InputHeadersError(InputRecordError):
    """A header of a record is not one that Kafka has: the one at `index`, counted from 0."""

    index: int
    problem: str
    message: str = text(
        "{_record}: its header {index} {problem}. Leave such headers out before stateful(): "
        "filter(headers, h -> h.key is not null)"
    )


class NullKeyError(InputRecordError):
    """A record without a key reached a topology that places records by key."""

    message: str = text(
        "{_record} has a null key, and records are placed by key. Filter such records out, give them a key, or place "
        'records by partition (shard_by="partition")'
    )


class InvalidTimestampError(InputRecordError):
    """A record has no timestamp or a negative one."""

    timestamp_ms: int | None
    message: str = text(
        "{_record} has the timestamp {timestamp_ms}; a timestamp must not be null or negative. Filter such records "
        "out, or give them a timestamp before stateful()"
    )


class FutureTimestampError(InvalidTimestampError):
    """A record's timestamp is further ahead of the clock than `max_ahead_ms`: stream time would stay there for good."""

    timestamp_ms: int
    max_ahead_ms: int
    message: str = text(
        "{_record} has the timestamp {timestamp_ms}, {_when}, more than {_bound} ahead of the clock: it would end all "
        "windows and times to live for good. If milliseconds were cast as seconds, use timestamp_millis(). If the time "
        "is right, give stateful() a larger max_timestamp_ahead_ms, or None for no bound. Else filter such records out"
    )

    @property
    def _when(self) -> str:
        return utc_text(self.timestamp_ms)

    @property
    def _bound(self) -> str:
        days = self.max_ahead_ms / 86_400_000
        return f"{days:g} days" if days >= 1 else f"{self.max_ahead_ms} ms"


class UnknownTopicError(InputError):
    """A record comes from a topic that no source of the topology reads."""

    topic: str
    sources: list[str]
    message: str = text(
        "no source of the topology reads topic {topic!r}; the sources read {_known}. Add the topic to a source or "
        "filter its records out"
    )

    @property
    def _known(self) -> str:
        return ", ".join(self.sources)


class ProcessorError(RecordError):
    """User code in node `node` raised; the cause is chained, and `raised` is its type and text.

    `doing` says what it was called for; "" is a record. Topic, partition and offset are None if it was not called for a
    record. The key is that of the record, or of what it was called for; `timestamp_ms` is the record's time, or the
    time of the call.
    """

    node: str
    doing: str
    raised: str
    message: str = text(
        "node {node!r} failed {_where}: {raised}{_in_brackets}. Nothing of the batch was committed{_remedy}"
    )

    def __init__(self, *, node: str, cause: BaseException, doing: str = "", **record: Any) -> None:
        at = user_line(cause) or ("" if cause.__cause__ is None else user_line(cause.__cause__))
        record |= {"node": node, "doing": doing, "raised": f"{type(cause).__name__}: {cause}", "at": at}
        super().__init__(**record)

    @property
    def _in_brackets(self) -> str:
        return f" ({self._facts})" if self._facts else ""

    @property
    def _remedy(self) -> str:
        is_of_a_record = self.topic is not None and not self.doing
        return ". Correct it, or have FailureHandling leave such records out" if is_of_a_record else ""

    @property
    def _where(self) -> str:
        return " ".join(filter(None, (self.doing, f"on {self._place}" if self.topic else "")))


class StateHandleError(TopologyError):
    """A stateful processor asked its handle or a state for something that it can't have there."""

    name: str = field(kw_only=False)
    problem: str = field(kw_only=False)
    message: str = text("{name!r}: {problem}")


class OutputFrameError(TopologyError):
    """A stateful processor yielded something other than DataFrames of output rows."""

    problem: str = field(kw_only=False)
    message: str = text(
        "{problem}. Yield pandas DataFrames with the column value and, if wanted, key, timestamp, headers, topic"
    )


class PlatformError(StateStoreError):
    """What statestore is to run on lacks something: the system, pyspark or the Spark Connect server."""


class OperatingSystemError(PlatformError):
    """statestore does not run on this operating system."""

    system: str
    message: str = text(
        "statestore runs on Linux and, for development, on macOS, and not on {system}: use WSL 2 or a container there"
    )


class SparkVersionError(PlatformError):
    """The installed version of Spark is too old for what was asked of it."""

    what: str
    needed: str
    found: str
    message: str = text("{what} needs Spark {needed} or newer, and pyspark {found} is installed: install a newer one")


class ConnectServerError(PlatformError):
    """The Python workers of a Spark Connect server lack what its client has."""

    lacks: str
    needed: str
    message: str = text(
        "the Python workers of the Spark Connect server lack {lacks}: install statestore {needed}, with its "
        "dependencies, where the server's executors run, and start the server anew"
    )


class KafkaSinkError(StateStoreError):
    """A batch can't be written to Kafka. Spark repeats it, and no record counts twice."""


class KafkaRefusedError(KafkaSinkError):
    """Kafka refuses what `action` says; `cause` is its answer."""

    action: str
    cause: str
    message: str = text(
        "{action}: Kafka refuses: {cause}. Check the address, what the listeners ask for, and what this user may do: "
        "write and describe the transactional ids, write and describe the topics, read and write the marker topic"
    )


class KafkaTimeoutError(KafkaSinkError):
    """Kafka has not answered in time to `action`, which may have been done or not."""

    action: str
    timeout_s: float
    cause: str
    message: str = text(
        "{action}: Kafka has not answered within {timeout_s} s ({cause}). The next attempt finds out from the marker "
        "whether it was done. Check that brokers run, and start the query again"
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
    """A marker names a later batch than Spark has planned, or a batch that the checkpoint plans differently."""

    query_id: str = field(kw_only=False)
    batch_id: int
    written: int
    message: str = text(
        "batch {batch_id} of query {query_id} is to be written, and batch {written} is in Kafka already, by another "
        "plan: the checkpoint is older than that, or a copy of one that went on. Continue with the latest checkpoint, "
        "or begin a new one, which writes output again"
    )


class BatchChangedError(KafkaSinkError):
    """A batch that was written in part is repeated with other rows in a partition than before."""

    batch_id: int = field(kw_only=False)
    problem: str
    message: str = text(
        "batch {batch_id} was written in part, and is not the same now: {problem}. Repeat it with the settings and the "
        "code that it was begun with, or give rows that come in no set way to KafkaTransactions with partitions=..."
    )
