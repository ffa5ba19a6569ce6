"""The nodes of a program until they become a topology, and the names that Kafka gives them.

What a processor needs is known only when the program is complete: later steps decide whether a table has a store, and
whether its changes carry old values. So each node is a plan, which makes its processor when the topology is built.
Source: Kafka Streams' InternalStreamsBuilder and graph nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from statestore.errors import TopologyError
from statestore.format.keys.entry_key import VALUE_KEYS, with_windows
from statestore.format.serde import Serde
from statestore.processor.nodes import TopicNameExtractor, names_by_topic
from statestore.processor.processor import EitherWay, ProcessorSupplier
from statestore.processor.topology import Topology
from statestore.stores.builder import PartStore, StoreBuilder

_NUMBERED = "{}{:010d}"
_STATE_STORE = "STATE-STORE-"


@dataclass(frozen=True)
class TableWindows:
    """The windows that the keys of a table have."""

    grace_ms: int
    """How long after its end a window may still change; of sessions, that includes the gap."""
    are_sessions: bool
    """Whether keys hold both ends of a window, instead of its start only."""


Windows: TypeAlias = "tuple[TableWindows, ...]"
"""The windows of keys, the outermost first: keys of windows of windows have several."""


@dataclass
class GraphNode:
    """A processor of a program, with the stores that it reads and writes."""

    name: str
    parents: tuple[str, ...]
    supplier: Callable[[], ProcessorSupplier]
    """Called when the topology is built."""
    stores: Callable[[], Sequence[StoreBuilder[Any]]] = tuple
    """The stores that the processor brings, alone or with others. Called when the topology is built."""
    reads: Callable[[], Iterable[str]] = tuple
    """The names of stores of other processors that it reads. Called when the topology is built."""
    copies: Callable[[], Mapping[str, ProcessorSupplier]] = dict
    """The stores of other processors that it reads behind a repartition topic, where it may get a copy of them, with
    what fills the copy. Called when the topology is built."""
    beside: Callable[[], Sequence[PartStore]] = tuple
    """Its stores that Kafka does not have, likewise; descriptions leave them out."""
    entry_keys: Mapping[str, str] = field(default_factory=dict)
    """How to find the record's key in the keys of a store that hold more than it, as in `PartStore`."""
    windows: TableWindows | None = None
    """The windows in the keys that it sends on, if this node makes them."""
    keys_of: tuple[str, ...] | None = None
    """The nodes whose keys it sends on; None means its parents."""
    needs_null_keys: bool = False
    """Whether it sends on records without a key: left and outer joins do."""

    def add_to(self, topology: Topology, windows: Windows) -> None:
        """Add the processor and its stores. `windows` are those in the keys that its parents send on."""
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
        node.times_behind_keys = len(are_sessions) + sum(are_sessions)
        node.entry_keys.update({store: with_windows(keys, are_sessions) for store, keys in entry_keys.items()})


@dataclass
class StreamGraph:
    """All nodes of a program, in the order in which they were added, and the number of the next name."""

    make_stream: Callable[..., Any]
    """Makes the stream of a node. Streams and tables make each other and can't both import the other."""
    in_columns: bool = True
    """Whether records go in columns, where that is faster."""
    _next: int = 0
    _parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The parents of each node, in the order in which nodes were added."""
    _steps: list[Callable[[Topology], object]] = field(default_factory=list)
    _readers: dict[str, GraphNode] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    """The source that reads what a sink of a repartition topic writes."""
    _sinks: dict[str, str | TopicNameExtractor] = field(default_factory=dict)
    """The topic of each sink."""
    _users_stores: dict[str, StoreBuilder[Any]] = field(default_factory=dict)
    _windows: dict[str, Windows] = field(default_factory=dict)
    """The windows in the keys that a node sends on; a node that is not here has none."""
    _by_record: frozenset[str] = frozenset()

    def new_name(self, prefix: str, name: str | None = None) -> str:
        """Return `name`, or a new numbered one; `name` takes a number, too. Source: NamedInternal."""
        numbered = _NUMBERED.format(prefix, self._take_number())
        return numbered if name is None else name

    def skip_numbers(self, count: int) -> None:
        """Take numbers without using them, as Kafka does."""
        self._next += count

    def new_store_name(self, prefix: str) -> str:
        """Return a new name of a store."""
        return _NUMBERED.format(prefix + _STATE_STORE, self._take_number())

    def add(self, node: GraphNode) -> None:
        """Add a processor. Raises TopologyError if its name is taken."""
        self.claim(node.name, node.parents)
        above = self._windows_in_common(node.parents)
        self._steps.append(lambda topology: node.add_to(topology, above))
        self._readers[node.name] = node
        kept = above if node.keys_of is None else self._windows_in_common(node.keys_of)
        self._windows[node.name] = kept if node.windows is None else (node.windows, *kept)

    def add_step(self, name: str, add_to: Callable[[Topology], object], parents: tuple[str, ...] = ()) -> None:
        """Add a source, a sink or a global store. Raises TopologyError if the name is taken."""
        self.claim(name, parents)
        self._steps.append(add_to)

    def add_sink(self, name: str, topic: str | TopicNameExtractor, parent: str, **serdes: Serde[Any] | None) -> None:
        """Add a sink. Raises TopologyError if the name is taken."""
        self.add_step(name, lambda topology: topology.add_sink(name, topic, (parent,), **serdes), (parent,))
        self._sinks[name] = topic

    def add_repartition(
        self, topic: str, sink: str, source: str, *parents: str, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        """Add a topic that the program writes and reads again. Raises TopologyError if a name is taken."""
        self.claim(sink, parents)
        serdes = {"key_serde": key_serde, "value_serde": value_serde}
        self.add_step(source, lambda topology: topology.add_repartition(topic, sink, source, parents, **serdes))
        self._sinks[sink], self._sources[sink] = topic, source
        self._windows[source] = self._windows_in_common(parents)

    def add_state_store(self, builder: StoreBuilder[Any]) -> None:
        """Add a store for users' processors. Raises TopologyError if its name is taken."""
        if builder.name in self._users_stores:
            raise TopologyError(f"there already is a state store {builder.name!r}")
        self._users_stores[builder.name] = builder

    def users_stores(self, names: Sequence[str]) -> tuple[list[StoreBuilder[Any]], list[str]]:
        """Return the builders of those stores that users have added, and the names of the others."""
        own = [name for name in names if name in self._users_stores]
        return [self._users_stores[name] for name in own], [name for name in names if name not in own]

    def needs_null_keys(self, name: str) -> bool:
        """Return whether a node below sends on records without a key; call it when the topology is built.

        Source: Kafka's NodesWithRelaxedNullKeyJoinDownstream.
        """
        below = [*self.children(name), *filter(None, (self._sources.get(name),))]
        return any(
            (child in self._readers and self._readers[child].needs_null_keys) or self.needs_null_keys(child)
            for child in below
        )

    def has_new_keys(self, name: str) -> bool:
        """Return whether a step above a node, or above its repartition topic, has changed the keys."""
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
        """Return the windows in the keys of a node. Source: GraphGraceSearchUtil."""
        return self._windows.get(name, ())

    def either_way(
        self, name: str, records: ProcessorSupplier, columns: ProcessorSupplier | None, meeting: str | None = None
    ) -> Callable[[], ProcessorSupplier]:
        """Return the plan of a node that takes records, or columns if `columns` is not None and all above allow it."""
        return lambda: records if columns is None or self.goes_by_record(name) else EitherWay(columns, records, meeting)

    def goes_by_record(self, name: str) -> bool:
        """Return whether a node must take records one by one; call it when the topology is built.

        It must if records of one source meet again after going two ways: in a node with several parents, in a store
        that several nodes use, or in a topic that several sinks may write to. There, each record must be through before
        the next one starts, but columns go node by node.
        """
        return name in self._by_record

    def build(self) -> Topology:
        """Return a topology of all nodes; a new one at every call."""
        self._by_record = self._nodes_by_record()
        topology = Topology()
        for add_to in self._steps:
            add_to(topology)
        for node in self._readers.values():
            copies = node.copies()
            for store in (*node.reads(), *copies):
                if store not in topology.global_stores:
                    topology.connect_processor_and_state_stores(node.name, store)
            topology.processors[node.name].copies.update(copies)
        return topology

    def claim(self, name: str, parents: tuple[str, ...] = ()) -> None:
        """Take a name for a node. Raises TopologyError if it is taken."""
        if name in self._parents:
            raise TopologyError(f"there already is a node {name!r}: give one of the two another `name`")
        self._parents[name] = parents

    def _windows_in_common(self, names: Iterable[str]) -> Windows:
        """Return the windows of the keys of several nodes, with the longest grace; none if they differ in kind."""
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
        for names in (*meetings, *users.values(), *names_by_topic(self._sinks)):
            seen: set[str] = set()
            for name in names:
                met |= seen & sources[name]
                seen |= sources[name]
        return frozenset(name for name, above in sources.items() if above & met)

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1


class Stage(NamedTuple):
    """A node of a program, and the serdes of what it sends on; those of None are unknown."""

    graph: StreamGraph
    node: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    in_columns: bool = False
    """Whether records, or changes, come in columns if the node below takes them."""

    def with_serdes(self, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None) -> Stage:
        """Return the stage with these serdes; None leaves one as it is."""
        return self._replace(key_serde=key_serde or self.key_serde, value_serde=value_serde or self.value_serde)


class Staged:
    """A stream or a table: what stands at a stage of a program."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._graph, self._node, self._key_serde, self._value_serde, self._in_columns = stage
