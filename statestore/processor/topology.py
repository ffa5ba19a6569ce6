"""The graph that a user declares: sources, processors, state stores, sinks. Source: Kafka Streams' Topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from statestore.bytestore.store_spec import StoreSpec, checked_store_name
from statestore.errors import TopologyError
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder


@dataclass(frozen=True)
class SourceNode:
    """Reads topics; `topics` of None means every topic that no other source reads."""

    name: str
    topics: tuple[str, ...] | None
    key_serde: Serde[Any]
    value_serde: Serde[Any]

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        return {"type": "source", "name": self.name, "topics": None if self.topics is None else list(self.topics)}


@dataclass
class ProcessorNode:
    """Runs user code."""

    name: str
    supplier: ProcessorSupplier
    parents: tuple[str, ...]
    stores: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        return {
            "type": "processor",
            "name": self.name,
            "parents": list(self.parents),
            "stores": sorted(self.stores),
        }


@dataclass(frozen=True)
class SinkNode:
    """Writes to a topic; without serdes, by the type of what arrives (see `serialize_by_type`)."""

    name: str
    topic: str
    parents: tuple[str, ...]
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return what is recorded of the node."""
        return {"type": "sink", "name": self.name, "topic": self.topic, "parents": list(self.parents)}


class Topology:
    """A graph of sources, processors, state stores and sinks, declared from the sources down.

    Parents must be there before their children, so a cycle can't be declared. Every method returns the topology, and
    raises TopologyError for what can't be connected and ValueError or TypeError for illegal arguments.
    """

    def __init__(self) -> None:
        self.sources: dict[str, SourceNode] = {}
        self.processors: dict[str, ProcessorNode] = {}
        self.sinks: dict[str, SinkNode] = {}
        self.store_builders: dict[str, StoreBuilder[Any]] = {}

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | None = None,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
    ) -> Topology:
        """Add a source of `topics`; None means every topic that no other source reads."""
        self._check_new(name)
        _require_serde("key_serde", key_serde)
        _require_serde("value_serde", value_serde)
        names = None if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
        if names is not None and not names:
            raise ValueError(f"source {name!r}: topics must not be empty; leave it out to read every topic")
        for other in self.sources.values():
            shared = names == other.topics if names is None or other.topics is None else {*names} & {*other.topics}
            if shared:
                what = "every topic" if names is None else f"topic {sorted({*names} & {*(other.topics or ())})[0]!r}"
                raise TopologyError(f"sources {other.name!r} and {name!r} both read {what}")
        self.sources[name] = SourceNode(name, names, key_serde, value_serde)
        return self

    def add_processor(self, name: str, supplier: ProcessorSupplier, parents: Sequence[str]) -> Topology:
        """Add a processor below `parents`; `supplier` makes a new one at every call, most often the class itself."""
        self._check_new(name)
        if not callable(supplier):
            raise TypeError(f"processor {name!r}: supplier must be a Processor class or a function that makes one")
        self.processors[name] = ProcessorNode(name, supplier, self._checked_parents(name, parents))
        return self

    def add_state_store(self, builder: StoreBuilder[Any], *processors: str) -> Topology:
        """Add a state store and attach it to `processors`, which may share it."""
        if not isinstance(builder, StoreBuilder):
            raise TypeError(f"builder must be a StoreBuilder (see Stores), not {builder!r}")
        present = self.store_builders.get(builder.name)
        if present is not None and present is not builder:
            raise TopologyError(f"there already is a state store {builder.name!r}")
        self.store_builders[builder.name] = builder
        for processor in processors:
            self.connect_processor_and_state_stores(processor, builder.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Attach state stores that were added before to a processor."""
        node = self.processors.get(processor)
        if node is None:
            raise TopologyError(f"a state store can't be attached to {processor!r}: there is no such processor")
        for store in stores:
            if store not in self.store_builders:
                raise TopologyError(f"state store {store!r} can't be attached to {processor!r}: it was not added")
            if store not in node.stores:
                node.stores.append(store)
        return self

    def add_sink(
        self,
        name: str,
        topic: str,
        parents: Sequence[str],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Topology:
        """Add a sink that writes what `parents` forward to `topic`.

        Without a serde, bytes go as they are, str as UTF-8, int as int64, float as double, anything else as JSON.
        """
        self._check_new(name)
        if not topic:
            raise ValueError(f"sink {name!r}: topic must not be empty")
        for parameter, serde in (("key_serde", key_serde), ("value_serde", value_serde)):
            if serde is not None:
                _require_serde(parameter, serde)
        self.sinks[name] = SinkNode(name, topic, self._checked_parents(name, parents), key_serde, value_serde)
        return self

    def children(self, parent: str) -> list[str]:
        """Return the names of the nodes below `parent`, in the order they were added."""
        below: list[ProcessorNode | SinkNode] = [*self.processors.values(), *self.sinks.values()]
        return [node.name for node in below if parent in node.parents]

    def store_specs(self) -> tuple[StoreSpec, ...]:
        """Return what is recorded of each state store, by name."""
        return tuple(self.store_builders[name].spec for name in sorted(self.store_builders))

    def in_memory_stores(self) -> frozenset[str]:
        """Return the names of the state stores that are not kept in RocksDB."""
        return frozenset(name for name, builder in self.store_builders.items() if not builder.persistent)

    def to_json(self) -> tuple[dict[str, Any], ...]:
        """Return what is recorded of the nodes, by kind and name."""
        kinds: tuple[dict[str, Any], ...] = (self.sources, self.processors, self.sinks)
        return tuple(nodes[name].to_json() for nodes in kinds for name in sorted(nodes))

    def validate(self) -> None:
        """Raise TopologyError unless there is a source, every source has children and every store a processor."""
        if not self.sources:
            raise TopologyError("the topology has no source: add one with add_source")
        for source in self.sources:
            if not self.children(source):
                raise TopologyError(f"source {source!r} has no children: its records would go nowhere")
        attached = {store for node in self.processors.values() for store in node.stores}
        for store in self.store_builders:
            if store not in attached:
                raise TopologyError(f"state store {store!r} is not attached to any processor")

    def _check_new(self, name: str) -> None:
        checked_store_name(name)
        if name in self.sources or name in self.processors or name in self.sinks:
            raise TopologyError(f"there already is a node {name!r}")

    def _checked_parents(self, name: str, parents: Sequence[str]) -> tuple[str, ...]:
        if isinstance(parents, str):
            raise TypeError(f"node {name!r}: parents must be a list of names, not the name {parents!r}")
        if not parents:
            raise TopologyError(f"node {name!r} has no parents: it would receive nothing")
        for parent in parents:
            if parent in self.sinks:
                raise TopologyError(f"node {name!r} can't be below the sink {parent!r}")
            if parent not in self.sources and parent not in self.processors:
                raise TopologyError(f"node {name!r} has an unknown parent {parent!r}; add parents first")
        return tuple(dict.fromkeys(parents))


def _require_serde(parameter: str, serde: Any) -> None:
    if not isinstance(serde, Serde):
        raise TypeError(f"{parameter} must be a Serde (see Serdes), not {serde!r}")
