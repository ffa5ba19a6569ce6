"""What holders take, and that they share it with nobody."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from statestore import Headers, Serdes, Stores
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.format.records.header_bytes import encode_headers
from statestore.stores import holders

PAIRS = [("a", b"1"), ("a", None)]
DATA = encode_headers(PAIRS)

HEADED: dict[str, Callable[[Any], Any]] = {
    "value": lambda headers: holders.ValueTimestampHeaders("v", 5, headers),
    "value, made": lambda headers: holders.ValueTimestampHeaders.make("v", 5, headers),
    "null value, made": lambda headers: holders.ValueTimestampHeaders.make_allow_nullable(None, 5, headers),
    "aggregation": lambda headers: holders.AggregationWithHeaders("v", headers),
    "aggregation, made": lambda headers: holders.AggregationWithHeaders.make("v", headers),
    "null aggregation, made": lambda headers: holders.AggregationWithHeaders.make_allow_nullable(None, headers),
    "version": lambda headers: holders.VersionedRecordWithHeaders("v", 5, None, headers),
    "version, made": lambda headers: holders.VersionedRecordWithHeaders.make("v", 5, None, headers),
}
TIMED: dict[str, Callable[[Any], Any]] = {
    "value": lambda time_ms: holders.ValueAndTimestamp("v", time_ms),
    "value, made": lambda time_ms: holders.ValueAndTimestamp.make("v", time_ms),
    "value with headers": lambda time_ms: holders.ValueTimestampHeaders("v", time_ms, b""),
    "value with headers, made": lambda time_ms: holders.ValueTimestampHeaders.make("v", time_ms),
    "version": lambda time_ms: holders.VersionedRecord("v", time_ms),
    "version, ended": lambda time_ms: holders.VersionedRecord("v", 1, time_ms),
    "version with headers": lambda time_ms: holders.VersionedRecordWithHeaders("v", time_ms),
    "version with headers, ended": lambda time_ms: holders.VersionedRecordWithHeaders("v", 1, time_ms),
}


@pytest.mark.parametrize("make", HEADED.values(), ids=HEADED)
def test_headers_of_a_holder_are_its_own(make: Callable[[Any], Any]) -> None:
    for given in (Headers(PAIRS), Headers.from_bytes(DATA), Headers(PAIRS).freeze()):
        holder = make(given)
        if not given.is_frozen:
            given.add("later", b"")
        assert list(holder.headers) == PAIRS
        holder.headers.add("mine", b"")
        assert "mine" not in given
        assert holder.headers.last_header("mine") is not None
    assert list(make(DATA).headers) == PAIRS
    assert pickle.loads(pickle.dumps(make(Headers(PAIRS)))) == make(DATA)


@pytest.mark.parametrize("make", HEADED.values(), ids=HEADED)
@pytest.mark.parametrize("given", [{"a": b"1"}, "a", 5, [("a", b"1")]], ids=repr)
def test_what_are_no_headers_is_refused_when_the_holder_is_made(make: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(TypeError, match=r"headers must be Headers, not .*: write Headers\(\["):
        make(given)


@pytest.mark.parametrize("name", HEADED)
def test_only_what_makes_holders_takes_none_for_no_headers(name: str) -> None:
    if "made" in name or name == "version":
        assert list(HEADED[name](None).headers) == []
        return
    with pytest.raises(TypeError, match="headers must be Headers, not None"):
        HEADED[name](None)


@pytest.mark.parametrize("make", TIMED.values(), ids=TIMED)
@pytest.mark.parametrize("given", [1.5, "1", b"1", True, 2**63, -(2**63) - 1], ids=repr)
def test_what_is_no_time_is_refused_when_the_holder_is_made(make: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(ValueError, match=r"(timestamp|valid_to)_ms must be a whole number"):
        make(given)


@pytest.mark.parametrize("make", TIMED.values(), ids=TIMED)
def test_a_holder_takes_any_time_that_kafkas_does(make: Callable[[Any], Any]) -> None:
    for time_ms in (-1, -5, 0, 2**63 - 1):
        assert time_ms in make(time_ms)._values()


def test_a_version_has_a_value() -> None:
    for made in (holders.VersionedRecord, holders.VersionedRecordWithHeaders):
        with pytest.raises(TypeError, match="a version has a value"):
            made(None, 5)


def test_headers_that_nobody_looks_into_are_not_parsed_and_malformed_ones_stay_as_they_are() -> None:
    builder = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.in_memory_key_value_store("s"), Serdes.string(), Serdes.string()
    )
    store = builder.build(MemoryByteStore("s"))
    malformed = Headers.from_bytes(b"\x02\x7f")
    store.put("k", holders.ValueTimestampHeaders("v", 5, malformed))
    held = store.get("k")
    assert held is not None
    store.put("l", held)
    again = store.get("l")
    assert again is not None
    assert again.header_bytes == b"\x02\x7f"
    assert again == held
