"""Errors of topologies, their input, and the user code in them."""

from __future__ import annotations

from statestore.errors.root import StateStoreError


class TopologyError(StateStoreError):
    """A topology is wrong in itself."""


class TopologyChangedError(TopologyError):
    """The topology is not the one that the state was made with."""

    def __init__(self, location: str, *, differences: list[str], remedy: str) -> None:
        super().__init__(
            f"the topology differs from the one recorded in {location}: " + "; ".join(differences) + f". {remedy}"
        )
        self.location = location
        self.differences = differences


class ShardCountChangedError(TopologyError):
    """The shard count is fixed at the first start of a query."""

    def __init__(self, location: str, *, recorded: int, asked: int) -> None:
        super().__init__(
            f"shards={asked} was asked for, but the state in {location} has {recorded} shards: with another count, "
            f"keys would look for their state in the wrong shard. Start with shards={recorded}, or with a new "
            "state_location and a new checkpoint"
        )
        self.location = location
        self.recorded = recorded
        self.asked = asked


class StatePartitionsError(StateStoreError):
    """A query began with Spark's default number of state partitions, not with what `stateful()` planned."""

    def __init__(self, *, planned: int, found: int) -> None:
        super().__init__(
            f"Spark began this query with {found} state partitions, its default, where stateful() planned {planned}: "
            "its checkpoint would keep that for ever. Nothing was committed. The driver's log says what failed at the "
            "start, if the query was started in the session of its stateful(). Set spark.sql.shuffle.partitions to "
            f"{planned} in the session that starts it, and start with a new checkpoint"
        )
        self.planned = planned
        self.found = found


class InputError(StateStoreError):
    """The input can't be processed."""


class InputSchemaError(InputError):
    """A column is missing, unknown or of the wrong type."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column!r}: {problem}")
        self.column = column
        self.problem = problem


class NullKeyError(InputError):
    """A record without a key reached a topology that places records by key."""

    def __init__(self, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            f"record {topic}-{partition} at offset {offset} has a null key, and records are placed by key. Filter such "
            'records out, give them a key, or place records by partition (shard_by="partition")'
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset


class InvalidTimestampError(InputError):
    """A record has no timestamp or a negative one."""

    def __init__(self, *, topic: str, partition: int, offset: int, timestamp_ms: int | None) -> None:
        super().__init__(
            f"record {topic}-{partition} at offset {offset} has the timestamp {timestamp_ms}; a timestamp must not be "
            "null or negative. Filter such records out or give them a timestamp before stateful()"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms


class UnknownTopicError(InputError):
    """A record comes from a topic that no source of the topology reads."""

    def __init__(self, *, topic: str, sources: list[str]) -> None:
        super().__init__(
            f"no source of the topology reads topic {topic!r}; the sources read {', '.join(sources)}. Add the topic to "
            "a source or filter its records out"
        )
        self.topic = topic


class ProcessorError(StateStoreError):
    """User code in node `node` raised; the cause is chained.

    Topic, partition and offset are None if it was not called for a record. `doing` says what it was called for, and is
    empty where that is a record alone; `key` is the key it was called for, as Python writes it, empty if for none.
    """

    def __init__(
        self,
        *,
        node: str,
        cause: BaseException,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        doing: str = "",
        key: str = "",
    ) -> None:
        of_key = f"of key {key}" if key else ""
        on_record = f"on record {topic}-{partition} at offset {offset}" if topic else ""
        where = " ".join(part for part in (doing, of_key, on_record) if part)
        super().__init__(
            f"node {node!r} failed {where}: {type(cause).__name__}: {cause}. Nothing of the batch was committed"
        )
        self.node = node
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.doing = doing
        self.key = key


class StateHandleError(StateStoreError):
    """A stateful processor asked its handle, or a state, for what it can't have there."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name!r}: {problem}")
        self.name = name
        self.problem = problem


class OutputFrameError(StateStoreError):
    """A stateful processor handed out something else than DataFrames of output rows."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. Yield pandas DataFrames with the column value and, if wanted, key, timestamp, headers, topic"
        )
        self.problem = problem
