"""What a store can be asked for as, and what is shown of it then: as Kafka Streams 4.3 has it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

import pytest

from statestore import Serdes
from statestore.errors import StoreFormatError
from statestore.format.values.store_format import StoreFormat
from statestore.view import QueryableStoreTypes, StateView
from statestore.view.store_types import QueryableStoreType
from tests.conformance.stacks import KEY_VALUE, NAME, SESSION, VERSIONED, WINDOW, Kind, hold
from tests.support.view.written_state import WrittenState

TYPES: Final[list[QueryableStoreType]] = [
    make() for _, make in inspect.getmembers(QueryableStoreTypes, inspect.isfunction)
]
PLAIN, TIMED = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED
TIMED_HEADERS, HEADERS = StoreFormat.TIMESTAMPED_WITH_HEADERS, StoreFormat.WITH_HEADERS
SHOWN: Final = {
    PLAIN: {PLAIN},
    TIMED: {PLAIN, TIMED},
    TIMED_HEADERS: {PLAIN, TIMED, TIMED_HEADERS},
    HEADERS: {PLAIN, HEADERS},
}
CASES: Final[dict[str, tuple[Kind, tuple[Any, ...], Any]]] = {
    "key-value": (KEY_VALUE, (b"k", 7), lambda store: [store.get(b"k"), *(held for _, held in store.all())]),
    "window": (
        WINDOW,
        (b"k", 7, 20),
        lambda store: [store.fetch(b"k", 20), *(held for _, held in store.fetch(b"k", 0, 50))],
    ),
    "session": (
        SESSION,
        (b"k", 7, 20, 25),
        lambda store: [store.fetch_session(b"k", 20, 25), *(held for _, held in store.fetch(b"k"))],
    ),
    "versioned": (VERSIONED, (b"k", 7, 20), None),
}


def test_the_names_are_those_of_kafka() -> None:
    assert {each.name for each in TYPES} == {
        "key_value_store",
        "timestamped_key_value_store",
        "timestamped_key_value_store_with_headers",
        "window_store",
        "timestamped_window_store",
        "timestamped_window_store_with_headers",
        "session_store",
        "session_store_with_headers",
    }
    assert [name for name, _ in inspect.getmembers(QueryableStoreTypes, inspect.isfunction)] == [
        each.name for each in TYPES
    ]


@pytest.mark.parametrize(("kind", "entry", "read"), CASES.values(), ids=CASES)
def test_a_type_shows_what_it_says_and_refuses_what_holds_less(
    kind: Kind, entry: tuple[Any, ...], read: Any, tmp_path: Path
) -> None:
    for known in kind.builders:
        state = WrittenState(tmp_path / known.name, kind.builder(known), shards=1)
        state.batch(lambda _, stores, known=known: kind.put(stores[NAME], lambda value: hold(known, value, 7), entry))
        with StateView(state.location) as view:
            for store_type in TYPES:
                is_of_kind = store_type.kind is state.metadata.stores[0].kind
                if is_of_kind and store_type.shown in SHOWN[known]:
                    store = view.store(NAME, store_type, value_serde=Serdes.int64())
                    wanted = hold(store_type.shown, 7, 7)
                    assert read(store) == [wanted, wanted]
                else:
                    with pytest.raises(StoreFormatError, match=f"was asked for as {store_type.name}"):
                        view.store(NAME, store_type)
