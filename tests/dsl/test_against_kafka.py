"""Programs of the DSL do what Kafka Streams' DSL makes of them, scenario for scenario.

All scenarios are run by one Java virtual machine, before the first test. With STATESTORE_SEED set to another number
than 0 they are others, and STATESTORE_SCENARIOS says how many there are of each family.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from statestore.dsl import GlobalKTable, KStream, KTable, StreamsBuilder
from statestore.dsl.aggregates.grouped_stream import (
    CogroupedKStream,
    KGroupedStream,
    SessionWindowedKStream,
    TimeWindowedKStream,
)
from statestore.dsl.branched_stream import BranchedKStream
from statestore.dsl.grouped_table import KGroupedTable
from statestore.errors import TopologyError
from statestore.testing.jars import kafka_streams_jars
from tests.support.java.dsl import run_dsl_with_kafka_streams
from tests.support.twins.dsl_comparing import difference, last_values, written
from tests.support.twins.dsl_coverage import coverage
from tests.support.twins.dsl_driver import go_on_here, run_dsl_here, run_in_batches_here, step_of_all_times
from tests.support.twins.fixed_dsl import DIFFERING, FIXED, LAST_MS, WRONG, WRONG_HERE
from tests.support.twins.random_dsl import draw_dsl_scenario

COUNT = int(os.environ.get("STATESTORE_SCENARIOS", "30"))
FIRST = int(os.environ.get("STATESTORE_SEED", "0")) * COUNT
SEEDS = range(FIRST, FIRST + COUNT)

FAMILIES = {
    "stateless": ("tombstones",),
    "aggregates": ("tombstones", "dropped"),
    "cached aggregates": ("tombstones", "dropped"),
    "time windows": ("late", "tombstones"),
    "sliding windows": ("late", "tombstones"),
    "session windows": ("late", "merged"),
    "cached session windows": ("late", "tombstones"),
    "time windows on close": ("late", "emitted for several keys"),
    "sliding windows on close": ("late", "emitted for several keys"),
    "session windows on close": ("merged", "emitted for several keys"),
    "suppressed windows": ("late",),
    "suppressed tables": ("tombstones",),
    "tables": ("tombstones", "dropped"),
    "versioned tables": ("late", "tombstones"),
    "stream joins": ("matched", "late"),
    "left stream joins": ("matched", "unmatched", "late", "emitted for several keys"),
    "outer stream joins": ("matched", "unmatched", "merged", "emitted for several keys"),
    "stream-table joins": ("matched", "unmatched", "dropped"),
    "stream-table joins as of a time": ("matched", "unmatched", "merged"),
    "joins with a global table": ("matched", "unmatched"),
    "table joins": ("matched", "tombstones"),
    "left table joins": ("matched", "unmatched", "tombstones"),
    "outer table joins": ("matched", "unmatched", "tombstones"),
    "windowed table joins": ("matched", "unmatched", "late"),
    "chains": ("matched", "unmatched", "tombstones"),
    "regrouped": ("tombstones", "dropped"),
    "regrouped joins": ("matched", "unmatched"),
    "grouped tables": ("tombstones",),
    "cached grouped tables": ("tombstones",),
    "foreign-key joins": ("matched", "unmatched", "tombstones", "dropped"),
    "cached foreign-key joins": ("matched", "unmatched", "tombstones"),
    "cogroups": ("tombstones", "dropped"),
    "windowed cogroups": ("late",),
}
"""Of each family what a few of its scenarios come to, at least."""

Topics = dict[str, list[Any]]


def in_any_order(topics: Topics) -> Topics:
    return {topic: sorted(records, key=repr) for topic, records in topics.items()}


MOVED = (
    "aggregates",
    "time windows",
    "sliding windows",
    "session windows",
    "suppressed windows",
    "tables",
    "versioned tables",
    "stream-table joins",
    "table joins",
    "outer table joins",
    "regrouped",
    "grouped tables",
    "foreign-key joins",
    "cogroups",
)
"""The families of which some scenarios go on here with the state that Kafka Streams left."""
MOVED_COUNT = 10

BATCHED_OF = 4
"""One of so many scenarios is run in micro-batches too."""

HEADERS_AS_IN_KAFKA = {
    "stateless",
    "aggregates",
    "cached aggregates",
    "time windows",
    "stream joins",
    "stream-table joins",
    "stream-table joins as of a time",
    "joins with a global table",
    "table joins",
    "left table joins",
    "outer table joins",
    "regrouped",
    "grouped tables",
    "foreign-key joins",
    "cached foreign-key joins",
    "cogroups",
}
"""The families whose records have the same headers there."""

Results = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def kafka_streams(java: str) -> Results:
    """What Kafka Streams makes of the scenarios of each family, by seed."""
    scenarios = [draw_dsl_scenario(family, seed) for family in FAMILIES for seed in SEEDS]
    fixed = FIXED | DIFFERING | WRONG | WRONG_HERE
    results = iter(run_dsl_with_kafka_streams([*scenarios, *fixed.values()]))
    drawn = {family: [next(results) for _ in SEEDS] for family in FAMILIES}
    return {**drawn, **{name: [next(results)] for name in fixed}}


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_do_as_in_kafka(family: str, kafka_streams: Results) -> None:
    has_headers = family in HEADERS_AS_IN_KAFKA
    for seed, there in zip(SEEDS, kafka_streams[family], strict=True):
        scenario = draw_dsl_scenario(family, seed)
        found = difference(scenario, there, run_dsl_here(scenario), has_headers=has_headers)
        assert found is None, f"{family} {seed}\n{found}"


@pytest.mark.parametrize("family", [family for family in FAMILIES if not family.startswith("cached")])
def test_batches_come_to_what_records_come_to_in_kafka(family: str, kafka_streams: Results) -> None:
    for seed, there in zip(SEEDS[::BATCHED_OF], kafka_streams[family][::BATCHED_OF], strict=True):
        scenario = draw_dsl_scenario(family, seed)
        here = run_in_batches_here(scenario)
        found, expected = written(here), written(there)
        if family == "foreign-key joins":
            assert last_values(found) == last_values(expected), (family, seed, scenario.program.statements)
            continue
        if family == "regrouped joins":
            # Behind repartition topics, the two sides of a micro-batch come in another order.
            found, expected = in_any_order(found), in_any_order(expected)
        assert found == expected, (family, seed, scenario.program.statements)
        assert here["dropped"] == there["dropped"]


@pytest.mark.parametrize("family", MOVED)
def test_state_goes_on_that_kafka_streams_left(family: str, kafka_streams: Results) -> None:
    moved = 0
    for seed, there in zip(SEEDS, kafka_streams[family], strict=True):
        scenario = draw_dsl_scenario(family, seed)
        has_windows = any(statement["op"] == "windowed_by" for statement in scenario.program.statements)
        first = step_of_all_times(scenario, there) if has_windows else len(scenario.steps) // 2
        if first is not None and moved < MOVED_COUNT:
            here = go_on_here(scenario, there, first)
            found = difference(scenario, there, here, has_headers=False, leave_out="dropped")
            assert found is None, f"{family} {seed}, from step {first} on\n{found}"
            moved += 1
    assert moved >= min(MOVED_COUNT, COUNT // 10)


@pytest.mark.parametrize("family", FAMILIES)
def test_scenarios_come_to_corners(family: str, kafka_streams: Results) -> None:
    scenarios = [draw_dsl_scenario(family, seed) for seed in SEEDS]
    seen = coverage(scenarios, kafka_streams[family])
    assert seen["emitted"] > COUNT // 2
    assert [corner for corner in FAMILIES[family] if seen.get(corner, 0) < COUNT // 25] == []


@pytest.mark.parametrize("name", FIXED)
def test_fixed_scenarios_do_as_in_kafka(name: str, kafka_streams: Results) -> None:
    found = difference(FIXED[name], kafka_streams[name][0], run_dsl_here(FIXED[name]), has_headers=False)
    assert found is None, found


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_are_refused_as_in_kafka(name: str, kafka_streams: Results) -> None:
    assert "error" in kafka_streams[name][0]
    with pytest.raises((TopologyError, ValueError)):
        run_dsl_here(WRONG[name])


@pytest.mark.parametrize("name", WRONG_HERE)
def test_programs_that_are_refused_here_alone(name: str, kafka_streams: Results) -> None:
    assert "error" not in kafka_streams[name][0]
    with pytest.raises(TopologyError):
        run_dsl_here(WRONG_HERE[name])


def outputs(result: dict[str, Any]) -> list[Any]:
    """What was written to "out", or why a step failed."""
    return [record for step in result["emitted"] for record in step.get("out", step.get("error", ()))]


def session(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """The key of a session in a topic."""
    return key + end_ms.to_bytes(8, "big") + start_ms.to_bytes(8, "big")


def test_windows_that_a_record_jumps_past_are_put_out_here_and_lost_there(kafka_streams: Results) -> None:
    name = "a jump past the retention"
    assert outputs(kafka_streams[name][0]) == []
    assert outputs(run_dsl_here(DIFFERING[name])) == [["61" + "00" * 8, "00" * 7 + "01", 5, []]]


def test_a_record_without_a_key_has_nothing_to_wait_for_here_and_fails_there(kafka_streams: Results) -> None:
    name = "no key, and a grace"
    assert "NullPointerException: key cannot be null" in outputs(kafka_streams[name][0])[-1]
    assert outputs(run_dsl_here(DIFFERING[name])) == [[None, b"x&null".hex(), 5, []]]


def test_windows_end_with_time_here_and_fail_there(kafka_streams: Results) -> None:
    name = "the end of time"
    assert "Window endMs time cannot be smaller than window startMs time" in outputs(kafka_streams[name][0])[-1]
    window = "61" + (LAST_MS - 7).to_bytes(8, "big").hex()
    assert outputs(run_dsl_here(DIFFERING[name])) == [[window, "00" * 7 + "01", LAST_MS - 3, []]]


def test_a_session_that_is_put_out_on_close_is_found_up_to_its_gap_here_and_a_millisecond_less_there(
    kafka_streams: Results,
) -> None:
    name = "the last millisecond of a session"
    there, here = (
        [(bytes.fromhex(key), int(value, 16)) for key, value, _, _ in outputs(result)]
        for result in (kafka_streams[name][0], run_dsl_here(DIFFERING[name]))
    )
    assert there == [(session(b"a", 0, 0), 1), (session(b"a", 5, 5), 1), (session(b"b", 5, 5), 1)]
    assert here == [(session(b"a", 0, 5), 2), (session(b"b", 5, 5), 1)]


def test_a_stream_that_lags_is_late_for_what_the_others_had_forgotten_here_and_begins_it_anew_there(
    kafka_streams: Results,
) -> None:
    name = "a stream of several that lags behind"
    there, here = kafka_streams[name][0], run_dsl_here(DIFFERING[name])
    first, last = ["61" + "00" * 8, "00" * 7 + "02", 5, []], ["61" + "00" * 7 + "14", "00" * 7 + "02", 25, []]
    assert (outputs(there), outputs(here)) == ([first, last, ["61" + "00" * 8, "00" * 7 + "01", 6, []]], [first, last])
    assert there["dropped"] == here["dropped"] == 1


def test_a_session_keeps_headers_here_and_has_none_there(kafka_streams: Results) -> None:
    name = "headers of a session"
    (there,), (here,) = outputs(kafka_streams[name][0]), outputs(run_dsl_here(DIFFERING[name]))
    assert there[:3] == here[:3]
    assert (there[3], here[3]) == ([], [["trace", b"1".hex()]])


CLASSES = {
    "StreamsBuilder": StreamsBuilder,
    "kstream.KStream": KStream,
    "kstream.KTable": KTable,
    "kstream.GlobalKTable": GlobalKTable,
    "kstream.KGroupedStream": KGroupedStream,
    "kstream.KGroupedTable": KGroupedTable,
    "kstream.CogroupedKStream": CogroupedKStream,
    "kstream.TimeWindowedKStream": TimeWindowedKStream,
    "kstream.SessionWindowedKStream": SessionWindowedKStream,
    "kstream.TimeWindowedCogroupedKStream": CogroupedKStream,
    "kstream.SessionWindowedCogroupedKStream": CogroupedKStream,
    "kstream.BranchedKStream": BranchedKStream,
}


def test_methods_of_kafka_are_here_or_on_the_page(java: str) -> None:
    names = [f"org.apache.kafka.streams.{name}" for name in CLASSES]
    (jar,) = kafka_streams_jars().glob("kafka-streams-4*.jar")
    command = [java, "-m", "jdk.jdeps/com.sun.tools.javap.Main", "-public", "-cp", str(jar), *names]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    page = (Path(__file__).parents[2] / "docs" / "dsl.md").read_text(encoding="utf-8")
    methods = 0
    for interface, text in zip(CLASSES, told.split("Compiled from ")[1:], strict=True):
        for method in set(re.findall(r" (\w+)\(", text)) - {"StreamsBuilder"}:
            methods += 1
            here = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", method)
            class_name = interface.removeprefix("kstream.")
            assert hasattr(CLASSES[interface], here) or f"`{class_name}.{method}`" in page, f"{class_name}.{method}"
    assert methods > 60
