"""The nodes and stores of a stream's joins, with Kafka's names. Source: Kafka's KStreamImpl and KStreamImplJoin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.join_serdes import BUFFERED_RECORDS, buffered_key_serde, waiting_key_serde
from statestore.dsl.joins.joined import Joined, StreamJoined
from statestore.dsl.processors.joins.joining import Joiner
from statestore.dsl.processors.joins.stream_stream_joining import (
    KeepingWindow,
    KeptSide,
    StreamJoin,
    StreamSideJoining,
    StreamSidePlan,
)
from statestore.dsl.processors.joins.stream_stream_joining_columns import KeepingWindowColumns, StreamSideJoiningColumns
from statestore.dsl.processors.joins.stream_table_joining import (
    BufferedStreamTableJoining,
    StreamBufferPlan,
    StreamTableJoining,
    StreamTablePlan,
)
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.stateless import PassThrough, PassThroughColumns
from statestore.dsl.processors.table_views import TableView
from statestore.dsl.stream_graph import GraphNode, Stage, StreamGraph
from statestore.dsl.table_plans import TablePlan
from statestore.dsl.windows import JoinWindows
from statestore.errors import TopologyError
from statestore.format.serde import Serde, Serdes
from statestore.format.values.buffered_record import BUFFERED_KEYS
from statestore.format.values.waiting_values import WAITING_KEYS
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.builder import StoreBuilder
from statestore.stores.stores import Stores

_LEFT_JOIN = "KSTREAM-LEFTJOIN-"
_SIDES = (True, False)
"""Whether it is the left one."""


class JoinKind(Enum):
    """Which side's records are joined with None if the other side has none for them."""

    INNER = "join"
    LEFT = "left_join"
    OUTER = "outer_join"

    @property
    def keeps_left(self) -> bool:
        """Whether the left side's are."""
        return self is not JoinKind.INNER

    @property
    def keeps_right(self) -> bool:
        """Whether the right side's are."""
        return self is JoinKind.OUTER


class JoinOptions(NamedTuple):
    """What all joins of a stream take."""

    headers: HeaderPolicy
    value_serde: Serde[Any] | None
    name: str | None


def require_kind(parameter: str, given: Any, kind: type) -> None:
    """Raise TypeError, naming the parameter, if it is of another class."""
    if not isinstance(given, kind):
        raise TypeError(f"{parameter} must be a {kind.__name__}, not {given!r}")


def require_one_program(left: Stage, right: Stage) -> None:
    """Raise TopologyError if the sides belong to two programs."""
    if left.graph is not right.graph:
        raise TopologyError(
            f"{left.node!r} can't be joined with {right.node!r}, which belongs to another StreamsBuilder"
        )


def require_joinable(left: Stage, right: Stage) -> None:
    """Raise TopologyError if the sides belong to two programs, or if their key serdes are known and differ."""
    require_one_program(left, right)
    names = [None if side.key_serde is None else side.key_serde.name for side in (left, right)]
    if None not in names and names[0] != names[1]:
        raise TopologyError(
            f"{left.node!r} can't be joined with {right.node!r}: their key serdes are {names[0]!r} and {names[1]!r}, "
            "so equal keys would not be found. Give both the same key serde"
        )


def add_table_join(
    stream: Stage,
    table: Stage,
    plan: TablePlan,
    kind: JoinKind,
    joiner: Joiner,
    joined: Joined,
    options: JoinOptions,
) -> str:
    """Add the join of a stream with a table, and return its node."""
    require_joinable(stream, table)
    graph = stream.graph
    node = graph.new_name(_LEFT_JOIN if kind.keeps_left else "KSTREAM-JOIN-", options.name)
    view = plan.view()
    buffer, stores, entry_keys = None, tuple[StoreBuilder[Any], ...](), dict[str, str]()
    if joined.grace_ms is not None:
        key_serde = _required(joined.key_serde or stream.key_serde, "key", stream, "Joined.with_(...)")
        value_serde = _required(joined.value_serde or stream.value_serde, "value", stream, "Joined.with_(...)")
        buffer = StreamBufferPlan(f"{node}-Buffer", key_serde, value_serde, joined.grace_ms)
        stores = (_key_value_builder(buffer.store, buffered_key_serde(key_serde), BUFFERED_RECORDS),)
        entry_keys = {buffer.store: BUFFERED_KEYS}

    def supplier() -> ProcessorSupplier:
        _require_history(node, plan, joined.grace_ms)
        joins = StreamTablePlan(view, joiner, options.headers, kind.keeps_left, buffer=buffer)
        return partial(StreamTableJoining if buffer is None else BufferedStreamTableJoining, joins)

    graph.add(
        GraphNode(
            node,
            (stream.node,),
            supplier,
            lambda: stores,
            lambda: view.stores,
            entry_keys=entry_keys,
            needs_null_keys=kind.keeps_left,
        )
    )
    return node


def add_global_table_join(
    stream: Stage,
    table: Stage,
    view: TableView,
    key_selector: Callable[[Any, Any], Any],
    kind: JoinKind,
    joiner: Joiner,
    options: JoinOptions,
) -> str:
    """Add the join of a stream with a global table, and return its node."""
    require_one_program(stream, table)
    node = stream.graph.new_name(_LEFT_JOIN, options.name)  # Kafka's name for inner joins, too
    joining = partial(StreamTableJoining, StreamTablePlan(view, joiner, options.headers, kind.keeps_left, key_selector))
    stream.graph.add(GraphNode(node, (stream.node,), lambda: joining, needs_null_keys=kind.keeps_left))
    return node


def add_stream_join(
    left: Stage,
    right: Stage,
    kind: JoinKind,
    joiner: Joiner,
    windows: JoinWindows,
    joined: StreamJoined,
    options: JoinOptions,
) -> Stage:
    """Add the join of two streams, and return the stage of its last node."""
    require_kind("windows", windows, JoinWindows)
    require_joinable(left, right)
    if _retention_ms(windows) < 1:
        raise TopologyError(
            f"{left.node!r} can't be joined with {right.node!r} in windows of 0 ms without a grace: the stores would "
            "keep nothing. Give the windows a grace of 1 ms or more"
        )
    graph = left.graph
    names = _Names.of(graph, kind, joined, options.name)
    key_serde = _required(joined.key_serde or left.key_serde or right.key_serde, "key", left, _SERDES_OF_STREAMS)
    left_serde = _required(joined.value_serde or left.value_serde, "value", left, _SERDES_OF_STREAMS)
    right_serde = _required(joined.other_value_serde or right.value_serde, "value", right, _SERDES_OF_STREAMS)
    kept = key_serde, left_serde, right_serde
    in_columns = kind is JoinKind.INNER and _go_in_columns((left, right), kept, options.value_serde)
    join = StreamJoin(
        joiner,
        options.headers,
        windows,
        names.left_store,
        names.right_store,
        names.waiting_store,
        *kept,
        names.merge,
        options.value_serde if in_columns else None,
    )
    left_builder = _window_builder(names.left_store, windows, key_serde, left_serde, joined)
    right_builder = _window_builder(names.right_store, windows, key_serde, right_serde, joined)
    shared: tuple[StoreBuilder[Any], ...] = ()
    if names.waiting_store is not None:
        # The processor decodes values itself, as most are removed without being read.
        waiting = waiting_key_serde(key_serde), Serdes.bytes()
        shared = (_key_value_builder(names.waiting_store, *waiting, is_persistent=joined.is_persistent),)

    def way(records: type[Planned[Any]], columns: type[Planned[Any]], plan: Any) -> Callable[[], ProcessorSupplier]:
        made = partial(columns, plan) if in_columns else None
        # All of them go one way: the last is below all that is above any of them.
        return graph.either_way(names.merge, partial(records, plan), made, names.merge)

    keeps = [way(KeepingWindow, KeepingWindowColumns, KeptSide(join, each, _retention_ms(windows))) for each in _SIDES]
    graph.add(_node(names.left_window, left.node, keeps[0], left_builder))
    graph.add(_node(names.right_window, right.node, keeps[1], right_builder))
    sends = zip(_SIDES, (kind.keeps_left, kind.keeps_right), strict=True)
    joins = [way(StreamSideJoining, StreamSideJoiningColumns, StreamSidePlan(join, *each)) for each in sends]
    graph.add(_node(names.join_left, names.left_window, joins[0], right_builder, waiting=shared))
    graph.add(_node(names.join_right, names.right_window, joins[1], left_builder, waiting=shared))
    merging = graph.either_way(names.merge, PassThrough, PassThroughColumns if in_columns else None)
    sides = names.join_left, names.join_right
    graph.add(GraphNode(names.merge, sides, merging, needs_null_keys=kind.keeps_left))
    return Stage(graph, names.merge, key_serde, options.value_serde, in_columns)


def _go_in_columns(sides: Sequence[Stage], kept: Sequence[Serde[Any]], joined: Serde[Any] | None) -> bool:
    """Return whether both sides come in columns of what is kept, key and two values, and a column holds joined ones."""
    key_serde, *value_serdes = kept
    serdes = [(joined, joined)]
    for side, value_serde in zip(sides, value_serdes, strict=True):
        serdes += [(side.key_serde, key_serde), (side.value_serde, value_serde)]
    are_read = all(each is not None and each.columns is not None and each == stored for each, stored in serdes)
    return are_read and all(side.in_columns for side in sides)


_SERDES_OF_STREAMS = "StreamJoined.with_(...)"


class _Names(NamedTuple):
    """The names of the nodes and stores of a join of streams."""

    left_window: str
    right_window: str
    join_left: str
    join_right: str
    merge: str
    left_store: str
    right_store: str
    waiting_store: str | None

    @classmethod
    def of(cls, graph: StreamGraph, kind: JoinKind, joined: StreamJoined, name: str | None) -> _Names:
        """Return new names; some take a number even if a name was given, as in Kafka."""
        left_suffix = "-outer-this-join" if kind.keeps_right else "-this-join"
        right_suffix = "-outer-other-join" if kind.keeps_left else "-other-join"
        left_window, right_window = (
            graph.new_name("KSTREAM-WINDOWED-", None if name is None else name + suffix)
            for suffix in ("-this-windowed", "-other-windowed")
        )
        left_prefix = "KSTREAM-OUTERTHIS-" if kind.keeps_right else "KSTREAM-JOINTHIS-"
        numbered_left = graph.new_name(left_prefix)
        numbered_right = graph.new_name("KSTREAM-OUTEROTHER-" if kind.keeps_left else "KSTREAM-JOINOTHER-")
        merge = graph.new_name("KSTREAM-MERGE-", None if name is None else f"{name}-merge")
        base = joined.store_name
        waiting = None
        if kind.keeps_left:
            shared_suffix = "-outer-shared-join" if kind.keeps_right else "-left-shared-join"
            numbered = "KSTREAM-OUTERSHARED-" + numbered_left.removeprefix(left_prefix)
            waiting = f"{numbered if base is None else base + shared_suffix}-store"
        return cls(
            left_window,
            right_window,
            numbered_left if name is None else name + left_suffix,
            numbered_right if name is None else name + right_suffix,
            merge,
            f"{numbered_left if base is None else base + left_suffix}-store",
            f"{numbered_right if base is None else base + right_suffix}-store",
            waiting,
        )


def _node(
    name: str,
    parent: str,
    supplier: Callable[[], ProcessorSupplier],
    *stores: StoreBuilder[Any],
    waiting: Sequence[StoreBuilder[Any]] = (),
) -> GraphNode:
    entry_keys = {store.name: WAITING_KEYS for store in waiting}
    return GraphNode(name, (parent,), supplier, lambda: (*stores, *waiting), entry_keys=entry_keys)


def _window_builder(
    name: str, windows: JoinWindows, key_serde: Serde[Any], value_serde: Serde[Any], joined: StreamJoined
) -> StoreBuilder[Any]:
    make = (
        Stores.persistent_timestamped_window_store_with_headers
        if joined.is_persistent
        else Stores.in_memory_window_store
    )
    supplier = make(name, _retention_ms(windows), windows.size_ms, True)
    return Stores.timestamped_window_store_with_headers_builder(supplier, key_serde, value_serde)


def _retention_ms(windows: JoinWindows) -> int:
    """Return how long a side keeps records."""
    return windows.size_ms + windows.grace_ms


def _key_value_builder(
    name: str, key_serde: Serde[Any], value_serde: Serde[Any], *, is_persistent: bool = True
) -> StoreBuilder[Any]:
    make = Stores.persistent_key_value_store if is_persistent else Stores.in_memory_key_value_store
    return Stores.key_value_store_builder(make(name), key_serde, value_serde)


def _required(serde: Serde[Any] | None, what: str, side: Stage, where: str) -> Serde[Any]:
    if serde is None:
        raise TopologyError(
            f"the records of {side.node!r} are kept for a join, but the serde of their {what}s is unknown: give the "
            f"join {where}"
        )
    return serde


def _require_history(node: str, plan: TablePlan, grace_ms: int | None) -> None:
    if grace_ms is None:
        return
    history_ms = plan.history_retention_ms
    if history_ms is None:
        raise TopologyError(
            f"join {node!r} has a grace period of {grace_ms} ms, but its table keeps no old versions: give the table "
            "Materialized.as_versioned(...), or leave the grace out"
        )
    if history_ms < grace_ms:
        raise TopologyError(
            f"join {node!r} has a grace period of {grace_ms} ms, but its table keeps versions for {history_ms} ms: "
            f"give the table Materialized.as_versioned(name, {grace_ms}) or more"
        )
