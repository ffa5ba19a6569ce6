"""Kafka Streams' DSL in Python, with headers: a StreamsBuilder whose `build` gives a Topology.

streams_builder   where a program begins; kstream, ktable: what its steps return; branched_stream: branches
functions         checks how many arguments users' functions take
aggregates        streams that can be aggregated; grouped_table: tables that can; aggregations: what is kept per key
joins             joins of streams and tables; join_serdes: what their stores hold
repartition       repartition topics; row_serde: values that are dicts
windows           which windows a record belongs to
header_policy     how the headers of several records become those of one
change            what flows between nodes of tables; column_types: in columns; windowed_serdes: windowed keys in topics
materialized      where a table is kept; suppressed: when its changes go on
table_plans       how tables are kept
stream_graph      the nodes of a program until they become a topology, and their names
processors        what runs: a module for each operator

Imports `processor` and below; `spark` and `testing` import it. `build` returns an ordinary topology of processors and
stores. Start at `streams_builder`.
"""

from statestore.dsl.aggregates.aggregate import Aggregate
from statestore.dsl.change import Change
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.joins.joined import Joined, StreamJoined
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import GlobalKTable, KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.suppressed import BufferConfig, EmitStrategy, Suppressed
from statestore.dsl.windowed_serdes import session_windowed_serde, time_windowed_serde
from statestore.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

__all__ = [
    "Aggregate",
    "BufferConfig",
    "Change",
    "EmitStrategy",
    "GlobalKTable",
    "HeaderPolicy",
    "JoinWindows",
    "Joined",
    "KStream",
    "KTable",
    "Materialized",
    "SessionWindows",
    "SlidingWindows",
    "StreamJoined",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindows",
    "session_windowed_serde",
    "time_windowed_serde",
]
