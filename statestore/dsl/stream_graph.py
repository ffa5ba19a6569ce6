"""The nodes of a program until they become a topology, and the names that Kafka gives them.

What a processor needs is known only when all of the program is there: whether a table is kept in a store, and whether
anybody below wants old values, is decided by what is built on it. So each node is a plan, which is asked for its
processor when the topology is made. Source: Kafka Streams' InternalStreamsBuilder and graph nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from statestore.errors import TopologyError
from statestore.format.keys.entry_key import VALUE_KEYS, with_windows
from statestore.format.serde import Serde
from statestore.processor.nodes import TopicNameExtractor
from statestore.processor.processor import ProcessorSupplier
from statestore.processor.topology import Topology
from statestore.stores.builder import PartStore, StoreBuilder

_NUMBERED = "{}{:010d}"
_STATE_STORE = "STATE-STORE-"


@dataclass(frozen=True)
class TableWindows:
    """What the windows are that the keys of a table have."""

    grace_ms: int
    """For how long after a window's end it still changes."""
    are_sessions: bool

    @classmethod
    def of_starts(cls, grace_ms: int) -> TableWindows:
        """Return windows that are known by their start."""
        return cls(grace_ms, False)

    @classmethod
    def of_sessions(cls, grace_ms: int) -> TableWindows:
        """Return sessions, which are known by both ends; the gap is part of their grace."""
        return cls(grace_ms, True)


Windows: TypeAlias = "tuple[TableWindows, ...]"
"""Those behind the keys of records, the outermost first: of windows of windows there are several."""


@dataclass
class GraphNode:
    """A processor of a program, with the stores that it reads and writes."""

    name: str
    parents: tuple[str, ...]
    supplier: Callable[[], ProcessorSupplier]
    """Is asked when the topology is made."""
    stores: Callable[[], Sequence[StoreBuilder[Any]]] = tuple
    """Those that come with the processor, or with others too; is asked when the topology is made."""
    reads: Callable[[], Iterable[str]] = tuple
    """The names of stores of other processors that it reads; is asked when the topology is made."""
    beside: Callable[[], Sequence[PartStore]] = tuple
    """Its stores that Kafka's does not have, likewise; descriptions do not have them."""
    entry_keys: Mapping[str, str] = field(default_factory=dict)
    """Of its stores whose keys hold more than a record's key: how that is found, as in `PartStore`."""
    windows: TableWindows | None = None
    """What the windows in the keys of what it sends on are, if it is this node that makes them."""
    keys_of: tuple[str, ...] | None = None
    """The nodes whose keys it sends on; None are its parents."""
    needs_null_keys: bool = False
    """Whether it sends on records without a key: left and outer joins do."""

    def add_to(self, topology: Topology, windows: Windows) -> None:
        """Add the processor, and its stores. `windows` are those in the keys of what its parents send on."""
        topology.add_processor(self.name, self.supplier(), self.parents)
        for builder in self.stores():
            if topology.store_builders.get(builder.name) is builder:
                topology.connect_processor_and_state_stores(self.name, builder.name)
            else:
                topology.add_state_store(builder, self.name)
        entry_keys = dict(self.entry_keys)
        node = topology.processors[self.name]
        for part in self.beside():
            topology.add_state_store(part.builder, self.name)
            node.undescribed |= {part.builder.name}
            if part.entry_keys is not None:
                entry_keys[part.builder.name] = part.entry_keys
        if windows:
            entry_keys = {store: entry_keys.get(store, VALUE_KEYS) for store in node.stores}
        are_sessions = [each.are_sessions for each in windows]
        node.entry_keys.update({store: with_windows(keys, are_sessions) for store, keys in entry_keys.items()})


@dataclass
class StreamGraph:
    """All nodes of a program, in the order in which they were added, and the number of the next name."""

    make_stream: Callable[..., Any]
    """Makes the stream of a node. Streams become tables and tables streams, so one of both has to be handed over."""
    in_columns: bool = True
    """Whether records go in columns, where that is faster."""
    _next: int = 0
    _parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each node, in the order in which they were added."""
    _steps: list[Callable[[Topology], object]] = field(default_factory=list)
    _readers: dict[str, GraphNode] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    """Of each sink of a repartition topic the source that reads it."""
    _sinks: dict[str, str | TopicNameExtractor] = field(default_factory=dict)
    """The topic of each."""
    _users_stores: dict[str, StoreBuilder[Any]] = field(default_factory=dict)
    _windows: dict[str, Windows] = field(default_factory=dict)
    """In the keys of what a node sends on; of those that are not there, there are none."""
    _by_record: frozenset[str] = frozenset()

    def new_name(self, prefix: str, name: str | None = None) -> str:
        """Return `name`, or a new one of a processor, with a number: a name takes one too. Source: NamedInternal."""
        numbered = _NUMBERED.format(prefix, self._take_number())
        return numbered if name is None else name

    def skip_numbers(self, count: int) -> None:
        """Take numbers for nothing, as Kafka does."""
        self._next += count

    def new_store_name(self, prefix: str) -> str:
        """Return a new name of a store."""
        return _NUMBERED.format(prefix + _STATE_STORE, self._take_number())

    def add(self, node: GraphNode) -> GraphNode:
        """Add a processor. Raises TopologyError for a name that is taken."""
        self.claim(node.name, node.parents)
        above = self._windows_in_common(node.parents)
        self._steps.append(lambda topology: node.add_to(topology, above))
        self._readers[node.name] = node
        kept = above if node.keys_of is None else self._windows_in_common(node.keys_of)
        self._windows[node.name] = kept if node.windows is None else (node.windows, *kept)
        return node

    def add_step(self, name: str, add_to: Callable[[Topology], object], parents: tuple[str, ...] = ()) -> None:
        """Add a source, a sink or a global store. Raises TopologyError for a name that is taken."""
        self.claim(name, parents)
        self._steps.append(add_to)

    def add_sink(self, name: str, topic: str | TopicNameExtractor, parent: str, **serdes: Serde[Any] | None) -> None:
        """Add a sink. Raises TopologyError for a name that is taken."""
        self.add_step(name, lambda topology: topology.add_sink(name, topic, (parent,), **serdes), (parent,))
        self._sinks[name] = topic

    def add_repartition(
        self, topic: str, sink: str, source: str, parent: str, *, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        """Add a topic that the program writes and reads again. Raises TopologyError for a name that is taken."""
        self.claim(sink, (parent,))
        serdes = {"key_serde": key_serde, "value_serde": value_serde}
        self.add_step(source, lambda topology: topology.add_repartition(topic, sink, source, (parent,), **serdes))
        self._sinks[sink], self._sources[sink] = topic, source
        self._windows[source] = self.windows_of(parent)

    def add_state_store(self, builder: StoreBuilder[Any]) -> None:
        """Add a store for processors of users. Raises TopologyError for a name that is taken."""
        if builder.name in self._users_stores:
            raise TopologyError(f"there already is a state store {builder.name!r}")
        self._users_stores[builder.name] = builder

    def users_stores(self, names: Sequence[str]) -> tuple[list[StoreBuilder[Any]], list[str]]:
        """Return those of some stores that users have added, and the names of the others."""
        own = [name for name in names if name in self._users_stores]
        return [self._users_stores[name] for name in own], [name for name in names if name not in own]

    def needs_null_keys(self, name: str) -> bool:
        """Return whether anything below sends on records without a key; to be asked when the topology is made.

        Source: Kafka's NodesWithRelaxedNullKeyJoinDownstream.
        """
        below = [*self.children(name), *filter(None, (self._sources.get(name),))]
        return any(
            (child in self._readers and self._readers[child].needs_null_keys) or self.needs_null_keys(child)
            for child in below
        )

    def has_new_keys(self, name: str) -> bool:
        """Return whether a step above has changed the keys of a node, also before a repartition topic."""
        if name in self._readers and self._readers[name].keys_of == ():
            return True
        sinks = (sink for sink, source in self._sources.items() if source == name)
        return any(map(self.has_new_keys, (*self._parents[name], *sinks)))

    def children(self, name: str) -> tuple[str, ...]:
        """Return the processors and sinks below a node, in the order in which they were added."""
        return tuple(child for child, parents in self._parents.items() if name in parents)

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the nodes above a node."""
        return self._parents[name]

    def windows_of(self, name: str) -> Windows:
        """Return what the windows in the keys of a node are. Source: GraphGraceSearchUtil."""
        return self._windows.get(name, ())

    def goes_by_record(self, name: str) -> bool:
        """Return whether a node must take records one by one; to be asked when the topology is made.

        So it is where the records of a source meet themselves, having gone two ways: in a node with several parents, in
        a store that several nodes use, or in a topic that several sinks write to, as those may that choose theirs.
        There, each must be through before the next; columns go node by node.
        """
        return name in self._by_record

    def build(self) -> Topology:
        """Return a topology of all nodes; a new one at every call."""
        self._by_record = self._nodes_by_record()
        topology = Topology()
        for add_to in self._steps:
            add_to(topology)
        for node in self._readers.values():
            for store in node.reads():
                if store not in topology.global_stores:
                    topology.connect_processor_and_state_stores(node.name, store)
        return topology

    def claim(self, name: str, parents: tuple[str, ...] = ()) -> None:
        """Take a name for a node. Raises TopologyError for one that is taken."""
        if name in self._parents:
            raise TopologyError(f"there already is a node {name!r}: give one of both another `name`")
        self._parents[name] = parents

    def _windows_in_common(self, names: Iterable[str]) -> Windows:
        """Return the windows in the keys of several nodes, of which the longest grace counts; of others it is none."""
        first, *others = [self.windows_of(name) for name in names] or [()]
        kinds = [each.are_sessions for each in first]
        if any([each.are_sessions for each in other] != kinds for other in others):
            return ()
        return tuple(max(each, key=lambda windows: windows.grace_ms) for each in zip(first, *others, strict=True))

    def _nodes_by_record(self) -> frozenset[str]:
        sources: dict[str, set[str]] = {}
        for name, parents in self._parents.items():
            sources[name] = {source for parent in parents for source in sources[parent]} or {name}
        meetings = [list(node.parents) for node in self._readers.values()]
        users: dict[str, list[str]] = {}
        for node in self._readers.values():
            for store in {*(builder.name for builder in node.stores()), *node.reads()}:
                users.setdefault(store, []).append(node.name)
        met: set[str] = set()
        for names in (*meetings, *users.values(), *self._sinks_by_topic()):
            seen: set[str] = set()
            for name in names:
                met |= seen & sources[name]
                seen |= sources[name]
        return frozenset(name for name, above in sources.items() if above & met)

    def _sinks_by_topic(self) -> list[list[str]]:
        """Return the sinks that may write to each topic; of a topic that has none of its own, those that choose."""
        choosing = [name for name, topic in self._sinks.items() if callable(topic)]
        named = {topic: [*choosing] for topic in self._sinks.values() if isinstance(topic, str)}
        for name, topic in self._sinks.items():
            if isinstance(topic, str):
                named[topic].append(name)
        return [*named.values(), choosing]

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1


class Stage(NamedTuple):
    """A node of a program, and how what it sends on is written; serdes of None are not known."""

    graph: StreamGraph
    node: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    in_columns: bool = False
    """Whether records, or changes, come in columns, if who is below takes them."""

    def with_serdes(self, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> Stage:
        """Return the stage with these serdes; those of None stay."""
        return self._replace(key_serde=key_serde or self.key_serde, value_serde=value_serde or self.value_serde)


class Staged:
    """What stands at a stage of a program: every stream and every table."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._graph, self._node, self._key_serde, self._value_serde, self._in_columns = stage
