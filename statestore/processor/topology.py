"""The graph that a user declares: sources, processors, state stores, sinks. Source: Kafka Streams' Topology."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec, check_store_name
from statestore.errors import TopologyError
from statestore.format.serde import Serde
from statestore.interception.interceptor import Interceptor
from statestore.processor.nodes import (
    InterceptorNode,
    NodeGraph,
    Operator,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TopicNameExtractor,
)
from statestore.processor.pictures.describe import describe
from statestore.processor.pictures.description import TopologyDescription
from statestore.processor.processor import EitherWay, ProcessorSupplier
from statestore.stores.builder import StoreBuilder


class Topology(NodeGraph):
    """A graph of sources, processors, state stores and sinks, declared from the sources down.

    Parents must be there before their children, so a cycle can't be declared. Every method returns the topology, and
    raises TopologyError for what can't be connected and ValueError or TypeError for illegal arguments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store_builders: dict[str, StoreBuilder[Any]] = {}
        self.global_stores: dict[str, str] = {}
        """The topic that feeds each global store."""
        self.copied_stores: dict[str, str] = {}
        """The topic that feeds each copy of another stage's store."""
        self.repartition_topics: set[str] = set()
        """The topics that the topology writes and reads itself, to redistribute records by key."""
        self.expiry_stores: dict[str, str] = {}
        """For each store with a time to live, the store that says when its entries expire."""

    def add_source(
        self, name: str, topics: str | Sequence[str] | None = None, *, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> Topology:
        """Add a source of `topics`; None means every topic that no other source reads."""
        self._check_new(name)
        _require_serde("key_serde", key_serde)
        _require_serde("value_serde", value_serde)
        names = None if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
        if names is not None and not names:
            raise ValueError(f"source {name!r}: topics must not be empty; leave it out to read every topic")
        self._add_source(SourceNode(name, names, key_serde, value_serde))
        return self

    def add_processor(self, name: str, supplier: ProcessorSupplier, parents: Sequence[str]) -> Topology:
        """Add a processor below `parents`; `supplier` makes a new one at every call, most often the class itself."""
        self._check_new(name)
        _require_supplier(name, supplier)
        self.processors[name] = self.nodes[name] = ProcessorNode(name, supplier, self._require_parents(name, parents))
        return self

    def add_state_store(self, builder: StoreBuilder[Any], *processors: str) -> Topology:
        """Add a state store and attach it to `processors`, which may share it.

        A time to live adds a second store, `<name>-expiry`, which is attached to no processor.
        """
        self._add_builder(builder)
        for processor in processors:
            self.connect_processor_and_state_stores(processor, builder.name)
        return self

    def add_operator(self, operator: Operator) -> Topology:
        """Add all that a ready-made part has: its source, its processor with its stores, and its sink."""
        source, sink, parents = operator.source, operator.sink, operator.parents
        if source is not None:
            self.add_source(source.name, source.topics, key_serde=source.key_serde, value_serde=source.value_serde)
            parents = (source.name, *parents)
        self.add_processor(operator.name, operator.supplier, parents)
        self.operators[operator.name] = operator
        for store in operator.stores:
            self.add_state_store(store.builder, operator.name)
            if store.entry_keys is not None:
                self.processors[operator.name].entry_keys[store.builder.name] = store.entry_keys
        if sink is not None:
            self.add_sink(sink.name, sink.topic, sink.parents, key_serde=sink.key_serde, value_serde=sink.value_serde)
        return self

    def add_global_store(
        self,
        builder: StoreBuilder[Any],
        source: str,
        topic: str,
        processor: str,
        supplier: ProcessorSupplier,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
    ) -> Topology:
        """Add a store that every shard holds whole, fed from `topic` by `processor`; all processors can read it.

        Nothing can be below its source and its processor. Under Spark, each shard keeps a copy of its own, and takes
        the topic's records of a micro-batch before all others. Source: Kafka's Topology.addGlobalStore.
        """
        for name in (source, processor):
            self._check_new(name)
        if source == processor:
            raise TopologyError(f"there already is a node {processor!r}")
        if not topic or not isinstance(topic, str):
            raise ValueError(f"global store: topic must be a name, not {topic!r}")
        _require_serde("key_serde", key_serde)
        _require_serde("value_serde", value_serde)
        _require_supplier(processor, supplier)
        self._check_builder(builder)
        if builder.name in self.store_builders:
            raise TopologyError(f"there already is a state store {builder.name!r}")
        if builder.time_to_live is not None:
            raise TopologyError(f"global store {builder.name!r} can't have a ttl: it holds what its topic holds")
        self._add_source(SourceNode(source, (topic,), key_serde, value_serde, is_global=True))
        # In Kafka its topic is its changelog. Here each shard's copy is logged like any other store.
        self._add_builder(builder.with_logging_enabled(builder.changelog_config))
        self.processors[processor] = self.nodes[processor] = ProcessorNode(
            processor, supplier, (source,), [builder.name]
        )
        self.global_stores[builder.name] = topic
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Attach state stores that were added before to a processor."""
        node = self.processors.get(processor)
        if node is None:
            raise TopologyError(f"a state store can't be attached to {processor!r}: there is no such processor")
        for store in stores:
            if store not in self.store_builders:
                raise TopologyError(f"state store {store!r} can't be attached to {processor!r}: it was not added")
            if store in self.global_stores:
                raise TopologyError(f"global store {store!r} needs no attaching: every processor can read it")
            if store not in node.stores:
                node.stores.append(store)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        parents: Sequence[str],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
    ) -> Topology:
        """Add a sink that writes what `parents` forward to `topic`, or to the one that it returns for each record.

        Without a serde, bytes go as they are, str as UTF-8, int as int64, float as double, anything else as JSON.
        """
        self._check_new(name)
        if not callable(topic) and (not topic or not isinstance(topic, str)):
            raise ValueError(f"sink {name!r}: topic must be a name, or a function that returns one, not {topic!r}")
        for parameter, serde in (("key_serde", key_serde), ("value_serde", value_serde)):
            if serde is not None:
                _require_serde(parameter, serde)
        self.sinks[name] = self.nodes[name] = SinkNode(
            name, topic, self._require_parents(name, parents), key_serde, value_serde
        )
        return self

    def add_repartition(
        self,
        topic: str,
        sink: str,
        source: str,
        parents: Sequence[str],
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
    ) -> Topology:
        """Send what `parents` forward through a topic of the topology's own, and go on below `source`.

        There, records are redistributed by key. Interceptors do not see them on the way.
        Source: Kafka's InternalTopologyBuilder.addInternalTopic.
        """
        self.add_sink(sink, topic, parents, key_serde=key_serde, value_serde=value_serde)
        self.add_source(source, topic, key_serde=key_serde, value_serde=value_serde)
        self.repartition_topics.add(topic)
        return self

    def part(self, names: Iterable[str]) -> Topology:
        """Return a topology of some of the nodes with their stores, and of all global nodes."""
        chosen = {*names, *(name for name in self.nodes if self.is_global(name))}
        made = copy.copy(self)
        for kind in ("nodes", "sources", "processors", "sinks", "operators"):
            setattr(made, kind, {name: node for name, node in getattr(self, kind).items() if name in chosen})
        kept = {store for node in made.processors.values() for store in node.stores}
        made.expiry_stores = {store: name for store, name in self.expiry_stores.items() if store in kept}
        kept.update(made.expiry_stores.values())
        made.store_builders = {name: builder for name, builder in self.store_builders.items() if name in kept}
        made.interceptors = dict(self.interceptors)
        made.copied_stores = dict(self.copied_stores)
        return made

    def with_copies(self) -> Topology:
        """Return a topology that fills copies of the stores which its processors only read, and no other one writes.

        For the code that divides a topology into stages. Raises TopologyError for a store that is not a table's with
        plain keys: by those, what is written to it goes to the copy's shard.
        """
        made = self.part(self.nodes)
        nodes = self.processors.values()
        own = {store for node in nodes for store in node.stores if store not in node.copies}
        suppliers = {store: supplier for node in nodes for store, supplier in node.copies.items() if store not in own}
        for store, supplier in suppliers.items():
            builder, source = self.store_builders[store], f"{store}-copied"
            spec = builder.spec
            if (spec.kind.is_segmented and not layout_of(spec).keeps_versions) or not spec.format.has_headers:
                raise TopologyError(
                    f"store {store!r} ({spec.describe()}) can't be read behind a repartition topic: a table can be, if "
                    "it is neither of windows nor suppressed. Put to_stream(mapper).to_table() behind it"
                )
            # No topic of Kafka's can be called so.
            made.copied_stores[store] = topic = f"copy of {store}"
            serdes = builder.key_serde, builder.value_serde
            made._add_source(SourceNode(source, (topic,), *serdes, is_of_copy=True))
            made.add_processor(f"{store}-copying", supplier, [source])
            made.connect_processor_and_state_stores(f"{store}-copying", store)
        return made

    def with_interceptors(self, chain: Iterable[Interceptor]) -> Topology:
        """Return a topology like this one with interceptors around it, and their stores; this one stays as it is.

        For the code that runs it: users give interceptors to `stateful` and to the test driver.
        """
        made = copy.copy(self)
        vars(made).update({name: copy.copy(part) for name, part in vars(self).items()})
        for interceptor in chain:
            stores = interceptor.stores()
            names = tuple(store.builder.name for store in stores)
            known = {store.builder.name: store.entry_keys for store in stores if store.entry_keys is not None}
            node = InterceptorNode(interceptor, names, known)
            made._check_new(node.name)
            for store in stores:
                if store.builder.name in made.store_builders:
                    raise TopologyError(f"there already is a state store {store.builder.name!r}, as {node.name} needs")
                made._add_builder(store.builder)
            made.interceptors[node.name] = node
        return made

    def describe(self) -> TopologyDescription:
        """Return what the topology looks like: `str` of it is Kafka's text, `to_mermaid` draws it."""
        return describe(self)

    def _repr_html_(self) -> str:
        """Return a drawing, for notebooks."""
        return self.describe()._repr_html_()

    @property
    def has_nodes_either_way(self) -> bool:
        """Whether a node has one processor of records and one of columns."""
        return any(isinstance(node.supplier, EitherWay) for node in self.processors.values())

    def store_specs(self) -> tuple[StoreSpec, ...]:
        """Return what is recorded of each state store, by name."""
        return tuple(self.store_builders[name].spec for name in sorted(self.store_builders))

    def in_memory_stores(self) -> frozenset[str]:
        """Return the names of the state stores that are not kept in RocksDB."""
        return frozenset(name for name, builder in self.store_builders.items() if not builder.persistent)

    def to_json(self) -> tuple[dict[str, Any], ...]:
        """Return what is recorded of the nodes, by kind and name."""
        kinds: tuple[dict[str, Any], ...] = (self.sources, self.processors, self.sinks)
        recorded = [nodes[name].to_json() for nodes in kinds for name in sorted(nodes)]
        with_stores = [node.to_json() for _, node in sorted(self.interceptors.items()) if node.stores]
        return (*recorded, *with_stores)

    def validate(self) -> None:
        """Raise TopologyError unless there is a source, every source has children and every store a processor."""
        if not self.sources:
            raise TopologyError("the topology has no source: add one with add_source")
        for source in self.sources:
            if not self.children(source):
                raise TopologyError(f"source {source!r} has no children: its records would go nowhere")
        attached = {store for node in self.processors.values() for store in node.stores}
        attached.update(store for node in self.interceptors.values() for store in node.stores)
        attached.update(self.expiry_stores.values())
        for store in self.store_builders:
            if store not in attached:
                raise TopologyError(f"state store {store!r} is not attached to any processor")

    def check_sharding(self, shard_by: str) -> None:
        """Raise TopologyError if an interceptor can't work where shards get records by "key" or by "partition"."""
        for node in self.interceptors.values():
            reason = node.interceptor.why_not_sharded(shard_by, self.global_stores.values())
            if reason is not None:
                raise TopologyError(f"interceptor {node.interceptor.name!r} can't run in this query: {reason}")

    def _add_source(self, source: SourceNode) -> None:
        name, names = source.name, source.topics
        for other in self.sources.values():
            shared = names == other.topics if names is None or other.topics is None else {*names} & {*other.topics}
            if shared:
                what = "every topic" if names is None else f"topic {sorted({*names} & {*(other.topics or ())})[0]!r}"
                raise TopologyError(f"sources {other.name!r} and {name!r} both read {what}")
        self.sources[name] = self.nodes[name] = source

    def _check_builder(self, builder: StoreBuilder[Any]) -> None:
        if not isinstance(builder, StoreBuilder):
            raise TypeError(f"builder must be a StoreBuilder (see Stores), not {builder!r}")
        present = self.store_builders.get(builder.name)
        if present is not None and present is not builder:
            raise TopologyError(f"there already is a state store {builder.name!r}")

    def _add_builder(self, builder: StoreBuilder[Any]) -> None:
        self._check_builder(builder)
        present = self.store_builders.get(builder.name)
        expiry = builder.expiry_store
        if expiry is not None and present is None:
            if expiry.name in self.store_builders:
                raise TopologyError(f"there already is a state store {expiry.name!r}, which {builder.name!r} needs")
            self.store_builders[expiry.name] = expiry
            self.expiry_stores[builder.name] = expiry.name
        self.store_builders[builder.name] = builder

    def _check_new(self, name: str) -> None:
        check_store_name(name)
        if name in self.nodes or name in self.interceptors:
            raise TopologyError(f"there already is a node {name!r}")

    def _require_parents(self, name: str, parents: Sequence[str]) -> tuple[str, ...]:
        if isinstance(parents, str):
            raise TypeError(f"node {name!r}: parents must be a list of names, not the name {parents!r}")
        if not parents:
            raise TopologyError(f"node {name!r} has no parents: it would receive nothing")
        for parent in parents:
            if parent == name:
                raise TopologyError(f"node {name!r} can't be below itself: a topology has no cycles")
            if parent in self.nodes and self.is_global(parent):
                raise TopologyError(f"node {name!r} can't be below {parent!r}, which feeds a global store")
            if parent in self.sinks:
                raise TopologyError(f"node {name!r} can't be below the sink {parent!r}")
            if parent not in self.nodes:
                raise TopologyError(
                    f"node {name!r} has an unknown parent {parent!r}; add parents first (a topology has no cycles)"
                )
        return tuple(dict.fromkeys(parents))


def _require_serde(parameter: str, serde: Any) -> None:
    if not isinstance(serde, Serde):
        raise TypeError(f"{parameter} must be a Serde (see Serdes), not {serde!r}")


def _require_supplier(name: str, supplier: Any) -> None:
    if not callable(supplier):
        raise TypeError(f"processor {name!r}: supplier must be a Processor class or a function that makes one")
    if not isinstance(supplier, type) and supplier() is supplier():
        raise ValueError(f"processor {name!r}: supplier must make a new processor each time it is called")
