"""Streams to be aggregated by key and window. Source: Kafka Streams' TimeWindowedKStream and SessionWindowedKStream."""

from __future__ import annotations

from typing import Any

from statestore.dsl.aggregable_stream import AggregableStream
from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.emit_strategy import EmitStrategy
from statestore.dsl.ktable import KTable, WindowedKTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan
from statestore.dsl.processors.windowed_aggregating import WindowedAggregating
from statestore.dsl.processors.windowed_aggregating_columns import WindowedAggregatingColumns
from statestore.dsl.stream_graph import StreamGraph
from statestore.dsl.table_plans import KeptTable
from statestore.dsl.windowed_serdes import time_windowed_serde
from statestore.dsl.windows import TimeWindows
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder

__all__ = ["TimeWindowedKStream"]


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
        *,
        in_columns: bool = False,
    ) -> None:
        super().__init__(graph, node, key_serde, value_serde, in_columns=in_columns)
        self._windows = windows
        self._strategy = strategy or EmitStrategy.on_window_update()

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream:
        """Return the stream with another strategy of when a window is put out."""
        return TimeWindowedKStream(
            self._graph,
            self._node,
            self._key_serde,
            self._value_serde,
            self._windows,
            strategy,
            in_columns=self._in_columns,
        )

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        windows = self._windows
        return kept.window_builder(windows.size_ms, windows.size_ms + windows.grace_ms)

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable:
        serde = None if kept.key_serde is None else time_windowed_serde(kept.key_serde, self._windows.size_ms)
        return WindowedKTable(
            self._graph,
            node,
            serde,
            kept.value_serde,
            KeptTable.of_windows(str(kept.name)),
            (self._key_serde, self._value_serde),
            in_columns=in_columns,
        )

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        asked = WindowedAggregating(plan, self._windows, self._strategy.is_final, table.late_child)
        return asked if columns is None else WindowedAggregatingColumns(asked, columns)

    def _can_take_columns(self) -> bool:
        return not self._strategy.is_final
