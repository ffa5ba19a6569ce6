"""Every error that statestore raises on purpose, under one root.

StateStoreError
├── FormatError                 bytes do not follow the layout they should have
│   ├── TruncatedError          they end before the layout does
│   ├── VarintError             a varint is longer than five bytes
│   └── NegativeLengthError     a length field is negative where the layout has no meaning for it
├── SerdeError                  a serde could not do its work
│   ├── SerializationError
│   └── DeserializationError
├── StoreError                  a store can't do what it was asked
│   ├── StoreClosedError
│   ├── StoreFormatError        the recorded format is not the one asked for
│   ├── UnknownColumnFamilyError  a database has a column family that no such store has
│   ├── UnknownEntryError       something stands where only segments of the store may be
│   ├── LocalStateLockedError   another process has the local database open
│   └── LocalStateCorruptedError  RocksDB found damage in the local database
├── LocationError               the durable location can't be used
│   ├── LocationNotWritableError
│   ├── LocationInUseError      it belongs to another query
│   └── LocationMismatchError   the Spark checkpoint belongs to another location
├── RecoveryError               committed state can't be read back
│   ├── DurableFileMissingError
│   ├── DurableFileCorruptedError
│   └── CommitPointerError      the pointer in Spark's state is not one of ours
├── TopologyError               a topology is wrong in itself
│   ├── TopologyChangedError    it is not the one that the state was made with
│   └── ShardCountChangedError
├── InputError                  the input can't be processed
│   ├── InputSchemaError        a column is missing, unknown or of the wrong type
│   ├── NullKeyError
│   ├── InvalidTimestampError
│   └── UnknownTopicError
├── HeadersFrozenError          read-only headers were to be changed
├── ProcessorError              user code raised: names node and record, the cause is chained
└── HarnessError                what tests and demos run beside Spark can't be had
    ├── JavaNotFoundError
    ├── JarsUnavailableError    the Java registry did not hand out a set of jars
    └── KafkaBrokerError        the broker did not start, or refused a command

Programmer mistakes (a negative count, a wrong argument type) raise ValueError or TypeError instead. Messages say what
is wrong, where it is, and what the operator can do; the same facts are fields of the exception.
"""

from __future__ import annotations

from typing import Any


class StateStoreError(Exception):
    """The root of every error that statestore raises on purpose. Pickles with all its fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[StateStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> StateStoreError:
    """Make an error as it was: its message is already built, and its __init__ would build it again."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class FormatError(StateStoreError):
    """Bytes do not follow the layout named by `what`."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class TruncatedError(FormatError):
    """The layout `what` asks for `wanted` bytes where only `got` are left."""

    def __init__(self, what: str, *, wanted: int, got: int) -> None:
        super().__init__(what, f"needs {wanted} bytes, only {got} are left")
        self.wanted = wanted
        self.got = got


class VarintError(FormatError):
    """A varint still continues in its fifth byte."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "varint is longer than 5 bytes")


class NegativeLengthError(FormatError):
    """A length is negative where the layout gives that no meaning."""

    def __init__(self, what: str, *, length: int) -> None:
        super().__init__(what, f"negative length {length}")
        self.length = length


class SerdeError(StateStoreError):
    """A serde could not do its work."""


class SerializationError(SerdeError):
    """An object could not be turned into bytes; the cause is chained."""


class DeserializationError(SerdeError):
    """Bytes could not be turned into an object; the cause is chained."""


class StoreError(StateStoreError):
    """A store can't do what it was asked; `store` is its name."""

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"store {store!r}: {problem}")
        self.store = store
        self.problem = problem


class StoreClosedError(StoreError):
    """The store was used after it was closed."""

    def __init__(self, store: str) -> None:
        super().__init__(store, "is closed; keep no store or iterator beyond the call that handed it out")


class StoreFormatError(StoreError):
    """The recorded format of a store is not the one asked for; nothing was changed."""

    def __init__(self, store: str, *, recorded: str, asked: str, where: str, remedy: str) -> None:
        super().__init__(store, f"is recorded as {recorded} in {where}, but was asked for as {asked}. {remedy}")
        self.recorded = recorded
        self.asked = asked
        self.where = where


class UnknownColumnFamilyError(StoreError):
    """The database at `path` has column families that no store of this kind has; nothing was changed."""

    def __init__(self, store: str, *, path: str, asked: str, unknown: list[str], known: list[str]) -> None:
        super().__init__(
            store,
            f"the database {path} has the column families {unknown}, and a {asked}, has none but {known}. Open it as "
            "the kind of store that it was made by, with the release that made it, or delete the local state and "
            "restore the store from its changelog",
        )
        self.path = path
        self.asked = asked
        self.unknown = unknown
        self.known = known


class UnknownEntryError(StoreError):
    """`path` stands among the segments of the store, and is not one of them; nothing was changed."""

    def __init__(self, store: str, *, path: str, problem: str) -> None:
        super().__init__(
            store,
            f"{path} {problem}, and nothing else may be there: Kafka Streams would not open the store either. Move it "
            "away, or open the store with the segment interval that it was made with",
        )
        self.path = path


class LocalStateLockedError(StoreError):
    """Another process holds the local database at `path` open."""

    def __init__(self, store: str, *, path: str) -> None:
        super().__init__(store, f"local database {path} is open in another process")
        self.path = path


class LocalStateCorruptedError(StoreError):
    """RocksDB found damage in the local database at `path`; the durable location is not touched by it."""

    def __init__(self, store: str, *, path: str, cause: str) -> None:
        super().__init__(
            store,
            f"local database {path} is damaged ({cause}). A shard's copy was discarded, and is rebuilt from the "
            "durable location when the batch runs again; a store of Kafka Streams is to be deleted, and restored from "
            "its changelog. If this comes back, check the disk",
        )
        self.path = path
        self.cause = cause


class LocationError(StateStoreError):
    """The durable location can't be used."""

    def __init__(self, location: str, problem: str) -> None:
        super().__init__(f"state location {location}: {problem}")
        self.location = location
        self.problem = problem


class LocationNotWritableError(LocationError):
    """The durable location refuses a write."""

    def __init__(self, location: str, *, cause: str) -> None:
        super().__init__(
            location,
            f"can't be written ({cause}). Give a state_location that the driver and every executor can write to",
        )
        self.cause = cause


class LocationInUseError(LocationError):
    """The durable location belongs to another query."""

    def __init__(self, location: str, *, owner: str, query: str) -> None:
        super().__init__(
            location,
            f"belongs to the streaming query {owner}, this is query {query}; nothing was written. Give each query a "
            "state_location of its own. If the checkpoint of the owning query is gone for good, its state can no "
            "longer be continued: use a new state_location",
        )
        self.owner = owner
        self.query = query


class LocationMismatchError(LocationError):
    """The Spark checkpoint points at state that was written to another location."""

    def __init__(self, location: str, *, recorded: str, found: str) -> None:
        super().__init__(
            location,
            f"holds state {found}, but the Spark checkpoint was made with state {recorded}. Start the query with the "
            "state_location it had before, or with a new checkpoint and a new state_location",
        )
        self.recorded = recorded
        self.found = found


class RecoveryError(StateStoreError):
    """Committed state can't be read back; `where` is the file."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class DurableFileMissingError(RecoveryError):
    """A file that a committed version needs is not there."""

    def __init__(self, where: str, *, needed_by: str) -> None:
        super().__init__(
            where,
            f"is missing, and {needed_by} needs it. Bring it back from a backup of the state location, or restart "
            "from a copy of the Spark checkpoint that does not need it; the query changed nothing",
        )
        self.needed_by = needed_by


class DurableFileCorruptedError(RecoveryError):
    """A durable file does not have the size or checksum that was recorded when it was written."""

    def __init__(self, where: str, *, problem: str) -> None:
        super().__init__(
            where,
            f"{problem}. It was changed after it was written: bring it back from a backup of the state location; the "
            "query changed nothing",
        )


class CommitPointerError(RecoveryError):
    """The commit pointer in Spark's state can't be read."""


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
    """User code in node `node` raised while it processed a record; the cause is chained."""

    def __init__(self, *, node: str, topic: str, partition: int, offset: int, cause: BaseException) -> None:
        super().__init__(
            f"node {node!r} failed on record {topic}-{partition} at offset {offset}: {type(cause).__name__}: {cause}"
        )
        self.node = node
        self.topic = topic
        self.partition = partition
        self.offset = offset


class HarnessError(StateStoreError):
    """What tests and demos run beside Spark can't be had."""


class JavaNotFoundError(HarnessError):
    """Neither JAVA_HOME nor PATH leads to a Java."""

    def __init__(self) -> None:
        super().__init__("no Java: install version 17 or 21 and let JAVA_HOME name it, or put it on PATH")


class JarsUnavailableError(HarnessError):
    """The Java registry did not hand out the jars of `jar_set`; nothing was kept of those it did."""

    def __init__(self, jar_set: str, *, output: str) -> None:
        super().__init__(
            f"the jars of {jar_set} could not be resolved. They come from the Java registry, so check the network; a "
            f"complete set can also be copied from another machine into $STATESTORE_JARS. Ivy said last:\n{output}"
        )
        self.jar_set = jar_set
        self.output = output


class KafkaBrokerError(HarnessError):
    """The broker did not start, or refused a command; `output` is the end of what it said."""

    def __init__(self, problem: str, *, output: str) -> None:
        super().__init__(f"Kafka broker: {problem}\n{output}")
        self.problem = problem
        self.output = output


class HeadersFrozenError(StateStoreError):
    """Headers that are read-only were to be changed; nothing was changed."""

    def __init__(self) -> None:
        super().__init__("these headers are read-only; change a copy() of them")
