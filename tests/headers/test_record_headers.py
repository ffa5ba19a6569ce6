"""Headers: the KIP-82 API, and when it parses and encodes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Header, Headers
from statestore.errors import FormatError, HeadersFrozenError
from statestore.errors.data import TruncatedError
from statestore.format.records.header_bytes import decode_headers, encode_headers, parse_count

Pairs = list[tuple[str, bytes | None]]

KEYS = st.sampled_from(["a", "b", "ключ", ""])  # few, so that they repeat
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=3)), max_size=5)
SOME: Pairs = [("a", b"1"), ("b", None), ("a", b"2")]
MALFORMED = bytes.fromhex("02046162")


def lazy(pairs: Pairs) -> Headers:
    return Headers.from_bytes(encode_headers(pairs))


BOTH = pytest.mark.parametrize("make", [Headers, lazy], ids=["from pairs", "from bytes"])
Make = Callable[[Pairs], Headers]


@BOTH
def test_reading(make: Make) -> None:
    headers = make(SOME)
    assert list(headers) == SOME
    assert all(isinstance(header, Header) for header in headers)
    assert len(headers) == 3
    assert headers.last_header("a") == Header("a", b"2")
    assert headers.last_header("b") == Header("b", None)
    assert headers.last_header("c") is None
    assert headers.headers("a") == [Header("a", b"1"), Header("a", b"2")]
    assert headers.headers("c") == []
    assert "a" in headers
    assert "c" not in headers
    assert Header("b", None) in headers
    assert Header("b", b"") not in headers


@BOTH
def test_changing(make: Make) -> None:
    headers = make(SOME)
    assert headers.add("c", None).add(Header("b", b"")).remove("a") is headers
    expected: Pairs = [("b", None), ("c", None), ("b", b"")]
    assert list(headers) == expected
    assert headers.to_bytes() == encode_headers(expected)
    assert decode_headers(headers.remove("b").remove("c").to_bytes()) == []
    assert headers.to_bytes() == b""


STEPS = st.lists(
    st.tuples(st.just("add"), KEYS, st.none() | st.binary(max_size=2)) | st.tuples(st.just("remove"), KEYS, st.none())
)


@given(PAIRS, STEPS, st.booleans())
def test_behaves_as_a_list_of_pairs(pairs: Pairs, steps: list[tuple[str, str, bytes | None]], laziness: bool) -> None:
    headers, model = (lazy if laziness else Headers)(pairs), list(pairs)
    for step, key, value in steps:
        if step == "add":
            headers.add(key, value)
            model.append((key, value))
        else:
            headers.remove(key)
            model = [pair for pair in model if pair[0] != key]
        assert bool(headers) == bool(model)
        assert headers.last_header(key) == next((pair for pair in reversed(model) if pair[0] == key), None)
    assert list(headers) == model
    assert headers == Headers(model)
    assert headers.to_bytes() == encode_headers(model)
    assert Headers.from_bytes(headers.to_bytes()) == headers


def test_untouched_headers_are_never_parsed() -> None:
    data = encode_headers(SOME)
    before = parse_count()
    headers = Headers.from_bytes(data)
    assert headers.to_bytes() is data
    assert headers.copy().to_bytes() is data
    assert headers == Headers.from_bytes(bytes(bytearray(data)))
    assert headers
    assert not Headers.from_bytes(b"")
    assert pickle.loads(pickle.dumps(headers)).to_bytes() == data
    headers.freeze()
    assert parse_count() == before


def test_headers_are_parsed_once() -> None:
    headers = lazy(SOME)
    before = parse_count()
    headers.last_header("a")
    headers.headers("a")
    assert len(list(headers)) == len(headers)
    assert list(headers.copy()) == SOME
    headers.add("c", b"")
    assert headers.last_header("c")
    assert parse_count() == before + 1


def test_bytes_are_kept_until_something_changes() -> None:
    unusual = bytes.fromhex("820002610262ffff")  # a long varint and a tail: Kafka reads it, and writes it anew
    headers = Headers.from_bytes(unusual)
    assert list(headers) == [("a", b"b")]
    headers.remove("not there")
    assert headers.to_bytes() is unusual
    headers.add("a", b"c")
    assert headers.to_bytes() == encode_headers([("a", b"b"), ("a", b"c")])


@pytest.mark.parametrize("data", ["", "00", "01", "00ffff"])
def test_no_headers(data: str) -> None:
    headers = Headers.from_bytes(bytes.fromhex(data))
    assert not headers
    assert len(headers) == 0
    assert not headers
    assert headers == Headers()


def test_equality_is_by_content() -> None:
    assert Headers(SOME) == lazy(SOME)
    assert Headers.from_bytes(bytes.fromhex("820002610262")) == Headers([("a", b"b")])
    assert Headers(SOME) != Headers(SOME[::-1])
    assert Headers([("a", None)]) != Headers([("a", b"")])
    assert Headers(SOME).freeze() == Headers(SOME)
    assert Headers(SOME) != SOME
    with pytest.raises(TypeError):
        hash(Headers())


@BOTH
def test_copies_are_independent(make: Make) -> None:
    original = make(SOME)
    copied = original.copy()
    copied.add("c", b"")
    assert list(original) == SOME
    original.remove("a")
    assert list(copied) == [*SOME, ("c", b"")]


def test_iteration_does_not_see_changes() -> None:
    headers = Headers(SOME)
    for header in headers:
        headers.add(header)
    assert list(headers) == SOME + SOME


@BOTH
def test_frozen_headers_refuse_changes(make: Make) -> None:
    headers = make(SOME)
    assert not headers.is_frozen
    assert headers.freeze() is headers
    assert headers.is_frozen
    with pytest.raises(HeadersFrozenError, match="copy"):
        headers.add("c", b"")
    with pytest.raises(HeadersFrozenError):
        headers.remove("a")
    with pytest.raises(HeadersFrozenError):
        headers.remove("not there")
    assert list(headers) == SOME
    assert headers.to_bytes() == encode_headers(SOME)
    copied = headers.copy()
    assert not copied.is_frozen
    assert list(copied.add("c", b"")) == [*SOME, ("c", b"")]


@pytest.mark.parametrize("key", [None, b"a", 5])
def test_keys_are_text(key: Any) -> None:
    headers = Headers(SOME)
    for call in (
        lambda: Header(key, b""),
        lambda: Headers([(key, b"")]),
        lambda: headers.add(key, b""),
        lambda: headers.remove(key),
        lambda: headers.last_header(key),
        lambda: headers.headers(key),
    ):
        with pytest.raises(TypeError, match="a header key must be a str"):
            call()


@pytest.mark.parametrize("value", ["text", 5, bytearray(b"x")])
def test_values_are_bytes_or_none(value: Any) -> None:
    for call in (lambda: Header("a", value), lambda: Headers([("a", value)]), lambda: Headers().add("a", value)):
        with pytest.raises(TypeError, match="the value of header 'a' must be bytes or None"):
            call()


def test_add_takes_a_header_or_both_of_its_parts() -> None:
    add: Any = Headers().add
    with pytest.raises(TypeError, match="needs a value"):
        add("a")
    with pytest.raises(TypeError, match="takes a Header, or"):
        add(Header("a", b""), b"")
    assert list(add(key="a", value=None)) == [("a", None)]


def test_lone_surrogate_is_refused_where_it_comes_from() -> None:
    with pytest.raises(UnicodeEncodeError):
        Headers().add("\ud800", b"")


def test_malformed_bytes_are_only_met_when_looked_at() -> None:
    headers = Headers.from_bytes(MALFORMED)
    assert headers.to_bytes() is MALFORMED
    assert headers == Headers.from_bytes(bytes(bytearray(MALFORMED)))
    assert repr(headers) == f"Headers.from_bytes({MALFORMED!r})"
    looks: list[Callable[[], object]] = [
        lambda: list(headers),
        lambda: len(headers),
        lambda: headers.last_header("a"),
        lambda: headers.add("a", b""),
        lambda: headers == Headers(SOME),
    ]
    for look in looks:
        with pytest.raises(FormatError):
            look()
    with pytest.raises(TruncatedError):
        bool(Headers.from_bytes(b"\x80"))
    assert headers.to_bytes() is MALFORMED


@BOTH
def test_repr_is_an_expression(make: Make) -> None:
    assert repr(make(SOME)) == "Headers([('a', b'1'), ('b', None), ('a', b'2')])"
    assert repr(Headers()) == "Headers([])"


@BOTH
@pytest.mark.parametrize("frozen", [False, True])
def test_pickling(make: Make, frozen: bool) -> None:
    headers = make(SOME)
    if frozen:
        headers.freeze()
    copied = pickle.loads(pickle.dumps(headers))
    assert list(copied) == SOME
    assert copied.is_frozen == frozen
    assert pickle.loads(pickle.dumps(Header("a", None))) == Header("a", None)


@BOTH
def test_headers_of_headers_are_a_copy(make: Make) -> None:
    original = make(SOME).freeze()
    copied = Headers(original)
    assert not copied.is_frozen
    copied.remove("a").add("c", b"")
    assert list(copied) == [("b", None), ("c", b"")]
    assert list(original) == SOME


def test_headers_of_headers_are_not_parsed() -> None:
    data = encode_headers(SOME)
    before = parse_count()
    assert Headers(Headers.from_bytes(data)).to_bytes() is data
    assert Headers(Headers.from_bytes(MALFORMED)).to_bytes() is MALFORMED
    assert parse_count() == before


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda headers: headers.remove(Header("k", b"v")), "give the key alone, as in header.key"),
        (lambda headers: headers.last_header(("k", b"v")), "give the key alone, as in header.key"),
        (
            lambda headers: headers.add(("k", b"v")),
            r"write add\(key, value\) for each of them, or add\(Header\(\*pair\)\)",
        ),
        (lambda headers: headers.add({"k": b"v"}), r"write add\(key, value\) for each of them"),
        (lambda headers: Headers({"k": b"v"}), r"not a dict, whose keys can't repeat: write Headers\(list"),
        (
            lambda headers: Headers(("k", b"v")),
            r"str of 1 characters is not such a pair: write Headers\(\[\(key, value\), ...\]\)",
        ),
        (lambda headers: Headers(b"\x00"), r"not bytes: write Headers.from_bytes\(data\)"),
        (lambda headers: Headers(None), r"not None: write Headers\(\) for none"),
    ],
)
def test_what_looks_like_headers_is_refused_with_what_to_write(call: Any, instead: str) -> None:
    headers = Headers([("k", b"v")])
    with pytest.raises(TypeError, match=instead):
        call(headers)
    assert list(headers) == [("k", b"v")]
