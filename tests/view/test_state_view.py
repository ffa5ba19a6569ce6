"""A view of a committed state: which batch it is at, and how it goes on."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore import Headers, Serdes, Stores, ValueAndTimestamp, ValueTimestampHeaders
from statestore.errors import RecoveryError, StoreError
from statestore.errors.state import StoreClosedError
from statestore.format.keys.partitioner import partition_of
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.local import local_copy
from statestore.recovery.local.local_copy import LocalCopy
from statestore.recovery.restore.restore import apply_deltas
from statestore.view import StateView
from tests.support.tools.runs import everything_below
from tests.support.view.counts import AS_COUNTS, COUNTS, RecordedReads, open_copies, put
from tests.support.view.written_state import WrittenState

TEXT = Serdes.string()


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


def test_pointers_can_say_what_is_committed(state: WrittenState) -> None:
    state.batch(put(a=1))
    before = list(state.pointers)
    state.batch(put(a=2))
    for committed in (before, "\n".join(pointer.to_json() for pointer in before)):
        with StateView(state.location, pointers=committed) as view:
            assert view.head is None
            assert view.store("counts", **AS_COUNTS).get("a") == 1
            assert not view.refresh()


def test_a_stage_is_a_state_of_its_own(tmp_path: Path) -> None:
    stages = tmp_path / "stages"
    stages.mkdir()
    for number in range(2):
        state = WrittenState(tmp_path / f"{number}", COUNTS)
        state.batch(put(a=number))
        (state.home / "state").rename(stages / f"stage-{number}")
    with StateView(stages, stage=1) as view:
        assert view.store("counts", **AS_COUNTS).get("a") == 1
    with pytest.raises(RecoveryError, match="the state has stages"):
        StateView(stages)


def test_a_refresh_reads_the_new_delta_alone(state: WrittenState) -> None:
    state.batch(put(a=1, b=2, c=3, d=4))
    location = RecordedReads(state.location.uri)
    with StateView(location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert len([*counts.all()]) == 4
        location.names_read.clear()
        state.batch(put(a=5))
        assert view.refresh()
        assert counts.get("a") == 5
        (delta,) = [name for name in location.names_read if name.endswith(".arrow")]
        assert delta == state.pointers[partition_of(b"a", 2)].deltas[-1].name


def test_only_the_shards_that_are_asked_for_are_opened_and_the_least_used_closed(tmp_path: Path) -> None:
    state = WrittenState(tmp_path, COUNTS, shards=4)
    keys = {partition_of(key.encode(), 4): key for key in "abcdefghijkl"}
    state.batch(put(4, **dict.fromkeys(keys.values(), 1)))
    with StateView(state.location, local_dir=tmp_path / "views", max_open_shards=2) as view:
        counts = view.store("counts", **AS_COUNTS)
        for shard in (2, 0, 2, 3):
            assert counts.get(keys[shard]) == 1
        assert open_copies(tmp_path / "views") == {2, 3}
        scan = counts.all()
        first = next(scan)
        assert [counts.get(keys[shard]) for shard in range(4)] == [1] * 4
        assert open_copies(tmp_path / "views") == {0, 1, 2, 3}, "none that is scanned is closed"
        assert [first, *scan] == [(key, 1) for key in sorted(keys.values())]
        counts.get(keys[1])
        view.shard(0)
        assert view.store("counts", **AS_COUNTS).get(keys[3]) == 1


def test_a_closed_view_opens_nothing(state: WrittenState, tmp_path: Path) -> None:
    state.batch(put(a=1))
    view = StateView(state.location, local_dir=tmp_path / "views")
    view.shard(0)
    view.close()
    view.close()
    for use in (lambda: view.shard(0), lambda: view.store("counts"), view.refresh, lambda: next(view.follow())):
        with pytest.raises(ValueError, match="is closed"):
            use()
    assert open_copies(tmp_path / "views") == set()


def test_versions_of_keys_are_read_whatever_shards_are_opened_before_their_end(tmp_path: Path) -> None:
    supplier = Stores.persistent_versioned_key_value_store("prices", 60)
    state = WrittenState(tmp_path, Stores.versioned_key_value_store_builder(supplier, TEXT, TEXT), knows_keys=False)
    keys = {partition_of(key.encode(), 2): key for key in "abcdefghijkl"}
    state.batch(lambda shard, stores: [stores["prices"].put(keys[shard], value, int(value)) for value in "12"])
    for trust_keys in (False, True):
        with StateView(state.location, max_open_shards=1, trust_keys=trust_keys) as view:
            prices = view.store("prices", key_serde=TEXT, value_serde=TEXT)
            both = [prices.get(keys[shard], 0, 5) for shard in (0, 1)]
            assert [[each.value for each in versions] for versions in both] == [["2", "1"]] * 2
            left = prices.get(keys[0], 0, 5)
        with pytest.raises(StoreClosedError):
            list(left)


def test_a_scan_shows_the_batch_that_it_began_at(state: WrittenState) -> None:
    state.batch(put(a=1, b=2, c=3))
    with StateView(state.location) as view:
        scan = view.store("counts", **AS_COUNTS).all()
        first = next(scan)
        state.batch(put(a=None, b=7, c=8, d=9))
        assert view.refresh()
        assert [first, *scan] == [("a", 1), ("b", 2), ("c", 3)]


def test_what_is_found_by_a_header_is_of_one_batch_or_ends_in_words(tmp_path: Path) -> None:
    builder = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("counts"), TEXT, TEXT
    )
    state = WrittenState(tmp_path, builder.with_header_index("tenant"))

    def write(value: str, count: int) -> None:
        held = ValueTimestampHeaders.make(value, 1, Headers([("tenant", b"eu")]))
        keys = [f"k{number:03}" for number in range(count)]
        state.batch(
            lambda shard, stores: [
                stores["counts"].put(key, held) for key in keys if partition_of(key.encode(), 2) == shard
            ]
        )

    write("old", 200)
    with StateView(state.location) as view:
        counts = view.store("counts", key_serde=TEXT, value_serde=TEXT)
        begun, untouched = counts.by_header("tenant", "eu"), counts.by_header("tenant", "eu")
        assert next(begun)[1].value == "old"
        write("new", 150)
        assert view.refresh()
        for scan in (begun, untouched):
            with pytest.raises(StoreClosedError):
                list(scan)
        found = [held.value for _, held in counts.by_header("tenant", "eu")]
        assert found == ["new"] * 150 + ["old"] * 50


def test_copies_are_kept_for_the_next_start_and_leave_those_of_a_query_alone(state: WrittenState) -> None:
    state.batch(put(a=1, b=2, c=3))
    local_dir = state.home / "local"
    before = everything_below(local_dir / state.metadata.state_id)
    for values in ({"a": 1}, {"a": 5, "b": 2}):
        location = RecordedReads(state.location.uri)
        with StateView(location, local_dir=local_dir) as view, StateView(location, local_dir=local_dir) as other:
            counts = view.store("counts", **AS_COUNTS)
            assert {key: counts.get(key) for key in values} == values
            assert other.store("counts", **AS_COUNTS).get("a") == values["a"]
        fetched = [name for name in location.names_read if name.endswith(".arrow")]
        assert everything_below(local_dir / state.metadata.state_id) == before
        state.batch(put(a=5))
        before = everything_below(local_dir / state.metadata.state_id)
    first = state.pointers[partition_of(b"a", 2)].deltas[0].name
    assert first not in fetched, "it was in the copies"


def test_what_was_far_behind_or_went_another_way_is_opened_anew(tmp_path: Path) -> None:
    state = WrittenState(tmp_path, COUNTS)
    state.batch(put(a=1, b=2))
    before = list(state.pointers)
    state.batch(put(a=3))
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert [*counts.all()] == [("a", 3), ("b", 2)]
        scans = [counts.all(), counts.reverse_range("a", "z")]
        state.restart(before)
        head = state.batch(put(b=4))
        assert view.refresh()
        assert view.head == head
        for scan in scans:
            with pytest.raises(StoreClosedError):
                list(scan)
        assert [*counts.all()] == [("a", 1), ("b", 4)]


def test_a_view_follows_heads(state: WrittenState) -> None:
    state.batch(put(a=1))
    with StateView(state.location) as view:
        counts, heads = view.store("counts", **AS_COUNTS), view.follow(poll_seconds=0.01)
        for count in (2, 3):
            published = state.batch(put(a=count))
            assert next(heads) == published
            assert counts.get("a") == count


def test_a_kill_after_a_refresh_costs_no_entry(state: WrittenState, monkeypatch: pytest.MonkeyPatch) -> None:
    first = state.batch(put(a=1, b=2))
    view = StateView(state.location, local_dir=state.home / "views")
    counts = view.store("counts", **AS_COUNTS)
    assert len([*counts.all()]) == 2
    state.batch(put(a=3, b=None))
    assert view.refresh()
    state.batch(put(c=4))
    assert view.refresh()

    def flush_alone(copy: LocalCopy) -> None:
        copy.database.close()

    monkeypatch.setattr(local_copy, "_close", flush_alone)  # all is on the disk, and nothing says so
    view.close()
    monkeypatch.undo()
    for committed, entries in ((first.pointers, [("a", 1), ("b", 2)]), (None, [("a", 3), ("c", 4)])):
        with StateView(state.location, local_dir=state.home / "views", pointers=committed) as view:
            assert [*view.store("counts", **AS_COUNTS).all()] == entries


def test_a_refresh_that_is_cut_short_leaves_no_copy_in_between(
    state: WrittenState, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (next(key for key in "abcdef" if partition_of(key.encode(), 2) == shard) for shard in range(2))
    state.batch(put(**{a: 1, b: 2}))
    with StateView(state.location, local_dir=state.home / "views") as view:
        counts, applied = view.store("counts", **AS_COUNTS), []
        assert [counts.get(key) for key in (a, b)] == [1, 2]
        state.batch(put(**{a: 3, b: 4}))

        def interrupted(*given: Any) -> None:
            apply_deltas(*given)
            applied.append(given)
            if len(applied) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(local_copy, "apply_deltas", interrupted)
        with pytest.raises(KeyboardInterrupt):
            view.refresh()
        monkeypatch.undo()
        assert (view.batch, [counts.get(key) for key in (a, b)]) == (0, [1, 2])
        assert view.refresh()
        assert (view.batch, [counts.get(key) for key in (a, b)]) == (1, [3, 4])


def test_a_store_in_another_format_is_to_be_asked_for_again(state: WrittenState) -> None:
    state.batch(put(a=1))
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert counts.get("a") == 1
        (spec,) = state.metadata.stores
        newer = replace(spec, format=StoreFormat.TIMESTAMPED)
        state.record_metadata(replace(state.metadata, stores=(newer,), generation=1))
        assert not view.refresh()
        with pytest.raises(StoreError, match="has another format now: ask the view for it again"):
            counts.get("a")
        assert view.store("counts", **AS_COUNTS).get("a") == ValueAndTimestamp(1, -1)


def test_every_shard_is_asked_where_records_were_placed_by_partition(tmp_path: Path) -> None:
    windows = Stores.window_store_builder(Stores.persistent_window_store("w", 1_000, 10), TEXT, TEXT)
    versions = Stores.versioned_key_value_store_builder(
        Stores.persistent_versioned_key_value_store("v", 1_000), TEXT, TEXT
    )
    state = WrittenState(tmp_path, COUNTS, windows, versions, shards=3, shard_by="partition")

    def write(shard: int, stores: Any) -> None:
        key = "cab"[shard]
        stores["counts"].put(key, shard)
        stores["w"].put(key, f"w{shard}", 5)
        stores["v"].put(key, f"v{shard}", 5)
        stores["v"].put(key, f"later {shard}", 6)

    state.batch(write)
    with StateView(state.location) as view:
        counts, serdes = view.store("counts", **AS_COUNTS), {"key_serde": TEXT, "value_serde": TEXT}
        assert [counts.get(key) for key in "abcd"] == [1, 2, 0, None]
        assert [key for key, _ in counts.all()] == [*"abc"]
        store = view.store("w", **serdes)
        assert (store.fetch("b", 5), [*store.fetch("a", 0, 9)], store.fetch("d", 5)) == ("w2", [(5, "w1")], None)
        store = view.store("v", **serdes)
        assert (store.get("b").value, store.get("c", 5).value, store.get("d")) == ("later 2", "v0", None)
        assert [each.value for each in store.get("a", 0, 9)] == ["later 1", "v1"]


def test_a_global_store_is_read_once(tmp_path: Path) -> None:
    state = WrittenState(tmp_path, COUNTS, shards=3, global_stores=["counts"])

    def write(_: int, stores: Any) -> None:
        for key in "abc":
            stores["counts"].put(key, 1)

    state.batch(write)
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert [*counts.all()] == [("a", 1), ("b", 1), ("c", 1)]
        assert [counts.get(key) for key in "abcd"] == [1, 1, 1, None]


def test_a_store_whose_keys_are_not_those_of_records_is_read_by_what_they_are(tmp_path: Path) -> None:
    state = WrittenState(tmp_path, COUNTS, knows_keys=False)
    keys = [f"{n}-{letter}" for n in range(3) for letter in "abcd"]

    def write(shard: int, stores: Any) -> None:
        for key in keys:
            if partition_of(key[2:].encode(), 2) == shard:
                stores["counts"].put(key, 1)

    state.batch(write)
    for said in ({}, {"key_of": {"counts": lambda key: key[2:]}}):
        with StateView(state.location, **said) as view:
            counts = view.store("counts", **AS_COUNTS)
            assert [counts.get(key) for key in [*keys, "x-a"]] == [1] * len(keys) + [None]
            assert counts.get_many(pa.array(keys)).value.to_pylist() == [1] * len(keys)
    with StateView(state.location, trust_keys=True) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert {counts.get(key) for key in keys} == {1, None}, "which is not true"


@pytest.mark.parametrize(("clock", "shown"), [("processing", ["c"]), ("event", ["b", "c"])])
def test_what_has_expired_by_its_clock_is_not_shown(clock: str, shown: list[str], tmp_path: Path) -> None:
    state = WrittenState(tmp_path, COUNTS.with_ttl(1_000, clock))
    now_ms = time.time_ns() // 1_000_000
    for key, put_ms in (("a", 1_000), ("b", 2_500), ("c", 3_000 if clock == "event" else now_ms + 10**6)):
        state.now_ms = put_ms
        state.batch(put(**{key: 1}))
    state.now_ms = 3_000
    state.batch(lambda shard, stores: stores["counts"].put(f"{shard}", None))
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS, clock=clock)
        assert [key for key, _ in counts.all()] == shown
        assert [key for key in "abc" if counts.get(key)] == shown
        with pytest.raises(ValueError, match="clock must be one of"):
            view.store("counts", clock="sun").get(b"a")
