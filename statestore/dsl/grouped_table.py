"""Tables that are grouped by another key, to be aggregated. Source: Kafka Streams' KGroupedTable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from statestore.dsl.aggregations import Aggregation, counting, reducing, summing
from statestore.dsl.change import change_serde
from statestore.dsl.functions import checked
from statestore.dsl.header_policy import HeaderPolicy, PolicyLike
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.processors.regrouping import AggregatingTable
from statestore.dsl.repartition import serdes_of_topic, topic_of
from statestore.dsl.stream_graph import GraphNode, Stage, Staged
from statestore.dsl.table_plans import KeptTable
from statestore.processor.processor import ProcessorSupplier

Table = TypeVar("Table")
"""The class of tables: tables make groups and groups make tables, so one can't import the other."""

_AGGREGATE: Final = "KTABLE-AGGREGATE-"
_REDUCE: Final = "KTABLE-REDUCE-"


class KGroupedTable(Staged, Generic[Table]):
    """The values of a table by another key, to be aggregated: a value that changes or is deleted is subtracted again.

    Changes go through a repartition topic: with a `name`, all aggregates share the topic of that name; without, each
    has its own, named after its store. In every method, `headers` says how the headers of the aggregated changes,
    subtractions included, become one list; `materialized` says where the table is kept; `name` names its node.
    """

    def __init__(self, stage: Stage, make: Callable[[Stage, KeptTable], Table], name: str | None) -> None:
        super().__init__(stage)
        self._make, self._name = make, name
        self._source: str | None = None

    def count(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> Table:
        """Return how many values there are."""
        return self._aggregate(_AGGREGATE, counting(), materialized, headers, name)

    def sum(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> Table:
        """Return the sum of the values, which are numbers. Kafka has none."""
        return self._aggregate(_REDUCE, summing(self._value_serde), materialized, headers, name)

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> Table:
        """Return what functions of the value so far and another one return: one adds, one subtracts.

        The first value of a key is taken as it is. If `subtractor` returns None, the key is deleted.
        """
        checked("reduce()", adder, "old value", "new value")
        checked("reduce()", subtractor, "old value", "value that goes")
        return self._aggregate(_REDUCE, reducing(adder, self._value_serde, subtractor), materialized, headers, name)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> Table:
        """Return what functions of key, value and aggregate return: one adds a value, one subtracts it.

        An aggregate begins with what `initializer` returns. An aggregate of None is deleted.
        """
        checked("aggregate()", initializer)
        for function in (adder, subtractor):
            checked("aggregate()", function, "key", "value", "aggregate")
        aggregation = Aggregation(initializer, adder, subtractor=subtractor)
        return self._aggregate(_AGGREGATE, aggregation, materialized, headers, name)

    def _aggregate(
        self,
        prefix: str,
        aggregation: Aggregation,
        materialized: Materialized | None,
        headers: PolicyLike,
        name: str | None,
    ) -> Table:
        graph, policy = self._graph, HeaderPolicy.of(headers)
        kept = Materialized.of(materialized).or_serdes(self._key_serde, aggregation.value_serde)
        kept = kept.or_name(lambda: graph.new_store_name(_AGGREGATE))
        sink = graph.new_name("KSTREAM-SINK-", name and f"{name}-sink")
        source = graph.new_name("KSTREAM-SOURCE-", name and f"{name}-source")
        node = graph.new_name(prefix, name)
        if self._name is None or self._source is None:
            topic = topic_of(self._name or str(kept.name))
            keys, values = serdes_of_topic(self._stage, topic)
            graph.add_repartition(topic, sink, source, self._node, key_serde=keys, value_serde=change_serde(values))
            self._source = source
        table = KeptTable.of_keys(str(kept.name), kept.history_retention_ms)

        def supplier() -> ProcessorSupplier:
            changes, builder = ChangesPlan(table.sends_old, kept.holds_back), kept.key_value_builder()
            return partial(
                AggregatingTable, AggregatePlan(builder.name, builder.key_serde, aggregation, policy, changes)
            )

        graph.add(GraphNode(node, (self._source,), supplier, lambda: (kept.key_value_builder(),)))
        return self._make(Stage(graph, node, kept.key_serde, kept.value_serde), table)
