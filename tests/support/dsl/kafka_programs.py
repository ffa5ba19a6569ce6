"""Programs that several of Kafka Streams' tests share: the records of "topic" by key and window, aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.dsl import EmitStrategy, KStream, KTable, Materialized, SlidingWindows, TimeWindows
from tests.support.dsl.kafka_cases import TEXT, CaseBuilder, Step, outs, plus

UPDATE, CLOSE = EmitStrategy.on_window_update(), EmitStrategy.on_window_close()
TEXTS = Materialized.with_(TEXT, TEXT)

Windows = TimeWindows | SlidingWindows
Program = Callable[[CaseBuilder], KTable[KStream]]


def zero() -> str:
    return "0"


def add(key: Any, value: Any, aggregate: Any) -> str:
    return f"{aggregate}+{value}"


def remove(key: Any, value: Any, aggregate: Any) -> str:
    return f"{aggregate}-{value}"


def aggregated(
    windows: Windows,
    strategy: EmitStrategy = UPDATE,
    stored: Materialized = TEXTS,
    *,
    begins: Callable[[], str] = zero,
    add: Callable[[Any, Any, Any], str] = add,
) -> Program:
    """Text to which each value is added; it begins as "0"."""

    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(windows).emit_strategy(strategy)
        return windowed.aggregate(begins, add, materialized=stored)

    return program


def reduced(windows: Windows, strategy: EmitStrategy = UPDATE, stored: Materialized | None = None) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(windows).emit_strategy(strategy)
        return windowed.reduce(plus, materialized=stored)

    return program


def counted(windows: Windows, strategy: EmitStrategy = UPDATE, stored: Materialized | None = None) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(windows).emit_strategy(strategy)
        return windowed.count(materialized=stored)

    return program


def joined(windows: Windows, strategy: EmitStrategy) -> Callable[[CaseBuilder], None]:
    """Aggregates of the topics "one" and "two", and their join; `outs_of` looks at all three."""

    def program(builder: CaseBuilder) -> None:
        tables = []
        for topic in ("one", "two"):
            windowed = builder.stream(topic).group_by_key().windowed_by(windows).emit_strategy(strategy)
            tables.append(windowed.aggregate(zero, add, materialized=Materialized.as_(topic).with_value_serde(TEXT)))
            builder.catch(tables[-1], topic)
        builder.catch(tables[0].join(tables[1], lambda left, right: f"{left}%{right}"), "both")

    return program


def outs_of(one: str = "", two: str = "", both: str = "") -> Step:
    return outs(one=one, two=two, both=both)
