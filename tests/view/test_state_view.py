"""A view of a committed state: which batch it is at, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore import Serdes, Stores
from statestore.errors import LocationError, StoreError
from statestore.errors.new_state import StatePointersError
from statestore.errors.state import StoreClosedError
from statestore.format.keys.partitioner import partition_of
from statestore.view import StateView
from tests.support.view.written_state import WrittenState

TEXT = Serdes.string()
COUNTS = Stores.key_value_store_builder(Stores.persistent_key_value_store("counts"), TEXT, Serdes.int64())
AS_COUNTS: dict[str, Any] = {"key_serde": TEXT, "value_serde": Serdes.int64()}


def put(**counts: int | None) -> Callable[..., None]:
    """Put each count in the shard of its key."""

    def write(shard: int, stores: Any) -> None:
        for key, count in counts.items():
            if partition_of(key.encode(), 2) == shard:
                stores["counts"].put(key, count)

    return write


@pytest.fixture
def state(tmp_path: Path) -> WrittenState:
    return WrittenState(tmp_path, COUNTS)


def test_a_view_reads_what_is_committed_and_goes_on_when_it_is_told_to(state: WrittenState) -> None:
    head = state.batch(put(a=1, b=2, c=3, d=4))
    with StateView(state.location) as view:
        assert (view.head, view.batch, view.store_names()) == (head, 0, ["counts"])
        counts = view.store("counts", **AS_COUNTS)
        assert [counts.get(key) for key in "abcdx"] == [1, 2, 3, 4, None]
        later = state.batch(put(a=5, b=None, e=6))
        assert [*counts.all()] == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
        assert view.refresh()
        assert (view.head, view.batch) == (later, 1)
        assert not view.refresh()
        assert [*counts.all()] == [("a", 5), ("c", 3), ("d", 4), ("e", 6)]
        assert [*counts.reverse_range("b", "d")] == [("d", 4), ("c", 3)]
        assert counts.approximate_num_entries() > 0
    with pytest.raises(StoreClosedError, match="closed"):
        counts.get("a")


def test_no_store_head_or_state_is_said(state: WrittenState, tmp_path: Path) -> None:
    with pytest.raises(StatePointersError, match="there is no head"):
        StateView(state.location)
    with pytest.raises(LocationError, match="holds no state"):
        StateView(tmp_path / "elsewhere")
    state.batch(put(a=1))
    with StateView(state.location) as view, pytest.raises(StoreError, match="no such store; it has \\['counts'\\]"):
        view.store("other")


def test_pointers_can_say_what_is_committed(state: WrittenState) -> None:
    state.batch(put(a=1))
    before = list(state.pointers)
    state.batch(put(a=2))
    with StateView(state.location, pointers=before) as view:
        assert view.head is None
        assert view.store("counts", **AS_COUNTS).get("a") == 1
        assert not view.refresh()
