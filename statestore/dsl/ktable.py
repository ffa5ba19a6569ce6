"""KTable: the latest value of each key; GlobalKTable: the same, all of it in every shard. Source: Kafka Streams'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from statestore.dsl.functions import checked, of_key_and, of_key_and_value
from statestore.dsl.grouped_table import KGroupedTable
from statestore.dsl.header_policy import HeaderPolicy, PolicyLike
from statestore.dsl.joins.foreign_key_joins import add_foreign_key_join
from statestore.dsl.joins.stream_joins import JoinKind, require_kind
from statestore.dsl.joins.table_joins import TableSide, add_table_table_join
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.joins.joining import Joiner
from statestore.dsl.processors.regrouping import RegroupingPlan, RegroupingTable
from statestore.dsl.processors.stateless import NewValue, NewValueColumns, PassThrough, PassThroughColumns
from statestore.dsl.processors.suppressing import SuppressPlan
from statestore.dsl.processors.suppressing_columns import SuppressingColumns
from statestore.dsl.processors.suppression_buffer import BufferPlan
from statestore.dsl.processors.table_views import TableView
from statestore.dsl.processors.tables import ComputingTable, ComputingTableColumns
from statestore.dsl.stream_graph import GraphNode, Stage, Staged
from statestore.dsl.suppressed import Suppressed
from statestore.dsl.table_plans import ComputedTable, KeptTable, KeyedTable, SuppressedTable, TablePlan
from statestore.errors import TopologyError
from statestore.format.keys.due_key import TIMER_KEYS
from statestore.format.keys.entry_key import VALUE_KEYS
from statestore.format.serde import Serde, as_read
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import PartStore

Stream = TypeVar("Stream")
"""The class of streams: streams make tables and tables make streams, so one can't import the other."""

_SUPPRESS = "KTABLE-SUPPRESS-"
_FILTER = "KTABLE-FILTER-"


class KTable(Staged, Generic[Stream]):
    """The latest value of each key, and its changes; each method returns another table, or a stream.

    Each value has the timestamp and the headers that it was stored with. `name` names a step's node.
    """

    def __init__(self, stage: Stage, plan: TablePlan, *, computed_of: KTable[Stream] | None = None) -> None:
        super().__init__(stage)
        self._plan = plan
        self._computed_of = computed_of

    def filter(
        self,
        predicate: Callable[[Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return the keys for which a predicate of key and value is true; for the others, deletions go on."""
        kept = partial(_kept, of_key_and_value("filter()", predicate), True)
        return self._computed(_FILTER, name, kept, materialized, self._value_serde, is_filter=True)

    def filter_not(
        self,
        predicate: Callable[[Any, Any], Any],
        *,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return the keys for which a predicate of key and value is false; for the others, deletions go on."""
        kept = partial(_kept, of_key_and_value("filter_not()", predicate), False)
        return self._computed(_FILTER, name, kept, materialized, self._value_serde, is_filter=True)

    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        value_serde: Serde[Any] | None = None,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return the table with new values, a function of the value or of key and value; None deletes the key."""
        function = of_key_and("map_values()", mapper, "value")
        return self._computed("KTABLE-MAPVALUES-", name, function, materialized, value_serde, is_filter=False)

    def suppress(self, suppressed: Suppressed) -> KTable[Stream]:
        """Return the table with its changes held back: of several changes of a key, only the last one goes on.

        It goes on with its own timestamp and headers. What is held back is on disk and takes no memory.

        Raises TopologyError for `until_window_closes` if the keys have no windows, and if the serde of keys or values
        is unknown.
        """
        require_kind("suppressed", suppressed, Suppressed)
        graph = self._graph
        windows = graph.windows_of(self._node)
        if suppressed.limit_ms is None and not windows:
            raise TopologyError(
                f"suppress() of {self._node!r} can't wait until windows close: its keys have no windows. Give it "
                "Suppressed.until_time_limit(...), or aggregate by windows first"
            )
        # Kafka takes no number for a name that is given.
        node = suppressed.name or graph.new_name(_SUPPRESS)
        store = graph.new_store_name(_SUPPRESS) if suppressed.name is None else f"{node}-store"
        if self._key_serde is None or self._value_serde is None:
            what = "keys" if self._key_serde is None else "values"
            raise TopologyError(
                f"suppress() of {self._node!r}: the serde of its {what} is unknown. Give one to an earlier step"
            )
        buffer = BufferPlan(store, self._key_serde, self._value_serde)
        wait_ms = windows[0].grace_ms if suppressed.limit_ms is None else suppressed.limit_ms
        held_back = SuppressPlan(buffer, suppressed.buffer, wait_ms, suppressed.limit_ms is None)
        plan = SuppressedTable(self._plan, held_back)
        in_columns = self._in_columns and self._computed_of is None and held_back.takes_columns
        columns = partial(SuppressingColumns, held_back) if in_columns else None
        graph.add(
            GraphNode(
                node,
                (self._node,),
                lambda: graph.either_way(node, plan.supplier(), columns)(),
                plan.stores,
                beside=lambda: (PartStore(buffer.builders()[1], TIMER_KEYS),),
                entry_keys={store: VALUE_KEYS},
            )
        )
        return KTable(Stage(graph, node, self._key_serde, self._value_serde, in_columns), plan)

    def group_by(
        self,
        selector: Callable[[Any, Any], tuple[Any, Any] | None],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[KTable[Stream]]:
        """Return the table by other keys, to be aggregated: a function of key and value returns a new key and value.

        A value for which it returns None, or a pair with None in it, is left out. Serdes of None are unknown. With a
        `name`, all aggregates share one repartition topic of that name. Of a versioned table, only the latest versions
        count.
        """
        of_key_and_value("group_by()", selector)
        self._plan.send_old_values(even_unkept=True)
        node = self._graph.new_name("KTABLE-SELECT-", name)

        def supplier() -> ProcessorSupplier:
            return partial(RegroupingTable, RegroupingPlan(selector, key_serde, self._plan.is_versioned))

        self._graph.add(GraphNode(node, (self._node,), supplier, keys_of=()))
        return KGroupedTable(Stage(self._graph, node, key_serde, value_serde), KTable, name)

    def to_stream(
        self,
        mapper: Callable[[Any, Any], Any] | None = None,
        *,
        key_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> Stream:
        """Return the changes as a stream: each new value, and None for a deleted key.

        `mapper` makes new keys, whose serde is `key_serde`: see `KStream.select_key`.
        """
        stream: Any = self._stream("KTABLE-TOSTREAM-", name, NewValue, self._value_serde, in_columns=NewValueColumns)
        made: Stream = stream if mapper is None else stream.select_key(mapper, key_serde=key_serde)
        return made

    def changes(self, *, value_serde: Serde[Any] | None = None, name: str | None = None) -> Stream:
        """Return the changes as a stream of Change: the new value and the one before it. Kafka has no such step."""
        self._plan.send_old_values(even_unkept=True)
        return self._stream("KTABLE-CHANGES-", name, PassThrough, value_serde)

    def late_records(self, *, name: str | None = None) -> Stream:
        """Return, unchanged, the records that came too late for at least one window. Kafka has no such step.

        A second call returns the same stream and ignores `name`. Raises TopologyError unless the table is an aggregate
        by window, or computed from one by filter or map_values.
        """
        if self._computed_of is not None:
            return self._computed_of.late_records(name=name)
        plan = self._plan
        if not isinstance(plan, KeptTable) or plan.late_inputs is None:
            raise TopologyError(
                f"table {self._node!r} is not an aggregate by window, so it has no late records: call "
                "late_records() on the table that count(), sum() or another aggregate of windows returned"
            )
        if plan.late_child is None:
            keys_of = self._graph.parents(self._node)
            plan.late_child = self._step("KTABLE-LATE-RECORDS-", name, PassThrough, PassThroughColumns, keys_of=keys_of)
        stream: Stream = self._graph.make_stream(
            Stage(self._graph, plan.late_child, *plan.late_inputs, self._in_columns)
        )
        return stream

    def join(
        self,
        other: KTable[Stream],
        joiner: Joiner,
        *,
        foreign_key: Callable[..., Any] | None = None,
        materialized: Materialized | None = None,
        headers: PolicyLike = "merge_distinct",
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return, for each key that both tables have, what a function of both values returns.

        Each change of one side is joined with what the other one holds, at the later timestamp of both. Changes of a
        versioned table that come out of order are dropped and counted. `headers` says how the headers of both sides
        become one list (see JoinedHeaders); the default keeps every header of both. `value_serde` is that of the joined
        values.

        With `foreign_key`, a function of a value or of key and value, each key of this table is joined with that key
        of the other one; a value for which it returns None is dropped and counted. A change of the other table comes
        at its own timestamp. Source: KIP-213.

        Raises TopologyError if the two key serdes are known and differ; with `foreign_key`, if a serde is unknown.
        """
        return self._join(JoinKind.INNER, other, joiner, foreign_key, materialized, headers, value_serde, name)

    def left_join(
        self,
        other: KTable[Stream],
        joiner: Joiner,
        *,
        foreign_key: Callable[..., Any] | None = None,
        materialized: Materialized | None = None,
        headers: PolicyLike = "merge_distinct",
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what `join` does, and join the values of keys that only this table has with None.

        Values without a foreign key are joined with None, too.
        """
        return self._join(JoinKind.LEFT, other, joiner, foreign_key, materialized, headers, value_serde, name)

    def outer_join(
        self,
        other: KTable[Stream],
        joiner: Joiner,
        *,
        materialized: Materialized | None = None,
        headers: PolicyLike = "merge_distinct",
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[Stream]:
        """Return what `join` does, and join the values of keys that only one table has with None."""
        return self._join(JoinKind.OUTER, other, joiner, None, materialized, headers, value_serde, name)

    def _join(
        self,
        kind: JoinKind,
        other: KTable[Stream],
        joiner: Joiner,
        foreign_key: Callable[..., Any] | None,
        materialized: Materialized | None,
        headers: PolicyLike,
        value_serde: Serde[Any] | None,
        name: str | None,
    ) -> KTable[Stream]:
        require_kind("other", other, KTable)
        checked(f"{kind.value}()", joiner, "left value", "right value")
        sides = TableSide(self._stage, self._plan), TableSide(other._stage, other._plan)
        made, policy = Materialized.of(materialized).or_serdes(self._key_serde, value_serde), HeaderPolicy.of(headers)
        plan: KeyedTable
        if foreign_key is None:
            kept = None if materialized is None else made
            node, plan = add_table_table_join(*sides, kind, joiner, kept, policy, name)
        else:
            key_of = of_key_and("foreign_key", foreign_key, "value")
            node, plan = add_foreign_key_join(*sides, key_of, kind, joiner, made, policy, name)
        return KTable(Stage(self._graph, node, made.key_serde, made.value_serde), plan)

    def _stream(
        self,
        prefix: str,
        name: str | None,
        supplier: ProcessorSupplier,
        value_serde: Serde[Any] | None,
        *,
        in_columns: ProcessorSupplier | None = None,
    ) -> Stream:
        node = self._step(prefix, name, supplier, in_columns)
        takes_columns = self._in_columns and in_columns is not None
        stream: Stream = self._graph.make_stream(Stage(self._graph, node, self._key_serde, value_serde, takes_columns))
        return stream

    def _step(
        self,
        prefix: str,
        name: str | None,
        supplier: ProcessorSupplier,
        in_columns: ProcessorSupplier | None,
        *,
        keys_of: tuple[str, ...] | None = None,
    ) -> str:
        """Add a step below the table, and return its node; `in_columns` makes it if changes come in columns."""
        graph = self._graph
        node = graph.new_name(prefix, name)
        step = graph.either_way(node, supplier, in_columns if self._in_columns else None)
        graph.add(GraphNode(node, (self._node,), step, keys_of=keys_of))
        return node

    def _computed(
        self,
        prefix: str,
        name: str | None,
        function: Callable[[Any, Any], Any],
        materialized: Materialized | None,
        value_serde: Serde[Any] | None,
        *,
        is_filter: bool,
    ) -> KTable[Stream]:
        graph, asked = self._graph, Materialized.of(materialized).or_serdes(self._key_serde, value_serde)
        if materialized is not None and asked.name is None:
            graph.new_store_name(prefix)  # Kafka numbers a store that it then does not make
        kept = asked if asked.name is not None else None
        node = graph.new_name(prefix, name)
        values = asked.value_serde
        has_columns = self._in_columns and values is not None and values.columns is not None
        if not is_filter:
            function = partial(_made, values if has_columns else None, function)
        plan = ComputedTable(self._plan, function, kept, leaves_out_nothing=is_filter)
        # If old values are known, no deletion goes on for a key that never passed the filter.
        plan.sends_old = is_filter and self._plan.send_old_values(even_unkept=False)

        def supplier() -> ProcessorSupplier:
            computing, columns = plan.computing, None
            if has_columns and values is not None and computing.store is None:
                columns = partial(ComputingTableColumns, computing, values)
            return graph.either_way(node, partial(ComputingTable, computing), columns)()

        graph.add(GraphNode(node, (self._node,), supplier, plan.stores))
        in_columns = has_columns and kept is None
        return KTable(Stage(graph, node, self._key_serde, values, in_columns), plan, computed_of=self)


def _kept(predicate: Callable[[Any, Any], Any], wanted: bool, key: Any, value: Any) -> Any:
    """Return the value if the predicate returns `wanted` for it, else None."""
    return value if bool(predicate(key, value)) is wanted else None


def _made(values: Serde[Any] | None, function: Callable[[Any, Any], Any], key: Any, value: Any) -> Any:
    """Return what a function returns; with a serde, what that reads of what it writes of it, as in columns."""
    made = function(key, value)
    return made if values is None else as_read(values, made)


class GlobalKTable:
    """The latest value of each key of a topic, in every shard; streams join it by a key of their choice."""

    def __init__(self, stage: Stage, store: str, view: TableView) -> None:
        self.stage = stage
        """Its node, and how keys and values are written."""
        self.store = store
        """The name of its store, which every processor can read."""
        self.view = view
        """How streams read it."""
