"""Joins of tables by a foreign key: headers of both sides, and programs that are refused when they are built."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import Serdes
from statestore.dsl import KTable, Materialized, StreamsBuilder
from statestore.errors import TopologyError
from statestore.testing import TestRecord, TopologyTestDriver

TEXT = Serdes.string()
SERDES: Any = {"key_serde": TEXT, "value_serde": TEXT}
LEFT, RIGHT, SAME = ("trace", b"left"), ("trace", b"right"), ("app", b"same")


def pair(left: str | None, right: str | None) -> str:
    return f"{left}&{right}"


def tables(builder: StreamsBuilder) -> tuple[KTable[Any], KTable[Any]]:
    return builder.table("left", **SERDES), builder.table("right", **SERDES)


@pytest.mark.parametrize(
    ("policy", "of_left_change", "of_right_change"),
    [
        ("latest", [LEFT, SAME], [RIGHT, SAME]),
        ("first", [RIGHT, SAME], [LEFT, SAME]),
        ("merge_distinct", [LEFT, SAME, RIGHT], [LEFT, SAME, RIGHT]),
        ("append", [LEFT, SAME, RIGHT, SAME], [LEFT, SAME, RIGHT, SAME]),
        ("none", [], []),
    ],
)
def test_headers_of_both_sides_are_by_policy(
    policy: str, of_left_change: list[Any], of_right_change: list[Any]
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    by_key = {"foreign_key": lambda value: value[0], "value_serde": TEXT, "headers": policy}
    left.join(right, pair, **by_key).to_stream().to("inner")
    left.left_join(right, pair, **by_key).to_stream().to("outer")
    with TopologyTestDriver(builder.build()) as driver:
        into = {topic: driver.create_input_topic(topic, **SERDES) for topic in ("left", "right")}
        found = {topic: driver.create_output_topic(topic, **SERDES) for topic in ("inner", "outer")}

        def headers(topic: str) -> list[Any]:
            return [[*map(tuple, record.headers)] for record in found[topic].read_records_to_list()]

        into["right"].pipe_input(TestRecord("a", "x", 5, [RIGHT, SAME]))
        into["left"].pipe_input(TestRecord("1", "a1", 3, [LEFT, SAME]))
        assert headers("inner") == headers("outer") == [of_left_change]
        into["right"].pipe_input(TestRecord("a", "y", 4, [RIGHT, SAME]))
        assert headers("inner") == headers("outer") == [of_right_change]
        into["left"].pipe_input(TestRecord("2", "b2", 6, [LEFT]))
        assert headers("outer") == ([[]] if policy == "none" else [[LEFT]])
        assert headers("inner") == []


def test_a_function_of_key_and_value_finds_the_foreign_key() -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    kept = Materialized.as_("met")
    left.join(right, pair, foreign_key=lambda key, _: key[0], value_serde=TEXT, materialized=kept)
    with TopologyTestDriver(builder.build()) as driver:
        for topic, key, value in (("left", "a1", "v"), ("right", "a", "w"), ("left", "b1", "v")):
            driver.create_input_topic(topic, **SERDES).pipe_input(key, value)
        store = driver.get_timestamped_key_value_store_with_headers("met")
        assert store is not None
        assert {key: held.value for key, held in store.all()} == {"a1": "v&w"}


def test_what_a_join_lacks_is_said_when_it_is_built() -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    unknown = left.map_values(len)
    with pytest.raises(TopologyError, match="the serde of their values is unknown: give value_serde to the step that"):
        unknown.join(right, pair, foreign_key=str)
    with pytest.raises(TopologyError, match="foreign_key wants a function of value, or of key and value"):
        left.join(right, pair, foreign_key=lambda: "")
    with pytest.raises(TopologyError, match="left_join"):
        left.left_join(right, lambda left: left, foreign_key=str)
    other, _ = tables(StreamsBuilder())
    with pytest.raises(TopologyError):
        left.join(other, pair, foreign_key=str)
