"""The command `get`: what a store holds of one key, read with as little as the layout allows."""

from pathlib import Path

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBByteStore
from statestore.format.keys.due_key import EXPIRY_SUFFIX
from statestore.recovery import shard_batch
from tests.support.golden.kafka_streams import load_fixture
from tests.support.golden.state import BUILDERS
from tests.support.recovery.rescaling import KEYS, States
from tests.support.tools.runs import Tools, everything_below, kind_options

NAMES = [
    "headers-kv",
    "ts-kv-from-plain",
    "headers-window-dup",
    "session",
    "headers-session-from-plain",
    "old-versioned",
]


@pytest.mark.parametrize("name", NAMES)
def test_all_that_a_golden_directory_has_of_a_key(name: str, tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    before = everything_below(tmp_path)
    key = fixture.logical["entries"][-1]["key"]
    ended = tools("get", "--json", *kind_options(fixture), task, f"0x{key}")
    assert ended.code == 0
    assert ended.document["entries"] == [entry for entry in fixture.logical["entries"] if entry["key"] == key]
    nothing = tools("get", *kind_options(fixture), task, "no such key")
    assert (nothing.code, nothing.out) == (1, "")
    assert "nothing for this key" in nothing.err
    assert everything_below(tmp_path) == before, "an entry that would be upgraded by reading is not"


def test_a_value_is_read_without_a_scan(tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = load_fixture("headers-kv")
    task = fixture.unpack(tmp_path)
    scanned: list[str] = []
    scan = RocksDBByteStore.range

    def noted(store: RocksDBByteStore, *args: object, **options: object) -> object:
        scanned.append(store._family_name)
        return scan(store, *args, **options)

    monkeypatch.setattr(RocksDBByteStore, "range", noted)
    assert tools("get", *kind_options(fixture), task, f"0x{fixture.logical['entries'][0]['key']}").code == 0
    assert "keyValueWithTimestampAndHeaders" not in scanned


def test_of_a_location_the_shard_of_the_key_is_restored_and_no_other(
    rated_states: States, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[int] = []
    opened = shard_batch.ShardedState.open

    def noted(state: shard_batch.ShardedState, pointer: shard_batch.CommitPointer) -> object:
        restored.append(pointer.shard)
        return opened(state, pointer)

    monkeypatch.setattr(shard_batch.ShardedState, "open", noted)
    location = [rated_states.home / "old", "--pointers", rated_states.home / "pointers"]
    for builder in BUILDERS:
        restored.clear()
        ended = tools("get", "--json", "--store", builder.name, *location, KEYS[7])
        assert (ended.code, set(restored)) == (0, {rated_states.shard_of(KEYS[7])}), builder.name
        (key,) = {entry["key"] for entry in ended.document["entries"]}
        assert key == KEYS[7].encode().hex()
    restored.clear()
    assert tools("get", "--store", "rates", *location, "rate").lines == ["rate  -> 1"]
    assert tools("scan", "--store", "rates", *location).lines == ["rate  -> 1"]
    assert "--all-parts" not in tools("get", "--store", "rates", *location, "no-such-key").err
    assert len(set(restored)) == 1, "each shard has all of a global store"
    restored.clear()
    missing = tools("get", "--store", "plain", *location, "no-such-key")
    assert (missing.code, len(set(restored))) == (1, 1)
    assert "--all-parts" in missing.err
    everywhere = tools("get", "--store", "plain", "--all-parts", *location, "no-such-key")
    assert (everywhere.code, set(restored)) == (1, {0, 1, 2})
    assert "--all-parts" not in everywhere.err


def test_versions_windows_and_sessions_are_lines(rated_states: States, tools: Tools) -> None:
    location = [rated_states.home / "old", "--pointers", rated_states.home / "pointers"]

    def get(store: str) -> list[str]:
        return tools("get", "--store", store, *location, KEYS[0]).lines

    assert get("plain") == ["key-0  -> key-0@50"]
    assert get("windows") == [
        "key-0  window [50, 60)  -> first  timestamp 50  trace=0x00ff  trace=null  ä=text:",
        "key-0  window [50, 60)  -> second  timestamp 50  trace=0x00ff  trace=null  ä=text:",
    ]
    assert get("sessions") == ["key-0  session [40, 50]  -> s  trace=0x00ff  trace=null  ä=text:"]
    assert get("versions") == ["key-0  valid [50, 53)  -> from 50", "key-0  valid [58, now)  -> again"]


def test_a_key_that_the_library_made_is_found_where_its_record_s_key_is(rated_states: States, tools: Tools) -> None:
    location = [rated_states.home / "old", "--pointers", rated_states.home / "pointers"]
    expiry = f"expiring{EXPIRY_SUFFIX}"
    entries = tools("scan", "--json", "--store", expiry, *location).document["entries"]
    assert len(entries) == 2 * len(KEYS), "each key, and when it expires"
    for entry in entries[::20]:
        assert tools("get", "--json", "--store", expiry, *location, f"0x{entry['key']}").document["entries"] == [entry]
