"""Streams to be aggregated by key, or by key and window.

Source: Kafka Streams' KGroupedStream, TimeWindowedKStream and SessionWindowedKStream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

from statestore.dsl.aggregates.aggregable_stream import (
    AGGREGATE,
    AggregableStream,
    ReducibleStream,
    checked_aggregation,
)
from statestore.dsl.aggregations import ColumnAggregation
from statestore.dsl.functions import Function, checked
from statestore.dsl.header_policy import HeaderPolicy, PolicyLike
from statestore.dsl.joins.stream_joins import require_joinable, require_kind
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan, Aggregating
from statestore.dsl.processors.aggregating_columns import AggregatingColumns
from statestore.dsl.processors.changes_out import ChangesPlan, HoldingBack, HoldingBackColumns
from statestore.dsl.processors.stateless import PassThrough, PassThroughColumns
from statestore.dsl.processors.table_views import SessionView, WindowView
from statestore.dsl.processors.windows.final_windows import store_of_ends
from statestore.dsl.processors.windows.session_aggregating import SessionAggregating, SessionAggregatingColumns
from statestore.dsl.processors.windows.sliding_aggregating import SlidingAggregating
from statestore.dsl.processors.windows.windowed_aggregating import (
    WindowedAggregating,
    WindowedAggregatingColumns,
    WindowedPlan,
)
from statestore.dsl.repartition import Regrouping
from statestore.dsl.stream_graph import GraphNode, Stage, TableWindows
from statestore.dsl.suppressed import EmitStrategy
from statestore.dsl.table_plans import KeptTable
from statestore.dsl.windowed_serdes import session_windowed_serde, time_windowed_serde
from statestore.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from statestore.errors import TopologyError
from statestore.format.serde import Serde
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import PartStore, StoreBuilder

Stream = TypeVar("Stream")
"""The class of streams."""

Windows: TypeAlias = "TimeWindows | SlidingWindows | SessionWindows"

_COGROUP: Final = "COGROUPKSTREAM-AGGREGATE-"


class _WindowedStream(ReducibleStream[Stream]):
    """Records by key and window, of any kind."""

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
    """Records by key and window of time, which may slide.

    Records without a key and late ones are dropped and counted; in sliding windows also those without a value.
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
        # Kafka's count() takes a number that it does not use, except in sliding windows.
        self._count_takes_number = isinstance(windows, TimeWindows)

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[Stream]:
        """Return the stream with another strategy of when a window is emitted."""
        return TimeWindowedKStream(self._stage, self._windows, strategy, self._regrouping)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        windows, size_ms = self._windows, self._size_ms
        # A record reads sliding windows that start up to two time differences before it.
        lengths = 1 if isinstance(windows, TimeWindows) else 2
        # A store loses the last millisecond of its retention. Windows that are read when they close, and windows
        # without a length, still need it.
        more_ms = int(self._strategy.is_final or not size_ms)
        return kept.window_builder(size_ms, lengths * size_ms + windows.grace_ms, more_ms=more_ms)

    @property
    def _size_ms(self) -> int:
        windows = self._windows
        return windows.size_ms if isinstance(windows, TimeWindows) else windows.time_difference_ms

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        serde = None if kept.key_serde is None else time_windowed_serde(kept.key_serde, self._size_ms)
        table = KeptTable(WindowView((str(kept.name),)))
        return self._windowed_table(node, kept, serde, table, in_columns=in_columns)

    def _table_windows(self) -> TableWindows:
        return TableWindows(self._windows.grace_ms, are_sessions=False)

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
        """Return the stream with another strategy of when a session is emitted."""
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
        """Return what a function of key, value and aggregate returns; the first aggregate is that of `initializer`.

        `merger`, a function of key and two aggregates, is called at every record: it merges the initial value with each
        session that the record belongs to, earliest first. An aggregate of None is deleted.
        """
        checked("aggregate()", merger, "key", "aggregate", "other aggregate")
        aggregation = checked_aggregation(initializer, aggregator, merger)
        return self._aggregate(AGGREGATE, aggregation, materialized, headers, name)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        windows = self._windows
        gap_ms = windows.inactivity_gap_ms
        # As with sliding windows.
        return kept.session_builder(gap_ms + windows.grace_ms, more_ms=int(self._strategy.is_final or not gap_ms))

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        serde = None if kept.key_serde is None else session_windowed_serde(kept.key_serde)
        table = KeptTable(SessionView((str(kept.name),)))
        return self._windowed_table(node, kept, serde, table, in_columns=in_columns)

    def _table_windows(self) -> TableWindows:
        return TableWindows(self._windows.grace_ms + self._windows.inactivity_gap_ms, are_sessions=True)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        asked = WindowedPlan(plan, self._windows, self._strategy.is_final, table.late_child)
        if columns is None:
            return partial(SessionAggregating, asked)
        return partial(SessionAggregatingColumns, asked, columns)


class KGroupedStream(AggregableStream[Stream]):
    """Records by key. Those without a key or a value are dropped and counted."""

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedKStream[Stream]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[Stream]: ...

    @overload
    def windowed_by(self, windows: Windows) -> TimeWindowedKStream[Stream] | SessionWindowedKStream[Stream]: ...

    def windowed_by(self, windows: Windows) -> TimeWindowedKStream[Stream] | SessionWindowedKStream[Stream]:
        """Return the stream by key and window. Raises TypeError for windows of another kind."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._stage, windows, regrouping=self._regrouping)
        if not isinstance(windows, (TimeWindows, SlidingWindows)):
            raise TypeError(f"windows must be TimeWindows, SlidingWindows or SessionWindows, not {windows!r}")
        return TimeWindowedKStream(self._stage, windows, regrouping=self._regrouping)

    def cogroup(self, aggregator: Callable[[Any, Any, Any], Any]) -> CogroupedKStream[Stream]:
        """Return the stream, to be aggregated together with others by a function of key, value and aggregate."""
        nothing: CogroupedKStream[Stream] = CogroupedKStream((), None)
        return nothing.cogroup(self, aggregator)

    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        return kept.key_value_builder()

    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        plan = KeptTable.of_keys(str(kept.name), kept.history_retention_ms)
        return KTable(Stage(self._graph, node, kept.key_serde, kept.value_serde, in_columns), plan)

    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        return partial(Aggregating, plan) if columns is None else partial(AggregatingColumns, plan, columns)


class CogroupedKStream(Generic[Stream]):
    """Several streams by key that share one aggregate, each with its own function; optionally by window.

    Each method returns another one. Records are dropped as in an aggregate of their stream alone.
    """

    def __init__(self, inputs: tuple[tuple[KGroupedStream[Stream], Function], ...], windows: Windows | None) -> None:
        self._inputs, self._windows = inputs, windows

    def cogroup(
        self, stream: KGroupedStream[Stream], aggregator: Callable[[Any, Any, Any], Any]
    ) -> CogroupedKStream[Stream]:
        """Return these streams and another one, whose records a function of key, value and aggregate adds.

        Raises TopologyError for a stream of another program, and if the key serdes are known and differ.
        """
        require_kind("stream", stream, KGroupedStream)
        checked("cogroup()", aggregator, "key", "value", "aggregate")
        for other, _ in self._inputs[:1]:
            require_joinable(other._stage, stream._stage)
        return CogroupedKStream((*self._inputs, (stream, aggregator)), self._windows)

    def windowed_by(self, windows: Windows) -> CogroupedKStream[Stream]:
        """Return the streams by key and window; each window is emitted at each change."""
        return CogroupedKStream(self._inputs, windows)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        merger: Callable[[Any, Any, Any], Any] | None = None,
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return the aggregate of the functions; the first is that of `initializer`. An aggregate of None is deleted.

        Sessions need a `merger`: see `SessionWindowedKStream.aggregate`. `headers` says how the headers of the
        aggregated records become one list, `materialized` where the table is kept; `name` begins its nodes' names.
        Raises TopologyError if sessions have no merger, and if a merger has no sessions.
        """
        if (merger is not None) is not isinstance(self._windows, SessionWindows):
            raise TopologyError(
                "aggregate() of several streams needs a merger if windowed by sessions, and takes none otherwise"
            )
        streams = [each if self._windows is None else each.windowed_by(self._windows) for each, _ in self._inputs]
        first, policy = streams[0], HeaderPolicy.of(headers)
        graph, asked = first._graph, Materialized.of(materialized).or_serdes(first._key_serde, None)
        kept = asked.or_name(lambda: graph.new_store_name(_COGROUP))
        stages = [each._divided(kept) for each in streams]
        aggregations = [checked_aggregation(initializer, aggregator, merger) for _, aggregator in self._inputs]
        nodes = [graph.new_name(_COGROUP, name and f"{name}-cogroup-agg-{number}") for number, _ in enumerate(streams)]
        merge = graph.new_name("COGROUPKSTREAM-MERGE-", name and f"{name}-cogroup-merge")
        columns = [
            stream._column_aggregation(added, kept, in_columns=stage.in_columns and self._windows is None)
            for stream, stage, added in zip(streams, stages, aggregations, strict=True)
        ]
        in_columns = None not in columns
        table = first._table(merge, kept, in_columns=in_columns)
        plan = table._plan
        assert isinstance(plan, KeptTable)  # an aggregate has a store in any case
        plan.late_inputs = None  # the streams may have different values

        def supplier(number: int) -> ProcessorSupplier:
            held, builder = kept.holds_back, first._builder(kept)
            changes = ChangesPlan(plan.sends_old or held, held, held_below=held)
            aggregation = aggregations[number].as_read(kept.value_serde)
            made = AggregatePlan(builder.name, builder.key_serde, aggregation, policy, changes, nodes[number])
            return streams[number]._either_way(nodes[number], made, columns[number], plan)

        for number, (node, stage) in enumerate(zip(nodes, stages, strict=True)):
            added = GraphNode(node, (stage.node,), partial(supplier, number), windows=first._table_windows())
            if number:
                added.reads = lambda: (str(kept.name),)
            else:
                added.stores = lambda: (first._builder(kept),)
            graph.add(added)
        graph.add(GraphNode(merge, tuple(nodes), partial(_merging, first, merge, kept, plan, in_columns=in_columns)))
        return table


def _merging(
    stream: ReducibleStream[Any], node: str, kept: Materialized, table: KeptTable, *, in_columns: bool
) -> ProcessorSupplier:
    """Return what makes the node where the changes of several streams meet: with caching, it holds them back."""
    ways: tuple[ProcessorSupplier, ...] = PassThrough, PassThroughColumns
    if kept.holds_back:
        held = ChangesPlan(table.sends_old, is_cached=True), stream._builder(kept).key_serde
        has_windows = stream._table_windows() is not None
        ways = tuple(partial(each, *held, has_windows=has_windows) for each in (HoldingBack, HoldingBackColumns))
    return stream._graph.either_way(node, ways[0], ways[1] if in_columns else None)()
