"""The test driver does what Kafka Streams' own TopologyTestDriver does, scenario for scenario.

All scenarios are run by one Java virtual machine, before the first test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.java.driver import (
    Scenario,
    advance,
    advance_time,
    input_topic,
    pipe,
    put,
    read,
    read_one,
    run_with_kafka_streams,
)
from tests.support.twins.driver import FAILED, meaning_of_java, run_here
from tests.support.twins.random_scenarios import INPUTS, draw_graph, draw_scenario
from tests.support.twins.topologies import TOPOLOGIES
from tests.support.twins.wrong_topologies import WRONG_TOPOLOGIES

SEEDS = range(100)

HEADERS = [("drop", "x"), ("a", None), ("a", "1")]

FIXED = {
    "headers are shared by children": Scenario(
        "stateless", (pipe("in", "k", "v", 5, HEADERS), pipe("in", None, None, 0))
    ),
    "topics": Scenario(
        "stateless",
        (
            read_one("out-direct"),
            read("nowhere"),
            pipe("nowhere", "k", "v", 1),
            pipe("in", "k", "v", -1),
            input_topic("in", 5, -1),
            input_topic("in", 5, 7),
            pipe("in", "k", "v", None),
            pipe("in", "k", "v", 100),
            advance_time("in", 1000),
            advance_time("in", -1),
            pipe("in", "k", "v", None),
            read_one("out-direct"),
            read("out-direct"),
            read_one("out-direct"),
            advance(-1),
        ),
    ),
    "expired windows": Scenario(
        "windows",
        (pipe("in", "a", "x", 200_000), pipe("in", "a", "late", 5), pipe("in", "a", "y", 145_000)),
        persistent=True,
    ),
    "expired versions": Scenario(
        "versions", (pipe("in", "a", "x", 200_000), pipe("in", "a", "late", 5), pipe("in", "a", "y", 145_000))
    ),
    "late version before a tombstone that replaced the latest": Scenario(
        "versions",
        (
            pipe("in", "a", "x", 500),
            pipe("in", "a", "d", 500),
            pipe("in", "a", "late", 200),
            pipe("in", "b", "x", 100),
            pipe("in", "b", "y", 500),
            pipe("in", "b", "d", 500),
            pipe("in", "b", "late", 200),
            pipe("in", "c", "d", 500),
            pipe("in", "c", "x", 500),
            pipe("in", "c", "d", 500),
            pipe("in", "c", "late", 200),
            pipe("in", "e", "x", 100),
            pipe("in", "e", "y", 500),
            pipe("in", "e", "d", 100),
            pipe("in", "e", "d", 500),
            pipe("in", "e", "late", 200),
        ),
    ),
    "stream time": Scenario(
        "stream-punctuation",
        tuple(pipe("in", "k", "v", time_ms, HEADERS) for time_ms in (0, 3, 9, 10, 15, 5, 35, 36, 40, 1000, 999, 1010)),
        persistent=True,
    ),
    "wall clock": Scenario(
        "wall-clock-punctuation", tuple(advance(step_ms) for step_ms in (0, 1, 3, 2, 4, 10, 5, 100, 10, 10))
    ),
    "anchored on the grid, in the past": Scenario("wall-clock-punctuation", (advance(0), advance(9)), 1044),
    "anchored now": Scenario("wall-clock-punctuation", (advance(0), advance(9)), 1004),
    "queues of sources": Scenario(
        "fan-out-to-sources",
        (pipe("in", "k", "b9c9a8b1", 1), pipe("in", "k", "c7b7a7a7b7", 1), pipe("topic-a", "k", "", 0)),
    ),
    **{
        f"keys of tenants, {'on disk' if persistent else 'in memory'}": Scenario(
            "tenant-keys",
            tuple(
                pipe("in", key, value, time_ms, [("tenant", tenant)] if tenant else [])
                for time_ms, (key, value, tenant) in enumerate(
                    (
                        ("k", "v", "a"),
                        ("k", "w", "b"),
                        ("k", "x", "a"),
                        ("k", "y", None),
                        ("k", None, "b"),
                        ("k", None, "c"),
                        ("l", "z", "b"),
                        ("k", "again", "b"),
                    )
                )
            ),
            persistent=persistent,
        )
        for persistent in (False, True)
    },
    "global store written from outside": Scenario(
        "global-store", (put("table", "k", "v"), pipe("in", "k", "x", 5), pipe("table-topic", "k", None, 9))
    ),
    "store written from outside": Scenario(
        "shared-store",
        (
            put("shared", "k", "v"),
            pipe("left", "a", "b", 50, HEADERS),
            read("app-shared-changelog"),
            put("shared", "k", None),
            advance(0),
            read("app-shared-changelog"),
        ),
        persistent=True,
    ),
    "null key to a store": Scenario("counts", (pipe("in", None, "x", 1),)),
    "null key to windows": Scenario("windows", (pipe("in", None, "x", 1),)),
    "init": Scenario("failing-init"),
    **{
        f"failing: {key}": Scenario(
            "failing", (pipe("in", "ok", "v", 5), read("out"), pipe("in", key, "v", 6, HEADERS))
        )
        for key in ("raise", "store", "child", "time", "null")
    },
    "failing punctuator on stream time": Scenario(
        "failing-punctuator", (pipe("in", "a", "b", 5), read("out"), pipe("in", "a", "b", 25))
    ),
    "failing punctuator on the wall clock": Scenario(
        "failing-punctuator", (pipe("in", "a", "b", 5), advance(10), read("out"), advance(10))
    ),
}

# Here the drivers differ: what either of them does is said by a test of its own.
DIFFERING = {
    "after a failure": Scenario(
        "failing", (pipe("in", "ok", "v", 5), pipe("in", "raise", "v", 6), pipe("in", "ok", "w", 7), read("out"))
    ),
    "due together": Scenario(
        "punctuations-due-together",
        (advance(10), read("out"), advance(10), read("out"), pipe("in", "k", "v", 5), pipe("in", "k", "v", 10)),
    ),
    "windows in memory": Scenario("windows", (pipe("in", "b", "x", 5), pipe("in", "a", "x", 10_000))),
    "no timestamp": Scenario("linked", (put("seen", "k", "v"), advance(0), read("app-seen-changelog"))),
}

Outcome = Callable[[Scenario], dict[str, Any]]


@pytest.fixture(scope="module")
def kafka_streams(java: str) -> Outcome:
    """What Kafka Streams makes of a scenario."""
    scenarios = [draw_scenario(topology, seed) for topology in INPUTS for seed in SEEDS]
    scenarios += [*FIXED.values(), *DIFFERING.values()]
    scenarios += [Scenario(topology) for topology in TOPOLOGIES] + [draw_graph(seed) for seed in SEEDS]
    results = dict(zip(scenarios, map(meaning_of_java, run_with_kafka_streams(scenarios)), strict=True))
    return results.__getitem__


def comparable(scenario: Scenario, outcome: dict[str, Any]) -> dict[str, Any]:
    """An outcome without its description, and without what a failed record left: nothing here, but part of it there.

    In memory, windows and sessions are in another order there.
    """
    compared = {name: part for name, part in outcome.items() if name != "describe"}
    failed = any(isinstance(step, dict) and step["error"][0] in ("process", "punctuator") for step in outcome["steps"])
    if failed:
        del compared["stores"], compared["topics"]
    elif not scenario.persistent:
        compared["stores"] = {name: sorted(entries, key=repr) for name, entries in outcome["stores"].items()}
    return compared


def text(records: list[Any]) -> list[str]:
    return [bytes.fromhex(record[1]).decode() for record in records]


@pytest.mark.parametrize("topology", INPUTS)
def test_random_scenarios(topology: str, kafka_streams: Outcome) -> None:
    scenarios = [draw_scenario(topology, seed) for seed in SEEDS]
    assert any(kafka_streams(scenario)["topics"] for scenario in scenarios)
    for scenario in scenarios:
        assert comparable(scenario, run_here(scenario)) == comparable(scenario, kafka_streams(scenario)), scenario


@pytest.mark.parametrize("name", FIXED)
def test_fixed_scenarios(name: str, kafka_streams: Outcome) -> None:
    scenario = FIXED[name]
    here, there = run_here(scenario), kafka_streams(scenario)
    if "error" in there:
        assert here == there
    else:
        assert comparable(scenario, here) == comparable(scenario, there)


@pytest.mark.parametrize("topology", [name for name in TOPOLOGIES if name not in {*WRONG_TOPOLOGIES, "failing-init"}])
def test_descriptions(topology: str, kafka_streams: Outcome) -> None:
    scenario = Scenario(topology)
    expected = kafka_streams(scenario)["describe"]
    assert expected.startswith("Topologies:")
    assert run_here(scenario)["describe"] == expected


def test_descriptions_of_random_topologies(kafka_streams: Outcome) -> None:
    described = [(kafka_streams(draw_graph(seed))["describe"], draw_graph(seed)) for seed in SEEDS]
    assert sum("global store" in description for description, _ in described) > 20
    for description, scenario in described:
        assert run_here(scenario)["describe"] == description, scenario.graph


@pytest.mark.parametrize("topology", WRONG_TOPOLOGIES)
def test_topologies_that_cannot_be_built(topology: str, kafka_streams: Outcome) -> None:
    here, there = run_here(Scenario(topology)), kafka_streams(Scenario(topology))
    assert there == {"error": ["topology"]}
    # That there is no topic is an argument's fault here.
    assert here == ({"error": ["argument"]} if topology == "wrong-no-topics" else there)


def test_what_kafka_streams_does_is_known(kafka_streams: Outcome) -> None:
    shared = kafka_streams(FIXED["headers are shared by children"])["topics"]
    held = [["a", None], ["a", "31"], ["tag", "6b"], ["first", "31"]]
    assert [shared[topic][0] for topic in sorted(shared)] == [["6b", "76", 5, held]] * 3
    ticks = [record for record in kafka_streams(FIXED["stream time"])["topics"]["out"] if record[0] == b"tick".hex()]
    assert [record[2] for record in ticks] == [0, 10, 35, 40, 1000, 1010]
    assert all(record[3] == [] for record in ticks)
    raised = kafka_streams(FIXED["failing: raise"])["steps"][-1]
    assert raised == {"error": ["process", "below", "in", 0, 1, "raised"]}


def test_a_tombstone_that_replaces_the_latest_version_leaves_nothing_unless_it_ends_another(
    kafka_streams: Outcome,
) -> None:
    scenario = FIXED["late version before a tombstone that replaced the latest"]
    for stores in (run_here(scenario)["stores"], kafka_streams(scenario)["stores"]):
        found = {(key, as_of): version for key, as_of, version in stores["versions"]}
        # The tombstone at 500 is forgotten: the late version is the latest, also as of a time after the tombstone.
        assert found["a", None] == found["a", 500] == found["a", 200] == ["late", 200]
        # Here it ended the version of 100, so it is known, and ends the late one.
        assert found["b", None] == found["b", 500] == [None]
        assert (found["b", 200], found["b", 100]) == (["late", 200], ["x", 100])
        # Here a tombstone was the first of that time, or a version that is a tombstone by now ended then.
        assert found["c", None] == found["c", 500] == found["e", None] == found["e", 500] == found["e", 100] == [None]
        assert found["c", 200] == found["e", 200] == ["late", 200]


def test_after_a_failure_kafka_streams_goes_on_with_what_the_failed_record_left(kafka_streams: Outcome) -> None:
    scenario = DIFFERING["after a failure"]
    here, there = run_here(scenario), kafka_streams(scenario)
    assert there["stores"]["plain"] == [["after-ok", "w"], ["ok", "w"], ["raise", "v"]]
    assert text(there["steps"][3]) == ["v", "w"]
    assert here["steps"][1] == there["steps"][1]
    assert here["steps"][2] == FAILED
    assert text(here["steps"][3]) == ["v"]


def test_punctuators_due_together_run_in_the_order_of_a_heap_there(kafka_streams: Outcome) -> None:
    scenario = DIFFERING["due together"]
    here, there = run_here(scenario), kafka_streams(scenario)
    in_order = [f"p{node}.{number}" for node in range(3) for number in range(3)]
    for step in (1, 3):
        assert sorted(text(there["steps"][step])) == text(here["steps"][step]) == in_order
    assert text(there["steps"][1]) != text(there["steps"][3])
    assert text(here["topics"]["out"]) == ["v", *in_order, "v", *in_order]
    assert sorted(here["topics"]["out"]) == sorted(there["topics"]["out"])


def test_windows_in_memory_are_scanned_by_key_as_those_on_rocksdb(kafka_streams: Outcome) -> None:
    scenario = DIFFERING["windows in memory"]
    here, there = run_here(scenario)["stores"]["plain"], kafka_streams(scenario)["stores"]["plain"]
    assert there == [["b", 0, 10_000, "x"], ["a", 10_000, 20_000, "x"]]
    assert here == [["a", 10_000, 20_000, "x"], ["b", 0, 10_000, "x"]]


def test_a_value_put_without_a_timestamp_is_stored_but_refused_by_the_changelog_there(kafka_streams: Outcome) -> None:
    there = kafka_streams(DIFFERING["no timestamp"])
    assert there["steps"] == [{"error": ["argument"]}, None, []]
    assert there["stores"]["seen"] == [["k", "v", -1, []]]
