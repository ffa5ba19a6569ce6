"""StreamsBuilder: where a program of the DSL begins. Source: Kafka Streams' StreamsBuilder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import GlobalKTable, KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.processors.table_views import StoreView
from statestore.dsl.processors.tables import ReadingTable, TableProcessorPlan, TableStorePlan
from statestore.dsl.stream_graph import GraphNode, Stage, StreamGraph
from statestore.dsl.table_plans import SourceTable
from statestore.errors import TopologyError
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.processor.topology import Topology
from statestore.stores.builder import StoreBuilder

_STREAM_SOURCE = "KSTREAM-SOURCE-"
_TABLE_SOURCE = "KTABLE-SOURCE-"


class StreamsBuilder:
    """Declares streams and tables; `build` makes a topology of them.

    Processors and stores have the names that Kafka Streams gives them for the same program, so that state can move both
    ways. Numbers in names count what was declared before: name whatever must survive a change of the program.
    """

    def __init__(self, *, in_columns: bool = True) -> None:
        """Begin a program. `in_columns=False` processes record by record, even where columns would be faster.

        So does a query that leaves out records on which a processor fails, or whose interceptors look at each record.
        """
        self._graph = StreamGraph(KStream, in_columns)
        self._streams: dict[frozenset[str], KStream] = {}

    def stream(
        self, topics: str | Sequence[str], *, key_serde: Serde[Any], value_serde: Serde[Any], name: str | None = None
    ) -> KStream:
        """Return the stream of the records of one topic or several. `name` names its node.

        A second call with the same topics returns the same stream. Raises TopologyError if it has other serdes.
        """
        read = (topics,) if isinstance(topics, str) else tuple(topics)
        node = self._graph.new_name(_STREAM_SOURCE, name)
        if (known := self._streams.get(frozenset(read))) is not None:
            if (known._key_serde, known._value_serde) != (key_serde, value_serde):
                raise TopologyError(f"stream({topics!r}): {known._node!r} reads the same topics with other serdes")
            return known
        self._graph.add_step(
            node, lambda topology: topology.add_source(node, read, key_serde=key_serde, value_serde=value_serde)
        )
        has_columns = key_serde.columns is not None and value_serde.columns is not None
        stage = Stage(self._graph, node, key_serde, value_serde, self._graph.in_columns and has_columns)
        return self._streams.setdefault(frozenset(read), KStream(stage))

    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[KStream]:
        """Return the table of a topic: the latest value of each key; a record without a value deletes its key.

        It has a store if `materialized` names one, or if a later step has to read the table.
        """
        graph = self._graph
        asked = Materialized.of(materialized)
        kept = asked.or_serdes(key_serde, value_serde).or_name(lambda: f"{topic}-{graph.new_store_name('')}")
        source = graph.new_name(_STREAM_SOURCE, None if name is None else f"{name}-source")
        node = graph.new_name(_TABLE_SOURCE, name)
        plan = SourceTable(kept, is_kept=asked.name is not None)
        graph.add_step(
            source, lambda topology: topology.add_source(source, topic, key_serde=key_serde, value_serde=value_serde)
        )
        graph.add(GraphNode(node, (source,), plan.supplier, plan.stores))
        return KTable(Stage(graph, node, kept.key_serde, kept.value_serde), plan)

    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> GlobalKTable:
        """Return the table of a topic, all of it in every shard: streams can join it by any key.

        Each shard keeps its own copy. Raises TopologyError for a versioned one: as in Kafka, it has no history.
        """
        graph, asked = self._graph, Materialized.of(materialized)
        if asked.is_versioned:
            raise TopologyError(
                f"the global table of topic {topic!r} can't be versioned: it keeps only the latest value of each key"
            )
        kept = asked.or_serdes(key_serde, value_serde).or_name(lambda: f"{topic}-{graph.new_store_name('')}")
        builder = kept.key_value_builder()
        reading = partial(
            ReadingTable, TableProcessorPlan(TableStorePlan(builder.name, builder.key_serde), ChangesPlan())
        )
        node = self._add_global(builder, topic, reading, key_serde, value_serde, name)
        stage = Stage(graph, node, kept.key_serde, kept.value_serde)
        return GlobalKTable(stage, builder.name, StoreView((builder.name,)))

    def add_state_store(self, builder: StoreBuilder[Any]) -> StreamsBuilder:
        """Add a store for `KStream.process` and `process_values`, which name it; its keys are those of the records.

        Raises TopologyError if the name is taken.
        """
        self._graph.add_state_store(builder)
        return self

    def add_global_store(
        self,
        builder: StoreBuilder[Any],
        topic: str,
        supplier: ProcessorSupplier,
        *,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that is whole in every shard: a processor fills it from a topic, all others can read it."""
        self._add_global(builder, topic, supplier, key_serde, value_serde, name)
        return self

    def build(self) -> Topology:
        """Return a topology of all that was declared; a new one at every call.

        Raises TopologyError for what can't run, such as a table whose serdes are unknown.
        """
        return self._graph.build()

    def _add_global(
        self,
        builder: StoreBuilder[Any],
        topic: str,
        supplier: ProcessorSupplier,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        name: str | None,
    ) -> str:
        graph = self._graph
        source = graph.new_name(_STREAM_SOURCE, name and f"{name}-source")
        node = graph.new_name(_TABLE_SOURCE, name)
        graph.add_step(
            source,
            lambda topology: topology.add_global_store(
                builder, source, topic, node, supplier, key_serde=key_serde, value_serde=value_serde
            ),
        )
        graph.claim(node)
        return node
