"""A store of a view has the reads of the query's own stores, and they give what those give, of all shards together."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from statestore import Serdes, Stores
from statestore.format.keys.partitioner import partition_of
from statestore.stores.iterator import Windowed
from statestore.view import StateView
from tests.support.view.written_state import WrittenState

TEXT = Serdes.string()
SERDES: dict[str, Any] = {"key_serde": TEXT, "value_serde": TEXT}


def test_windows_sessions_and_versions_are_read_by_key_and_over_all_shards(tmp_path: Path) -> None:
    windows = Stores.window_store_builder(Stores.persistent_window_store("w", 1_000, 10), TEXT, TEXT)
    sessions = Stores.session_store_builder(Stores.persistent_session_store("s", 1_000), TEXT, TEXT)
    versions = Stores.versioned_key_value_store_builder(
        Stores.persistent_versioned_key_value_store("v", timedelta(seconds=1)), TEXT, TEXT
    )
    state = WrittenState(tmp_path, windows, sessions, versions)

    def write(shard: int, stores: Any) -> None:
        for key in "abcd":
            if partition_of(key.encode(), 2) == shard:
                for time_ms in (10, 20):
                    stores["w"].put(key, f"{key}{time_ms}", time_ms)
                    stores["s"].put(Windowed(key, time_ms, time_ms + 5), f"{key}{time_ms}")
                    stores["v"].put(key, f"{key}{time_ms}", time_ms)

    state.batch(write)
    with StateView(state.location) as view:
        store = view.store("w", **SERDES)
        assert store.fetch("a", 10) == "a10"
        assert [*store.fetch("b", 0, 100)] == [(10, "b10"), (20, "b20")]
        assert [(found.key, value) for found, value in store.fetch_all(20, 20)] == [(key, f"{key}20") for key in "abcd"]
        store = view.store("s", **SERDES)
        assert store.fetch_session("c", 20, 25) == "c20"
        assert [value for _, value in store.backward_fetch("d")] == ["d20", "d10"]
        store = view.store("v", **SERDES)
        assert [store.get(key).value for key in "abcd"] == [f"{key}20" for key in "abcd"]
        assert store.get("a", 15).value == "a10"
