"""Headers with ids for keys: reversible, smaller, and nothing goes without a registered id."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import FormatError, LossyHeadersError, UnknownHeaderError
from statestore.kip82.id_header_bytes import IdForm
from statestore.kip82.id_headers import HeaderIds, from_id_bytes, from_id_map, to_id_bytes, to_id_map

IDS = HeaderIds({"traceparent": 1, "content-type": 2, "": -(2**31), "far": 2**31 - 1})
KEYS = st.sampled_from(["traceparent", "content-type", "", "far"])
VALUES = st.none() | st.binary(max_size=4)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6), st.sampled_from(IdForm))
def test_bytes_are_reversible_with_order_and_repeated_keys(pairs: list[Any], form: IdForm) -> None:
    headers = Headers(pairs)
    assert from_id_bytes(to_id_bytes(headers, IDS, form), IDS, form) == headers


@given(st.dictionaries(KEYS, VALUES))
def test_maps_are_reversible(values: dict[str, bytes | None]) -> None:
    headers = Headers(values.items())
    assert from_id_map(to_id_map(headers, IDS), IDS) == headers


def test_a_map_has_ids_for_keys() -> None:
    headers = Headers([("content-type", b"json"), ("traceparent", None)])
    assert list(to_id_map(headers, IDS).items()) == [(2, b"json"), (1, None)]


def test_ids_are_smaller_than_keys() -> None:
    headers = Headers([("traceparent", b"1"), ("content-type", b"2")])
    plain, fixed, short = (
        len(data) for data in (headers.to_bytes(), to_id_bytes(headers, IDS, IdForm.FIXED), to_id_bytes(headers, IDS))
    )
    assert plain - fixed == len("traceparent") + len("content-type") + 2 - 2 * 4
    assert fixed - short == 2 * 3


def test_a_map_can_not_repeat_a_key() -> None:
    with pytest.raises(LossyHeadersError, match="header 'far' comes twice, which a map of ids can't hold"):
        to_id_map(Headers([("far", b"1"), ("traceparent", b""), ("far", b"1")]), IDS)


@pytest.mark.parametrize("write", [to_id_bytes, to_id_map])
def test_a_key_without_an_id_is_refused(write: Any) -> None:
    with pytest.raises(UnknownHeaderError, match="under the key 'unknown'") as caught:
        write(Headers([("far", b"1"), ("unknown", b"")]), IDS)
    assert caught.value.header == "unknown"


def test_an_id_without_a_key_is_refused() -> None:
    more = HeaderIds({"new": 9})
    with pytest.raises(UnknownHeaderError, match="under the id 9"):
        from_id_bytes(to_id_bytes(Headers([("new", b"")]), more), IDS)
    with pytest.raises(UnknownHeaderError) as caught:
        from_id_map({9: b""}, IDS)
    assert caught.value.header == 9


@pytest.mark.parametrize(
    ("ids", "error", "problem"),
    [
        ({"a": 1, "b": 1}, ValueError, "headers 'a' and 'b' have the same id 1"),
        ({"a": 2**31}, ValueError, "32-bit"),
        ({"a": -(2**31) - 1}, ValueError, "32-bit"),
        ({None: 1}, TypeError, "must be a str"),
    ],
)
def test_a_registry_is_one_to_one(ids: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        HeaderIds(ids)


def test_a_registry_does_not_change() -> None:
    ids = {"a": 1}
    registry = HeaderIds(ids)
    ids["b"] = 2
    assert registry.id_of("a") == 1
    assert registry.key_of(1) == "a"
    with pytest.raises(UnknownHeaderError):
        registry.id_of("b")


def test_malformed_bytes() -> None:
    with pytest.raises(FormatError):
        from_id_bytes(b"\x02\x02", IDS)
