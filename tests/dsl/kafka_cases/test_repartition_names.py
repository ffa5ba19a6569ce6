"""Which names repartition topics have, and which steps share one.

Kafka's RepartitionTopicNamingTest, without optimization. What leads to what there is in topologies.txt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statestore.dsl import JoinWindows, KStream, SessionWindows, StreamJoined, TimeWindows
from statestore.errors import TopologyError
from tests.support.dsl.kafka_cases import TEXT, CaseBuilder, plus

Program = Callable[[CaseBuilder], object]

tumbling, sessions = TimeWindows.of_size_with_no_grace, SessionWindows.of_inactivity_gap_with_no_grace


def repartition_topics(program: Program) -> set[str]:
    builder = CaseBuilder(in_columns=True)
    program(builder)
    return builder.build().repartition_topics


def selected(builder: CaseBuilder, topic: str = "topic") -> KStream:
    """A stream whose keys are selected anew."""
    return builder.stream(topic).select_key(lambda key, value: key + value, key_serde=TEXT)


def other_steps(stream: KStream) -> KStream:
    return stream.filter(lambda key, value: True).map_values(lambda value: value, value_serde=TEXT)


def grouped(builder: CaseBuilder, topic: str = "topic") -> Any:
    return selected(builder, topic).group_by_key(name="grouping")


# ---- Names


def by_key(stream: KStream, name: str) -> Any:
    return stream.group_by_key(name=name)


def by_other_key(stream: KStream, name: str) -> Any:
    return stream.group_by(lambda key, value: key + value, key_serde=TEXT, name=name)


GROUPS = {"group by key": by_key, "group by": by_other_key}
WINDOWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "time windows": (lambda group: group.windowed_by(tumbling(10)), "time-window-grouping"),
    "session windows": (lambda group: group.windowed_by(sessions(10)), "session-window-grouping"),
    "no windows": (lambda group: group, "kstream-grouping"),
}


@pytest.mark.parametrize("steps", [lambda stream: stream, other_steps], ids=["alone", "updated"])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_should_keep_repartition_topic_name_for_groups(
    windows: str, group: str, steps: Callable[[KStream], KStream]
) -> None:
    builder = CaseBuilder(in_columns=True)
    windowed, name = WINDOWS[windows]
    windowed(GROUPS[group](steps(selected(builder)), name)).count()
    assert builder.build().repartition_topics == {f"{name}-repartition"}


@pytest.mark.parametrize("steps", [lambda stream: stream, other_steps], ids=["alone", "updated"])
def test_should_keep_repartition_topic_name_for_joins(steps: Callable[[KStream], KStream]) -> None:
    builder = CaseBuilder(in_columns=True)
    one, two = (steps(selected(builder, topic)) for topic in ("one", "two"))
    within, serdes = JoinWindows.of_time_difference_with_no_grace(1000), StreamJoined.with_(TEXT, TEXT, TEXT)
    one.join(two, plus, within, serdes, name="my-join")
    assert builder.build().repartition_topics == {"my-join-left-repartition", "my-join-right-repartition"}


@pytest.mark.parametrize("is_filtered", [False, True], ids=["alone", "updated"])
def test_should_keep_repartition_name_for_groups_of_tables(is_filtered: bool) -> None:
    builder = CaseBuilder(in_columns=True)
    table = builder.table("topic")
    if is_filtered:
        table = table.filter(lambda key, value: True)
    pairs(table, "ktable-group-by").count()
    assert builder.build().repartition_topics == {"ktable-group-by-repartition"}


# ---- One topic for several steps


def pairs(table: Any, name: str | None) -> Any:
    return table.group_by(lambda key, value: (key, value), key_serde=TEXT, value_serde=TEXT, name=name)


def same_group(builder: CaseBuilder) -> None:
    group = grouped(builder)
    for size_ms in (10, 30):
        group.windowed_by(tumbling(size_ms)).count()


def same_windows(windows: Any) -> Program:
    def program(builder: CaseBuilder) -> None:
        group = grouped(builder)
        windowed = group.windowed_by(windows)
        windowed.count()
        windowed.reduce(plus)
        group.windowed_by(tumbling(30)).count()

    return program


def table_group(name: str | None) -> Program:
    def program(builder: CaseBuilder) -> None:
        group = pairs(builder.table("topic"), name)
        group.count()
        group.reduce(lambda old, new: new, lambda old, new: new)

    return program


def unnamed_group(builder: CaseBuilder) -> None:
    group = selected(builder).group_by_key()
    for size_ms in (10, 30):
        group.windowed_by(tumbling(size_ms)).count()


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(same_group, id="same group"),
        pytest.param(same_windows(tumbling(10)), id="same time windows"),
        pytest.param(same_windows(sessions(10)), id="same session windows"),
        pytest.param(table_group("grouping"), id="same group of a table"),
    ],
)
def test_should_not_fail_with_same_repartition_topic_name(program: Program) -> None:
    assert repartition_topics(program) == {"grouping-repartition"}


@pytest.mark.parametrize(
    "program", [pytest.param(unnamed_group, id="group"), pytest.param(table_group(None), id="group of a table")]
)
def test_should_not_reuse_unnamed_repartition_topics(program: Program) -> None:
    assert len(repartition_topics(program)) == 2


# ---- Refused


def two_groups(builder: CaseBuilder) -> None:
    for topic in ("topic", "topicII"):
        grouped(builder, topic).count()


def two_joins(builder: CaseBuilder) -> None:
    one, two, three = (selected(builder, topic) for topic in ("topic", "topic2", "topic3"))
    within = JoinWindows.of_time_difference_with_no_grace(30)
    stored = StreamJoined.with_(TEXT, TEXT, TEXT).with_store_name("join-store")
    joined = one.join(two, plus, within, stored, name="join-repartition")
    joined.join(three, plus, within, stored, name="join-repartition")


@pytest.mark.parametrize(
    ("program", "name"),
    [pytest.param(two_groups, "grouping", id="groups"), pytest.param(two_joins, "join-repartition", id="joins")],
)
def test_should_fail_with_same_repartition_topic_name(program: Program, name: str) -> None:
    with pytest.raises(TopologyError, match=name):
        repartition_topics(program)
