"""What drawn scenarios of the DSL came to, by the results of Kafka Streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.java.dsl import DslScenario


def coverage(scenarios: Iterable[DslScenario], results: Iterable[dict[str, Any]]) -> dict[str, int]:
    """How many scenarios show what, by the results of Kafka Streams."""
    found: dict[str, int] = {}
    for scenario, result in zip(scenarios, results, strict=True):
        for name in _seen(scenario, result):
            found[name] = found.get(name, 0) + 1
    return found


def _seen(scenario: DslScenario, result: dict[str, Any]) -> set[str]:
    if "error" in result:
        return {"not built"}
    nulls = sum(step[0] == "pipe" and None in step[2:4] for step in scenario.steps)
    seen = {"dropped"} if result["dropped"] else set()
    if result["dropped"] > nulls:
        seen.add("late")
    for step in result["emitted"]:
        if "error" in step:
            seen.add("failed")
            continue
        outputs = [record for topic, records in step.items() if not topic.startswith("app-") for record in records]
        if outputs:
            seen.add("emitted")
        if len({record[0] for record in outputs}) > 1:
            seen.add("emitted for several keys")
        values = [bytes.fromhex(record[1]) for record in outputs if record[1] is not None]
        if len(values) < len(outputs):
            seen.add("tombstones")
        if any(b"&null" in value or b"null&" in value for value in values):
            seen.add("unmatched")
        if any(b"&" in value and b"null" not in value for value in values):
            seen.add("matched")
        for topic, records in step.items():
            deleted = [record for record in records if record[1] is None]
            if topic.startswith("app-") and len(deleted) > 1 and deleted != records:
                seen.add("merged")
    return seen
