"""Programs in stages and shards, a micro-batch at a time, come to what Kafka Streams comes to record by record."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from statestore.headers.record_headers import Headers
from tests.support.java.dsl import DslScenario, run_dsl_with_kafka_streams
from tests.support.staged import StagedRun
from tests.support.twins.dsl_comparing import last_values, written
from tests.support.twins.dsl_driver import Interpreter
from tests.support.twins.random_dsl import draw_dsl_scenario

FAMILIES = ("regrouped", "regrouped joins", "grouped tables", "cogroups", "foreign-key joins")
SEEDS = range(1000, 1005)

Results = dict[str, list[dict[str, Any]]]


def is_joined_with_itself(scenario: DslScenario) -> bool:
    """Whether a table is joined with itself by a foreign key, which is refused in stages."""
    return any("foreign_key" in each and each["of"] == each["other"] for each in scenario.program.statements)


@pytest.fixture(scope="module")
def kafka_streams(java: str) -> Results:
    results = iter(
        run_dsl_with_kafka_streams([draw_dsl_scenario(family, seed) for family in FAMILIES for seed in SEEDS])
    )
    return {family: [next(results) for _ in SEEDS] for family in FAMILIES}


def run_in_stages(scenario: DslScenario, shards: int, home: Path) -> dict[str, list[Any]]:
    """What is written to each topic; records of one topic that follow each other are a micro-batch."""
    run = StagedRun(Interpreter(scenario).build().build(), shards, home)
    found: dict[str, list[Any]] = {}
    piped = [step for step in scenario.steps if step[0] == "pipe"]
    offset = 0
    for topic, steps in groupby(piped, key=lambda step: step[1]):
        batch = []
        for _, _, key, value, timestamp_ms, headers in steps:
            held = Headers((name, None if data is None else bytes.fromhex(data)) for name, data in headers)
            fields = (None if part is None else bytes.fromhex(part) for part in (key, value))
            batch.append((topic, 0, offset, timestamp_ms, *fields, held.to_bytes()))
            offset += 1
        for topic_out, timestamp_ms, key, value, _ in run.run(batch):
            parts = (None if part is None else part.hex() for part in (key, value))
            found.setdefault(topic_out, []).append([*parts, timestamp_ms])
    return found


# Several shards have each a time of its own, and records of two of them come to a third in any order.
@pytest.mark.parametrize(("family", "shards"), [*((family, 1) for family in FAMILIES), ("foreign-key joins", 3)])
def test_stages_come_to_what_kafka_streams_comes_to(
    family: str, shards: int, kafka_streams: Results, tmp_path: Path
) -> None:
    compared = 0
    for seed, there in zip(SEEDS, kafka_streams[family], strict=True):
        scenario = draw_dsl_scenario(family, seed)
        if is_joined_with_itself(scenario) or "error" in there or any("error" in step for step in there["emitted"]):
            continue
        found = run_in_stages(scenario, shards, tmp_path / str(seed))
        assert last_values(found) == last_values(written(there)), (seed, scenario.program.statements)
        compared += 1
    assert compared > len(SEEDS) // 3
