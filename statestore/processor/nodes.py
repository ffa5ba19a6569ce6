"""The nodes of a topology, how they are connected, and the operators that add several as one.

Source: Kafka Streams' InternalTopologyBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from statestore.errors import ProcessorError
from statestore.format.serde import Serde
from statestore.interception.interceptor import Interceptor
from statestore.processor.processor import EitherWay, Processor, ProcessorSupplier
from statestore.processor.record import Record, RecordMetadata
from statestore.recovery.metadata.state_metadata import ENTRY_KEYS
from statestore.stores.builder import PartStore

TopicNameExtractor: TypeAlias = "Callable[[Record[Any, Any], RecordMetadata | None], str]"
"""Chooses the topic of a record that a sink writes. Source: Kafka's TopicNameExtractor."""


@dataclass(frozen=True)
class SourceNode:
    """Reads topics; `topics` of None means every topic that no other source reads.

    A global source feeds a global store: every shard reads all of its records. One of a copy reads what another stage
    has written to a store. Neither takes stream time on.
    """

    name: str
    topics: tuple[str, ...] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    is_global: bool = False
    is_of_copy: bool = False
    parents: ClassVar[tuple[str, ...]] = ()

    @property
    def takes_time_on(self) -> bool:
        """Whether the timestamps of its records are the shard's stream time."""
        return not (self.is_global or self.is_of_copy)

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        recorded = {"type": "source", "name": self.name, "topics": None if self.topics is None else list(self.topics)}
        return {**recorded, "global": True} if self.is_global else recorded


@dataclass
class ProcessorNode:
    """Runs user code."""

    name: str
    supplier: ProcessorSupplier
    parents: tuple[str, ...]
    stores: list[str] = field(default_factory=list)
    entry_keys: dict[str, str] = field(default_factory=dict)
    """For stores whose keys the library makes: what the keys consist of. Offline tools find the record's key by it."""
    times_behind_keys: int = 0
    """How many times of windows stand behind the record's key in the keys that it gets."""
    copies: dict[str, ProcessorSupplier] = field(default_factory=dict)
    """Its stores that it only reads, and of which it gets a copy if they are in another stage, with what fills that."""
    undescribed: frozenset[str] = frozenset()
    """Its stores that Kafka's processor of the same name does not have: descriptions, which are Kafka's, omit them.
    What is in them follows from its other stores."""

    @property
    def meeting(self) -> str | None:
        """What the node meets others in, see EitherWay."""
        return self.supplier.meeting if isinstance(self.supplier, EitherWay) else None

    def make(self, *, by_records: bool = False) -> Processor:
        """Return a new processor; with `by_records` one of single records, if the node has both.

        Raises ProcessorError if the supplier raises, TypeError if it makes anything else.
        """
        supplier = self.supplier
        try:
            processor = supplier.records() if by_records and isinstance(supplier, EitherWay) else supplier()
        except Exception as cause:
            raise ProcessorError(node=self.name, doing="when it was made", cause=cause) from cause
        if not isinstance(processor, Processor):
            raise TypeError(f"the supplier of processor {self.name!r} made {processor!r}, which is not a Processor")
        return processor

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        recorded: dict[str, Any] = {
            "type": "processor",
            "name": self.name,
            "parents": list(self.parents),
            "stores": sorted(self.stores),
        }
        return {**recorded, ENTRY_KEYS: dict(sorted(self.entry_keys.items()))} if self.entry_keys else recorded


@dataclass(frozen=True)
class InterceptorNode:
    """Stands around a topology. Recorded only if it has stores: others may come and go between starts."""

    interceptor: Interceptor
    stores: tuple[str, ...]
    entry_keys: Mapping[str, str]
    """As `ProcessorNode.entry_keys`."""

    @property
    def name(self) -> str:
        """Its name among the nodes."""
        return f"interceptor-{self.interceptor.name}"

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        recorded: dict[str, Any] = {"type": "interceptor", "name": self.name, "stores": sorted(self.stores)}
        return {**recorded, ENTRY_KEYS: dict(sorted(self.entry_keys.items()))} if self.entry_keys else recorded


@dataclass(frozen=True)
class SinkNode:
    """Writes to a topic, or to the one that a function chooses.

    Without serdes, it writes by the type of what arrives (see `serialize_by_type`).
    """

    name: str
    topic: str | TopicNameExtractor
    parents: tuple[str, ...]
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node; the topic is None if a function chooses it."""
        topic = self.topic if isinstance(self.topic, str) else None
        return {"type": "sink", "name": self.name, "topic": topic, "parents": list(self.parents)}


@dataclass(frozen=True)
class Operator:
    """A processor with its stores, and perhaps a source above and a sink below."""

    kind: str
    """Its name in descriptions, such as "per key"."""
    name: str
    """The name of its processor."""
    supplier: ProcessorSupplier
    stores: tuple[PartStore, ...] = ()
    source: SourceNode | None = None
    parents: tuple[str, ...] = ()
    """The nodes above its processor, besides its own source."""
    sink: SinkNode | None = None
    timer_clock: str | None = None
    """The clock that its timers follow, "processing" or "event"; None if it has no timers."""

    @property
    def ttl_clocks(self) -> tuple[str, ...]:
        """The clocks by which entries of its stores expire."""
        lives = (store.builder.time_to_live for store in self.stores)
        return tuple(sorted({life.clock for life in lives if life is not None}))

    def __str__(self) -> str:
        timers = () if self.timer_clock is None else (f"timers by {self.timer_clock} time",)
        return ", ".join([self.kind, *timers, *(f"entries expire by {clock} time" for clock in self.ttl_clocks)])


class NodeGraph:
    """Sources, processors and sinks by name."""

    def __init__(self) -> None:
        self.nodes: dict[str, SourceNode | ProcessorNode | SinkNode] = {}
        """All nodes, in the order they were added: parents before children."""
        self.sources: dict[str, SourceNode] = {}
        self.processors: dict[str, ProcessorNode] = {}
        self.sinks: dict[str, SinkNode] = {}
        self.interceptors: dict[str, InterceptorNode] = {}
        """Those that stand around the others, in the order of their chain."""
        self.operators: dict[str, Operator] = {}
        """Those that were added as one, by the name of their processor."""

    def children(self, parent: str) -> list[str]:
        """Return the names of the nodes below `parent`, in the order they were added."""
        return [node.name for node in self.nodes.values() if parent in node.parents]

    def subtopologies(self, *, through_copies: bool = True) -> dict[str, int]:
        """Return the number of each node's sub-topology: nodes are in one if edges or stores connect them.

        A global store connects nobody: everyone may read it. Stores of which a node may get a copy connect it only
        `through_copies`. Source: Kafka's InternalTopologyBuilder.
        """
        root = {name: name for name in self.nodes}

        def find(name: str) -> str:
            while root[name] != name:
                name = root[name]
            return name

        for name, node in self.nodes.items():
            for parent in node.parents:
                root[find(name)] = find(parent)
        users: dict[str, str] = {}
        for name, processor in self.processors.items():
            for store in processor.stores:
                if store in processor.copies and not through_copies:
                    continue
                root[find(name)] = find(users.setdefault(store, name))
        numbers: dict[str, int] = {}
        return {name: numbers.setdefault(find(name), len(numbers)) for name in self.nodes}

    def is_global(self, name: str) -> bool:
        """Return whether a node feeds a global store."""
        source = self.sources.get(self.processors[name].parents[0] if name in self.processors else name)
        return source is not None and source.is_global


def names_by_topic(topics: Mapping[str, str | TopicNameExtractor]) -> list[list[str]]:
    """Return the names of sinks that may write to each topic, and last those that choose it for each record."""
    choosing = [name for name, topic in topics.items() if callable(topic)]
    named = {topic: [*choosing] for topic in topics.values() if isinstance(topic, str)}
    for name, topic in topics.items():
        if isinstance(topic, str):
            named[topic].append(name)
    return [*named.values(), choosing]
