"""Headers as maps of texts in three notations: round trips, what does not fit, and malformed texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import FormatError, LossyHeadersError
from statestore.kip82.text_headers import (
    from_avro,
    from_json,
    from_text_map,
    from_url,
    to_avro,
    to_json,
    to_text_map,
    to_url,
)

NOTATIONS: dict[str, tuple[Callable[[Headers], Any], Callable[[Any], Headers]]] = {
    "map": (to_text_map, from_text_map),
    "&=": (to_url, from_url),
    "json": (to_json, from_json),
    "avro": (to_avro, from_avro),
}
EACH = pytest.mark.parametrize("notation", NOTATIONS)
MAPS = st.dictionaries(st.text(max_size=4) | st.sampled_from(["a=b&c", "%", "+ ", "/", '"\\']), st.text(max_size=4))


@EACH
@given(MAPS)
def test_round_trip_in_order(notation: str, texts: dict[str, str]) -> None:
    write, read = NOTATIONS[notation]
    headers = Headers((key, text.encode()) for key, text in texts.items())
    assert read(write(headers)) == headers


def test_what_is_written() -> None:
    headers = Headers([("b", b"x y"), ("a", "é&=".encode()), ("", b"")])
    assert to_text_map(headers) == {"b": "x y", "a": "é&=", "": ""}
    assert to_url(headers) == "b=x%20y&a=%C3%A9%26%3D&="
    assert to_url(Headers([("a/b", b"c/d")])) == "a%2Fb=c%2Fd"
    assert to_json(headers) == '{"b":"x y","a":"é&=","":""}'
    assert to_avro(headers).hex() == "06026206782079026108c3a9263d000000"


def test_no_headers() -> None:
    assert [write(Headers()) for write, _ in NOTATIONS.values()] == [{}, "", "{}", b"\x00"]
    assert to_url(Headers([("", b"")])) == "="


@given(MAPS)
def test_others_read_our_pairs(texts: dict[str, str]) -> None:
    assert parse_qsl(to_url(from_text_map(texts)), keep_blank_values=True) == list(texts.items())


@EACH
@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([("a", b"1"), ("b", b""), ("a", b"1")], "header 'a' comes twice"),
        ([("a", b"1"), ("b", None)], "header 'b' has a null value"),
        ([("a", b"1"), ("b", b"\xff")], "header 'b' has a value that is not UTF-8"),
        ([("b", b"\xed\xa0\x80")], "header 'b' has a value that is not UTF-8"),
    ],
    ids=["repeated key", "null", "bytes", "encoded surrogate"],
)
def test_headers_that_do_not_fit(notation: str, pairs: list[tuple[str, bytes | None]], problem: str) -> None:
    with pytest.raises(LossyHeadersError, match=f"{problem}, which a map of texts can't hold"):
        NOTATIONS[notation][0](Headers(pairs))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "a pair of 1 characters has no ="),
        ("a=1&", "of 0 characters has no ="),
        ("&a=1", "of 0 characters has no ="),
        ("a=1=2", "of 3 characters is not percent-encoded"),
        ("a=x+y", r"of 3 characters is not percent-encoded"),
        ("a=x y", "not percent-encoded"),
        ("a=é", "not percent-encoded"),
        ("a=%", "not percent-encoded"),
        ("a=%4", "not percent-encoded"),
        ("a=%zz", "not percent-encoded"),
        ("a=1\n", "not percent-encoded"),
        ("a=%FF", "of 3 characters is not UTF-8"),
        ("%ED%A0%80=1", "is not UTF-8"),
        ("a=1&b=2&a=1", "have the key 'a' twice"),
    ],
)
def test_malformed_pairs(text: str, problem: str) -> None:
    with pytest.raises(FormatError, match=f"^&= headers: .*{problem}"):
        from_url(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ('{"a":"1"} x', "Extra data"),
        ("[]", "are not an object"),
        ("null", "are not an object"),
        ('["a"]', "are not an object"),
        ('{"a":1}', "the value of 'a' is not a string"),
        ('{"a":null}', "the value of 'a' is not a string"),
        ('{"a":{"b":"c"}}', "the value of 'a' is not a string"),
        ('{"a":"1","a":"2"}', "have the key 'a' twice"),
        ('{"a":"\\ud800"}', "lone surrogate"),
        ('{"\\ud800":"a"}', "lone surrogate"),
        ("[" * 200_000, ""),
    ],
)
def test_malformed_json(text: str, problem: str) -> None:
    with pytest.raises(FormatError, match=f"^JSON headers: .*{problem}"):
        from_json(text)


def test_malformed_avro() -> None:
    with pytest.raises(FormatError):
        from_avro(b"\x02\x02a")
