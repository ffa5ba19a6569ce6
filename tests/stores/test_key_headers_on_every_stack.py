"""Serdes of keys get headers in every kind of store that has some, on every engine and under every stack of layers.

That of the tests puts the tenant that the headers name in front of the key, and looks for it when it reads one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from statestore import Headers, Serdes, Windowed
from statestore.format.keys.window_key import encode_session_key, encode_window_key
from tests.conformance.stacks import (
    KEY_VALUE,
    SESSION,
    VERSIONED,
    WINDOW,
    Case,
    Entry,
    Kind,
    Stack,
    cases,
    keys_of,
    stack_of,
    value_of,
)

KEYED: Final = ("keyed", None)
"""What the serde adds to the headers when it serializes."""
A, B, C = b"a/", b"b/", b"c/"


def _of_tenant(key: bytes, headers: Headers | None) -> bytes:
    assert headers is not None, "no headers were passed"
    headers.add(*KEYED)
    return _tenant(headers) + key


def _without_tenant(data: bytes, headers: Headers | None) -> bytes:
    assert headers is not None, "no headers were passed"
    tenant = _tenant(headers)
    assert data.startswith(tenant), f"{data!r} is not of {tenant!r}"
    return data[len(tenant) :]


def _tenant(headers: Headers) -> bytes:
    found = headers.last_header("tenant")
    return b"" if found is None else found.value or b""


TENANT_KEYS: Final = Serdes.of_headers("tenant", _of_tenant, _without_tenant)


def of_tenant(name: bytes) -> Headers:
    """Headers that name a tenant, not yet parsed."""
    return Headers.from_bytes(Headers([("tenant", name)]).to_bytes())


class Use(NamedTuple):
    """How the entry of the key b"k" is put with a value, found and deleted, and what all scans say of keys."""

    entry: Callable[[int], Entry]
    get: Callable[[Any], Any]
    delete: Callable[[Any], object]
    keys: Callable[[Any], list[list[bytes]]]
    logged_key: Callable[[bytes], bytes] = lambda key: key


def windowed_keys(*scans: Any) -> list[list[bytes]]:
    return [[windowed.key for windowed, _ in scan] for scan in scans]


def window_of(store: Any) -> Any:
    held = store.fetch(b"k", 10)
    found = [] if held is None else [(10, held)]
    assert list(store.fetch(b"k", 0, 100)) == list(store.backward_fetch(b"k", 0, 100)) == found
    return held


def session_of(store: Any) -> Any:
    held = store.fetch_session(b"k", 10, 20)
    found = [] if held is None else [(Windowed(b"k", 10, 20), held)]
    assert list(store.find_sessions(b"k", 0, 100)) == list(store.fetch(b"k")) == found
    return held


def version_of(store: Any) -> Any:
    held = store.get(b"k")
    assert store.get(b"k", 1000) == held
    assert list(store.get(b"k", 20, 1000)) == ([] if held is None else [held])
    return held


USES: list[tuple[Kind, Use]] = [
    (
        KEY_VALUE,
        Use(
            lambda value: (b"k", value),
            lambda store: store.get(b"k"),
            lambda store: store.delete(b"k"),
            lambda store: [keys_of(scan) for scan in (store.all(), store.reverse_all(), store.range(None, None))],
        ),
    ),
    (
        WINDOW,
        Use(
            lambda value: (b"k", value, 10),
            window_of,
            lambda store: store.put(b"k", None, 10),
            lambda store: windowed_keys(
                store.all(), store.backward_all(), store.fetch_all(0, 100), store.fetch(None, None, 0, 100)
            ),
            lambda key: encode_window_key(key, 10),
        ),
    ),
    (
        SESSION,
        Use(
            lambda value: (b"k", value, 10, 20),
            session_of,
            lambda store: store.remove(Windowed(b"k", 10, 20)),
            lambda store: windowed_keys(
                store.fetch(None, None), store.backward_fetch(None, None), store.find_sessions(0, 100)
            ),
            lambda key: encode_session_key(key, 10, 20),
        ),
    ),
    (
        VERSIONED,
        Use(lambda value: (b"k", value, 10), version_of, lambda store: store.delete(b"k", 20), lambda store: []),
    ),
]
STACKS = [(case, use) for kind, use in USES for case in cases(kind, lambda case: case.has_headers and not case.older)]


@pytest.fixture(params=STACKS, ids=[f"{case.kind.builder(case.format).spec.kind.value}: {case}" for case, _ in STACKS])
def stack_and_use(request: pytest.FixtureRequest) -> Iterator[tuple[Stack, Use]]:
    case, use = request.param
    assert isinstance(case, Case)
    with stack_of(case) as stack:
        stack.builder = replace(stack.builder, key_serde=TENANT_KEYS)
        yield stack, use


@pytest.fixture
def stack(stack_and_use: tuple[Stack, Use]) -> Stack:
    return stack_and_use[0]


@pytest.fixture
def use(stack_and_use: tuple[Stack, Use]) -> Use:
    return stack_and_use[1]


def put_two_tenants(stack: Stack, use: Use) -> Any:
    """Open the store with an entry of each of two tenants, put for a record of one of them."""
    store = stack.open()
    stack.context.headers = of_tenant(B)
    for value, name in enumerate((A, B)):
        stack.case.kind.put(store, lambda held, name=name: stack.hold(held, headers=of_tenant(name)), use.entry(value))
    return store


def test_a_key_is_put_with_the_headers_of_its_value_and_found_with_those_of_the_record(stack: Stack, use: Use) -> None:
    store = put_two_tenants(stack, use)
    for value, name in enumerate((A, B)):
        stack.context.headers = of_tenant(name)
        held = use.get(store)
        assert (value_of(held), list(held.headers)) == (value, [("tenant", name), KEYED])
        assert use.get(store.read_only()) == held
        assert list(stack.context.headers) == [("tenant", name)]
    stack.context.headers = of_tenant(C)
    assert use.get(store) is None


def test_keys_are_read_with_the_headers_that_are_stored_beside_them(stack: Stack, use: Use) -> None:
    store = put_two_tenants(stack, use)
    stack.context.headers = of_tenant(C)
    for keys in use.keys(store) + use.keys(store.read_only()):
        assert keys == [b"k", b"k"]


def test_a_key_is_deleted_and_logged_with_the_headers_of_the_record(stack: Stack, use: Use) -> None:
    store = put_two_tenants(stack, use)
    stack.context.headers = of_tenant(A)
    use.delete(store)
    assert use.get(store) is None
    assert list(stack.context.headers) == [("tenant", A)]
    stack.context.headers = of_tenant(B)
    assert value_of(use.get(store)) == 1
    if stack.case.is_logged:
        records = [(record.key, record.value is None, record.header_bytes) for record in stack.records()]
        expected = [
            (use.logged_key(name + b"k"), is_delete, of_tenant(name).add(*KEYED).to_bytes())
            for name, is_delete in ((A, False), (B, False), (A, True))
        ]
        # A cache passes on the last write of each key.
        assert records in (expected, expected[1:])
