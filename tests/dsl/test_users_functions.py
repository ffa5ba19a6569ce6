"""What users' functions take is known when a program is built; branches, and what is shown of records."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from statestore import Serdes
from statestore.dsl.kstream import KStream
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windows import JoinWindows, SessionWindows
from statestore.errors import ProcessorError, TopologyError
from statestore.testing import TestRecord, TopologyTestDriver

TEXT = Serdes.string()
TEXTS = {"key_serde": TEXT, "value_serde": TEXT}
RECORDS = [
    TestRecord(key, value, 5, [("trace", value.encode())]) for key, value in (("a", "x"), ("b", "yy"), ("a", "y"))
]


def put_out(program: Callable[[KStream], KStream]) -> list[TestRecord[Any, Any]]:
    builder = StreamsBuilder()
    program(builder.stream("in", **TEXTS)).to("out", **TEXTS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXTS).pipe_record_list(RECORDS)
        return driver.create_output_topic("out", **TEXTS).read_records_to_list()


class Marks:
    def __call__(self, key: str, value: str) -> str:
        return f"{key}-{value}"


@pytest.mark.parametrize(
    ("mapper", "first"),
    [
        (str.upper, "X"),
        (str, "x"),  # tells nobody what it takes
        (lambda value, times=2: value * times, "xx"),
        (lambda *values: "|".join(values), "x"),
        (lambda key, value: f"{key}-{value}", "a-x"),
        (Marks(), "a-x"),
        (partial(lambda mark, key, value: f"{key}{mark}{value}", "-"), "a-x"),
    ],
)
def test_values_are_made_of_the_value_or_of_key_and_value(mapper: Callable[..., str], first: str) -> None:
    assert put_out(lambda stream: stream.map_values(mapper))[0] == TestRecord("a", first, 5, [("trace", b"x")])
    assert put_out(lambda stream: stream.to_table().map_values(mapper).to_stream())[0].value == first


WRONG: dict[str, tuple[Callable[[KStream], Any], str]] = {
    "filter": (lambda s: s.filter(lambda value: True), "filter() wants a function of key and value"),
    "filter_not": (lambda s: s.filter_not(lambda: True), "filter_not() wants a function of key and value"),
    "map_values": (lambda s: s.map_values(lambda a, b, c: a), "of value, or of key and value"),
    "flat_map_values": (lambda s: s.flat_map_values(lambda: []), "flat_map_values()"),
    "map": (lambda s: s.map(lambda value: ("k", value)), "map() wants a function of key and value"),
    "flat_map": (lambda s: s.flat_map(lambda value: []), "flat_map()"),
    "select_key": (lambda s: s.select_key(lambda value: value), "select_key()"),
    "peek": (lambda s: s.peek(lambda value: None), "peek()"),
    "foreach": (lambda s: s.foreach("print"), "foreach()"),
    "branch": (lambda s: s.split().branch(lambda value: True), "branch()"),
    "deduplicate": (lambda s: s.deduplicate(5, by=lambda value: value), "deduplicate(by=)"),
    "reduce": (lambda s: s.group_by_key().reduce(lambda value: value), "old value and new value"),
    "aggregate": (lambda s: s.group_by_key().aggregate(str, lambda value, total: total), "key, value and aggregate"),
    "initializer": (lambda s: s.group_by_key().aggregate(lambda key: 0, max), "a function of nothing"),
    "merger": (
        lambda s: (
            s.group_by_key()
            .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
            .aggregate(str, lambda key, value, total: total, lambda left, right: left)
        ),
        "key, aggregate and other aggregate",
    ),
    "stream join": (
        lambda s: s.join(s, lambda value: value, JoinWindows.of_time_difference_with_no_grace(5)),
        "join() wants a function of left value and right value, or of key, left value and right value",
    ),
    "stream-table join": (lambda s: s.left_join(s.to_table(), lambda: 1), "left_join()"),
    "table join": (lambda s: s.to_table().join(s.to_table(), lambda key, left, right: left), "join() wants a function"),
    "table filter": (lambda s: s.to_table().filter(lambda value: True), "filter() wants a function of key and value"),
}


RETURNS: dict[str, Callable[[KStream], KStream]] = {
    "map()": lambda s: s.map(lambda key, value: "kv"),
    "flat_map()": lambda s: s.flat_map(lambda key, value: ["kv"]),
    "group_by() of a table": lambda s: (
        s.to_table().group_by(lambda key, value: "kv", key_serde=TEXT, value_serde=TEXT).count().to_stream()
    ),
}


@pytest.mark.parametrize("step", RETURNS)
def test_a_function_that_returns_no_pair_fails_at_a_record(step: str) -> None:
    with pytest.raises(ProcessorError, match=rf"{re.escape(step)} wants .* a key and a value, not str"):
        put_out(RETURNS[step])


def test_a_text_is_one_value_not_its_letters() -> None:
    with pytest.raises(ProcessorError, match=r"flat_map_values\(\) wants .* several values, not str"):
        put_out(lambda s: s.flat_map_values(lambda value: "kv", value_serde=TEXT))


@pytest.mark.parametrize("wrong", WRONG)
def test_a_function_that_takes_something_else_is_refused_where_it_is_given(wrong: str) -> None:
    use, message = WRONG[wrong]
    with pytest.raises(TopologyError) as refused:
        use(StreamsBuilder().stream("in", **TEXTS))
    assert message in str(refused.value)


def test_each_record_is_in_the_first_branch_that_takes_it_with_its_headers() -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", **TEXTS).split(name="by-")
    split.branch(lambda key, value: value == "x", name="x").branch(lambda key, value: key == "a")
    branches = split.default_branch(chain=lambda stream: stream.map_values(str.upper, value_serde=TEXT))
    assert list(branches) == ["by-x", "by-2", "by-0"]
    for name, branch in branches.items():
        branch.to(name)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXTS).pipe_record_list(RECORDS)
        found = {name: driver.create_output_topic(name, **TEXTS).read_records_to_list() for name in branches}
    x, yy, y = RECORDS
    assert found == {"by-x": [x], "by-2": [y], "by-0": [TestRecord("b", "YY", 5, yy.headers)]}


def test_a_branch_that_is_added_after_the_default_one_still_has_its_own_records() -> None:
    def program(stream: KStream) -> KStream:
        split = stream.split()
        split.branch(lambda key, value: value == "x")
        split.default_branch()
        split.branch(lambda key, value: value == "y", name="late")
        return split.no_default_branch()["KSTREAM-BRANCH-0000000001late"]

    assert [record.value for record in put_out(program)] == ["y"]


def test_a_split_has_one_default_branch_and_each_branch_its_own_name() -> None:
    split = StreamsBuilder().stream("in", **TEXTS).split(name="by-")
    split.branch(lambda key, value: True, name="x")
    split.default_branch(name="rest")
    with pytest.raises(TopologyError, match="'by-' has a default branch, 'by-rest'"):
        split.default_branch(name="others")
    with pytest.raises(TopologyError, match="there already is a node 'by-x'"):
        split.branch(lambda key, value: True, name="x")


def test_a_branch_whose_chain_returns_nothing_is_not_among_the_streams() -> None:
    builder, seen = StreamsBuilder(), []
    branches = (
        builder.stream("in", **TEXTS)
        .split()
        .branch(lambda key, value: key == "a", chain=lambda stream: stream.foreach(lambda *pair: seen.append(pair)))
        .no_default_branch()
    )
    assert branches == {}
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", **TEXTS).pipe_record_list(RECORDS)
    assert seen == [("a", "x"), ("a", "y")]


def test_branches_keep_the_key_they_came_with_so_they_can_be_counted() -> None:
    def program(stream: KStream) -> KStream:
        (short,) = stream.split().branch(lambda key, value: len(value) == 1).no_default_branch().values()
        return short.group_by_key().count().to_stream().map_values(str, value_serde=TEXT)

    assert [(record.key, record.value) for record in put_out(program)] == [("a", "1"), ("a", "2")]


def test_branches_of_changed_keys_are_divided_anew_as_their_stream_is() -> None:
    def program(stream: KStream) -> KStream:
        (all_of_them,) = stream.map(lambda key, value: (key, value)).split().default_branch().values()
        return all_of_them.group_by_key().count().to_stream()

    with pytest.raises(TopologyError, match=r"KSTREAM-BRANCH-.* to be repartitioned by key"):
        put_out(program)


def test_values_of_each_record_are_made_of_key_and_value() -> None:
    twice = put_out(lambda stream: stream.flat_map_values(lambda key, value: [key, value]))
    assert [record.value for record in twice] == ["a", "x", "b", "yy", "a", "y"]
