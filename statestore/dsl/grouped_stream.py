"""Streams to be aggregated by key. Source: Kafka Streams' KGroupedStream."""

from __future__ import annotations

from typing import Any

from statestore.dsl.aggregable_stream import AggregableStream
from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan, Aggregating
from statestore.dsl.processors.aggregating_columns import AggregatingColumns
from statestore.dsl.table_plans import KeptTable
from statestore.dsl.windowed_stream import TimeWindowedKStream
from statestore.dsl.windows import TimeWindows
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder

__all__ = ["KGroupedStream"]


class KGroupedStream(AggregableStream):
    """Records by key. Those without a key or a value are left out, and counted."""

    def windowed_by(self, windows: TimeWindows) -> TimeWindowedKStream:
        """Return the stream by key and window."""
        return TimeWindowedKStream(
            self._graph, self._node, self._key_serde, self._value_serde, windows, in_columns=self._in_columns
        )

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        return kept.key_value_builder()

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable:
        plan = KeptTable.of_keys(str(kept.name))
        return KTable(self._graph, node, kept.key_serde, kept.value_serde, plan, in_columns=in_columns)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        return Aggregating(plan) if columns is None else AggregatingColumns(plan, columns)
