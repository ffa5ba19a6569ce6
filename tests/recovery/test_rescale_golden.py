"""Initial state as each format wrote it must be readable by every later release."""

import shutil
from pathlib import Path

import pytest

from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.golden.rescaled import KEYS
from tests.support.recovery.rescaling import Contents, States, every_kind

GOLDEN = Path(__file__).parents[1] / "golden" / "rescaled-1"


@pytest.fixture
def opened(tmp_path: Path) -> States:
    shutil.copytree(GOLDEN, tmp_path / "new")
    metadata = read_metadata(DurableLocation(tmp_path / "new"))
    assert metadata is not None
    assert (metadata.shards, metadata.initial_state) == (2, True)
    return States(tmp_path, every_kind(), 2, name="other").opened()


def entry(contents: list[Contents], store: str, key: str) -> list[tuple[int, StoredEntry]]:
    found = ((shard, entry) for shard, held in enumerate(contents) for entry in held[store])
    return sorted((shard, entry) for shard, entry in found if entry.key == key.encode())


def test_initial_state_is_restored_entry_for_entry(opened: States) -> None:
    contents = opened.contents()
    for number, key in enumerate(KEYS):
        shard, time_ms = opened.shard_of(key), 20 + number
        assert entry(contents, "plain", key) == [
            (shard, StoredEntry(key.encode(), None, None, f"{key}@{time_ms}".encode(), None, None))
        ]
        assert [(place, found.start_ms, found.end_ms) for place, found in entry(contents, "versions", key)] == [
            (shard, time_ms, time_ms + 3),
            (shard, time_ms + 8, None),
        ]
        assert [(place, found.value) for place, found in entry(contents, "windows", key)] == [
            (shard, b"first"),
            (shard, b"second"),
        ]
    assert [[found.key for found in held["rates"]] for held in contents] == [[b"eur"], [b"eur"]]
    assert {opened.shard_of(key) for key in KEYS} == {0, 1}


def test_initial_pointers_carry_times_over(opened: States) -> None:
    assert [opened.pointer(shard).stream_time_ms for shard in range(2)] == [23, 23]
    assert opened.pointer(1).store_times_ms["windows"] == 23


def test_what_earlier_shards_had_seen_is_read_back(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN.with_name("rescaled-2"), tmp_path / "new")
    pointer = States(tmp_path, every_kind(), 1, name="other").opened().pointer(0)
    assert (pointer.stream_time_ms, pointer.processor_metadata) == (20, {"w-observed-stream-time": 20, "w-ends": 30})
    ((shards, by, seen),) = pointer.earlier
    assert (shards, by, {shard: dict(times) for shard, times in seen.items()}) == (
        2,
        "key",
        {
            1: {
                ("shard", ""): 120,
                ("store", "windows"): 120,
                ("store", "sessions"): 120,
                ("store", "versions"): 128,
                ("store", "headed-versions"): 129,
                ("processor", "w-observed-stream-time"): 120,
            }
        },
    )
