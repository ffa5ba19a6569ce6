"""Streams to be aggregated by key. Source: Kafka Streams' KGroupedStream."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from statestore.dsl.aggregates.aggregable_stream import AggregableStream
from statestore.dsl.aggregates.windowed_stream import SessionWindowedKStream, TimeWindowedKStream
from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan, Aggregating
from statestore.dsl.processors.aggregating_columns import AggregatingColumns
from statestore.dsl.stage import Stage
from statestore.dsl.table_plans import KeptTable
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder

Stream = TypeVar("Stream")
"""The class of streams."""


class KGroupedStream(AggregableStream[Stream]):
    """Records by key. Those without a key or a value are left out, and counted."""

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedKStream[Stream]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[Stream]: ...

    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[Stream] | SessionWindowedKStream[Stream]:
        """Return the stream by key and window. Raises TypeError for what are no windows to aggregate by."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._stage, windows)
        if not isinstance(windows, (TimeWindows, SlidingWindows)):
            raise TypeError(f"windows must be TimeWindows, SlidingWindows or SessionWindows, not {windows!r}")
        return TimeWindowedKStream(self._stage, windows)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        return kept.key_value_builder()

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        plan = KeptTable.of_keys(str(kept.name), kept.history_retention_ms)
        return KTable(Stage(self._graph, node, kept.key_serde, kept.value_serde, in_columns), plan)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        return Aggregating(plan) if columns is None else AggregatingColumns(plan, columns)
