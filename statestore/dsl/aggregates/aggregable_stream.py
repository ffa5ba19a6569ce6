"""What all streams that can be aggregated have in common, whatever they are aggregated by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from statestore.dsl.aggregates.aggregate import Aggregate
from statestore.dsl.aggregates.several_aggregates import SeveralAggregates
from statestore.dsl.aggregations import (
    Aggregation,
    ColumnAggregation,
    averaging,
    collecting,
    counting,
    earliest,
    greatest,
    latest,
    least,
    mean_of,
    ranking,
    reducing,
    summing,
)
from statestore.dsl.functions import Function, checked
from statestore.dsl.header_policy import HeaderPolicy, PolicyLike
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.aggregating import AggregatePlan
from statestore.dsl.processors.changes_out import ChangesPlan
from statestore.dsl.repartition import Regrouping
from statestore.dsl.row_serde import is_json
from statestore.dsl.stream_graph import GraphNode, Stage, Staged, TableWindows
from statestore.dsl.table_plans import KeptTable
from statestore.format.serde import Serdes
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import PartStore, StoreBuilder

Stream = TypeVar("Stream")
"""The class of streams."""

AGGREGATE: Final = "KSTREAM-AGGREGATE-"
_REDUCE: Final = "KSTREAM-REDUCE-"


class ReducibleStream(Staged, ABC, Generic[Stream]):
    """Records to be aggregated, by what needs no more to be known than the values.

    Of every method: `headers` says what becomes of the headers of the records that are aggregated, `materialized` where
    the table is kept, `name` is that of its node.
    """

    _count_takes_number = True

    def __init__(self, stage: Stage, regrouping: Regrouping | None = None) -> None:
        super().__init__(stage)
        self._regrouping = regrouping
        """How records are divided before; None if they are as they should be."""

    def count(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return how many records there were."""
        if self._count_takes_number and materialized is not None and Materialized.of(materialized).name is None:
            self._graph.new_store_name(AGGREGATE)  # Kafka takes a number for nothing here
        return self._aggregate(AGGREGATE, counting(), materialized, headers, name)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what a function makes of the value so far and the next one; the first one is the value itself."""
        checked("reduce()", reducer, "old value", "new value")
        return self._aggregate(_REDUCE, reducing(reducer, self._value_serde), materialized, headers, name)

    def sum(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the sum of the values, which are numbers."""
        return self._aggregate(_REDUCE, summing(self._value_serde), materialized, headers, name)

    def min(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the least of the values; NaN does not count."""
        return self._aggregate(_REDUCE, least(self._value_serde), materialized, headers, name)

    def max(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the greatest of the values; NaN does not count."""
        return self._aggregate(_REDUCE, greatest(self._value_serde), materialized, headers, name)

    def first(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the value that came first."""
        return self._aggregate(_REDUCE, earliest(self._value_serde), materialized, headers, name)

    def last(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the value that came last."""
        return self._aggregate(_REDUCE, latest(self._value_serde), materialized, headers, name)

    def collect(
        self,
        limit: int,
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return a list of the first `limit` values, in JSON unless said otherwise. Raises ValueError below 1."""
        return self._aggregate(AGGREGATE, collecting(limit), materialized, headers, name)

    def top(
        self,
        limit: int,
        *,
        by: Callable[[Any], Any] | None = None,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return a list of the `limit` greatest values, greatest first, in JSON unless said otherwise.

        They are compared by what `by` makes of them; of equal ones, the earlier stands first. Raises ValueError for
        a limit below 1.
        """
        return self._aggregate(AGGREGATE, ranking(limit, by), materialized, headers, name)

    def mean(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the mean of the values, as a float; what is kept is their sum and number, in JSON."""
        sums = self._aggregate(AGGREGATE, averaging(), materialized, headers, name)
        return sums.map_values(mean_of, value_serde=Serdes.double())

    def agg(
        self,
        aggregates: Mapping[str, Aggregate],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return several aggregates of a record's columns at once: a dict of them by the names that they are given.

        Values are dicts, or what functions make columns of: see Aggregate. What is kept is a dict too, in JSON, of what
        each aggregate keeps. Raises AggregatesError with all that is wrong, as far as columns and types are known.
        """
        several = SeveralAggregates.of(aggregates, self._value_serde)
        if materialized is not None and is_json(materialized.value_serde):
            materialized = materialized.with_value_serde(several.kept_serde)
        table = self._aggregate(AGGREGATE, several.aggregation, materialized, headers, name)
        return table.map_values(several.finished, value_serde=several.made_serde) if several.is_finished else table

    @abstractmethod
    def _builder(self, kept: Materialized) -> StoreBuilder[Any]:
        """Return the builder of the aggregates' store."""

    @abstractmethod
    def _table(self, node: str, kept: Materialized, *, in_columns: bool) -> KTable[Stream]:
        """Return the table of the aggregates."""

    def _beside(self, kept: Materialized) -> Sequence[PartStore]:
        """Return the stores that Kafka does not have beside that of the aggregates."""
        return ()

    def _table_windows(self) -> TableWindows | None:
        """Return what the windows of the table's keys are; None if keys have none."""
        return None

    @abstractmethod
    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        """Return what makes the processor; `columns` is what aggregates, if records come in columns."""

    def _can_take_columns(self) -> bool:
        """Return whether the processor takes columns, if records come in columns."""
        return True

    def _aggregate(
        self,
        prefix: str,
        aggregation: Aggregation,
        materialized: Materialized | None,
        headers: PolicyLike,
        name: str | None,
    ) -> KTable[Stream]:
        graph, policy = self._graph, HeaderPolicy.of(headers)
        asked = Materialized.of(materialized).or_serdes(self._key_serde, aggregation.value_serde)
        kept = asked.or_name(lambda: graph.new_store_name(prefix))
        node = graph.new_name(prefix, name)
        stage = self._divided(kept)
        columns = self._column_aggregation(aggregation, kept, in_columns=stage.in_columns)
        table = self._table(node, kept, in_columns=columns is not None)
        plan = table._plan
        assert isinstance(plan, KeptTable)  # an aggregate has a store in any case

        def supplier() -> ProcessorSupplier:
            changes = ChangesPlan(plan.sends_old, kept.is_cached, plan.children_of_changes(graph.children(node)))
            builder = self._builder(kept)
            made = AggregatePlan(builder.name, builder.key_serde, aggregation, policy, changes)
            return self._supplier(made, None if graph.goes_by_record(node) else columns, plan)

        graph.add(
            GraphNode(
                node,
                (stage.node,),
                supplier,
                lambda: (self._builder(kept),),
                beside=lambda: self._beside(kept),
                windows=self._table_windows(),
            )
        )
        return table

    def _divided(self, kept: Materialized) -> Stage:
        return self._stage if self._regrouping is None else self._regrouping.divided(self._stage, str(kept.name))

    def _column_aggregation(
        self, aggregation: Aggregation, kept: Materialized, *, in_columns: bool
    ) -> ColumnAggregation | None:
        keys, values, aggregates = kept.key_serde, self._value_serde, kept.value_serde
        takes_columns = in_columns and self._can_take_columns() and not kept.is_versioned
        if not takes_columns or keys is None or keys.columns is None:
            return None
        return None if values is None or aggregates is None else aggregation.in_columns(values, aggregates)


class AggregableStream(ReducibleStream[Stream]):
    """Records to be aggregated, whose aggregates never become one."""

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what a function of key, value and aggregate makes, beginning with what `initializer` returns.

        An aggregate of None is deleted.
        """
        aggregation = checked_aggregation(initializer, aggregator)
        return self._aggregate(AGGREGATE, aggregation, materialized, headers, name)


def checked_aggregation(initializer: Function, aggregator: Function, merger: Function | None = None) -> Aggregation:
    """Return what is kept by users' functions. Raises TopologyError for those that do not take what there is."""
    checked("aggregate()", initializer)
    checked("aggregate()", aggregator, "key", "value", "aggregate")
    if merger is not None:
        checked("aggregate()", merger, "key", "aggregate", "other aggregate")
    return Aggregation(initializer, aggregator, merger=merger)
