"""Suppliers, builders, holders and serdes of a store: what they are made of, and what they refuse."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from statestore import (
    AggregationWithHeaders,
    HeaderBytesStore,
    Headers,
    HeadersBytesStore,
    Serdes,
    StateSerdes,
    Stores,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecordWithHeaders,
)
from tests.stores.in_memory import BUILDERS, BYTES, HEADERS, IN_MEMORY, NAME, builder, content, put, store_of


@pytest.mark.parametrize(
    ("parameter", "make"),
    [
        ("illegal name", lambda: Stores.persistent_key_value_store("")),
        ("illegal name", lambda: Stores.in_memory_window_store("a/b", 100, 10)),
        ("illegal name", lambda: Stores.persistent_session_store("..", 100)),
        ("illegal name", lambda: Stores.in_memory_versioned_key_value_store("ü", 100)),
        ("illegal name", lambda: Stores.persistent_timestamped_key_value_store("x" * 250)),
        ("illegal name", lambda: Stores.persistent_key_value_store(None)),  # type: ignore[arg-type]
        ("retention_period .* window_size", lambda: Stores.persistent_window_store(NAME, 9, 10)),
        ("retention_period .* window_size", lambda: Stores.in_memory_window_store(NAME, timedelta(0), timedelta(1))),
        ("retention_period", lambda: Stores.persistent_window_store(NAME, -1, 0)),
        ("retention_period", lambda: Stores.persistent_session_store(NAME, timedelta(milliseconds=-1))),
        ("retention_period", lambda: Stores.in_memory_session_store(NAME, 1.5)),  # type: ignore[arg-type]
        ("retention_period", lambda: Stores.in_memory_session_store(NAME, None)),  # type: ignore[arg-type]
        ("retention_period", lambda: Stores.in_memory_session_store(NAME, 2**63)),
        ("retention_period", lambda: Stores.in_memory_session_store(NAME, True)),
        ("window_size", lambda: Stores.persistent_timestamped_window_store(NAME, 100, -1)),
        ("window_size", lambda: Stores.persistent_timestamped_window_store(NAME, 100, "10")),  # type: ignore[arg-type]
        ("segment_interval", lambda: Stores.persistent_window_store(NAME, 100, 10, segment_interval=0)),
        ("segment_interval", lambda: Stores.persistent_session_store(NAME, 100, timedelta(0))),
        ("segment_interval", lambda: Stores.persistent_versioned_key_value_store(NAME, 100, 0)),
        ("segment_interval", lambda: Stores.persistent_versioned_key_value_store_with_headers(NAME, 100, -5)),
        ("history_retention", lambda: Stores.persistent_versioned_key_value_store(NAME, -1)),
        ("history_retention", lambda: Stores.in_memory_versioned_key_value_store(NAME, timedelta(seconds=-1))),
    ],
)
def test_a_supplier_of_nonsense_names_the_parameter(parameter: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=parameter):
        make()


FACTORIES = [getattr(Stores, name) for name in dir(Stores) if name.endswith("builder")]
SUPPLIERS = {
    "key-value": [
        Stores.persistent_key_value_store(NAME),
        Stores.persistent_timestamped_key_value_store(NAME),
        Stores.persistent_timestamped_key_value_store_with_headers(NAME),
    ],
    "window": [
        Stores.persistent_window_store(NAME, 100, 10),
        Stores.persistent_timestamped_window_store(NAME, 100, 10),
        Stores.persistent_timestamped_window_store_with_headers(NAME, 100, 10),
    ],
    "session": [Stores.persistent_session_store(NAME, 100), Stores.persistent_session_store_with_headers(NAME, 100)],
    "versioned": [
        Stores.persistent_versioned_key_value_store(NAME, 100),
        Stores.persistent_versioned_key_value_store_with_headers(NAME, 100),
    ],
}


def test_every_builder_takes_one_persistent_supplier_and_those_in_memory_of_its_kind() -> None:
    for factory in FACTORIES:
        taken = []
        for supplier in [*IN_MEMORY.values(), *(one for found in SUPPLIERS.values() for one in found)]:
            try:
                taken.append(factory(supplier, *BYTES).spec)
            except (TypeError, ValueError) as error:
                problem = str(error)
                if "supplier must be a" not in problem and "the builder of the same kind" not in problem:
                    raise
        assert len(taken) == 2
        assert taken[0].kind is taken[1].kind
        assert taken[0].format is taken[1].format


def test_a_builder_wants_serdes() -> None:
    for build, supplier in BUILDERS.values():
        with pytest.raises(TypeError, match="key_serde"):
            build(IN_MEMORY[supplier], None, Serdes.bytes())
        with pytest.raises(TypeError, match="value_serde"):
            build(IN_MEMORY[supplier], Serdes.bytes(), bytes)


@pytest.mark.parametrize("max_bytes", [-1, 1.5, True, "10"])
def test_a_cache_wants_a_size(max_bytes: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        builder("plain").with_caching_enabled(max_bytes)


def test_the_config_of_a_changelog_is_text() -> None:
    with pytest.raises(TypeError, match="store"):
        builder("plain").with_logging_enabled({"retention.ms": 5})  # type: ignore[dict-item]
    assert builder("plain").with_logging_enabled({"a": "b"}).changelog_config == {"a": "b"}
    assert builder("plain").with_logging_enabled({"a": "b"}).with_logging_disabled().changelog_config == {}


# Holders.


def test_a_holder_of_none_is_none_unless_that_is_asked_for() -> None:
    assert ValueAndTimestamp.make(None, 1) is None
    assert ValueTimestampHeaders.make(None, 1, HEADERS) is None
    assert AggregationWithHeaders.make(None, HEADERS) is None
    assert VersionedRecordWithHeaders.make(None, 1, 2, HEADERS) is None
    assert ValueAndTimestamp.make_allow_nullable(None, 1) == ValueAndTimestamp(None, 1)
    assert ValueTimestampHeaders.make_allow_nullable(None, 1) == ValueTimestampHeaders(None, 1, Headers())
    assert AggregationWithHeaders.make_allow_nullable(None) == AggregationWithHeaders(None, Headers())


def test_headers_of_none_are_no_headers() -> None:
    assert ValueTimestampHeaders.make(1, 2, None) == ValueTimestampHeaders(1, 2, Headers())
    assert AggregationWithHeaders.make(1, None) == AggregationWithHeaders(1, Headers())
    assert VersionedRecordWithHeaders.make(1, 2, None, None) == VersionedRecordWithHeaders(1, 2, None, Headers())


def test_the_value_of_no_holder_is_none() -> None:
    assert ValueAndTimestamp.get_value_or_null(None) is None
    assert ValueTimestampHeaders.get_value_or_null(None) is None
    assert AggregationWithHeaders.get_aggregation_or_null(None) is None
    assert VersionedRecordWithHeaders.get_value_or_null(None) is None
    assert ValueAndTimestamp.get_value_or_null(ValueAndTimestamp(5, 1)) == 5
    assert AggregationWithHeaders.get_aggregation_or_null(AggregationWithHeaders(5, HEADERS)) == 5
    assert VersionedRecordWithHeaders.get_value_or_null(VersionedRecordWithHeaders(5, 1)) == 5


def test_holders_of_different_kinds_are_not_equal_and_cannot_be_changed() -> None:
    assert ValueAndTimestamp(1, 2) != ValueTimestampHeaders(1, 2, Headers())
    assert AggregationWithHeaders(1, Headers()) != AggregationWithHeaders(1, HEADERS)
    for held in (ValueAndTimestamp(1, 2), ValueTimestampHeaders(1, 2, HEADERS), VersionedRecordWithHeaders(1, 2)):
        for field in ("value", "timestamp_ms"):
            with pytest.raises(AttributeError):
                setattr(held, field, 5)
        with pytest.raises(TypeError):
            hash(held)


# StateSerdes, and serdes that look at headers.


def _serialize_marked(value: str, headers: Headers | None) -> bytes:
    if headers is not None:
        headers.add("schema", b"7")
    return value.encode()


def _deserialize_marked(data: bytes, headers: Headers | None) -> str:
    schema = None if headers is None else headers.last_header("schema")
    return f"{data.decode()}:{None if schema is None else schema.value}"


MARKED = Serdes.of_headers("marked", _serialize_marked, _deserialize_marked)


def test_state_serdes_pass_headers_on() -> None:
    serdes = StateSerdes(NAME, Serdes.string(), MARKED)
    headers = Headers()
    assert serdes.raw_value("v", headers) == b"v"
    assert headers == Headers([("schema", b"7")])
    assert serdes.value_from(b"v", headers) == "v:b'7'"
    assert serdes.raw_key("k", headers) == b"k"
    assert serdes.key_from(b"k", headers) == "k"
    assert serdes.state_name == NAME


@pytest.mark.parametrize("method", ["key_from", "value_from", "raw_key", "raw_value"])
def test_state_serdes_without_headers_work_and_warn(method: str) -> None:
    serdes = StateSerdes(NAME, Serdes.string(), Serdes.string())
    given, wanted = ("x", b"x") if method.startswith("raw") else (b"x", "x")
    with pytest.warns(DeprecationWarning, match=f"{method} without headers") as warned:
        assert getattr(serdes, method)(given) == wanted
    assert warned[0].filename == __file__
    assert getattr(serdes, method)(None, Headers()) is None


@pytest.mark.parametrize("kind", ["with headers", "windows", "sessions", "versions"])
def test_a_serde_that_looks_at_headers_adds_to_what_is_stored_alone(kind: str) -> None:
    store = store_of(kind, serdes=(Serdes.bytes(), MARKED))
    given = Headers([("mine", None)])
    if kind == "versions":
        store.put(b"k", "v", 10, given)
        value, headers = store.get(b"k").value, store.get(b"k").headers
    elif kind == "sessions":
        put(kind, store, b"k", AggregationWithHeaders("v", given))
        value, headers = content(kind, store)[0][1].aggregation, content(kind, store)[0][1].headers
    else:
        put(kind, store, b"k", ValueTimestampHeaders("v", 1, given))
        value, headers = content(kind, store)[0][1].value, content(kind, store)[0][1].headers
    assert value == "v:b'7'"
    assert headers == Headers([("mine", None), ("schema", b"7")])
    assert given == Headers([("mine", None)])


@pytest.mark.parametrize("kind", ["plain", "timestamped"])
def test_a_serde_that_looks_at_headers_gets_none_where_there_are_none(kind: str) -> None:
    store = store_of(kind, serdes=(Serdes.bytes(), MARKED))
    store.put(b"k", "v" if kind == "plain" else ValueAndTimestamp("v", 1))
    assert store.get(b"k") == ("v:None" if kind == "plain" else ValueAndTimestamp("v:None", 1))


def test_only_a_store_of_timestamps_and_headers_skips_a_step() -> None:
    supplier = Stores.in_memory_key_value_store("s")
    timed = Stores.timestamped_key_value_store_builder(supplier, *BYTES)
    with pytest.raises(ValueError, match="store 's': only a store of timestamps and headers"):
        timed.with_upgrade_through_timestamped()
    headed = Stores.timestamped_key_value_store_with_headers_builder(supplier, *BYTES)
    allowed = headed.with_upgrade_through_timestamped()
    assert (headed.spec.through_timestamped, allowed.spec.through_timestamped) == (False, True)
    assert headed.spec == allowed.spec, "it is asked, not recorded"
    assert "through_timestamped" not in allowed.spec.to_json()


def test_the_conversions_have_the_names_of_the_kip() -> None:
    assert HeaderBytesStore is HeadersBytesStore
    assert HeadersBytesStore.convert_to_header_format(b"\x00" * 7 + b"\x05v") == b"\x00" + b"\x00" * 7 + b"\x05v"
    assert HeadersBytesStore.convert_from_plain_to_header_format(b"v") == b"\x00" + b"\xff" * 8 + b"v"
    assert HeadersBytesStore.convert_to_header_format(None) is None
    assert HeadersBytesStore.convert_from_plain_to_header_format(None) is None
