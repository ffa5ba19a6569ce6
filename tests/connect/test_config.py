"""Properties are read as Kafka's ConfigDef reads them; texts of errors are those of Kafka 4.3.1."""

import logging
from typing import Any

import pytest

from statestore.connect.config import (
    ConfigDef,
    ConfigType,
    Properties,
    Property,
    Rule,
    distinct_values,
    every,
    non_empty_list,
    non_empty_string,
    non_null,
    one_of,
)
from statestore.errors import ConfigException

KINDS = {kind.name: kind for kind in ConfigType}


def read(type: str, value: Any, rule: Rule | None = None) -> Any:
    return ConfigDef(Property("n", KINDS[type], rule=rule)).parse({"n": value})["n"]


@pytest.mark.parametrize(
    ("type", "given", "read_as"),
    [
        ("LIST", "a,a", ["a", "a"]),
        ("LIST", "a,", ["a", ""]),
        ("LIST", "", []),
        ("LIST", " \t", []),
        ("LIST", ",", ["", ""]),
        ("LIST", "x, ,y", ["x", "", "y"]),
        ("LIST", " a \n,\x0b b ", ["a", "b"]),
        ("LIST", "a\u00a0,\u2003b", ["a\u00a0", "\u2003b"]),
        ("LIST", "a\x1f,b\x1f", ["a\x1f", "b"]),
        ("LIST", ("a", " b"), ["a", " b"]),
        ("LIST", None, None),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", " false ", False),
        ("BOOLEAN", True, True),
        ("BOOLEAN", None, None),
        ("INT", " +7 ", 7),
        ("INT", "-0", 0),
        ("INT", "\u0661", 1),
        ("INT", 5, 5),
        ("LONG", "99999999999", 99999999999),
        ("STRING", " a ", "a"),
        ("STRING", "\u00a0x", "\u00a0x"),
        ("STRING", "\x1fx", "x"),
        ("STRING", "", ""),
        ("STRING", None, None),
    ],
)
def test_a_value_is_read(type: str, given: Any, read_as: Any) -> None:
    assert read(type, given) == read_as


@pytest.mark.parametrize(
    ("type", "given", "rule", "message"),
    [
        ("LIST", 5, None, "Invalid value 5 for configuration n: Expected a comma separated list."),
        ("LIST", ["a", None], None, "Invalid value [a, null] for configuration n: Expected a comma separated list."),
        ("LIST", "", non_empty_list, "Invalid value [] for configuration n: Empty list"),
        ("LIST", None, non_empty_list, "Invalid value null for configuration n: Empty list"),
        ("LIST", "a,", distinct_values, "Configuration 'n' values must not be empty."),
        ("LIST", "", distinct_values, "Configuration 'n' must not be empty. Valid values include: any non-empty value"),
        ("LIST", None, distinct_values, "Configuration 'n' values must not be null."),
        ("BOOLEAN", "yes", None, "Invalid value yes for configuration n: Expected value to be either true or false"),
        ("BOOLEAN", 1, None, "Invalid value 1 for configuration n: Expected value to be either true or false"),
        ("INT", "1.5", None, "Invalid value 1.5 for configuration n: Not a number of type INT"),
        ("INT", "1_0", None, "Invalid value 1_0 for configuration n: Not a number of type INT"),
        ("INT", "99999999999", None, "Invalid value 99999999999 for configuration n: Not a number of type INT"),
        ("INT", " 1" * 9999, None, f"Invalid value {' 1' * 9999} for configuration n: Not a number of type INT"),
        ("INT", 1 << 31, None, None),
        ("INT", True, None, None),
        ("STRING", 5, None, "Invalid value 5 for configuration n: Expected value to be a string, but it was a int"),
        ("STRING", None, non_null, "Invalid value null for configuration n: entry must be non null"),
        ("STRING", " ", non_empty_string, "Invalid value  for configuration n: String must be non-empty"),
        (
            "STRING",
            "MOVE",
            one_of("move", "copy"),
            "Invalid value MOVE for configuration n: String must be one of: move, copy",
        ),
        (
            "STRING",
            None,
            one_of("move", "copy"),
            "Invalid value null for configuration n: String must be one of: move, copy",
        ),
        (
            "STRING",
            "x",
            one_of("A", "B", ignore_case=True),
            "Invalid value x for configuration n: String must be one of (case insensitive): A, B",
        ),
        (
            "STRING",
            None,
            every(non_null, non_empty_string),
            "Invalid value null for configuration n: entry must be non null",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_the_words_of_kafka(
    type: str, given: Any, rule: Rule | None, message: str | None
) -> None:
    with pytest.raises(ConfigException) as caught:
        read(type, given, rule)
    assert caught.value.name == "n"
    assert message is None or str(caught.value) == message


def test_rules_keep_or_change_a_value() -> None:
    assert read("LIST", "x,y,x", distinct_values) == ["x", "y"]
    assert read("LIST", "x,,x", non_empty_list) == ["x", "", "x"]
    assert read("STRING", "base64", one_of("BASE64", ignore_case=True)) == "base64"
    assert read("STRING", None, non_empty_string) is None


def test_a_required_property_must_be_there_and_another_has_its_default() -> None:
    known = ConfigDef(Property("fields", ConfigType.LIST), Property("size", ConfigType.INT, default=7))
    assert known.parse({"fields": "a"}) == {"fields": ["a"], "size": 7}
    with pytest.raises(ConfigException) as caught:
        known.parse(Properties({"size": "1"}, "transforms.a."))
    assert str(caught.value) == 'Missing required configuration "transforms.a.fields" which has no default value.'
    assert caught.value.name == "transforms.a.fields"


def test_properties_below_a_prefix_know_their_full_names() -> None:
    given = Properties({"transforms.a.x.y": "1", "transforms": "a", "transforms.ab.x": "2"})
    below = given.below("transforms.").below("a.")
    assert dict(below) == {"x.y": "1"}
    assert below.full_name("x.y") == "transforms.a.x.y"
    assert dict(below.without("x.y")) == {}
    assert below.without("z").prefix == "transforms.a."
    with pytest.raises(ConfigException, match=r"configuration p\.5: Key must be a string"):
        Properties({5: "x"}, "p.")  # type: ignore[dict-item]


def test_an_unknown_property_is_warned_of_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    known = ConfigDef(Property("operation", default="copy"), Property("headers", aliases=("header.names",)))
    with caplog.at_level(logging.WARNING):
        known.parse(Properties({"header.names": "a", "operatoin": "move", "q" * 10_000_000: ""}, "transforms.a."))
    first, second = caplog.messages
    assert first == (
        "Property 'transforms.a.operatoin' is not known, and does nothing. Did you mean 'transforms.a.operation'?"
    )
    assert second.endswith("qq' is not known, and does nothing.")
    assert len(second) < 300
    caplog.clear()
    known.parse({"headers": "x", "extra": ""}, warn=False)
    assert caplog.messages == []


def test_an_alias_stands_in_for_a_name_that_is_not_set() -> None:
    known = ConfigDef(Property("headers", ConfigType.LIST, aliases=("header.names",), rule=distinct_values))
    assert known.parse({"header.names": "a,b"}) == {"headers": ["a", "b"]}
    with pytest.raises(ConfigException, match=r"headers and header\.names are one property") as raised:
        known.parse({"header.names": "a", "headers": "b"})
    assert raised.value.name == "header.names"
    with pytest.raises(ConfigException, match=r"'header\.names' values must not be empty"):
        known.parse({"header.names": ","})


class Mine:
    class Inner:
        pass


def test_a_class_is_a_known_java_one_or_one_of_python() -> None:
    java = {"org.apache.kafka.Foo$Key": Mine, "org.apache.kafka.Bar": Mine.Inner}
    known = ConfigDef(Property("type", ConfigType.CLASS, classes=java))

    def found(value: Any) -> Any:
        return known.parse({"type": value})["type"]

    assert found(" org.apache.kafka.Foo$Key ") is Mine
    assert found("Bar") is Mine.Inner
    assert found("statestore.connect.config:ConfigDef") is ConfigDef
    assert found(Mine) is Mine
    for wrong, why in {
        "org.apache.kafka.Ba": "Did you mean 'org.apache.kafka.Bar'",
        "no_such_module:X": "No module named",
        "statestore.connect.config:Nothing": "Nothing",
        ":X": "could not be found",
        "statestore.connect.config:": "could not be found",
    }.items():
        with pytest.raises(ConfigException, match=why):
            found(wrong)
