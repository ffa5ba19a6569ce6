"""State locations as each format wrote them, and their pointers, must be readable by every later release."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kinds.entry_scan import stored_entries
from statestore.errors.state import CommitPointerError, DurableFileCorruptedError
from statestore.format.records.header_bytes import encode_headers
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import RecordedPunctuation
from statestore.recovery.fences.history import Histories, read_fences
from statestore.recovery.fences.run_fences import RunFences, head_of
from statestore.recovery.location.shard_files import (
    delta_directory,
    parse_collection_name,
    parse_delta_writer,
    writer_of,
)
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.recovery.shard_batch import ShardedState
from tests.support.golden.state import LENIENT, sharded_state
from tests.support.recovery.shards import Shard, stored

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST = {
    b"": stored(b"empty key"),
    b"a": stored(b"1", 5, encode_headers([("trace", b"\x00\xff"), ("trace", None), ("ä", b"")])),
    b"b": stored(b"", -1),
}
SECOND = {**FIRST, b"a": stored(b"2", 6, encode_headers([("n", b"%d" % n) for n in range(70)]))}
THIRD = {key: value for key, value in SECOND.items() if key != b"b"}


def recorded_pointers(number: int) -> list[dict[str, Any]]:
    """Return the pointers of a golden state, one for each version, as Spark's state had them."""
    found: list[dict[str, Any]] = json.loads((GOLDEN / f"state-{number}" / "pointers.json").read_text())
    return found


def copy_state(number: int, home: Path) -> None:
    shutil.copytree(GOLDEN / f"state-{number}" / "state", home / "state")


def opened_copy(number: int, home: Path) -> tuple[ShardedState, list[CommitPointer]]:
    """Return a copy of a golden state with stores of every kind, and its pointers."""
    copy_state(number, home)
    state = sharded_state(home)
    return state, [state.pointer(0, json.dumps(recorded)) for recorded in recorded_pointers(number)]


def entries_of(state: ShardedState, pointer: CommitPointer) -> dict[str, set[Any]]:
    with state.open(pointer) as batch:
        return {
            name: {tuple(entry) for entry in stored_entries(store.spec, store.bytes)}
            for name, store in batch.stores.items()
        }


@pytest.fixture
def golden(tmp_path: Path) -> Shard:
    copy_state(1, tmp_path)
    return Shard(tmp_path)


@pytest.mark.parametrize(("version", "content"), [(1, FIRST), (2, SECOND), (3, THIRD)])
def test_every_version_is_restored_entry_for_entry(golden: Shard, version: int, content: dict[bytes, bytes]) -> None:
    recorded = recorded_pointers(1)[version - 1]
    pointer = golden.state.pointer(0, json.dumps(recorded))
    assert pointer.version == version
    assert golden.content(pointer) == content
    assert json.loads(pointer.to_json()) == {
        **recorded,
        "format": 6,
        "earlier": [],
        "snapshots": [],
        "stores": {},
        "punctuations": {},
        "metadata": {},
    }


def test_the_last_pointer_counts_skips_and_stream_time() -> None:
    pointer = CommitPointer.from_json(json.dumps(recorded_pointers(1)[-1]))
    assert (pointer.skipped_records, pointer.stream_time_ms) == (2, 7)


def test_metadata(golden: Shard) -> None:
    metadata = read_metadata(golden.state.location)
    assert metadata is not None
    assert (metadata.state_id, metadata.shards, metadata.routing) == ("state-1", 1, (0,))
    assert [spec.name for spec in metadata.stores] == ["totals"]
    assert [node["name"] for node in metadata.topology] == ["in", "p"]


KEPT = encode_headers([("trace", b"\x00\xff"), ("trace", None), ("ä", b"")])
CONTENTS_2: list[dict[str, set]] = [
    {
        "plain": {(b"a", None, None, b"1", None, None), (b"b", None, None, b"2", None, None)},
        "timed": {(b"a", None, None, b"1", 5, None)},
        "headed": {(b"a", None, None, b"1", 5, KEPT)},
        "windows": {
            (b"a", 0, 10, b"old", 3, KEPT),
            (b"a", 60, 70, b"first", 12, KEPT),
            (b"a", 60, 70, b"second", 13, b""),
        },
        "sessions": {(b"a", 10, 20, b"old", None, KEPT), (b"a", 70, 80, b"s", None, KEPT)},
        "versions": {
            (b"a", 10, 60, b"v10", None, None),
            (b"a", 60, 90, b"v60", None, None),
            (b"b", 95, None, b"latest", None, None),
        },
        "headed-versions": {
            (b"a", 10, 60, b"v10", None, b""),
            (b"a", 60, 90, b"v60", None, b""),
            (b"b", 95, None, b"latest", None, b""),
        },
    },
    {
        "plain": {(b"a", None, None, b"1", None, None)},
        "timed": {(b"a", None, None, b"1", 5, None)},
        "headed": {(b"a", None, None, b"1", 5, KEPT)},
        "windows": {
            (b"a", 60, 70, b"first", 12, KEPT),
            (b"a", 60, 70, b"second", 13, b""),
            (b"a", 160, 170, b"new", 14, b""),
        },
        "sessions": {(b"b", 150, 175, b"t", None, b"")},
        "versions": {
            (b"a", 10, 60, b"v10", None, None),
            (b"a", 60, 75, b"v60", None, None),
            (b"a", 75, 90, b"v75", None, None),
            (b"a", 180, None, b"v180", None, None),
            (b"b", 95, None, b"latest", None, None),
        },
        "headed-versions": {
            (b"a", 10, 60, b"v10", None, b""),
            (b"a", 60, 90, b"v60", None, b""),
            (b"a", 180, None, b"v180", None, KEPT),
            (b"b", 95, None, b"latest", None, b""),
        },
    },
]


@pytest.mark.parametrize("versions", [(1,), (2,), (1, 2), (2, 1)], ids=str)
def test_every_kind_of_store_is_restored(tmp_path: Path, versions: tuple[int, ...]) -> None:
    state, pointers = opened_copy(2, tmp_path)
    for version in versions:
        recorded, pointer = recorded_pointers(2)[version - 1], pointers[version - 1]
        assert json.loads(pointer.to_json()) == {
            **recorded,
            "format": 6,
            "earlier": [],
            "snapshots": [],
            "punctuations": {},
            "metadata": {},
        }
        assert entries_of(state, pointer) == CONTENTS_2[version - 1]


def test_the_specs_of_every_kind_of_store_are_recorded(tmp_path: Path) -> None:
    state, _ = opened_copy(2, tmp_path)
    metadata = read_metadata(state.location)
    assert metadata is not None
    assert metadata.stores == state.stores


def test_schedules_are_read_back_as_they_were_written() -> None:
    (recorded,) = recorded_pointers(3)
    pointer = CommitPointer.from_json(json.dumps(recorded))
    assert pointer.punctuations == {
        "ticking": (
            RecordedPunctuation("stream-time", 10_000, None, 1_700_000_010_000),
            RecordedPunctuation("wall-clock-time", 1, 1, 1_700_000_000_001),
            RecordedPunctuation("wall-clock-time", 60_000, None, None),
        ),
        "näme": (RecordedPunctuation("stream-time", 1, None, 0),),
    }
    assert json.loads(pointer.to_json()) == {
        **recorded,
        "format": 6,
        "snapshots": [],
        "metadata": {},
        "earlier": [],
    }


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"p": 7},
        {"p": [["stream-time", 1, 1]]},
        {"p": [["stream-time", "x", None, 1]]},
        {"p": [["stream-time", 0, None, 1]]},
        {"p": [["stream-time", 1, -1, 1]]},
        {"p": [["stream-time", 1, None, 10**30]]},
        {"p": [["stream-time", 1, None, True]]},
    ],
)
def test_schedules_that_are_none_are_refused(wrong: object) -> None:
    (recorded,) = recorded_pointers(3)
    with pytest.raises(CommitPointerError, match="is not one of ours"):
        CommitPointer.from_json(json.dumps({**recorded, "punctuations": wrong}))


@pytest.mark.parametrize("version", range(2, 7))
@pytest.mark.parametrize("without", ["deltas of snapshots", "newest snapshot"])
def test_every_kind_of_store_is_restored_from_snapshots_and_without(tmp_path: Path, version: int, without: str) -> None:
    state, pointers = opened_copy(4, tmp_path)
    pointer = pointers[version - 1]
    recorded = recorded_pointers(4)[version - 1]
    assert json.loads(pointer.to_json()) == {**recorded, "format": 6, "metadata": {}, "earlier": []}
    assert [made.version for made in pointer.snapshots] == [made for made in (2, 4) if made + 2 <= version]
    if without == "newest snapshot" and pointer.snapshots:
        (tmp_path / "state" / pointer.snapshots[-1].manifest.name).unlink()
    else:
        for delta in set(pointer.deltas) - set(pointer.deltas_since_snapshot):
            (tmp_path / "state" / delta.name).unlink()
    assert entries_of(state, pointer) == CONTENTS_2[1]


def test_fences_say_which_line_each_pointer_is_on(tmp_path: Path) -> None:
    state, pointers = opened_copy(5, tmp_path)
    names = state.location.names(delta_directory(0))
    fences = read_fences(state.location, names)
    assert [(fence.run, fence.from_version, fence.head, fence.went_back) for fence in fences] == [
        ("first", 0, "", False),
        ("back", 1, pointers[0].head, True),
        ("restart", 3, pointers[4].head, False),
    ]
    line = Histories(fences).current
    assert [line.holds(head_of(pointer)) for pointer in pointers] == [True, False, False, True, True, True]
    assert [up_to for name in names if (up_to := parse_collection_name(name))] == [(1, 1)]


def test_the_bytes_of_headers_come_back_as_they_were_put(tmp_path: Path) -> None:
    state, pointers = opened_copy(6, tmp_path)
    with state.open(pointers[-1]) as batch:
        found = {
            name: {
                entry.key: entry.header_bytes
                for entry in stored_entries(batch.stores[name].spec, batch.stores[name].bytes)
            }
            for name in ("headed", "windows", "sessions", "headed-versions")
        }
    lenient = {b"lenient %d" % number: header_bytes for number, header_bytes in enumerate(LENIENT)}
    assert found == {
        "headed": lenient,
        "windows": {b"a": b"", **lenient},
        "sessions": {b"a": KEPT, **lenient},
        "headed-versions": {b"a": b"", b"b": b"", **lenient},
    }


def test_deltas_say_which_of_two_runs_of_one_epoch_has_written(tmp_path: Path) -> None:
    state, pointers = opened_copy(7, tmp_path)
    names = state.location.names(delta_directory(0))
    fences = read_fences(state.location, names)
    assert [(fence.epoch, fence.run, fence.from_version) for fence in fences] == [
        (1, "first", 0),
        (2, "restart", 2),
        (2, "slow", 1),
    ]
    made_by = ["first", "first", "restart"]
    assert [parse_delta_writer(pointer.head) for pointer in pointers] == [writer_of(run) for run in made_by]
    line = Histories(fences, names).current
    assert [line.holds(head_of(pointer)) for pointer in pointers] == [True, True, True]
    assert RunFences(state.location, "next").hold(pointers[1]) == 3, "what the slow one came from gives up nothing"


def test_metadata_and_fences_have_checksums(tmp_path: Path) -> None:
    copy_state(8, tmp_path)
    state = sharded_state(tmp_path)
    metadata = read_metadata(state.location)
    assert metadata is not None
    assert [spec.name for spec in metadata.stores] == sorted(CONTENTS_2[0])
    assert '"digest": "fbdf1d6aaa6891090356d1f408ee6602"' in metadata.to_json()
    (fence,) = read_fences(state.location, state.location.names(delta_directory(0)))
    assert (fence.run, fence.from_version, fence.head, fence.retained_versions) == ("golden", 0, "", 100)
    for name in ("statestore.json", "shards/0000/deltas/00000001-golden.fence"):
        file = tmp_path / "state" / name
        assert '"digest": ' in file.read_text()
        file.write_text(file.read_text().replace("golden", "garden").replace("sessions", "sessyons"))
    assert [fence.from_version for fence in read_fences(state.location, state.location.names(delta_directory(0)))] == [
        None
    ]
    with pytest.raises(DurableFileCorruptedError, match=r"statestore\.json.*checksum"):
        read_metadata(state.location)


def test_processor_metadata_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    state, pointers = opened_copy(9, tmp_path)
    assert [(pointer.version, pointer.processor_metadata) for pointer in pointers] == [
        (1, {"windows": 60, "näme": -(2**63)}),
        (2, {"windows": 160, "näme": -(2**63), "last": 2**63 - 1}),
        (2, {"windows": 170, "näme": -(2**63), "last": 2**63 - 1}),
    ]
    newer = [{**recorded, "format": 6, "earlier": []} for recorded in recorded_pointers(9)]
    assert [json.loads(pointer.to_json()) for pointer in pointers] == newer
    assert [entries_of(state, pointer) for pointer in pointers] == [CONTENTS_2[0], CONTENTS_2[1], CONTENTS_2[1]]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {},
        [7],
        [{"shards": 2, "by": "key"}],
        [{"shards": 0, "by": "key", "seen": {}}],
        [{"shards": 2, "by": "hash", "seen": {}}],
        [{"shards": 2, "by": "key", "seen": {"2": [["shard", "", 1]]}}],
        [{"shards": 2, "by": "key", "seen": {"-1": [["shard", "", 1]]}}],
        [{"shards": 2, "by": "key", "seen": {"x": [["shard", "", 1]]}}],
        [{"shards": 2, "by": "key", "seen": {"1": [["shard", 1]]}}],
        [{"shards": 2, "by": "key", "seen": {"1": [["wall", "", 1]]}}],
        [{"shards": 2, "by": "key", "seen": {"1": [["store", 7, 1]]}}],
        [{"shards": 2, "by": "key", "seen": {"1": [["store", "w", -1]]}}],
        [{"shards": 2, "by": "key", "seen": {"1": [["store", "w", 2**63]]}}],
        [{"shards": 2**63, "by": "key", "seen": {}}],
        [{"shards": 2, "by": "key", "seen": {}}] * 17,
    ],
    ids=lambda wrong: repr(wrong)[-30:],
)
def test_what_earlier_shards_had_seen_and_is_none_is_refused(wrong: object) -> None:
    recorded = {**recorded_pointers(9)[-1], "format": 6}
    with pytest.raises(CommitPointerError, match=r"is not one of ours") as failure:
        CommitPointer.from_json(json.dumps({**recorded, "earlier": wrong}))
    assert failure.value.field == "earlier"


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        7,
        {"": 1},
        {"ä" * 125: 1},
        {"\ud800": 1},
        {"s": 1.0},
        {"s": True},
        {"s": None},
        {"s": "1"},
        {"s": 2**63},
        {"s": -(2**63) - 1},
        {f"s{number}": number for number in range(1_001)},
    ],
    ids=lambda wrong: repr(wrong)[:20],
)
def test_processor_metadata_that_is_none_is_refused(wrong: object) -> None:
    recorded = recorded_pointers(9)[-1]
    with pytest.raises(CommitPointerError, match=r"is not one of ours") as failure:
        CommitPointer.from_json(json.dumps({**recorded, "metadata": wrong}))
    assert failure.value.field == "metadata"
