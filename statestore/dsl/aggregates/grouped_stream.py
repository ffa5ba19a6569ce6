"""Streams to be aggregated by key, or by key and window.

Source: Kafka Streams' KGroupedStream, TimeWindowedKStream and SessionWindowedKStream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, overload

from statestore.dsl.aggregates.aggregable_stream import (
    AGGREGATE,
    AggregableStream,
    ReducibleStream,
    checked_aggregation,
)
from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.header_policy import PolicyLike
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan, Aggregating
from statestore.dsl.processors.aggregating_columns import AggregatingColumns
from statestore.dsl.processors.windows.final_windows import store_of_ends
from statestore.dsl.processors.windows.session_aggregating import SessionAggregating, SessionAggregatingColumns
from statestore.dsl.processors.windows.sliding_aggregating import SlidingAggregating
from statestore.dsl.processors.windows.windowed_aggregating import (
    WindowedAggregating,
    WindowedAggregatingColumns,
    WindowedPlan,
)
from statestore.dsl.repartition import Regrouping
from statestore.dsl.stream_graph import Stage, TableWindows
from statestore.dsl.suppressed import EmitStrategy
from statestore.dsl.table_plans import KeptTable
from statestore.dsl.windowed_serdes import session_windowed_serde, time_windowed_serde
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import PartStore, StoreBuilder

Stream = TypeVar("Stream")
"""The class of streams."""


class _WindowedStream(ReducibleStream[Stream]):
    """Records by key and window of any kind."""

    def __init__(self, stage: Stage, strategy: EmitStrategy | None, regrouping: Regrouping | None) -> None:
        super().__init__(stage, regrouping)
        self._strategy = strategy or EmitStrategy.on_window_update()

    def _beside(self, kept: Materialized) -> Sequence[PartStore]:
        return (store_of_ends(str(kept.name), is_persistent=kept.is_persistent),) if self._strategy.is_final else ()

    def _windowed_table(
        self, node: str, kept: Materialized, serde: Serde[Any] | None, table: KeptTable, *, in_columns: bool
    ) -> KTable[Stream]:
        table.late_inputs = self._key_serde, self._value_serde
        return KTable(Stage(self._graph, node, serde, kept.value_serde, in_columns), table)


class TimeWindowedKStream(_WindowedStream[Stream], AggregableStream[Stream]):
    """Records by key and window of time, also a sliding one.

    Those without a key and those that come too late are left out, and counted; in sliding windows those without a value
    too.
    """

    def __init__(
        self,
        stage: Stage,
        windows: TimeWindows | SlidingWindows,
        strategy: EmitStrategy | None = None,
        regrouping: Regrouping | None = None,
    ) -> None:
        super().__init__(stage, strategy, regrouping)
        self._windows = windows
        # Kafka takes a number for nothing when it counts, but in sliding windows.
        self._count_takes_number = isinstance(windows, TimeWindows)

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[Stream]:
        """Return the stream with another strategy of when a window is put out."""
        return TimeWindowedKStream(self._stage, self._windows, strategy, self._regrouping)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        windows, size_ms = self._windows, self._size_ms
        # The earliest sliding window that a record makes another one of starts two time differences before it.
        lengths = 1 if isinstance(windows, TimeWindows) else 2
        # The last millisecond of a retention is lost: where windows are put out when they close, or have no length, it
        # matters, as who joins them looks for them then.
        more_ms = int(self._strategy.is_final or not size_ms)
        return kept.window_builder(size_ms, lengths * size_ms + windows.grace_ms, more_ms=more_ms)

    @property
    def _size_ms(self) -> int:
        windows = self._windows
        return windows.size_ms if isinstance(windows, TimeWindows) else windows.time_difference_ms

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        serde = None if kept.key_serde is None else time_windowed_serde(kept.key_serde, self._size_ms)
        table = KeptTable.of_windows(str(kept.name))
        return self._windowed_table(node, kept, serde, table, in_columns=in_columns)

    def _table_windows(self) -> TableWindows:
        return TableWindows.of_starts(self._windows.grace_ms)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        windows, is_final = self._windows, self._strategy.is_final
        if isinstance(windows, SlidingWindows):
            return partial(SlidingAggregating, WindowedPlan(plan, windows, is_final, table.late_child))
        asked = WindowedPlan(plan, windows, is_final, table.late_child)
        if columns is None:
            return partial(WindowedAggregating, asked)
        return partial(WindowedAggregatingColumns, asked, columns)

    def _can_take_columns(self) -> bool:
        return isinstance(self._windows, TimeWindows)


class SessionWindowedKStream(_WindowedStream[Stream]):
    """Records by key and session. Those without a key and those that come too late are left out, and counted."""

    def __init__(
        self,
        stage: Stage,
        windows: SessionWindows,
        strategy: EmitStrategy | None = None,
        regrouping: Regrouping | None = None,
    ) -> None:
        super().__init__(stage, strategy, regrouping)
        self._windows = windows

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[Stream]:
        """Return the stream with another strategy of when a session is put out."""
        return SessionWindowedKStream(self._stage, self._windows, strategy, self._regrouping)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what a function of key, value and aggregate makes, beginning with what `initializer` returns.

        `merger` is a function of key and two aggregates, and is asked at every record: it merges the initial value with
        each session that the record belongs to, earliest first. An aggregate of None is deleted.
        """
        aggregation = checked_aggregation(initializer, aggregator, merger)
        return self._aggregate(AGGREGATE, aggregation, materialized, headers, name)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        windows = self._windows
        gap_ms = windows.inactivity_gap_ms
        # As with sliding windows.
        return kept.session_builder(gap_ms + windows.grace_ms, more_ms=int(self._strategy.is_final or not gap_ms))

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        serde = None if kept.key_serde is None else session_windowed_serde(kept.key_serde)
        table = KeptTable.of_sessions(str(kept.name))
        return self._windowed_table(node, kept, serde, table, in_columns=in_columns)

    def _table_windows(self) -> TableWindows:
        return TableWindows.of_sessions(self._windows.grace_ms + self._windows.inactivity_gap_ms)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        asked = WindowedPlan(plan, self._windows, self._strategy.is_final, table.late_child)
        if columns is None:
            return partial(SessionAggregating, asked)
        return partial(SessionAggregatingColumns, asked, columns)


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
            return SessionWindowedKStream(self._stage, windows, regrouping=self._regrouping)
        if not isinstance(windows, (TimeWindows, SlidingWindows)):
            raise TypeError(f"windows must be TimeWindows, SlidingWindows or SessionWindows, not {windows!r}")
        return TimeWindowedKStream(self._stage, windows, regrouping=self._regrouping)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        return kept.key_value_builder()

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        plan = KeptTable.of_keys(str(kept.name), kept.history_retention_ms)
        return KTable(Stage(self._graph, node, kept.key_serde, kept.value_serde, in_columns), plan)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        return partial(Aggregating, plan) if columns is None else partial(AggregatingColumns, plan, columns)
