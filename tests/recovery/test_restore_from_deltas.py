"""Deltas brought into stores: in order, checked, of those stores that are asked for, with what expires by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError
from statestore.format.keys.window_key import encode_window_key
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import batch_changelog
from statestore.recovery.commit.delta import DeltaInfo, encode_delta
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore import restore as restores
from statestore.recovery.restore.restore import CommittedStore, RestoreProgress, open_delta, replay_versions, restore
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.shards import TOTALS, stored
from tests.support.recovery.spilling import small_space

WINDOWS = StoreSpec("windows", StoreKind.WINDOW, StoreFormat.PLAIN, 100, 50, 10)
VERSIONS = StoreSpec("versions", StoreKind.VERSIONED, StoreFormat.PLAIN, 100, 50)
SPECS = {spec.name: spec for spec in (TOTALS, WINDOWS)}
Changes = Mapping[str, Mapping[bytes, bytes | None]]


@pytest.fixture
def space(tmp_path: Path) -> Iterator[SpillSpace]:
    with small_space(tmp_path / "spill", 1 << 30) as space:
        yield space


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path / "state")


def stores(*specs: StoreSpec) -> dict[str, CommittedStore]:
    return {spec.name: CommittedStore(spec, MemoryByteStore(spec.name)) for spec in specs}


def content(store: CommittedStore) -> dict[bytes, bytes]:
    return dict(store.bytes.range(None, None))


def window(start_ms: int) -> bytes:
    return encode_window_key(b"k", start_ms)


class Deltas:
    """Writes the deltas of shard 3, one for each batch of changes."""

    def __init__(self, location: DurableLocation) -> None:
        self.location = location
        self.pointer = CommitPointer("state-1", 3)

    def add(self, changes: Changes, name: str = "", *, info: DeltaInfo | None = None) -> None:
        context = TaskRecordContext()
        changelogs = {store: batch_changelog(SPECS[store]) for store in changes}
        for store, pairs in changes.items():
            for key, value in pairs.items():
                changelogs[store].append(key, value, context)
        version = self.pointer.version + 1
        data = encode_delta(info or DeltaInfo("state-1", 3, version), changelogs, {})[0].to_pybytes()
        self.write(name or f"delta-{version}", data)

    def write(self, name: str, data: bytes) -> None:
        self.location.write(name, data)
        file = DurableFile(name, len(data), digest(data))
        self.pointer = CommitPointer("state-1", 3, self.pointer.version + 1, deltas=(*self.pointer.deltas, file))


@pytest.fixture
def deltas(location: DurableLocation) -> Deltas:
    made = Deltas(location)
    made.add({"totals": {b"a": stored(b"1"), b"b": stored(b"1")}})
    made.add({"totals": {b"a": stored(b"2"), b"b": None}})
    made.add({"totals": {b"c": stored(b"3")}, "windows": {window(0): b"w"}})
    return made


def test_the_later_delta_wins_and_a_delete_deletes(deltas: Deltas, space: SpillSpace) -> None:
    found = stores(TOTALS, WINDOWS)
    restore(deltas.location, deltas.pointer, 0, found, space)
    assert content(found["totals"]) == {b"a": stored(b"2"), b"c": stored(b"3")}
    assert content(found["windows"]) == {segment_prefix(0) + window(0): b"w"}
    assert [store.restored_records for store in found.values()] == [5, 1]
    assert all(store.restore_ns > 0 for store in found.values())


@pytest.mark.parametrize(("applied", "keys"), [(0, b"ac"), (1, b"ac"), (2, b"c"), (3, b"")])
def test_what_is_applied_already_is_not_read(deltas: Deltas, space: SpillSpace, applied: int, keys: bytes) -> None:
    for file in deltas.pointer.deltas[:applied]:
        deltas.location.delete(file.name)
    found = stores(TOTALS, WINDOWS)
    restore(deltas.location, deltas.pointer, applied, found, space)
    assert b"".join(content(found["totals"])) == keys


def test_stores_that_are_not_asked_for_are_left_out(deltas: Deltas, space: SpillSpace) -> None:
    found = stores(WINDOWS)
    restore(deltas.location, deltas.pointer, 0, found, space)
    assert len(content(found["windows"])) == 1


def test_progress_counts_records_by_version_and_all_bytes(deltas: Deltas, space: SpillSpace) -> None:
    calls: list[tuple[object, ...]] = []

    class Listener:
        def on_restore_start(self, *_: object) -> None: ...

        def on_batch_restored(self, *arguments: object) -> None:
            calls.append(arguments)

        def on_restore_end(self, *_: object) -> None: ...

    progress = RestoreProgress(3, ["totals"], 0, 3, Listener())
    restore(deltas.location, deltas.pointer, 0, stores(TOTALS), space, progress)
    progress.end()
    assert calls == [(3, "totals", 1, 2), (3, "totals", 2, 2), (3, "totals", 3, 1)]
    assert progress.figures.size_bytes == sum(file.size_bytes for file in deltas.pointer.deltas)


def test_stream_time_lets_expire_what_no_record_does(deltas: Deltas, space: SpillSpace) -> None:
    deltas.add({"windows": {window(60): b"later"}})
    pointer = deltas.pointer
    found = stores(TOTALS, WINDOWS)
    restore(deltas.location, pointer, 0, found, space)
    assert len(content(found["windows"])) == 2
    timed = CommitPointer("state-1", 3, pointer.version, deltas=pointer.deltas, store_times_ms={"windows": 155, "x": 9})
    again = stores(TOTALS, WINDOWS)
    restore(deltas.location, timed, 0, again, space)
    assert content(again["windows"]) == {segment_prefix(1) + window(60): b"later"}


@pytest.mark.parametrize("most_bytes", [restores.READ_AT_ONCE_BYTES, 0], ids=["in memory", "through the disk"])
class TestOpenDelta:
    """A delta is checked whether it is read at once or copied to the disk before."""

    @pytest.fixture(autouse=True)
    def _read_at_once(self, monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
        monkeypatch.setattr(restores, "READ_AT_ONCE_BYTES", most_bytes)

    def test_it_is_read_whole_and_leaves_nothing(self, deltas: Deltas, space: SpillSpace, most_bytes: int) -> None:
        file = deltas.pointer.deltas[0]
        with open_delta(deltas.location, file, DeltaInfo("state-1", 3, 1), space) as delta:
            assert sum(batch.num_rows for _, batch in delta.batches()) == 2
            assert space.directory.exists() == (most_bytes == 0)
        assert not space.directory.exists() or list(space.directory.iterdir()) == []

    def test_one_that_is_gone_is_named_with_what_needs_it(self, deltas: Deltas, space: SpillSpace) -> None:
        deltas.location.delete("delta-2")
        with pytest.raises(DurableFileMissingError, match=r"delta-2.*shard 3 at version 2 needs it"):
            restore(deltas.location, deltas.pointer, 0, stores(TOTALS), space)

    @pytest.mark.parametrize(("damage", "said"), [("cut", "bytes, .* were written"), ("flipped", "checksum")])
    def test_one_that_was_changed_is_named(self, deltas: Deltas, space: SpillSpace, damage: str, said: str) -> None:
        data = bytearray((deltas.location.read("delta-2", MAX_BYTES) or pa.py_buffer(b"")).to_pybytes())
        data[-1] ^= 1
        deltas.location.write("delta-2", bytes(data[:-1] if damage == "cut" else data))
        with pytest.raises(DurableFileCorruptedError, match=rf"delta-2: has .*{said}"):
            restore(deltas.location, deltas.pointer, 0, stores(TOTALS), space)

    @pytest.mark.parametrize(
        "info",
        [DeltaInfo("state-2", 3, 4), DeltaInfo("state-1", 2, 4), DeltaInfo("state-1", 3, 3)],
        ids=["state", "shard", "version"],
    )
    def test_one_of_something_else_is_refused(self, deltas: Deltas, space: SpillSpace, info: DeltaInfo) -> None:
        deltas.add({"totals": {b"a": stored(b"9")}}, info=info)
        found = stores(TOTALS)
        with pytest.raises(DurableFileCorruptedError, match=r"is DeltaInfo.*wanted was DeltaInfo"):
            restore(deltas.location, deltas.pointer, 3, found, space)
        assert content(found["totals"]) == {}


def test_a_record_that_the_store_can_not_have_is_named(deltas: Deltas, space: SpillSpace) -> None:
    deltas.add({"windows": {b"short": b"w"}})
    with pytest.raises(DurableFileCorruptedError, match="a record that can't be one of store 'windows'"):
        restore(deltas.location, deltas.pointer, 3, stores(WINDOWS), space)


def test_versions_are_replayed_at_the_stream_time_they_were_put_at() -> None:
    """What came too late then comes too late again, and what did not does not."""
    headers = encode_headers([])
    records = [(b"k", b"1", 40, headers), (b"k", b"2", 130, headers), (b"late", b"0", 10, headers)]
    fresh, advanced = (MemoryByteStore("versions") for _ in range(2))
    assert replay_versions(VERSIONS, fresh, StoreFormat.PLAIN, -1, records) == 130
    assert replay_versions(VERSIONS, advanced, StoreFormat.PLAIN, 1_000, records) == 1_000
    assert any(b"k" in key for key, _ in fresh.range(None, None))
    assert not any(b"late" in key for key, _ in fresh.range(None, None))
    assert list(advanced.range(None, None)) == []


def test_plain_versions_get_the_layout_of_a_store_with_headers() -> None:
    with_headers = StoreSpec("versions", StoreKind.VERSIONED, StoreFormat.WITH_HEADERS, 100, 50)
    store = MemoryByteStore("versions")
    replay_versions(with_headers, store, StoreFormat.PLAIN, -1, [(b"k", b"1", 40, encode_headers([("h", b"1")]))])
    (row,) = dict(store.range(None, None)).values()
    assert row.endswith(b"\x00" + b"1"), "none of the headers, which the store did not hold then, and the value"
