"""Programs of statestore.dsl that benchmarks run: values are whole numbers, unless it says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from statestore import Serde, Serdes, Topology
from statestore.dsl import (
    Aggregate,
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)

SIZE_MS, ADVANCE_MS = 60_000, 20_000
"""Of windows."""
GAP_MS, WITHIN_MS, APART_MS = 30_000, 60_000, 30_000
"""Between sessions, and how far apart duplicates are, and records that are joined."""
LATENESS_MS: Final = 60_000
"""Of windows the grace, of Spark's queries the watermark: nothing is late."""
TOPIC: Final = "in"
LEFT, RIGHT = "left", "right"
LINES: Final = "lines"
"""A topic of text."""
Program = Callable[..., KTable[Any] | KStream]
"""Makes of the inputs what is put out."""
Table = Callable[[KStream, Materialized], KTable[Any]]
UPDATE, BY_RECORDS = "once a key and batch", "once a key and batch, by records"
CLOSE, SUPPRESSED = "on close", "on close, by suppress()"
EACH, JOINED = "each change", "each pair"


def topology_of(
    program: Program,
    *,
    topics: Sequence[str] = (TOPIC,),
    in_columns: bool = True,
    value_serde: Serde[Any] | None = None,
) -> Callable[[], Topology]:
    """Return what makes the topology of a program of these topics, whose values are int64 if nothing is said."""

    def topology() -> Topology:
        builder, serde = StreamsBuilder(in_columns=in_columns), value_serde or Serdes.int64()
        made = program(*(builder.stream(topic, key_serde=Serdes.bytes(), value_serde=serde) for topic in topics))
        (made.to_stream() if isinstance(made, KTable) else made).to("out")
        return builder.build()

    return topology


def forms(table: Table) -> dict[str, Callable[[], Topology]]:
    """Return an aggregate as Spark's update mode puts it out, at each change, and record by record."""

    def cached(stream: KStream) -> KTable[Any]:
        return table(stream, kept(is_cached=True))

    return {
        UPDATE: topology_of(cached),
        EACH: topology_of(lambda stream: table(stream, kept())),
        BY_RECORDS: topology_of(cached, in_columns=False),
    }


def kept(*, is_cached: bool = False) -> Materialized:
    """Return how tables are kept."""
    named = Materialized.as_("kept")
    return named.with_caching_enabled() if is_cached else named


def count(stream: KStream, materialized: Materialized) -> KTable[Any]:
    return stream.group_by_key().count(materialized=materialized)


def word_count(stream: KStream) -> KTable[Any]:
    words = stream.flat_map_values(str.split, value_serde=Serdes.string())
    return words.group_by(lambda _, word: word, key_serde=Serdes.string()).count(materialized=kept(is_cached=True))


def total(stream: KStream, materialized: Materialized) -> KTable[Any]:
    return stream.group_by_key().sum(materialized=materialized)


def reduced(stream: KStream, materialized: Materialized) -> KTable[Any]:
    return stream.group_by_key().reduce(_added, materialized=materialized)


def several(stream: KStream, materialized: Materialized) -> KTable[Any]:
    parts = {"total": Aggregate.sum(_itself), "number": Aggregate.count(), "highest": Aggregate.max(_itself)}
    return stream.group_by_key().agg(parts, materialized=materialized)


def tumbling(stream: KStream, materialized: Materialized) -> KTable[Any]:
    return stream.group_by_key().windowed_by(_windows()).count(materialized=materialized)


def hopping(stream: KStream, materialized: Materialized) -> KTable[Any]:
    return stream.group_by_key().windowed_by(_windows().advance_by(ADVANCE_MS)).count(materialized=materialized)


def final_windows(stream: KStream) -> KTable[Any]:
    windows = stream.group_by_key().windowed_by(_windows()).emit_strategy(EmitStrategy.on_window_close())
    return windows.count(materialized=kept())


def suppressed_windows(stream: KStream, *, is_cached: bool = True) -> KTable[Any]:
    # Of a cached table fewer changes reach the buffer, as with Kafka's defaults.
    windows = tumbling(stream, kept(is_cached=is_cached))
    return windows.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))


def sessions(stream: KStream, *, is_cached: bool = True) -> KTable[Any]:
    return stream.group_by_key().windowed_by(_gaps()).count(materialized=kept(is_cached=is_cached))


def final_sessions(stream: KStream) -> KTable[Any]:
    windows = stream.group_by_key().windowed_by(_gaps()).emit_strategy(EmitStrategy.on_window_close())
    return windows.count(materialized=kept())


def deduplicated(stream: KStream) -> KStream:
    return stream.deduplicate(WITHIN_MS, materialized=kept())


def joined(left: KStream, right: KStream) -> KStream:
    return left.join(right, _sum_of_both, _near(), value_serde=Serdes.int64())


def left_joined(left: KStream, right: KStream) -> KStream:
    return left.left_join(right, _sum_of_both, _near(), value_serde=Serdes.int64())


def joined_bytes(left: KStream, right: KStream) -> KStream:
    return left.join(right, _left_of_both, _near(), value_serde=Serdes.bytes())


def left_joined_bytes(left: KStream, right: KStream) -> KStream:
    return left.left_join(right, _left_of_both, _near(), value_serde=Serdes.bytes())


def tables_joined(left: KStream, right: KStream) -> KTable[Any]:
    return left.to_table().join(right.to_table(), _left_of_both, value_serde=Serdes.bytes())


def word_count_of_digits(stream: KStream) -> KTable[Any]:
    words = stream.flat_map(_words, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    return words.group_by_key().count(materialized=kept())


def joined_by_foreign_key(stream: KStream) -> KTable[Any]:
    right = stream.filter(lambda key, value: key == _foreign_key(key, value)).repartition().to_table()
    joined = kept().with_value_serde(Serdes.bytes())
    return stream.to_table().join(right, _left_of_both, foreign_key=_foreign_key, materialized=joined)


def _words(key: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    return [(word, word) for word in (key[-5:], key[-4:], value[-5:], value[-4:], value[-3:])]


def _foreign_key(key: bytes, value: bytes) -> bytes:
    return key[:-1] + b"0"


def _added(one: int, other: int) -> int:
    return one + other


def _itself(value: int) -> int:
    return value


def _windows() -> TimeWindows:
    return TimeWindows.of_size_and_grace(SIZE_MS, LATENESS_MS)


def _gaps() -> SessionWindows:
    return SessionWindows.of_inactivity_gap_and_grace(GAP_MS, LATENESS_MS)


def _near() -> JoinWindows:
    return JoinWindows.of_time_difference_and_grace(APART_MS, LATENESS_MS)


def _sum_of_both(left: int, right: int | None) -> int:
    return left + (right or 0)


def _left_of_both(left: Any, right: Any) -> Any:
    return left
