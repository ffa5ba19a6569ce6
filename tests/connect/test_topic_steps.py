"""Steps that give records other topics: what they make, and what is refused; vectors of Kafka have the rest."""

from __future__ import annotations

from typing import Any

import pytest

from statestore.connect import ConnectRecord, TransformChain
from statestore.connect.transforms.topic_steps import RegexRouter, TimestampRouter
from statestore.errors import ConfigException, DataException


def topic_of(step: Any, topic: str | None, timestamp_ms: int | None = 1_700_000_000_123) -> str | None:
    found: str | None = step.apply(ConnectRecord(topic, timestamp_ms=timestamp_ms)).topic
    return found


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "made"),
    [
        ("(.*)-([0-9]+)", "$2.$1", "orders-12", "12.orders"),
        ("db\\.(.*)", "$1", "db.public.orders", "public.orders"),
        ("db\\.(.*)", "$1", "orders", "orders"),
        ("(a)(b)?", "$2$1$12", "a", "aa2"),
        ("a|ab", "x", "ab", "xb"),  # the whole topic matches, and of it the first place is replaced
        ("a", "\\$1\\\\", "a", "$1\\"),
        ("", "x", "a", "a"),
        (".*", "x", None, None),
    ],
)
def test_the_place_that_matches_is_replaced(regex: str, replacement: str, topic: str | None, made: str | None) -> None:
    assert topic_of(RegexRouter(regex, replacement), topic) == made


REFUSED: dict[tuple[str, Any], str] = {
    ("a(", "x"): "for configuration regex: Invalid regex",
    ("[a&&b]", "x"): "classes can't be nested or intersected",
    ("a", "$1"): "for configuration replacement: There is no group 1",
    ("(a)", "b$"): "At 1 no number of a group follows the dollar sign",
    ("(a)", "${n}"): "At 0 no number of a group follows the dollar sign",
    ("(a)", "b\\"): "At 1 nothing follows the backslash",
    ("a", None): "for configuration replacement: entry must be non null",
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_kafka_finds_wrong_in_each_record_is_refused_at_once(given: tuple[str, Any]) -> None:
    with pytest.raises(ConfigException, match=REFUSED[given]):
        RegexRouter(*given)


def test_a_topic_is_made_of_the_topic_and_the_time() -> None:
    assert topic_of(TimestampRouter(), "orders") == "orders-20231114"
    assert (
        topic_of(TimestampRouter("${timestamp}/x", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"), "t") == "2023-11-14T22:13:20.123Z/x"
    )
    assert topic_of(TimestampRouter("x"), None) is None
    with pytest.raises(DataException, match="Timestamp missing on record"):
        topic_of(TimestampRouter(), "t", None)


@pytest.mark.parametrize("pattern", ["YYYYMMdd", "yy", "EEE", "MMM", "yyyy'T", "hh:mm", None])
def test_a_pattern_with_other_letters_is_refused(pattern: Any) -> None:
    problem = "(is not one of yyyy, MM|the quote at 4 has no end|must be non null)"
    with pytest.raises(ConfigException, match=problem) as caught:
        TimestampRouter(timestamp_format=pattern)
    assert caught.value.name == "timestamp.format"


def test_a_step_behind_sees_the_new_topic() -> None:
    chain = TransformChain.from_properties(
        {
            "transforms": "route,daily",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": "a(.*)",
            "transforms.route.replacement": "b$1",
            "transforms.daily.type": "TimestampRouter",
            "transforms.daily.timestamp.format": "yyyy",
            "transforms.daily.predicate": "b",
            "predicates": "b",
            "predicates.b.type": "TopicNameMatches",
            "predicates.b.pattern": "b.*",
        }
    )
    assert [topic_of(chain, topic) for topic in ("a1", "c1")] == ["b1-2023", "c1"]
    assert chain.describe().startswith("route: RegexRouter(regex=a(.*), replacement=b$1) -> daily: TimestampRouter(")
