"""The nodes, stores and topics of a join by a foreign key, with Kafka's names. Source: KTableImpl.doJoinOnForeignKey.

Subscriptions go from the left table to the right one through a repartition topic, and responses come back through
another. Kafka's last step reads the left table's store; behind the topics, that is a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.join_serdes import SUBSCRIPTIONS, response_serde
from statestore.dsl.joins.stream_joins import JoinKind, require_one_program
from statestore.dsl.joins.table_joins import TableSide
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.joins.foreign_key_joining import (
    ForeignKeyJoin,
    ForeignTableJoining,
    ResponseJoining,
    SubscriptionJoining,
    SubscriptionReceiving,
    SubscriptionSending,
)
from statestore.dsl.processors.joins.joining import Joiner
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.tables import CopiedTable
from statestore.dsl.repartition import serdes_of_topic
from statestore.dsl.stream_graph import GraphNode, StreamGraph
from statestore.dsl.table_plans import SourceTable
from statestore.format.keys.entry_key import MAP_KEYS
from statestore.format.serde import Serdes
from statestore.processor.processor import ProcessorSupplier

_FK_JOIN: Final = "KTABLE-FK-JOIN-"
_REGISTRATION: Final = f"{_FK_JOIN}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR: Final = f"{_FK_JOIN}SUBSCRIPTION-PROCESSOR-"
_RESPONSE: Final = f"{_FK_JOIN}SUBSCRIPTION-RESPONSE-"
_OUTPUT: Final = f"{_FK_JOIN}OUTPUT-"


class _Names:
    """The names of a join's parts, which all take a number, in Kafka's order."""

    def __init__(self, graph: StreamGraph, name: str | None) -> None:
        self._graph, self._name = graph, name
        self.subscriptions = f"{self._new(_REGISTRATION, 'subscription-registration')}-topic"
        self.sending = self._new(_REGISTRATION, "subscription-registration-processor")
        self.subscription_sink = self._new("KTABLE-SINK-", "subscription-registration-sink")
        self.subscription_source = self._new("KTABLE-SOURCE-", "subscription-registration-source")
        self.store = self._new(f"{_FK_JOIN}SUBSCRIPTION-STATE-STORE-", "subscription-store")
        self.receiving = self._new(_PROCESSOR, "subscription-receive")
        self.joining = self._new(_PROCESSOR, "subscription-join-foreign")
        self.foreign_joining = self._new(_PROCESSOR, "foreign-join-subscription")
        self.responses = f"{self._new(_RESPONSE, 'subscription-response')}-topic"
        self.response_sink = self._new("KTABLE-SINK-", "subscription-response-sink")
        self.response_source = self._new("KTABLE-SOURCE-", "subscription-response-source")
        self.resolving = self._new(
            f"{_FK_JOIN}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "subscription-response-resolver"
        )
        self.result = self._new(_OUTPUT, "result")

    def _new(self, prefix: str, suffix: str) -> str:
        return self._graph.new_name(prefix, None if self._name is None else f"{self._name}-{suffix}")


def add_foreign_key_join(
    left: TableSide,
    right: TableSide,
    foreign_key: Callable[[Any, Any], Any],
    kind: JoinKind,
    joiner: Joiner,
    materialized: Materialized,
    policy: HeaderPolicy,
    name: str | None,
) -> tuple[str, SourceTable]:
    """Add the join of two tables by a foreign key, and return its last node and the table that it makes.

    Raises TopologyError if a serde of a side is unknown, or if the sides belong to two programs.
    """
    require_one_program(left.stage, right.stage)
    graph = left.stage.graph
    right.plan.send_old_values(even_unkept=True)
    left.plan.send_old_values(even_unkept=True)
    names = _Names(graph, name)
    kept = materialized.or_name(lambda: graph.new_store_name(_OUTPUT))
    keys, values = serdes_of_topic(left.stage, names.responses)
    foreign_keys, foreign_values = serdes_of_topic(right.stage, names.subscriptions)
    subscribers = Materialized(names.store, Serdes.bytes(), SUBSCRIPTIONS, kept.is_persistent).key_value_builder()
    left_view, right_view = left.plan.view(), right.plan.view()

    own, foreign = (left.stage.node,), (right.stage.node,)

    def add(
        name: str, parents: tuple[str, ...], processor: type[Planned[ForeignKeyJoin]], keys_of: tuple[str, ...]
    ) -> GraphNode:
        """Add a processor that sends on keys of one side; what it makes of them is known when the topology is built."""

        def supplier() -> ProcessorSupplier:
            versioned = left.plan.is_versioned, right.plan.is_versioned
            functions = foreign_key, joiner, policy, kind.keeps_left
            join = ForeignKeyJoin(
                *functions, keys, values, foreign_keys, names.store, left_view, right_view, *versioned
            )
            return partial(processor, join)

        node = GraphNode(name, parents, supplier, keys_of=keys_of)
        graph.add(node)
        return node

    def copies() -> dict[str, ProcessorSupplier]:
        return {store: partial(CopiedTable, store) for store in left_view.stores}

    topic = names.subscriptions, names.subscription_sink, names.subscription_source
    add(names.sending, own, SubscriptionSending, foreign)
    graph.add_repartition(*topic, names.sending, key_serde=foreign_keys, value_serde=SUBSCRIPTIONS)
    receiving = add(names.receiving, (names.subscription_source,), SubscriptionReceiving, foreign)
    add(names.joining, (names.receiving,), SubscriptionJoining, own).reads = lambda: right_view.stores
    foreign_joining = add(names.foreign_joining, foreign, ForeignTableJoining, own)
    for node in (receiving, foreign_joining):
        node.stores = lambda: (subscribers,)
        node.entry_keys = {names.store: MAP_KEYS}
    topic = names.responses, names.response_sink, names.response_source
    responses = response_serde(foreign_values)
    graph.add_repartition(*topic, names.joining, names.foreign_joining, key_serde=keys, value_serde=responses)
    add(names.resolving, (names.response_source,), ResponseJoining, own).copies = copies
    plan = SourceTable(kept, is_kept=materialized.name is not None)
    graph.add(GraphNode(names.result, (names.resolving,), plan.supplier, plan.stores))
    return names.result, plan
