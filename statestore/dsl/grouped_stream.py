"""Streams to be aggregated, by key, or by key and window. Source: Kafka Streams' KGroupedStream, TimeWindowedKStream.

What they aggregate by is what differs between them; the steps are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from statestore.dsl.aggregations import Aggregation, counting, reducing, summing
from statestore.dsl.emit_strategy import EmitStrategy
from statestore.dsl.header_policy import HeaderPolicy, PolicyLike
from statestore.dsl.ktable import KTable, WindowedKTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan, Aggregating
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.processors.windowed_aggregating import WindowedAggregating
from statestore.dsl.stream_graph import GraphNode, StreamGraph
from statestore.dsl.table_plans import KeptTable
from statestore.dsl.windowed_serdes import time_windowed_serde
from statestore.dsl.windows import TimeWindows
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder

__all__ = ["KGroupedStream", "TimeWindowedKStream"]

_AGGREGATE = "KSTREAM-AGGREGATE-"
_REDUCE = "KSTREAM-REDUCE-"


class AggregableStream(ABC):
    """Records to be aggregated.

    Of every method: `headers` says what becomes of the headers of the records that are aggregated, `materialized` where
    the table is kept, `name` is that of its node.
    """

    def __init__(
        self, graph: StreamGraph, node: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
    ) -> None:
        self._graph = graph
        self._node = node
        self._key_serde = key_serde
        self._value_serde = value_serde

    def count(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable:
        """Return how many records there were."""
        if materialized is not None and materialized.name is None:
            self._graph.new_store_name(_AGGREGATE)  # Kafka takes a number for nothing here
        return self._aggregate(_AGGREGATE, counting(), materialized, headers, name)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable:
        """Return what a function makes of the value so far and the next one; the first one is the value itself."""
        return self._aggregate(_REDUCE, reducing(reducer, self._value_serde), materialized, headers, name)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable:
        """Return what a function of key, value and aggregate makes, beginning with what `initializer` returns.

        An aggregate of None is deleted.
        """
        return self._aggregate(_AGGREGATE, Aggregation(initializer, aggregator), materialized, headers, name)

    def sum(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable:
        """Return the sum of the values, which are numbers."""
        return self._aggregate(_REDUCE, summing(self._value_serde), materialized, headers, name)

    @abstractmethod
    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        """Return the builder of the aggregates' store."""

    @abstractmethod
    def _table(self, node: str, kept: Materialized, store: str) -> KTable:
        """Return the table of the aggregates."""

    @abstractmethod
    def _supplier(self, plan: AggregatePlan, table: KeptTable) -> ProcessorSupplier:
        """Return what makes the processor."""

    def _aggregate(
        self,
        prefix: str,
        aggregation: Aggregation,
        materialized: Materialized | None,
        headers: PolicyLike,
        name: str | None,
    ) -> KTable:
        graph, policy = self._graph, HeaderPolicy.of(headers)
        asked = materialized or Materialized()
        kept = asked if asked.name is not None else asked.named(graph.new_store_name(prefix))
        kept = kept.or_serdes(self._key_serde, aggregation.value_serde)
        store, node = str(kept.name), graph.new_name(prefix, name)
        table = self._table(node, kept, store)
        plan = table._plan
        assert isinstance(plan, KeptTable)  # an aggregate has a store in any case

        def supplier() -> ProcessorSupplier:
            changes = ChangesPlan(plan.sends_old, kept.is_cached, plan.children_of_changes(graph.children(node)))
            key_serde = self._builder(kept).key_serde
            made = AggregatePlan(store, key_serde, aggregation.initializer, aggregation.aggregator, policy, changes)
            return self._supplier(made, plan)

        graph.add(GraphNode(node, (self._node,), supplier, lambda: (self._builder(kept),)))
        return table


class KGroupedStream(AggregableStream):
    """Records by key. Those without a key or a value are left out, and counted."""

    def windowed_by(self, windows: TimeWindows) -> TimeWindowedKStream:
        """Return the stream by key and window."""
        return TimeWindowedKStream(self._graph, self._node, self._key_serde, self._value_serde, windows)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        return kept.key_value_builder()

    def _table(self, node: str, kept: Materialized, store: str) -> KTable:
        return KTable(self._graph, node, kept.key_serde, kept.value_serde, KeptTable.of_keys(store))

    def _supplier(self, plan: AggregatePlan, table: KeptTable) -> ProcessorSupplier:
        return Aggregating(plan)


class TimeWindowedKStream(AggregableStream):
    """Records by key and window of time. Those without a key and those that come too late are left out, and counted."""

    def __init__(
        self,
        graph: StreamGraph,
        node: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        windows: TimeWindows,
        strategy: EmitStrategy | None = None,
    ) -> None:
        super().__init__(graph, node, key_serde, value_serde)
        self._windows = windows
        self._strategy = strategy or EmitStrategy.on_window_update()

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream:
        """Return the stream with another strategy of when a window is put out."""
        return TimeWindowedKStream(self._graph, self._node, self._key_serde, self._value_serde, self._windows, strategy)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        windows = self._windows
        return kept.window_builder(windows.size_ms, windows.size_ms + windows.grace_ms)

    def _table(self, node: str, kept: Materialized, store: str) -> KTable:
        serde = None if kept.key_serde is None else time_windowed_serde(kept.key_serde, self._windows.size_ms)
        return WindowedKTable(
            self._graph,
            node,
            serde,
            kept.value_serde,
            KeptTable.of_windows(store),
            (self._key_serde, self._value_serde),
        )

    def _supplier(self, plan: AggregatePlan, table: KeptTable) -> ProcessorSupplier:
        return WindowedAggregating(plan, self._windows, self._strategy.is_final, table.late_child)
