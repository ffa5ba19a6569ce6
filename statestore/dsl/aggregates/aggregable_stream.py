"""What all streams that can be aggregated share."""

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
    """Records to be aggregated, with the aggregates that all of them have.

    In every method, `headers` says how the headers of the aggregated records become one list, `materialized` where the
    table is kept, and `name` names its node.
    """

    _count_takes_number = True

    def __init__(self, stage: Stage, regrouping: Regrouping | None = None) -> None:
        super().__init__(stage)
        self._regrouping = regrouping
        """How records are repartitioned first; None if they need not be."""

    def count(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return how many records there were."""
        if self._count_takes_number and materialized is not None and Materialized.of(materialized).name is None:
            self._graph.new_store_name(AGGREGATE)  # Kafka takes a number here and does not use it
        return self._aggregate(AGGREGATE, counting(), materialized, headers, name)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what a function returns for the value so far and the next one; the first is taken as it is."""
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
        """Return a list of the first `limit` values, stored as JSON by default. Raises ValueError below 1."""
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
        """Return a list of the `limit` greatest values, greatest first, stored as JSON by default.

        They are compared by what `by` returns for them; of equal ones, the earlier comes first. Raises ValueError for
        a limit below 1.
        """
        return self._aggregate(AGGREGATE, ranking(limit, by), materialized, headers, name)

    def mean(
        self, *, materialized: Materialized | None = None, headers: PolicyLike = "latest", name: str | None = None
    ) -> KTable[Stream]:
        """Return the mean of the values, as a float; their sum and number are stored, as JSON."""
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
        """Return several aggregates at once: a dict with the same names as `aggregates`.

        Each is of a column, if values are dicts, or of what a function returns for the value: see Aggregate. What each
        keeps is stored in one dict, as JSON. Raises AggregatesError with all problems, as far as types are known.
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
        """Return the stores beside that of the aggregates, which Kafka does not have."""
        return ()

    def _table_windows(self) -> TableWindows | None:
        """Return what windows the table's keys have; None if none."""
        return None

    @abstractmethod
    def _supplier(self, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable) -> ProcessorSupplier:
        """Return what makes the processor; `columns` aggregates if records come in columns, else it is None."""

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
            changes = ChangesPlan(plan.sends_old, kept.holds_back, plan.children_of_changes(graph.children(node)))
            builder = self._builder(kept)
            made = AggregatePlan(
                builder.name, builder.key_serde, aggregation.as_read(kept.value_serde), policy, changes
            )
            return self._either_way(node, made, columns, plan)

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

    def _either_way(
        self, node: str, plan: AggregatePlan, columns: ColumnAggregation | None, table: KeptTable
    ) -> ProcessorSupplier:
        in_columns = None if columns is None else self._supplier(plan, columns, table)
        return self._graph.either_way(node, self._supplier(plan, None, table), in_columns)()

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
    """Records to be aggregated, whose aggregates are never merged."""

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "latest",
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what a function of key, value and aggregate returns; the first aggregate is that of `initializer`.

        An aggregate of None is deleted.
        """
        aggregation = checked_aggregation(initializer, aggregator)
        return self._aggregate(AGGREGATE, aggregation, materialized, headers, name)


def checked_aggregation(initializer: Function, aggregator: Function, merger: Function | None = None) -> Aggregation:
    """Return an aggregation of users' functions. Raises TopologyError unless they take the right arguments."""
    checked("aggregate()", initializer)
    checked("aggregate()", aggregator, "key", "value", "aggregate")
    if merger is not None:
        checked("aggregate()", merger, "key", "aggregate", "other aggregate")
    return Aggregation(initializer, aggregator, merger=merger, is_users=True)
