"""Windows that are put out when they close: which ones, in what order, and what it takes to know."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.suppressed import EmitStrategy
from statestore.dsl.windows import TimeWindows
from statestore.format.keys.due_key import due_key, started_key, window_end_key
from statestore.stores.key_value import KeyValueStore
from statestore.stores.window import WindowStore
from tests.support.dsl.runs import TEXT, DslRun

KEPT = Materialized.as_("windows").with_value_serde(TEXT)
WINDOWS = TimeWindows.of_size_and_grace(10, 5).advance_by(5)


def final(stream: KStream) -> KTable:
    by_window = stream.group_by_key().windowed_by(WINDOWS).emit_strategy(EmitStrategy.on_window_close())
    return by_window.reduce(lambda one, other: one + other, materialized=KEPT, headers="merge_distinct")


def updating(stream: KStream) -> KTable:
    return stream.group_by_key().windowed_by(WINDOWS).reduce(lambda one, other: one + other, materialized=KEPT)


def test_windows_are_put_out_by_end_and_key_with_the_headers_of_their_records() -> None:
    with DslRun(final) as run:
        assert run.pipe(("b", "x", 10, "1"), ("a", "y", 11, "2"), ("b", "z", 12, "3"), ("c", "w", 19)) == []
        assert run.pipe(("c", "v", 20)) == ["a[5,15] y @11 2", "b[5,15] xz @12 1 3"]
        assert run.pipe(("late", "u", 14), ("c", "t", 1_000)) == [
            "a[10,20] y @11 2",
            "b[10,20] xz @12 1 3",
            "c[10,20] w @19",
            "late[10,20] u @14",
            "c[15,25] wv @20",
            "c[20,30] v @20",
        ]


def test_nothing_is_looked_up_where_nothing_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[str] = []
    for store_class, method in ((KeyValueStore, "range"), (WindowStore, "fetch_all"), (WindowStore, "all")):
        scan = getattr(store_class, method)
        monkeypatch.setattr(
            store_class,
            method,
            lambda self, *arguments, scan=scan: scans.append(self.name) or scan(self, *arguments),
        )
    with DslRun(final) as run:
        scans.clear()
        run.pipe(*(("a", "x", 10 + number // 20) for number in range(100)))
        assert scans == []
        run.pipe(("a", "y", 20), ("a", "z", 21), ("a", "z", 22))
        assert scans == ["windows-ends"]


def test_a_state_that_was_put_out_at_each_change_is_put_out_when_it_closes(tmp_path: Path) -> None:
    with DslRun(updating, state_dir=tmp_path) as run:
        assert run.pipe(("a", "x", 10)) == ["a[5,15] x @10", "a[10,20] x @10"]
    with DslRun(final, state_dir=tmp_path) as run:
        assert run.pipe(("a", "y", 11), ("b", "z", 25)) == ["a[5,15] xy @11", "a[10,20] xy @11"]


def test_a_window_that_is_deleted_is_not_put_out() -> None:
    def declare(stream: KStream) -> KTable:
        by_window = stream.group_by_key().windowed_by(WINDOWS).emit_strategy(EmitStrategy.on_window_close())
        return by_window.reduce(lambda one, other: None if other == "gone" else one + other)

    with DslRun(declare) as run:
        assert run.pipe(("a", "x", 14), ("a", "gone", 14), ("b", "y", 100)) == []
        assert run.pipe(("b", "z", 200)) == ["b[95,105] y @100", "b[100,110] y @100"]


def test_descriptions_are_those_of_kafka_and_tools_know_the_key() -> None:
    with DslRun(final) as run:
        assert "stores: [windows])" in str(run.topology.describe())
        assert run.topology.processors["KSTREAM-REDUCE-0000000001"].entry_keys == {"windows-ends": "window ends"}
    assert window_end_key(due_key(15, started_key(5, b"key"))) == b"key"
