"""KStream: a stream of records, each independent of the others. Source: Kafka Streams' KStream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from statestore.dsl.aggregates.grouped_stream import KGroupedStream
from statestore.dsl.branched_stream import BranchedKStream
from statestore.dsl.functions import Function, of_key_and, of_key_and_value
from statestore.dsl.header_policy import HeaderPolicy, PolicyLike
from statestore.dsl.joins.joined import Joined, StreamJoined
from statestore.dsl.joins.stream_joins import (
    JoinKind,
    JoinOptions,
    add_global_table_join,
    add_stream_join,
    add_table_join,
    require_kind,
)
from statestore.dsl.ktable import GlobalKTable, KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.deduplicating import (
    ColumnIdentity,
    Deduplicating,
    DeduplicatingColumns,
    DeduplicationPlan,
    Identity,
    OfColumns,
    OfFunction,
    OfHeader,
    OfKey,
)
from statestore.dsl.processors.fixed_key import FixedKeyProcessor
from statestore.dsl.processors.joins.joining import Joiner
from statestore.dsl.processors.stateless import (
    FILTER,
    FILTER_NOT,
    FLAT_MAP,
    FLAT_MAP_VALUES,
    FOREACH,
    MAP,
    MAP_VALUES,
    PEEK,
    SELECT_KEY,
    PassThrough,
    PassThroughColumns,
    Stateless,
    StatelessColumns,
    StatelessStep,
)
from statestore.dsl.repartition import Regrouping, by_column, divided_anew
from statestore.dsl.row_serde import RowSerde, common_serde
from statestore.dsl.stream_graph import GraphNode, Stage, Staged
from statestore.dsl.table_plans import SourceTable
from statestore.dsl.windows import JoinWindows
from statestore.errors import TopologyError
from statestore.format.serde import Serde, Serdes
from statestore.operators.keyed_state import keyed_state_store
from statestore.operators.state_handle import StateKind
from statestore.processor.nodes import TopicNameExtractor
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.supplier import Duration, milliseconds

_DEDUPLICATE = "KSTREAM-DEDUPLICATE-"

_TO_TABLE = "KSTREAM-TOTABLE-"


class KStream(Staged):
    """Records on their way through a program; each method returns another stream and leaves this one unchanged.

    Stateless steps pass headers and timestamps on as they came. `name` names a step's node. Every method raises
    TopologyError if the name is taken, or if a function does not take the arguments that the step passes.
    """

    def __init__(self, stage: Stage, *, is_rekeyed: bool = False) -> None:
        super().__init__(stage)
        self._is_rekeyed = is_rekeyed
        self._divided: Stage | None = None

    def filter(self, predicate: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Return the records for which a predicate of key and value is true."""
        function = of_key_and_value("filter()", predicate)
        return self._step("KSTREAM-FILTER-", name, FILTER, function)

    def filter_not(self, predicate: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Return the records for which a predicate of key and value is false."""
        function = of_key_and_value("filter_not()", predicate)
        return self._step("KSTREAM-FILTER-", name, FILTER_NOT, function)

    def map_values(
        self, mapper: Callable[..., Any], *, value_serde: Serde[Any] | None = None, name: str | None = None
    ) -> KStream:
        """Return the records with new values, a function of the value or of key and value; keys stay.

        With `value_serde=None`, the serde of the new values is unknown.
        """
        function = of_key_and("map_values()", mapper, "value")
        return self._step("KSTREAM-MAPVALUES-", name, MAP_VALUES, function, value_serde)

    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, value_serde: Serde[Any] | None = None, name: str | None = None
    ) -> KStream:
        """Return a record for each value that a function of the value, or of key and value, returns."""
        function = of_key_and("flat_map_values()", mapper, "value")
        return self._step("KSTREAM-FLATMAPVALUES-", name, FLAT_MAP_VALUES, function, value_serde)

    def map(
        self,
        mapper: Callable[[Any, Any], tuple[Any, Any]],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return the records with new keys and values, to be repartitioned as with `select_key`."""
        function = of_key_and_value("map()", mapper)
        return self._step("KSTREAM-MAP-", name, MAP, function, value_serde, key_serde)

    def flat_map(
        self,
        mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]],
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return a record for each pair of key and value that a function of both returns; otherwise as `map`."""
        function = of_key_and_value("flat_map()", mapper)
        return self._step("KSTREAM-FLATMAP-", name, FLAT_MAP, function, value_serde, key_serde)

    def select_key(
        self, mapper: Callable[[Any, Any], Any], *, key_serde: Serde[Any] | None = None, name: str | None = None
    ) -> KStream:
        """Return the records with new keys, a function of key and value.

        If a later step keeps state, they first go through a repartition topic. With `key_serde=None`, the serde of the
        new keys is unknown.
        """
        function = of_key_and_value("select_key()", mapper)
        return self._step("KSTREAM-KEY-SELECT-", name, SELECT_KEY, function, key_serde=key_serde)

    def peek(self, action: Callable[[Any, Any], object], *, name: str | None = None) -> KStream:
        """Return the same records, after calling a function with the key and value of each."""
        function = of_key_and_value("peek()", action)
        return self._step("KSTREAM-PEEK-", name, PEEK, function)

    def foreach(self, action: Callable[[Any, Any], object], *, name: str | None = None) -> None:
        """Call a function with each key and value, again if the batch is retried; this ends the stream."""
        function = of_key_and_value("foreach()", action)
        self._step("KSTREAM-FOREACH-", name, FOREACH, function)

    def process(
        self,
        supplier: ProcessorSupplier,
        *stores: str,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return what a processor forwards, to be repartitioned as with `select_key`; `supplier` makes a new one.

        `stores` names the stores that it may get from its context: of `StreamsBuilder.add_state_store`, or of tables.
        """
        node = name or self._graph.new_name("KSTREAM-PROCESSOR-")  # Kafka takes no number for a name that is given
        return self._below(node, supplier, value_serde, key_serde, is_rekeyed=True, stores=stores)

    def process_values(
        self, supplier: ProcessorSupplier, *stores: str, value_serde: Serde[Any] | None = None, name: str | None = None
    ) -> KStream:
        """Return what a processor forwards, as `process`, but with the key of the current record: keys stay.

        A forwarded record with another key, one forwarded outside of `process`, and a BatchProcessor fail the query
        with TopologyError.
        """
        fixed = partial(FixedKeyProcessor, supplier)
        node = name or self._graph.new_name("KSTREAM-PROCESSVALUES-")
        return self._below(node, fixed, value_serde, stores=stores)

    def split(self, *, name: str | None = None) -> BranchedKStream[KStream]:
        """Split the stream into branches: each record goes to the first one whose predicate is true.

        split().branch(is_large, name="large").default_branch(name="rest") returns a dict of both streams by name;
        these names begin with that of the split.
        """
        return BranchedKStream(self._stage, partial(KStream, is_rekeyed=self._is_rekeyed), name)

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """Return the records of both streams, in the order in which they are processed."""
        require_kind("other", other, KStream)
        node = self._graph.new_name("KSTREAM-MERGE-", name)
        key_serde = self._key_serde if self._key_serde == other._key_serde else None
        values = common_serde(self._value_serde, other._value_serde)
        in_columns = self._in_columns and other._in_columns and None not in (key_serde, values)
        supplier = self._graph.either_way(node, PassThrough, PassThroughColumns if in_columns else None)
        self._graph.add(GraphNode(node, (self._node, other._node), supplier))
        stage = Stage(self._graph, node, key_serde, values, in_columns)
        return KStream(stage, is_rekeyed=self._is_rekeyed or other._is_rekeyed)

    def group_by_key(
        self, *, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None, name: str | None = None
    ) -> KGroupedStream[KStream]:
        """Return the stream by key, to be aggregated; it is repartitioned if a step before has changed the keys.

        Serdes of None are those of the stream, where known. With a `name`, all aggregates share one repartition topic
        of that name; without, each has its own, named after its store.
        """
        regrouping = Regrouping(name) if self._is_rekeyed else None
        return KGroupedStream(self._stage.with_serdes(key_serde, value_serde), regrouping)

    def group_by(
        self,
        selector: Callable[[Any, Any], Any] | str,
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KStream]:
        """Return the stream by what a function makes of key and value: `select_key`, then `group_by_key`.

        `selector` may also name a column, if values are dicts; a `key_serde` of None is then that of the column's type.
        Raises TopologyError for a column that the values are known to lack, or whose type has no serde.
        """
        if isinstance(selector, str):
            selector, key_serde = by_column(self._stage, selector, key_serde)
        of_key_and_value("group_by()", selector)
        rekeyed = self.select_key(selector, key_serde=key_serde, name=name)
        return rekeyed.group_by_key(value_serde=value_serde, name=name)

    def repartition(
        self, *, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None, name: str | None = None
    ) -> KStream:
        """Return the records after they went through a repartition topic, which is named after `name`."""
        prefix = self._graph.new_name("KSTREAM-REPARTITION-") if name is None else name
        return KStream(divided_anew(self._stage, prefix, key_serde, value_serde))

    def deduplicate(
        self,
        within: Duration,
        *,
        by: str | Sequence[str] | Callable[[Any, Any], Any] | None = None,
        grace: Duration = 0,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return the records except duplicates: those at most `within` before or after an equal one that has passed.

        `by` says when two records of a key are equal: with None always; with the name of a header if its last value
        is equal; with a list of columns if the values, which are dicts, are equal in them; with a function of key and
        value if it returns the same, which must be serializable as JSON. Records without that header or without a
        value, and those for which the function returns None, always pass.

        Duplicates, records without a key, and records more than `within` plus `grace` behind the shard's stream time
        are dropped and counted. Raises TopologyError for columns that the values are known to lack, ValueError for
        illegal spans and for an empty list of columns.
        """
        graph, asked = self._graph, Materialized.of(materialized)
        within_ms, grace_ms = milliseconds("within", within), milliseconds("grace", grace)
        store = asked.name or graph.new_store_name(_DEDUPLICATE)
        node = graph.new_name(_DEDUPLICATE, name)
        stage = self._by_key(node)
        keys = asked.or_serdes(stage.key_serde, None).key_serde
        if keys is None:
            raise TopologyError(
                f"the serde of the keys of {node!r} is unknown: give it Materialized.with_key_serde(...)"
            )
        identity = self._identity(node, by)
        plan = DeduplicationPlan(store, keys, within_ms, grace_ms, identity)
        builder = keyed_state_store(
            store, Serdes.bytes(), ttl=plan.lifetime_ms, ttl_clock="event", persistent=asked.is_persistent
        )
        in_columns = stage.in_columns and keys.columns is not None and isinstance(identity, ColumnIdentity)

        columns = partial(DeduplicatingColumns, plan) if in_columns else None
        supplier = graph.either_way(node, partial(Deduplicating, plan), columns)
        entry_keys = {store: StateKind.MAP.value}
        graph.add(GraphNode(node, (stage.node,), supplier, lambda: (builder,), entry_keys=entry_keys))
        return KStream(stage._replace(node=node, in_columns=in_columns))

    def _identity(self, node: str, by: str | Sequence[str] | Callable[[Any, Any], Any] | None) -> Identity:
        if by is None:
            return OfKey()
        if isinstance(by, str):
            return OfHeader(by)
        if callable(by):
            return OfFunction(of_key_and_value("deduplicate(by=)", by))
        columns, values = tuple(by), self._value_serde
        if not columns:
            raise ValueError("by must name at least one column; to treat all records of a key as the same, pass None")
        if isinstance(values, RowSerde):
            values.require_columns(node, columns)
        return OfColumns(columns)

    def to_table(self, *, materialized: Materialized | None = None, name: str | None = None) -> KTable[KStream]:
        """Return the table of the records: the latest value of each key; a record without a value deletes its key.

        It has a store if `materialized` names one, or if a later step has to read the table. Records without a key are
        dropped and counted.
        """
        node, asked = self._graph.new_name(_TO_TABLE, name), Materialized.of(materialized)
        kept = asked.or_serdes(self._key_serde, self._value_serde)
        kept = kept.or_name(lambda: self._graph.new_store_name(_TO_TABLE))
        plan = SourceTable(kept, is_kept=asked.name is not None)
        parent = (
            divided_anew(self._stage, node, kept.key_serde, kept.value_serde).node if self._is_rekeyed else self._node
        )
        self._graph.add(GraphNode(node, (parent,), plan.supplier, plan.stores))
        return KTable(Stage(self._graph, node, kept.key_serde, kept.value_serde), plan)

    def join(
        self,
        other: KStream | KTable[Any] | GlobalKTable,
        *given: Any,
        headers: PolicyLike = "merge_distinct",
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
        **named: Any,
    ) -> KStream:
        """Return what `joiner` makes of the value of each record and the value found for it on the other side.

        A joiner is a function of both values, or of the record's key and both values.

        join(stream, joiner, windows, joined): joins records of the same key whose timestamps are within `windows`, each
        pair once, at the later timestamp of both. `joined`, a StreamJoined, says how they are kept.
        join(table, joiner, joined): joins what the table holds for the record's key now or, if it is versioned, held at
        the record's timestamp. With a grace in `joined`, a Joined, records wait and are joined in order of time.
        join(global_table, key_selector, joiner): likewise, by a key that is a function of the record's key and value.

        All of them: `headers` says how the headers of both sides become one list, see JoinedHeaders; the default keeps
        every header of both. `value_serde` is that of the joined values, `name` names the nodes. Records without a key
        or a value are dropped and counted. Raises TopologyError if the two key serdes differ, or if a serde is missing.
        """
        return self._join(JoinKind.INNER, other, given, named, JoinOptions(HeaderPolicy.of(headers), value_serde, name))

    def left_join(
        self,
        other: KStream | KTable[Any] | GlobalKTable,
        *given: Any,
        headers: PolicyLike = "merge_distinct",
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
        **named: Any,
    ) -> KStream:
        """Return what `join` does, and join each record of this side that finds nothing with None.

        In a join with a stream, that happens when the record's window and grace have passed, or at once if the record
        comes later. A record without a key finds nothing.
        """
        return self._join(JoinKind.LEFT, other, given, named, JoinOptions(HeaderPolicy.of(headers), value_serde, name))

    def outer_join(
        self,
        other: KStream,
        joiner: Joiner,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        headers: PolicyLike = "merge_distinct",
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return what `left_join` of two streams does, for the unmatched records of both sides."""
        options = JoinOptions(HeaderPolicy.of(headers), value_serde, name)
        return self._join_stream(JoinKind.OUTER, options, other, joiner, windows, joined)

    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic, or each to the topic that a function returns for it.

        Serdes of None are those of the stream or, where these are unknown, the defaults of `Topology.add_sink`.
        """
        node = self._graph.new_name("KSTREAM-SINK-", name)
        serdes = {"key_serde": key_serde or self._key_serde, "value_serde": value_serde or self._value_serde}
        self._graph.add_sink(node, topic, self._node, **serdes)

    def _join(
        self, kind: JoinKind, other: Any, given: tuple[Any, ...], named: dict[str, Any], options: JoinOptions
    ) -> KStream:
        joins: dict[type, Callable[..., KStream]] = {
            KStream: self._join_stream,
            KTable: self._join_table,
            GlobalKTable: self._join_global_table,
        }
        for side, join in joins.items():
            if isinstance(other, side):
                return join(kind, options, other, *given, **named)
        raise TypeError(f"a stream can be joined with a KStream, KTable or GlobalKTable, not with {other!r}")

    def _join_stream(
        self,
        kind: JoinKind,
        options: JoinOptions,
        other: KStream,
        joiner: Joiner,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
    ) -> KStream:
        require_kind("other", other, KStream)
        joiner = _with_key(kind, joiner)
        stored = joined or StreamJoined()
        require_kind("joined", stored, StreamJoined)
        names = (None, None) if options.name is None else (f"{options.name}-left", f"{options.name}-right")
        left = self._by_key(names[0], stored.key_serde, stored.value_serde)
        right = other._by_key(names[1], stored.key_serde, stored.other_value_serde)
        return KStream(add_stream_join(left, right, kind, joiner, windows, stored, options))

    def _join_table(
        self, kind: JoinKind, options: JoinOptions, other: KTable[Any], joiner: Joiner, joined: Joined | None = None
    ) -> KStream:
        joiner, waits = _with_key(kind, joiner), joined or Joined()
        require_kind("joined", waits, Joined)
        stage = self._by_key(options.name, waits.key_serde, waits.value_serde)
        node = add_table_join(stage, other._stage, other._plan, kind, joiner, waits, options)
        return KStream(Stage(self._graph, node, waits.key_serde or stage.key_serde, options.value_serde))

    def _join_global_table(
        self,
        kind: JoinKind,
        options: JoinOptions,
        other: GlobalKTable,
        key_selector: Callable[[Any, Any], Any],
        joiner: Joiner,
    ) -> KStream:
        of_key_and_value(f"{kind.value}()", key_selector)
        joiner = _with_key(kind, joiner)
        node = add_global_table_join(self._stage, other.stage, other.view, key_selector, kind, joiner, options)
        stage = Stage(self._graph, node, self._key_serde, options.value_serde)
        return KStream(stage, is_rekeyed=self._is_rekeyed)

    def _step(
        self,
        prefix: str,
        name: str | None,
        step: StatelessStep,
        function: Function,
        value_serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
    ) -> KStream:
        node = self._graph.new_name(prefix, name)
        keys = key_serde if step.makes_keys else self._key_serde
        values = value_serde if step.makes_values else self._value_serde
        made = ((step.makes_keys, keys), (step.makes_values, values))
        in_columns = self._in_columns and all(
            serde is not None and serde.columns is not None for is_made, serde in made if is_made
        )
        columns = partial(StatelessColumns, step, function, keys, values) if in_columns else None
        supplier = self._graph.either_way(node, partial(Stateless, step, function), columns)
        self._graph.add(GraphNode(node, (self._node,), supplier, keys_of=() if step.makes_keys else None))
        stage = Stage(self._graph, node, keys, values, in_columns)
        return KStream(stage, is_rekeyed=step.makes_keys or self._is_rekeyed)

    def _below(
        self,
        node: str,
        supplier: ProcessorSupplier,
        value_serde: Serde[Any] | None,
        key_serde: Serde[Any] | None = None,
        *,
        is_rekeyed: bool = False,
        stores: Sequence[str] = (),
    ) -> KStream:
        own, others = self._graph.users_stores(stores)
        keys_of = () if is_rekeyed else None
        self._graph.add(
            GraphNode(node, (self._node,), lambda: supplier, lambda: own, reads=lambda: others, keys_of=keys_of)
        )
        stage = Stage(self._graph, node, key_serde if is_rekeyed else self._key_serde, value_serde)
        return KStream(stage, is_rekeyed=is_rekeyed or self._is_rekeyed)

    def _by_key(
        self, name: str | None, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> Stage:
        """Return the stage for a step that keeps state: repartitioned if a step before has changed the keys.

        Without a name, the latest repartition topic is read again, as in Kafka.
        """
        if not self._is_rekeyed:
            return self._stage
        if name is None and self._divided is not None:
            self._graph.skip_numbers(3)
        else:
            self._divided = divided_anew(self._stage, name or self._node, key_serde, value_serde)
        return self._divided


def _with_key(kind: JoinKind, joiner: Joiner) -> Joiner:
    return of_key_and(f"{kind.value}()", joiner, "left value", "right value")
