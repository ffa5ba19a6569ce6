"""A connector's configuration as text, read as Java's `Properties.load` does; what is expected here it has said."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.connect.properties_text import MAX_TEXT, read_properties
from statestore.errors import ConfigException


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("a=b", {"a": "b"}),
        ("a : b\r\nc d\re", {"a": "b", "c": "d", "e": ""}),
        ("a==b", {"a": "=b"}),
        ("a = = b ", {"a": "= b "}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("\ufeffa=b", {"\ufeffa": "b"}),
        (" # a=b\n\t! c=d\\\ne=f", {"e": "f"}),
        ("a=b\\\n  c\\\n\n d=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("\\\n#c\nd=e", {"d": "e"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\t\\n\\r\\f\\u0041\\z\\\\", {"a": "\t\n\r\fAz\\"}),
        ("a=\\ud83d\\ude00\\ud800", {"a": "\U0001f600\ud800"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
        ("transforms=a, \\\n    b\n", {"transforms": "a, b"}),
    ],
)
def test_a_file_of_properties_is_read_as_java_reads_it(text: str, read_as: dict[str, str]) -> None:
    assert read_properties(text) == read_as


@pytest.mark.parametrize("text", ["a=\\u12", "x=1\na=\\uGGGG", "\\u004"])
def test_half_an_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(
        ConfigException, match=re.escape(f"Malformed \\uxxxx encoding in line {text.count(chr(10)) + 1}")
    ):
        read_properties(text)


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        (
            '{"a": "b", "c": true, "d": 1.50, "e": null, "f": 12345678901234567890}',
            {"a": "b", "c": "true", "d": "1.50", "e": None, "f": "12345678901234567890"},
        ),
        ('\n {"name": "n", "config": {"tasks.max": 1}}', {"tasks.max": "1"}),
        ('{"config": "x"}', {"config": "x"}),
    ],
)
def test_json_is_read_as_the_rest_interface_has_it(text: str, read_as: dict[str, Any]) -> None:
    assert read_properties(text) == read_as


@pytest.mark.parametrize("text", ['{"a": [1]}', '{"a": {"b": 1}}', '{"a": 1', "{", '{"a":' + "[" * 100_000])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigException):
        read_properties(text)


def test_a_text_has_a_longest_length() -> None:
    assert len(read_properties("\\\n" * (MAX_TEXT // 2 - 2) + "a=b")) == 1
    with pytest.raises(ConfigException, match="too long"):
        read_properties("a" * (MAX_TEXT + 1))


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_with_escapes_is_read_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in properties.items())
    assert read_properties(text) == properties
    assert read_properties(json.dumps(properties)) == properties


@given(st.text(alphabet="ab=: \t\f\n\r\\#!u0"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read_properties(text)
    except ConfigException as error:
        assert error.problem.startswith("Malformed")  # noqa: PT017  most texts raise nothing
    else:
        assert all(isinstance(value, str) for value in found.values())
