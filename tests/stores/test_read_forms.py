"""Reads by name and by timedelta are those by position and in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from statestore import ResultOrder, Windowed
from statestore.stores.iterator import StoreIterator
from tests.stores.in_memory import GOOD, put, store_of

LATE = timedelta(milliseconds=99)
NONE = timedelta(0)


def filled(kind: str) -> Any:
    store = store_of(kind)
    for key in (b"a", b"b"):
        put(kind, store, key, GOOD[kind])
    return store


def all_of(found: Any) -> Any:
    return list(found) if isinstance(found, StoreIterator) else found


READS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("windows", "fetch", (b"a", 10), {"key": b"a", "time_ms": timedelta(milliseconds=10)}),
    ("windows", "fetch", (b"a", 0, 99), {"key": b"a", "from_ms": NONE, "to_ms": LATE}),
    ("windows", "fetch", (b"a", b"b", 0, 99), {"from_key": b"a", "to_key": b"b", "from_ms": 0, "to_ms": LATE}),
    ("windows", "backward_fetch", (b"a", 0, 99), {"key": b"a", "to_ms": LATE, "from_ms": 0}),
    ("windows", "backward_fetch", (None, b"b", 0, 99), {"from_key": None, "to_key": b"b", "from_ms": 0, "to_ms": 99}),
    ("windows", "fetch_all", (0, 99), {"from_ms": NONE, "to_ms": LATE}),
    ("windows", "backward_fetch_all", (0, 99), {"from_ms": NONE, "to_ms": LATE}),
    ("sessions", "fetch", (b"a",), {"key": b"a"}),
    ("sessions", "fetch", (b"a", None), {"from_key": b"a", "to_key": None}),
    ("sessions", "backward_fetch", (b"a", b"b"), {"from_key": b"a", "to_key": b"b"}),
    ("sessions", "fetch_session", (b"a", 10, 10), {"key": b"a", "start_ms": timedelta(seconds=0.01), "end_ms": 10}),
    ("sessions", "find_sessions", (0, 99), {"earliest_end_ms": NONE, "latest_end_ms": LATE}),
    ("sessions", "find_sessions", (b"a", 0, 99), {"key": b"a", "earliest_end_ms": NONE, "latest_start_ms": LATE}),
    (
        "sessions",
        "backward_find_sessions",
        (b"a", b"b", 0, 99),
        {"from_key": b"a", "to_key": b"b", "earliest_end_ms": 0, "latest_start_ms": LATE},
    ),
    ("versions", "get", (b"a",), {"key": b"a"}),
    ("versions", "get", (b"a", 99), {"key": b"a", "as_of_ms": LATE}),
    ("versions", "get", (b"a", 0, 99), {"key": b"a", "from_ms": NONE, "to_ms": LATE}),
    (
        "versions",
        "get",
        (b"a", 0, 99, ResultOrder.ASCENDING),
        {"key": b"a", "from_ms": 0, "to_ms": LATE, "order": ResultOrder.ASCENDING},
    ),
]


@pytest.mark.parametrize(("kind", "method", "given", "named"), READS, ids=lambda value: str(value)[:40])
def test_a_read_by_name_is_the_one_by_position(
    kind: str, method: str, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    store = filled(kind)
    for view in (store, store.read_only()):
        read: Callable[..., Any] = getattr(view, method)
        expected = all_of(read(*given))
        assert expected, "there is something to find"
        assert all_of(read(**named)) == expected
        first, *rest = given
        assert all_of(read(first, **dict(list(zip(_form(named, method, kind), given, strict=True))[1:]))) == expected
        assert (
            all_of(read(first, *(timedelta(milliseconds=one) if type(one) is int else one for one in rest))) == expected
        )


def _form(named: dict[str, Any], method: str, kind: str) -> list[str]:
    """Return the names in the order of the positions."""
    order = ["from_key", "to_key", "key", "time_ms", "as_of_ms", "from_ms", "to_ms", "start_ms", "end_ms"]
    order += ["earliest_end_ms", "latest_start_ms", "latest_end_ms", "order"]
    return sorted(named, key=order.index)


@pytest.mark.parametrize(
    ("kind", "method", "given", "named"),
    [
        ("windows", "fetch", (b"a",), {}),
        ("windows", "fetch", (b"a", 0), {"key": b"a"}),
        ("windows", "fetch", (b"a", 0), {"until_ms": 1}),
        ("windows", "backward_fetch", (b"a", 0), {}),
        ("sessions", "find_sessions", (b"a",), {}),
        ("sessions", "fetch", (), {}),
        ("versions", "get", (), {"as_of_ms": 5}),
        ("versions", "get", (b"a", 0, 99, ResultOrder.ANY, 1), {}),
    ],
)
def test_what_fits_no_form_is_told_them_all(kind: str, method: str, given: tuple[Any, ...], named: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{method} takes \((from_|earliest_end_ms|key).*\) or \(.*\), got \("):
        getattr(store_of(kind), method)(*given, **named)


def test_factories_and_reads_round_timedeltas_alike() -> None:
    store = store_of("windows")
    put("windows", store, b"a", GOOD["windows"])
    assert store.fetch(b"a", timedelta(milliseconds=10, microseconds=999)) == store.fetch(b"a", 10) is not None


def test_a_session_is_found_by_what_windowed_says() -> None:
    store = filled("sessions")
    ((session, _),) = list(store.fetch(key=b"a"))
    assert session == Windowed(b"a", 10, 10)
