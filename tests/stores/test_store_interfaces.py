"""What a store is tells what it can: Kafka's interfaces to read, the marker of KIP-1271, and views that only read."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from statestore import (
    Headers,
    HeadersBytesStore,
    ReadOnlySessionStoreWithHeaders,
    VersionedRecord,
    VersionedRecordWithHeaders,
)
from statestore.stores.key_value import ReadOnlyKeyValueStore
from statestore.stores.session import ReadOnlySessionStore
from statestore.stores.versioned import ReadOnlyVersionedKeyValueStore
from statestore.stores.window import ReadOnlyWindowStore
from tests.conformance.stacks import KINDS, NAME, SESSION, VERSIONED, WITH_HEADERS, Case, cases, stack_of
from tests.stores.in_memory import store_of

# The methods of the interfaces in org.apache.kafka.streams.state of the jar of Kafka Streams 4.3.1, as `javap` lists
# them. It has none to read versions, and the KIP's ReadOnlySessionStoreWithHeaders came after it: it has the methods of
# ReadOnlySessionStore.
OF_SESSIONS = {"fetch", "backward_fetch", "fetch_session", "find_sessions", "backward_find_sessions"}
INTERFACES: dict[type, set[str]] = {
    ReadOnlyKeyValueStore: {
        "get",
        "range",
        "reverse_range",
        "all",
        "reverse_all",
        "prefix_scan",
        "approximate_num_entries",
    },
    ReadOnlyWindowStore: {"fetch", "backward_fetch", "fetch_all", "backward_fetch_all", "all", "backward_all"},
    ReadOnlySessionStore: OF_SESSIONS,
    ReadOnlySessionStoreWithHeaders: OF_SESSIONS,
    ReadOnlyVersionedKeyValueStore: {"get"},
}
# What reads beside them: what a store is called, `range_values`, and whole columns.
OURS = {"name", "is_open", "stream_time_ms", "read_only", "by_header"}
OURS_OF: dict[type, set[str]] = {
    ReadOnlyKeyValueStore: {"range_values", "get_many"},
    ReadOnlyWindowStore: {"fetch_many", "first_visible_ms"},
    ReadOnlySessionStore: {"fetch_session_many", "find_sessions_many", "first_visible_ms", "retention_ms"},
}
CHANGES = ["put", "put_all", "put_many", "delete", "remove", "close", "flush", "finish_upgrade"]


class Built(NamedTuple):
    case: Case
    store: Any
    view: Any


@pytest.fixture(scope="module")
def built() -> list[Built]:
    """The stores of all cases, and their views."""
    found = []
    for kind in KINDS:
        for case in cases(kind):
            with stack_of(case) as stack:
                store = stack.open()
                found.append(Built(case, store, store.read_only()))
    return found


def test_every_store_and_its_view_are_what_kafka_reads_such_a_store_through(built: list[Built]) -> None:
    for case, store, view in built:
        interfaces = {interface for interface in INTERFACES if isinstance(store, interface)}
        assert interfaces, case
        assert interfaces == {interface for interface in INTERFACES if isinstance(view, interface)}, case
        is_session_store_with_headers = case.kind is SESSION and case.has_headers
        assert isinstance(store, ReadOnlySessionStoreWithHeaders) is is_session_store_with_headers, case


def test_stores_with_headers_are_marked_and_no_others(built: list[Built]) -> None:
    assert {case.has_headers for case, _, _ in built} == {True, False}
    for case, store, _ in built:
        assert isinstance(store, HeadersBytesStore) is case.has_headers, case


def test_a_view_has_the_methods_of_its_interface_and_nothing_to_change_or_reach_the_store_by(
    built: list[Built],
) -> None:
    for case, store, view in built:
        public = {name for name in dir(view) if not name.startswith("_")}
        interface = set().union(*(names for known, names in INTERFACES.items() if isinstance(store, known)))
        ours = OURS.union(*(names for known, names in OURS_OF.items() if isinstance(store, known)))
        assert public == interface | ours, case
        for name in public:
            attribute = getattr(view, name)
            assert (
                attribute is None
                or isinstance(attribute, str | int)
                or (name in interface | ours and callable(attribute))
            )
        assert not isinstance(view, type(store))
        assert view.read_only() is view


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("kind", ["plain", "with headers", "windows", "sessions", "versions"])
def test_a_view_says_that_it_only_reads(kind: str, method: str) -> None:
    store = store_of(kind)
    with pytest.raises(AttributeError, match=rf"store '{NAME}' can only be read here: it has no {method}\(\)"):
        getattr(store.read_only(), method)
    assert store.is_open


def test_versions_have_headers_as_in_kafka_s_trunk() -> None:
    headers = Headers([("h", b"1")])
    assert VersionedRecord("v", 5).headers == Headers()
    assert VersionedRecord("v", 5, 9).headers == Headers()
    version = VersionedRecord("v", 5, headers=headers)
    assert (version.value, version.timestamp_ms, version.valid_to_ms, version.headers) == ("v", 5, None, headers)
    assert VersionedRecord("v", 5, 9, headers) == VersionedRecordWithHeaders("v", 5, 9, headers)
    assert VersionedRecordWithHeaders("v", 5, 9, headers) == VersionedRecord("v", 5, 9, headers)
    assert VersionedRecord("v", 5, 9, headers) != VersionedRecord("v", 5, 9)
    with pytest.raises(TypeError, match="headers"):
        VersionedRecord("v", 5, 9, {"h": b"1"})  # type: ignore[arg-type]
    headers.add("later", None)
    assert list(version.headers) == [("h", b"1")]


@pytest.mark.parametrize("case", cases(VERSIONED, lambda case: case.older is None), ids=str)
def test_every_version_that_a_store_hands_out_has_headers(case: Case) -> None:
    with stack_of(case) as stack:
        store = stack.open((b"k", 1, 10), (b"k", 2, 20))
        expected = stack.hold(0).headers if case.format is WITH_HEADERS else Headers()
        versions = [store.get(b"k"), store.get(b"k", 10), *store.get(b"k", 0, 30), store.delete(b"k", 30)]
        assert [version.headers for version in versions] == [expected] * 5
        assert all(isinstance(version, VersionedRecord) for version in versions)
