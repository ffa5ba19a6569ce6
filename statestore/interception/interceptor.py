"""Interceptor: what acts on records between topics and a topology, of which user code need not know.

    topics --> on_ingest --> source serdes --> on_consume --> processors and stores
                                                                  |
    topics <-- on_emit <--- sink serdes <----- on_send <----------+

Source: Kafka's ProducerInterceptor and ConsumerInterceptor (KIP-42), and the interceptor after serialisation, with a
list for what it returns, that the architecture of metadata proposes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from statestore.errors import RecordRefusedError
from statestore.errors.readable import shape_of
from statestore.headers.record_columns import RecordColumns
from statestore.headers.records import ConsumerRecord, ProducerRecord

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on

    from statestore.connect.converters.base import HeaderConverter
    from statestore.connect.ingest import Tolerance
    from statestore.recovery.commit.changelog import ChangelogRecord
    from statestore.stores.builder import PartStore

IngestedRecord: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"
"""A record that comes in, its key and value as bytes."""
EmittedRecord: TypeAlias = "ProducerRecord[bytes | None, bytes | None]"
"""A record that goes out, its key and value as bytes."""
IngestHook: TypeAlias = "Callable[[IngestedRecord], IngestedRecord | None]"
"""Returns the record to go on with, the same or another; None leaves it out. Travels to the executors."""

_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]")


class InterceptorContext(Protocol):
    """What an interceptor has of the shard that it works for."""

    @property
    def shard(self) -> int:
        """The number of the shard; 0 where there are no shards."""

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp that the shard has seen, in milliseconds since the epoch; -1 before the first."""

    def stream_time_ms_of(self, key: bytes | None) -> int:
        """Return the highest timestamp seen by the shard, or by the key's shard before the state was rescaled."""

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock in milliseconds since the epoch; under Spark the micro-batch's start, also when retried."""

    @property
    def record_metadata(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the record that is processed; None if none is, as in a punctuation."""

    def state_store(self, name: str) -> Any:
        """Return a state store of the interceptor's. Raises TopologyError if it has none of that name."""

    def schedule_wall_clock(self, interval_ms: int, call: Callable[[int], None]) -> None:
        """Have `call` called with the time whenever the wall clock has gone on by `interval_ms`. For `init` only."""

    def refuse(self, record: IngestedRecord, error: RecordRefusedError) -> None:
        """Refuse a record that is not the one at hand: it goes where such go. Raises `error` if that is nowhere."""


class Interceptor:
    """Sees, changes, splits, joins or refuses records. A subclass defines the hooks that it wants, and no others.

    What is defined is found once, at the start: a hook that is not there costs nothing. One object serves one shard and
    one micro-batch; a copy of the one that was given (`copy.copy`), so what it holds is shared unless `init` makes it.
    It travels to the executors: it must be picklable, and take what can't travel (connections, caches) in `init` or
    from its module.

    A hook for a single record returns a list of those to go on with, in order: the record itself, changed or not, or
    others; an empty list leaves it out. The record's headers may be changed in place. What refuses a record raises a
    RecordRefusedError: it becomes a dead letter, as it came, if the query has dead letters, else it ends the query. Any
    other exception ends the query, with a ProcessorError that names the interceptor.

    A hook for columns does the same to many records at once, and is preferred where it is there. If it raises, its rows
    are given to the hook for single records, or to itself one by one: so it must raise before it has changed anything.
    """

    kind: ClassVar[str] = ""
    """What others call it in `not_after` and `not_before`; "" if nobody needs to."""
    not_after: ClassVar[Mapping[str, str]] = {}
    """Kinds that must not come before it in a chain, each with the reason."""
    not_before: ClassVar[Mapping[str, str]] = {}
    """Kinds that must not come after it in a chain, each with the reason."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Kinds of which there must be one behind it in a chain that runs, each with the reason."""
    goes_by: Collection[str] = ()
    """Names of headers that it checks, decides by or vouches for when a record is ingested; "*" for all. What may bring
    such headers in must not come before it in a chain: records would pass that later. A signature behind it has to sign
    them, but for those that it changes itself."""
    brings_in: Collection[str] = ()
    """Names of headers that it may make of what came in when a record is ingested; "ce_*" is all that begin so."""
    marks: Collection[str] = ()
    """Names of headers by which it knows what to take off a record that is ingested. A signature behind it has to sign
    them."""
    changes: Collection[str] = ()
    """Names of headers that differ between what it was given to emit and what it hands on when that is ingested. A
    signature before it must not sign them."""

    @property
    def name(self) -> str:
        """What it is called in errors, figures and the names of its stores: its kind, or its class."""
        return self.kind or type(self).__name__

    def why_not_after(self, other: Interceptor) -> str | None:
        """Return why `other` must not come before it in a chain; None if it may. Goes by `not_after`."""
        return self.not_after.get(other.kind)

    def why_not_before(self, other: Interceptor) -> str | None:
        """Return why `other` must not come after it in a chain; None if it may. Goes by `not_before`."""
        return self.not_before.get(other.kind)

    def why_not_sharded(self, shard_by: str, global_topics: Collection[str]) -> str | None:
        """Return why it can't work in a query whose shards get records so; None if it can.

        `shard_by` is "key" or "partition"; records of `global_topics` go to all shards.
        """
        return None

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Self:
        """Make one of all properties of a configuration, those of others too; the default needs none of them.

        Raises ConfigException for a property that is missing or wrong. Source: Kafka's Configurable.
        """
        return cls()

    def stores(self) -> Sequence[PartStore]:
        """Return the state stores that it needs. They are the query's: recovered, rescaled and read as all others."""
        return ()

    def init(self, context: InterceptorContext) -> None:
        """Take the context; called once, before the first record of a shard and micro-batch."""

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Take a record from a topic, as bytes, before any source does.

        Value, headers and timestamp may differ in what is returned; topic, partition, offset and key may not: they say
        which shard a record belongs to.
        """
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Do what `on_ingest` does to records in columns, which have topics, partitions and offsets.

        None has `on_ingest` take them one by one.
        """
        return records

    def on_consume(self, record: Any) -> Iterable[Any]:
        """Take a Record after a source's serdes, before any processor."""
        return (record,)

    def on_send(self, topic: str, record: Any) -> Iterable[Any]:
        """Take a Record on its way to a topic, before a sink's serdes."""
        return (record,)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Take a record on its way to a topic, as bytes, after a sink's serdes. All of it may differ."""
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Do what `on_emit` does to records in columns; the column `topic` says where they go.

        None has `on_emit` take them one by one.
        """
        return records

    def on_failure(self, error: Exception) -> None:
        """See why the record that is processed, or one on its way in, failed and is left out.

        Not called where that ends the query.
        """

    def on_changelog(self, store: str, records: Iterable[ChangelogRecord]) -> None:
        """See what a micro-batch has written to a store, before it is committed: the last write of each key, in order.

        It can't be changed: the changelog and the local copy have to be the same. What is raised ends the query.
        """

    def on_expiry(self, store: str, key: bytes, value: bytes | None) -> None:
        """See an entry of a store that is deleted because its time has come, as it is stored."""

    def finish_batch(self) -> None:
        """Finish what was held back; called when the records of a micro-batch are done, maybe more than once."""

    def close(self) -> None:
        """Let go of what `init` took. Called once, also after a failure."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def defines(interceptor: Interceptor, hook: str) -> bool:
    """Return whether an interceptor has a hook of its own, in its class or as an attribute."""
    return hook in vars(interceptor) or getattr(type(interceptor), hook) is not getattr(Interceptor, hook)


class IngestFunction(Interceptor):
    """An interceptor that calls a function with each record on its way in, such as a connector's configuration."""

    def __init__(self, function: IngestHook) -> None:
        self._function: Final = function
        self.header_converter: Final[HeaderConverter | None] = getattr(function, "header_converter", None)
        """What processors read typed headers with; None if the function does not say."""
        self.tolerance: Final[Tolerance | None] = getattr(function, "tolerance", None)
        """What a connector's configuration says about records that fail; None if the function is not one."""
        columns = getattr(function, "ingest_columns", None)
        if columns is not None and getattr(function, "is_in_columns", False):
            self.on_ingest_columns = columns  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        """The function's name, or that of its class, as far as a node's name may have it: "lambda" for a lambda."""
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return _ILLEGAL.sub("", name) or "function"

    def with_default(self, converter: HeaderConverter) -> IngestFunction:
        """Return this with a converter of headers for where a connector's configuration names none."""
        make = getattr(self._function, "with_default", None)
        return self if make is None else IngestFunction(make(converter))

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Return what the function returns, in a list."""
        made: Any = self._function(record)
        if made is None:
            return ()
        if not isinstance(made, ConsumerRecord):
            raise TypeError(f"it must return a ConsumerRecord or None, not {shape_of(made)}")
        return (made,)


class DefaultConverter(Interceptor):
    """Names the converter that processors read typed headers with, where no function of the chain does."""

    def __init__(self, converter: HeaderConverter) -> None:
        self.header_converter: Final = converter


def with_default_converter(chain: Iterable[Interceptor], converter: HeaderConverter) -> list[Interceptor]:
    """Return interceptors that read headers with this converter where none of them names one."""
    made = [each.with_default(converter) if isinstance(each, IngestFunction) else each for each in chain]
    return made if header_converter_of(made) is not None else [*made, DefaultConverter(converter)]


def header_converter_of(chain: Iterable[Interceptor]) -> HeaderConverter | None:
    """Return what processors read typed headers with; None if no interceptor says."""
    said = (each.header_converter for each in chain if isinstance(each, IngestFunction | DefaultConverter))
    return next((converter for converter in said if converter is not None), None)


def tolerance_of(chain: Iterable[Interceptor]) -> Tolerance | None:
    """Return what the first connector's configuration says about records that fail; None if there is none."""
    said = (each.tolerance for each in chain if isinstance(each, IngestFunction))
    return next((tolerance for tolerance in said if tolerance is not None), None)
