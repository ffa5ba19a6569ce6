"""The nodes and stores of a join of two tables, with Kafka's names. Source: Kafka's KTableImpl.doJoin."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.joins.stream_joins import JoinKind, require_joinable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.joins.joining import Joiner
from statestore.dsl.processors.joins.table_table_joining import (
    JoinedView,
    MergingTable,
    TableJoin,
    TableSideJoining,
    TableSidePlan,
)
from statestore.dsl.processors.table_views import TableView
from statestore.dsl.processors.tables import TableProcessorPlan
from statestore.dsl.stream_graph import GraphNode, Stage
from statestore.dsl.table_plans import KeyedTable, TablePlan
from statestore.processor.processor import ProcessorSupplier

_MERGE = "KTABLE-MERGE-"


class TableSide(NamedTuple):
    """A table that is joined with another one."""

    stage: Stage
    plan: TablePlan


class JoinedTable(KeyedTable):
    """The table of a join: of each key, what the joiner makes of both tables' values."""

    def __init__(self, left: TablePlan, right: TablePlan, join: TableJoin, materialized: Materialized | None) -> None:
        super().__init__(Materialized.of(materialized), is_kept=materialized is not None)
        self._left, self._right, self._join = left, right, join
        self._views = left.view(), right.view()

    def supplier(self) -> ProcessorSupplier:
        """Return what makes the processor to which both sides send."""
        return partial(MergingTable, TableProcessorPlan(self._store(), self._changes()))

    def side_supplier(self, *, is_left: bool) -> ProcessorSupplier:
        """Return what makes the processor of one side."""
        left_view, right_view = self._views
        this, other = (self._left, right_view) if is_left else (self._right, left_view)
        plan = TableSidePlan(self._join, is_left, other, self.sends_old, this.is_versioned)
        return partial(TableSideJoining, plan)

    def view(self) -> TableView:
        """Return what reads its store, or both tables."""
        if self.is_kept:
            return self._store_view()
        left, right = self._views
        return JoinedView(tuple(dict.fromkeys((*left.stores, *right.stores))), self._join, left, right)

    def _can_send_old(self, *, even_unkept: bool) -> bool:
        return self._left.send_old_values(even_unkept=True) and self._right.send_old_values(even_unkept=True)


def add_table_table_join(
    left: TableSide,
    right: TableSide,
    kind: JoinKind,
    joiner: Joiner,
    materialized: Materialized | None,
    policy: HeaderPolicy,
    name: str | None,
) -> tuple[str, JoinedTable]:
    """Add the join of two tables, and return its last node and the table that it makes."""
    require_joinable(left.stage, right.stage)
    graph = left.stage.graph
    kept = None if materialized is None else materialized.or_name(lambda: graph.new_store_name(_MERGE))
    merge = graph.new_name(_MERGE, name)
    if kind.keeps_left:
        left.plan.send_old_values(even_unkept=True)
    if kind.keeps_right:
        right.plan.send_old_values(even_unkept=True)
    join_left = graph.new_name("KTABLE-JOINTHIS-", None if name is None else f"{name}-join-this")
    join_right = graph.new_name("KTABLE-JOINOTHER-", None if name is None else f"{name}-join-other")
    join = TableJoin(joiner, policy, needs_left=not kind.keeps_right, needs_right=not kind.keeps_left)
    plan = JoinedTable(left.plan, right.plan, join, kept)
    left_view, right_view = left.plan.view(), right.plan.view()

    def of_left() -> ProcessorSupplier:
        return plan.side_supplier(is_left=True)

    def of_right() -> ProcessorSupplier:
        return plan.side_supplier(is_left=False)

    graph.add(GraphNode(join_left, (left.stage.node,), of_left, reads=lambda: right_view.stores))
    graph.add(GraphNode(join_right, (right.stage.node,), of_right, reads=lambda: left_view.stores))
    graph.add(GraphNode(merge, (join_left, join_right), plan.supplier, plan.stores))
    return merge, plan
