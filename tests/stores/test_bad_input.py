"""Nonsense in, a typed error out: never a wrong answer, and never half a write."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import AggregationWithHeaders, Headers, ResultOrder, ValueTimestampHeaders, Windowed
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, segment_prefix
from statestore.errors import FormatError, SerializationError, StateStoreError, StoreError
from statestore.errors.readable import key_digest
from statestore.errors.state import StoreClosedError
from statestore.format.keys.window_key import encode_session_key, encode_window_key, split_session_key, split_window_key
from statestore.format.values.value_timestamp_headers import encode_value_headers, split_value_headers
from statestore.format.values.versioned_row import (
    decode_latest_row,
    decode_segment_row,
    encode_latest_row,
    encode_segment_row,
)
from tests.stores.in_memory import BUILDERS, GOOD, HEADERS, MAX_MS, NAME, content, put, store_of


def refused(use: Callable[[], Any]) -> StoreError | None:
    """Return the error that something raises, if it is one that names a store; None if it raises none."""
    try:
        use()
    except StoreError as error:
        return error
    return None


# Formats.


@given(st.binary(max_size=80))
def test_any_bytes_are_a_latest_row_or_a_format_error(data: bytes) -> None:
    try:
        decoded = decode_latest_row(data)
    except FormatError:
        assert len(data) < 8
    else:
        assert encode_latest_row(*decoded) == data


small = st.integers(-2, 20).map(lambda number: struct.pack(">q", number))
sizes = st.integers(-2, 4).map(lambda number: struct.pack(">i", number))
rows = st.builds(
    lambda ends, listed, rest: b"".join((*ends, *(part for one in listed for part in one), rest)),
    st.tuples(small, small),
    st.lists(st.tuples(small, sizes), max_size=3),
    st.binary(max_size=6),
)


@given(st.binary(max_size=80) | rows)
def test_any_bytes_are_a_segment_row_or_a_format_error(data: bytes) -> None:
    try:
        row = decode_segment_row(data)
    except FormatError:
        return
    assert encode_segment_row(row.next_timestamp_ms, row.versions) == data
    assert row.versions
    assert row.next_timestamp_ms >= row.versions[0].valid_from_ms


def test_the_fuzzed_rows_are_not_all_refused() -> None:
    times = [struct.pack(">q", time_ms) for time_ms in (9, 3, 5, 3)]
    data = times[0] + times[1] + times[2] + struct.pack(">i", -1) + times[3] + struct.pack(">i", 2) + b"ab"
    assert [version.value for version in decode_segment_row(data).versions] == [None, b"ab"]
    for wrong in (data[:-1], data + b"x", data[:16], b"", times[2] + data[8:16] + times[0] + data[24:]):
        with pytest.raises(FormatError):
            decode_segment_row(wrong)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_window_key_or_a_format_error(data: bytes) -> None:
    try:
        decoded = split_window_key(data)
    except FormatError:
        assert len(data) < 12 or data[-12] > 0x7F or data[-4] > 0x7F
    else:
        assert encode_window_key(*decoded) == data


@given(
    st.binary(max_size=40) | st.builds(lambda key, end, start: key + end + start, st.binary(max_size=3), small, small)
)
def test_any_bytes_are_a_session_key_or_a_format_error(data: bytes) -> None:
    try:
        decoded = split_session_key(data)
    except FormatError:
        assert len(data) < 16 or not 0 <= int.from_bytes(data[-8:], "big", signed=True) <= int.from_bytes(
            data[-16:-8], "big", signed=True
        )
    else:
        assert encode_session_key(*decoded) == data


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_with_headers_or_a_format_error(data: bytes) -> None:
    try:
        header_bytes, value = split_value_headers(data)
    except FormatError:
        return
    canonical = encode_value_headers(value, header_bytes)
    assert canonical is not None
    assert split_value_headers(canonical) == (header_bytes, value)
    assert len(canonical) <= len(data)
    assert canonical == data or len(canonical) < len(data)


# What stands in a store.


@pytest.mark.parametrize("kind", ["timestamped", "with headers"])
@given(data=st.binary(max_size=24))
def test_a_key_value_store_over_any_bytes_answers_or_says_its_name(kind: str, data: bytes) -> None:
    store = store_of(kind, {b"k": data})
    for read in (lambda: store.get(b"k"), lambda: list(store.all()), lambda: store.put_if_absent(b"k", None)):
        error = refused(read)
        assert error is None or (error.store == NAME and "serdes bytes and bytes" in str(error))


@pytest.mark.parametrize("kind", ["windows", "plain windows", "sessions", "plain sessions"])
@given(key=st.binary(max_size=24), data=st.binary(max_size=24))
def test_a_segmented_store_over_any_bytes_answers_or_says_its_name(kind: str, key: bytes, data: bytes) -> None:
    store = store_of(kind, {segment_prefix(0) + key: data})
    reads = [lambda: store.fetch(b"k", b"l"), lambda: store.fetch(None, None)]
    if "windows" in kind:
        reads = [store.all, store.backward_all, lambda: store.fetch(b"", 0, 49), lambda: store.fetch_all(0, 49)]
    for read in reads:
        error = refused(lambda read=read: list(read()))
        assert error is None or error.store == NAME


@pytest.mark.parametrize("kind", ["versions", "plain versions"])
@pytest.mark.parametrize("segment_id", [0, 1, LATEST_SEGMENT])
@given(row=st.binary(max_size=40) | rows)
def test_a_versioned_store_over_any_bytes_answers_or_says_its_name(kind: str, segment_id: int, row: bytes) -> None:
    store = store_of(kind, {segment_prefix(segment_id) + b"k": row})
    for use in (
        lambda: store.get(b"k"),
        lambda: store.get(b"k", 10),
        lambda: list(store.get(b"k", 0, 99)),
        lambda: store.put(b"k", b"v", 10),
        lambda: store.delete(b"k", 20),
    ):
        error = refused(use)
        assert error is None or error.store == NAME


def test_a_damaged_row_is_said_to_be_local_damage_without_its_key() -> None:
    store = store_of("versions", {segment_prefix(LATEST_SEGMENT) + b"k": b"short"})
    with pytest.raises(StoreError, match=rf"store 'store'.*key of digest {key_digest(b'k')} .*damaged.*restore"):
        store.get(b"k")


def test_what_stands_in_the_place_of_a_time_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r"^timestamp_ms must be .* got 6 bytes$"):
        store_of("versions").delete(b"k", b"secret")


def test_a_key_without_a_segment_is_a_typed_error_every_time() -> None:
    store = store_of("windows", {b"short": b""})
    for _ in range(2):
        with pytest.raises(StateStoreError, match="segment"):
            list(store.all())


def test_malformed_headers_cost_only_who_looks_into_them() -> None:
    stored = b"\x06\x02\x7e" + b"x" + bytes(8) + b"value"  # one header, whose key has 63 bytes
    store = store_of("with headers", {b"k": stored})
    held = store.get(b"k")
    assert held.value == b"value"
    with pytest.raises(FormatError):
        list(held.headers)


def test_invalid_utf8_in_a_header_key_is_replaced_as_java_does_it() -> None:
    stored = b"\x08\x02\x02\xff\x00" + bytes(8) + b"v"
    held = store_of("with headers", {b"k": stored}).get(b"k")
    assert [tuple(header) for header in held.headers] == [("\ufffd", b"")]
    store = store_of("with headers")
    store.put(b"copy", held)
    assert store.get(b"copy").headers.to_bytes() == b"\x02\x02\xff\x00"


# Values and keys.


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_value_that_is_not_what_the_store_holds_is_refused(kind: str) -> None:
    store = store_of(kind)
    put(kind, store, b"k", GOOD[kind])
    before = content(kind, store)
    wrong = [5, "text", object(), *(held for held in GOOD.values() if type(held) is not type(GOOD[kind]))]
    for value in wrong:
        with pytest.raises((TypeError, SerializationError)):
            put(kind, store, b"new", value)
    assert content(kind, store) == before


@pytest.mark.parametrize("kind", ["with headers", "windows"])
@pytest.mark.parametrize("headers", [None, [("h", b"1")], {"h": b"1"}, "h"])
def test_headers_that_are_no_headers_are_refused(kind: str, headers: Any) -> None:
    store = store_of(kind)
    with pytest.raises(TypeError, match="headers"):
        put(kind, store, b"k", ValueTimestampHeaders(b"v", 1, headers))
    assert content(kind, store) == []


def test_headers_of_versions_and_sessions_that_are_no_headers_are_refused() -> None:
    with pytest.raises(TypeError, match="headers"):
        store_of("versions").put(b"k", b"v", 1, [("h", b"1")])
    with pytest.raises(TypeError, match="headers"):
        store_of("sessions").put(Windowed(b"k", 0, 1), AggregationWithHeaders(b"v", None))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [5, "text", b"k".hex, bytearray(b"k"), ("k",)])
@pytest.mark.parametrize("kind", BUILDERS)
def test_a_key_that_the_serde_refuses_changes_nothing(kind: str, key: Any) -> None:
    store = store_of(kind)
    with pytest.raises(SerializationError, match="bytes"):
        put(kind, store, key, GOOD[kind])
    assert content(kind, store) == []
    assert store.stream_time_ms in (None, -1)


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -1, 0, MAX_MS])
@pytest.mark.parametrize("kind", ["timestamped", "with headers", "windows"])
def test_every_timestamp_of_64_bits_is_kept(kind: str, timestamp_ms: int) -> None:
    store = store_of(kind)
    headers = () if kind == "timestamped" else (HEADERS,)
    held = type(GOOD[kind])(b"v", timestamp_ms, *headers)
    put(kind, store, b"k", held)
    assert content(kind, store)[0][1] == held


@pytest.mark.parametrize("timestamp_ms", [-(2**63) - 1, 2**63, None, "1", 1.5])
@pytest.mark.parametrize("kind", ["timestamped", "with headers", "windows"])
def test_a_timestamp_that_does_not_fit_is_refused(kind: str, timestamp_ms: Any) -> None:
    store = store_of(kind)
    headers = () if kind == "timestamped" else (HEADERS,)
    with pytest.raises(ValueError, match="timestamp_ms"):
        put(kind, store, b"k", type(GOOD[kind])(b"v", timestamp_ms, *headers))
    assert content(kind, store) == []


@pytest.mark.parametrize("time_ms", [-1, 2**63, None, "1", 1.5])
@pytest.mark.parametrize("kind", ["windows", "sessions", "versions"])
def test_a_time_that_is_no_time_is_refused_and_does_not_move_stream_time(kind: str, time_ms: Any) -> None:
    store = store_of(kind)
    with pytest.raises(ValueError, match="_ms"):
        put(kind, store, b"k", GOOD[kind], time_ms)
    assert store.stream_time_ms == -1


@pytest.mark.parametrize("session", [Windowed(b"k", 5, 4), Windowed(b"k", -1, 4), (b"k", 1), b"k", None, 7])
def test_a_session_that_is_none_is_refused(session: Any) -> None:
    store = store_of("sessions")
    for use in (lambda: store.put(session, GOOD["sessions"]), lambda: store.remove(session)):
        with pytest.raises((TypeError, ValueError)):
            use()
    assert store.stream_time_ms == -1


TIMES = [-(2**70), -(2**63), -1, MAX_MS, 2**63, 2**70]


@pytest.mark.parametrize("last", TIMES)
@pytest.mark.parametrize("first", TIMES)
def test_reads_may_ask_for_any_time(first: int, last: int) -> None:
    windows, sessions, versions = store_of("windows"), store_of("sessions"), store_of("versions")
    for kind, store in (("windows", windows), ("sessions", sessions), ("versions", versions)):
        put(kind, store, b"k", GOOD[kind], 10)
    wanted = int(first <= 10 <= last)
    assert len(list(windows.fetch(b"k", first, last))) == wanted
    assert len(list(windows.backward_fetch(None, b"k", first, last))) == wanted
    assert len(list(windows.fetch_all(first, last))) == wanted
    assert len(list(sessions.find_sessions(first, last))) == wanted
    assert len(list(sessions.find_sessions(b"k", first, last))) == wanted
    assert len(list(sessions.backward_find_sessions(None, b"k", first, last))) == wanted
    assert len(list(versions.get(b"k", first, last))) == int(last >= 10)
    assert (versions.get(b"k", last) is None) == (last < 10)


@pytest.mark.parametrize("time", [None, "1", 1.5, b"1"])
def test_reads_refuse_what_is_no_time(time: Any) -> None:
    windows, sessions = store_of("windows"), store_of("sessions")
    for use in (
        lambda: windows.fetch(b"k", time, 10),
        lambda: windows.fetch(b"k", 0, time),
        lambda: windows.backward_fetch(None, None, time, 10),
        lambda: windows.fetch_all(0, time),
        lambda: sessions.find_sessions(b"k", time, 10),
        lambda: sessions.find_sessions(b"k", 0, time),
        lambda: sessions.backward_find_sessions(None, None, 0, time),
        lambda: sessions.find_sessions(time, 10),
        lambda: sessions.find_sessions(0, time),
    ):
        with pytest.raises(TypeError):
            use()


def test_a_wrong_number_of_arguments_is_a_type_error() -> None:
    windows, sessions, versions = store_of("windows"), store_of("sessions"), store_of("versions")
    for use in (
        windows.fetch,
        lambda: windows.fetch(b"k"),
        lambda: windows.backward_fetch(b"k", 0),
        lambda: windows.fetch(b"k", b"l", 0, 1, 2),
        sessions.find_sessions,
        lambda: sessions.find_sessions(0),
        lambda: sessions.backward_find_sessions(b"k", b"l", 0, 1, 2),
        versions.get,
        lambda: versions.get(b"k", 0, 1, ResultOrder.ANY, 2),
    ):
        with pytest.raises(TypeError):
            use()


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("key", [b"", b"\x00", b"\xff" * 20, b"k" * 2**20], ids=["empty", "null", "ff", "1 MiB"])
def test_keys_of_any_length_are_kept(kind: str, key: bytes) -> None:
    store = store_of(kind)
    put(kind, store, key, GOOD[kind])
    put(kind, store, key + b"\x00", GOOD[kind])
    if "versions" in kind:
        assert store.get(key).value == b"v"
    elif "sessions" in kind:
        assert [session.key for session, _ in store.fetch(key)] == [key]
        assert [session.key for session, _ in store.fetch(None, None)].count(key) == 1
    elif "windows" in kind:
        assert len(list(store.fetch(key, 0, 99))) == 1
        assert sorted(window.key for window, _ in store.all()) == [key, key + b"\x00"]
    else:
        assert store.get(key) == GOOD[kind]
        assert [found for found, _ in store.range(key, key)] == [key]


@pytest.mark.parametrize("kind", ["with headers", "windows", "sessions", "versions"])
def test_ten_thousand_headers_come_back(kind: str) -> None:
    headers = Headers((f"key {number}", None if number % 3 else b"%d" % number) for number in range(10_000))
    store = store_of(kind)
    if kind == "versions":
        store.put(b"k", b"v", 1, headers)
        held = store.get(b"k")
    elif kind == "sessions":
        put(kind, store, b"k", AggregationWithHeaders(b"v", headers))
        held = content(kind, store)[0][1]
    else:
        put(kind, store, b"k", ValueTimestampHeaders(b"v", 1, headers))
        held = content(kind, store)[0][1]
    assert len(held.headers) == 10_000
    assert held.headers == headers


def test_prefix_scan_takes_bytes_without_a_serde() -> None:
    with pytest.raises(TypeError, match="prefix"):
        list(store_of("plain").prefix_scan("text"))


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="ResultOrder"):
        store_of("versions").get(b"k", 0, 1, "sideways")


@pytest.mark.parametrize("kind", BUILDERS)
def test_flushing_and_asking_for_progress_harm_no_closed_store(kind: str) -> None:
    store = store_of(kind)
    store.close()
    store.flush()
    assert store.upgrade_progress().is_finished
    with pytest.raises(StoreClosedError):
        put(kind, store, b"k", GOOD[kind])
