"""Kafka Streams' DSL in Python, with headers: a StreamsBuilder whose `build` gives a Topology.

streams_builder   where a program begins; kstream, grouped_stream, windowed_stream, ktable: what its steps return
aggregable_stream what streams have in common that can be aggregated; aggregations: what they are aggregated to
several_aggregates  several at once, of columns; aggregate: one of them; column_kinds: of which types it can be
row_serde         values that are rows, with types that are known; json_numbers: NaN in JSON
windows           which windows a record belongs to; emit_strategy: when they are put out
header_policy     what becomes of headers where records meet
change            what flows between nodes of tables; column_types: in columns; windowed_serdes: windowed keys in topics
materialized      where a table is kept; suppressed: for how long its changes are held back; joined: what waits in joins
stream_joins      the nodes and stores of joins of streams; table_joins: of two tables; join_serdes: what they hold
global_ktable     a table that every shard has all of
stage             where a stream or table stands in its program; table_plans: how tables are kept
stream_graph      the nodes of a program until they become a topology, and their names
processors        what runs: a module for each operator

Imports `processor` and below; `spark` and `testing` import it. Nothing here runs by itself: what `build` returns is a
topology of processors and stores like any other. Start at `streams_builder`.
"""

from statestore.dsl.aggregate import Aggregate
from statestore.dsl.change import Change
from statestore.dsl.emit_strategy import EmitStrategy
from statestore.dsl.global_ktable import GlobalKTable
from statestore.dsl.grouped_stream import KGroupedStream
from statestore.dsl.header_policy import HeaderMerger, HeaderPolicy, PolicyLike
from statestore.dsl.joined import Joined, StreamJoined
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.suppressed import BufferConfig, Suppressed
from statestore.dsl.windowed_serdes import WindowedSerde, session_windowed_serde, time_windowed_serde
from statestore.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream
from statestore.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

__all__ = [
    "Aggregate",
    "BufferConfig",
    "Change",
    "EmitStrategy",
    "GlobalKTable",
    "HeaderMerger",
    "HeaderPolicy",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Materialized",
    "PolicyLike",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "StreamJoined",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindowedKStream",
    "TimeWindows",
    "WindowedSerde",
    "session_windowed_serde",
    "time_windowed_serde",
]
