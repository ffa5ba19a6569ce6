"""`diff`, and `verify` of two states: entry by entry, whatever their layouts, formats and numbers of parts."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.store_spec import StoreType
from statestore.format.keys.window_key import encode_window_key
from statestore.format.records.header_bytes import encode_headers
from statestore.recovery.commit.pointer import initial_pointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import logical_writes
from statestore.recovery.making.new_state import NewState
from statestore.recovery.metadata.state_metadata import metadata_of_stores
from tests.support.golden.kafka_streams import load_fixture
from tests.support.recovery.rescaling import KEYS, States
from tests.support.recovery.shards import Shard, stored
from tests.support.tools.runs import Tools, document_in, everything_below, kind_options
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import StateOptions, durable_spec

FAMILY = "keyValueWithTimestampAndHeaders"
HEADERS = encode_headers([("tenant", b"eu")])


def rewrite(task: Path, entries: Mapping[bytes, bytes | None]) -> None:
    database = RocksDBDatabase(str(task / "rocksdb/store"), [FAMILY], compacting=False)
    database.family(FAMILY).write(entries.items())
    database.close()


def test_what_differs_is_printed(tmp_path: Path, tools: Tools) -> None:
    first, other = (load_fixture("headers-kv").unpack(tmp_path / name) for name in ("first", "other"))
    both = {b"a": stored(b"1", 5, HEADERS), b"b": stored(b"2"), b"c": stored(b"3")}
    rewrite(first, {**both, b"gone": stored(b"4", 5, HEADERS)})
    rewrite(other, {**both, b"a": stored(b"9", 6), b"b": stored(b"2", 5, HEADERS), b"new": stored(b"5")})
    before = everything_below(tmp_path)
    ended = tools("diff", first, other)
    assert ended.code == 1
    assert ended.lines == [
        "~ store  a  value 1 => 9  timestamp 5 => 6  headers tenant=eu => none",
        "~ store  b  headers none => tenant=eu",
        "- store  gone  -> 4  timestamp 5  tenant=eu",
        "+ store  new  -> 5  timestamp 5",
    ]
    assert tools("diff", "--limit", "2", first, other).lines == ended.lines[:2]
    documents = [document_in(line) for line in tools("diff", "--json", first, other).lines]
    assert [(d["key"], d["in"], d["changed"]) for d in documents] == [
        (b"a".hex(), "both", ["value", "timestamp", "headers"]),
        (b"b".hex(), "both", ["headers"]),
        (b"gone".hex(), "first", []),
        (b"new".hex(), "other", []),
    ]
    assert documents[1]["other"] == {"key": "62", "value": "32", "timestamp": 5, "headers": [["tenant", "6575"]]}
    assert everything_below(tmp_path) == before
    verified = tools("verify", "--json", first, other)
    assert (verified.code, verified.document["differences"]) == (1, 4)
    (counts,) = verified.document["stores"]
    assert (counts["entries"], counts["otherEntries"], counts["same"]) == (11, 11, False)


def test_headers_and_timestamps_can_be_left_out(tmp_path: Path, tools: Tools) -> None:
    first, other = (load_fixture("headers-kv").unpack(tmp_path / name) for name in ("first", "other"))
    rewrite(first, {b"a": stored(b"1", 5, HEADERS)})
    rewrite(other, {b"a": stored(b"1", 6)})
    assert tools("diff", "--ignore-headers", first, other).lines == ["~ store  a  timestamp 5 => 6"]
    assert tools("diff", "--ignore-timestamps", first, other).lines == ["~ store  a  headers tenant=eu => none"]
    assert tools("diff", "--ignore-headers", "--ignore-timestamps", first, other).code == 0


def test_the_same_headers_in_other_bytes_are_no_difference(tmp_path: Path, tools: Tools) -> None:
    first, other = (load_fixture("headers-kv").unpack(tmp_path / name) for name in ("first", "other"))
    rewrite(first, {b"a": stored(b"1", 5, HEADERS)})
    rewrite(other, {b"a": stored(b"1", 5, b"\x82\x00" + HEADERS[1:])})
    assert tools("diff", first, other) == (0, "", "")
    verified = tools("verify", first, other)
    assert (verified.code, verified.lines) == (0, ["store: 8 entries, the same"])


def test_plain_data_is_compared_with_what_it_becomes(tmp_path: Path, tools: Tools) -> None:
    plain = load_fixture("kv").unpack(tmp_path / "plain")
    asked = tools("verify", "--kind", "kv", plain, plain, "--other-kind", "headers-kv")
    assert asked.code == 2
    assert "--ignore-headers" in asked.err
    assert "--kind" in asked.err
    ignoring = ["--ignore-headers", "--ignore-timestamps"]
    assert tools("verify", "--kind", "kv", plain, plain, "--other-kind", "headers-kv", *ignoring).code == 0
    assert tools("verify", "--kind", "headers-kv", plain, plain).code == 0
    other_kind = tools("verify", "--kind", "kv", plain, plain, "--other-kind", "versioned")
    assert (other_kind.code, "versioned" in other_kind.err) == (4, True)


def moved_to_location(task: Path, kind: str, target: Path, shards: int) -> None:
    """Fill a location with what a task directory holds: its entries in several shards, and in other segments."""
    options = StateOptions(kind=StoreType(kind), window_size_ms=10_000, retention_ms=300_000)
    state = open_state(str(task), options)
    (spec,) = (durable_spec(spec, options, str(task)) for spec in state.specs())
    spec = replace(spec, segment_interval_ms=135_000 if spec.kind.is_segmented else None)
    made = NewState.claim(DurableLocation(target), metadata_of_stores([spec], shards, "partition"), "a test")
    filling = made.filling()
    with state.open(0, state.specs()) as stores:
        for writes in logical_writes(state.specs()[0], stores["store"].bytes, -1):
            # In turns: where an entry stands is not what is compared.
            for number in range(shards):
                mine = [write for write in writes if sum(write.key[:2]) % shards == number]
                filling.put(number, "store", mine)
    made.complete(made.read_back(filling))


@pytest.mark.parametrize(
    "name", ["headers-kv", "headers-window-dup", "window", "headers-session-from-plain", "versioned"]
)
def test_a_directory_is_compared_with_the_location_that_was_made_of_it(name: str, tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path / "task")
    moved_to_location(task, fixture.fixture["kind"], tmp_path / "made", 3)
    ended = tools("verify", *kind_options(fixture), task, tmp_path / "made")
    assert ended.code == 0, ended
    assert "the same" in ended.out
    entries = fixture.logical["entries"]
    count = sum(len(entry.get("versions", [entry])) for entry in entries)
    assert f"store: {count} entries" in ended.out
    assert tools("diff", *kind_options(fixture), tmp_path / "made", task).out == ""


def test_entries_in_other_segments_and_shards_are_matched_by_their_keys(tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture("headers-window-dup")
    task = fixture.unpack(tmp_path / "task")
    moved_to_location(task, fixture.fixture["kind"], tmp_path / "made", 3)
    database = RocksDBDatabase(str(task / "store/store.180000"), [FAMILY], compacting=False)
    database.family(FAMILY).put(encode_window_key(b"one more", 190_000), stored(b"v"))
    database.close()
    assert tools("diff", *kind_options(fixture), task, tmp_path / "made").lines == [
        "- store  one more  window [190000, 200000)  -> v  timestamp 5"
    ]
    assert tools("diff", *kind_options(fixture), tmp_path / "made", task).lines == [
        "+ store  one more  window [190000, 200000)  -> v  timestamp 5"
    ]


def test_states_with_other_numbers_of_shards_can_be_equal(rated_states: States, tools: Tools) -> None:
    home = rated_states.home
    rated_states.rescaled(5)
    rescaled = rated_states.opened()
    made = [initial_pointer(rescaled.location, rescaled.metadata.state_id, shard) for shard in range(5)]
    (home / "made").write_text("".join(f"{pointer.to_json()}\n" for pointer in made))
    arguments = [home / "old", home / "new", "--pointers", home / "pointers", "--other-pointers", home / "made"]
    ended = tools("verify", "--json", *arguments)
    assert (ended.code, ended.document["same"]) == (0, True)
    counts = {store["name"]: store["entries"] for store in ended.document["stores"]}
    assert (counts["plain"], counts["rates"], counts["windows"]) == (len(KEYS), 1, 2 * len(KEYS))
    rescaled.run(rescaled.shard_of(KEYS[0]), lambda stores: stores["versions"].put(KEYS[0], "more", 70))
    later = [rescaled.pointers.get(shard, pointer) for shard, pointer in enumerate(made)]
    (home / "made").write_text("".join(f"{pointer.to_json()}\n" for pointer in later))
    differing = tools("diff", *arguments)
    assert differing.code == 1
    assert differing.lines == [
        "~ versions  key-0  valid [58, now)  end now => 70",
        "+ versions  key-0  valid [70, now)  -> more",
    ]


def test_the_other_one_s_subtopology_can_be_said(tmp_path: Path, tools: Tools) -> None:
    first, other = (load_fixture("headers-kv").unpack(tmp_path / name) for name in ("first", "other"))
    shutil.copytree(other, other.with_name("1_0"))
    rewrite(other.with_name("1_0"), {b"only here": b"\0" + bytes(8) + b"v"})
    for command in ("verify", "diff"):
        asked = tools(command, first, other.parent)
        assert (asked.code, "--subtopology" in asked.err) == (2, True)
        assert tools(command, first, other.parent, "--other-subtopology", "0").code == 0
        differing = tools(command, first, other.parent, "--other-subtopology", "1")
        assert (differing.code, "only here" in differing.out) == (1, True)


def test_a_store_that_only_one_has_is_a_difference(tmp_path: Path, tools: Tools) -> None:
    first, other = (load_fixture("headers-kv").unpack(tmp_path / name) for name in ("first", "other"))
    (other / "rocksdb/store").rename(other / "rocksdb/renamed")
    ended = tools("diff", first, other)
    assert (ended.code, ended.lines) == (1, ["- store  the whole store", "+ renamed  the whole store"])
    verified = tools("verify", first, other)
    assert (verified.code, "store: in the first alone" in verified.out) == (1, True)


def test_a_copy_is_compared_with_a_directory(tmp_path: Path, tools: Tools) -> None:
    shard = Shard(tmp_path / "shard")
    entries: dict[bytes, Any] = {b"%d" % number: stored(b"v", number, HEADERS) for number in range(50)}
    shard.batch(shard.batch(shard.start(), entries), {b"later": stored(b"not applied yet")})
    task = load_fixture("headers-kv").unpack(tmp_path)
    (task / "rocksdb/store").rename(task / "rocksdb/totals")
    database = RocksDBDatabase(str(task / "rocksdb/totals"), [FAMILY], compacting=False)
    database.family(FAMILY).delete_below(b"\xff\xff\xff")
    database.family(FAMILY).write(entries.items())
    database.close()
    assert tools("diff", task, shard.copy) == (0, "", "")
