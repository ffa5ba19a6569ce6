"""What programs of the DSL come to here and in Kafka Streams, compared as far as it can be."""

from __future__ import annotations

from typing import Any

from statestore.dsl.join_serdes import WaitingKey
from statestore.format.values.buffered_record import decode_logged_record
from tests.support.java.driver import Step
from tests.support.java.dsl import DslScenario


def difference(
    scenario: DslScenario, there: dict[str, Any], here: dict[str, Any], *, has_headers: bool, leave_out: str = ""
) -> str | None:
    """What is not the same, and where it begins; None if all is that can be compared."""
    expected = comparable(scenario, there, has_headers=has_headers)
    found = comparable(scenario, here, has_headers=has_headers)
    expected.pop(leave_out, None)
    for part, value in expected.items():
        if part == "stores":
            # What has no public interface there is not known; what waits in joins is compared by its changelog's bytes.
            value = {name: held for name, held in value.items() if held is not None and not _waits(found[part][name])}
            found[part] = {
                name: _without_times(entries) if _is_plain(value[name]) else entries
                for name, entries in found[part].items()
                if name in value
            }
            value = {name: _without_times(held) if _is_plain(held) else held for name, held in value.items()}
        if value != found.get(part):
            program = "\n".join(map(str, scenario.program.statements))
            return f"{program}\n{_first_difference(scenario, part, value, found.get(part))}"
    return None


def written(result: dict[str, Any]) -> dict[str, list[Any]]:
    """What was written to each topic but changelogs, all steps together, without headers."""
    topics: dict[str, list[Any]] = {}
    for step in (*result["emitted"], result["topics"]):
        for topic, records in step.items():
            if not is_changelog(topic):
                topics.setdefault(topic, []).extend(record[:3] for record in records)
    return topics


def last_values(topics: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """The last value of each key in each topic but the program's own, and but for changes, which name the one before.

    In a micro-batch, a response to a left value that has changed meanwhile is left out, and so is a second deletion.
    """
    results = {topic for topic in topics if not topic.startswith("app-") and topic != "changes"}
    last = {topic: {key: value for key, value, _ in topics[topic]} for topic in results}
    live = {topic: {key: value for key, value in last[topic].items() if value is not None} for topic in results}
    return {topic: values for topic, values in live.items() if values}


def _first_difference(scenario: DslScenario, part: str, expected: Any, found: Any) -> str:
    if part != "emitted":
        return f"{part}\nthere: {expected}\nhere:  {found}"
    number = next(number for number, step in enumerate(expected) if found[number : number + 1] != [step])
    steps = "\n".join(map(_shown, scenario.steps[: number + 1]))
    return f"{steps}\nthere: {expected[number]}\nhere:  {found[number : number + 1]}"


def _shown(step: Step) -> str:
    if step[0] != "pipe":
        return str(step)
    return " ".join(str(None if part is None else bytes.fromhex(part)) for part in step[2:4]) + f" {step[1]} {step[4]}"


def comparable(scenario: DslScenario, result: dict[str, Any], *, has_headers: bool) -> dict[str, Any]:
    """A result without what differs for a reason, up to the step that failed.

    Headers are left out unless both keep the same ones; of changelogs always, where each format of values has its own.
    With caching, there stores are behind their caches, and so are their changelogs: both are left out.
    """
    emitted = result["emitted"]
    failed = next((number for number, step in enumerate(emitted) if "error" in step), None)
    if failed is not None:
        emitted = [*emitted[:failed], "failed"]
    compared = {
        "describe": result["describe"],
        "emitted": [_compared_topics(scenario, step, has_headers=has_headers) for step in emitted],
    }
    if failed is None:
        compared["dropped"] = result["dropped"]
        compared["topics"] = _compared_topics(scenario, result["topics"], has_headers=has_headers)
        if not scenario.caching:
            stores = result["stores"].items()
            compared["stores"] = {name: _compared_entries(entries) for name, entries in stores if not _is_ours(name)}
    return compared


def _compared_topics(scenario: DslScenario, step: Any, *, has_headers: bool) -> Any:
    if step == "failed":
        return step
    buffers = _changelogs_of_buffers(scenario)
    return {
        topic: {key: _held_back(logged) for key, logged, *_ in records}
        if topic in buffers
        else [record[: _compared_fields(topic, has_headers=has_headers)] for record in _kept_of_log(topic, records)]
        for topic, records in sorted(step.items())
        if not ((scenario.caching and is_changelog(topic)) or _is_ours(topic.removesuffix("-changelog")))
    }


def _changelogs_of_buffers(scenario: DslScenario) -> set[str]:
    """The changelogs of what is suppressed: there they have the order of a hash table, and the wall clock's time."""
    suppressing = [statement for statement in scenario.program.statements if statement["op"] == "suppress"]
    named = {f"app-{each['name']}-store-changelog" for each in suppressing if "name" in each}
    return {
        *named,
        *(f"app-KTABLE-SUPPRESS-STATE-STORE-{number:010d}-changelog" for number in range(30 * len(suppressing))),
    }


def _held_back(logged: str | None) -> Any:
    """What a buffer logs, without the headers, which others may be here, and the offset, which begins anew here."""
    if logged is None:
        return ()
    record, due_ms = decode_logged_record(bytes.fromhex(logged))
    return record._replace(header_bytes=b"", offset=0), due_ms


def _kept_of_log(topic: str, records: list[Any]) -> list[Any]:
    """Leave out of a changelog what is put again at once, as a session that a record is within: columns log the put."""
    if "-SUBSCRIPTION-" in topic.upper() and "-RESPONSE-" not in topic.upper():
        return [[key, _without_partition(value), *rest] for key, value, *rest in records]
    if not is_changelog(topic):
        return records
    pairs = zip(records, [*records[1:], None], strict=True)
    return [each for each, after in pairs if each[1] is not None or after is None or after[0] != each[0]]


def _without_partition(subscription: str | None) -> str | None:
    """A subscription of version 1, which Kafka writes, as one of version 0, which we write."""
    if subscription is None or subscription[1] == "0":
        return subscription
    assert subscription[1] == "1"
    return f"{subscription[0]}0{subscription[2:-8]}"


def _is_ours(store: str) -> bool:
    """Whether Kafka Streams has no such store."""
    return store.endswith(("-ends", "-times"))


def _compared_fields(topic: str, *, has_headers: bool) -> int:
    if topic.endswith("-Buffer-changelog"):
        return 2  # which has the time of writing there, and none in the test driver
    return 4 if has_headers and not is_changelog(topic) else 3


def is_changelog(topic: str) -> bool:
    return topic.startswith("app-") and topic.endswith("-changelog")


def _compared_entries(entries: list[list[Any]] | None) -> Any:
    if entries is None:
        return None
    return sorted(([part for part in entry if not _is_headers(part)] for entry in entries), key=repr)


def _waits(entries: Any) -> bool:
    return any(isinstance(part, WaitingKey) for entry in entries for part in entry)


def _is_plain(entries: Any) -> bool:
    """Whether it is the store of a join there, whose values have no timestamps unless stores have headers."""
    return bool(entries) and all(entry[-1] == -1 for entry in entries)


def _without_times(entries: Any) -> Any:
    return [entry[:-1] for entry in entries]


def _is_headers(part: Any) -> bool:
    return isinstance(part, list) and all(isinstance(header, list) for header in part)
