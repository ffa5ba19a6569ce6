"""The command `verify` of one state: what is sound, and each thing that is not."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import index_family
from statestore.format.keys.window_key import encode_window_key
from statestore.format.values.versioned_row import Version, encode_segment_row
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head, write_head
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.golden.indexed import GoldenState
from tests.support.golden.indexed import put as put_indexed
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.recovery.rescaling import KEYS, States
from tests.support.recovery.shards import Shard, stored, wait_for_uploads
from tests.support.tools.runs import Tools, everything_below, kind_options
from upgrade_tools.check.state_check import CheckReport, check_database, check_state
from upgrade_tools.check.store_check import StoreCheck
from upgrade_tools.errors import StateWentOnError
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import StateOptions

HEADERS_FAMILY = "keyValueWithTimestampAndHeaders"


def put(database: Path, entries: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """Write entries into column families of a database, whatever they are."""
    opened = RocksDBDatabase(str(database), list(entries), compacting=False)
    for family, pairs in entries.items():
        opened.family(family).write(pairs.items())
    opened.close()


@pytest.mark.parametrize("name", FIXTURES)
def test_every_golden_directory_is_sound(name: str, tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    before = everything_below(tmp_path)
    document = tools("verify", "--json", *kind_options(fixture), task).document
    assert (document["sound"], document["problems"]) == (True, [])
    (store,) = document["stores"]
    entries = sum(
        len(family["entries"]) for d in fixture.raw for family in d["columnFamilies"] if family["name"] != "offsets"
    )
    assert sum(store["entries"].values()) == entries
    assert everything_below(tmp_path) == before


KEY, LATEST = b"damaged", segment_prefix(-1) + b"damaged"
ROW_ENTRIES = {
    segment_prefix(1) + KEY: encode_segment_row(130_000, [Version(100_000, b"")]),
    segment_prefix(0) + b"over": encode_segment_row(40_000, [Version(5_000, b"")]),
    segment_prefix(1) + b"over": encode_segment_row(70_000, [Version(30_000, b"")]),
}


@pytest.mark.parametrize(
    ("name", "database", "entries", "problem"),
    [
        ("headers-kv", "rocksdb/store", {HEADERS_FAMILY: {KEY: b"\x00\x00"}}, "damaged"),
        (
            "headers-kv",
            "rocksdb/store",
            {HEADERS_FAMILY: {KEY: stored(b"v", 5, b"\x02\x02a\x01?")}},
            "bytes follow them",
        ),
        ("headers-kv", "rocksdb/store", {HEADERS_FAMILY: {KEY: stored(b"v", 5, b"\x02\x02\xff\x01")}}, "not UTF-8"),
        ("headers-kv", "rocksdb/store", {HEADERS_FAMILY: {KEY: stored(b"v", 5, b"\x08")}}, "header"),
        (
            "headers-kv-from-ts",
            "rocksdb/store",
            {HEADERS_FAMILY: {KEY: stored(b"v")}, "keyValueWithTimestamp": {KEY: bytes(9)}},
            f"damaged is both in {HEADERS_FAMILY} and in keyValueWithTimestamp",
        ),
        ("headers-kv-from-ts", "rocksdb/store", {"keyValueWithTimestamp": {KEY: b"short"}}, "timestamp"),
        ("window", "store/store.120000", {"default": {encode_window_key(KEY, 250_000): b"v"}}, "does not belong in"),
        ("window", "store/store.120000", {"default": {encode_window_key(KEY, 1): b"v"}}, "does not belong in"),
        ("window", "store/store.240000", {"default": {encode_window_key(KEY, 500_000): b"v"}}, "does not belong in"),
        ("session", "store/store.120000", {"default": {KEY: b"v"}}, "session key"),
        ("versioned", "rocksdb/store", {"default": {LATEST: b"short"}}, "latest version"),
        ("versioned", "rocksdb/store", {"default": {segment_prefix(1) + KEY: bytes(40)}}, "versions"),
        ("versioned", "rocksdb/store", {"default": ROW_ENTRIES}, "does not belong in segment 1"),
    ],
)
def test_an_entry_that_can_t_be_so_is_named(
    name: str, database: str, entries: Mapping[str, Mapping[bytes, bytes]], problem: str, tmp_path: Path, tools: Tools
) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    put(task / database, entries)
    interval = ["--segment-interval-ms", "60000"] if name == "versioned" else []
    ended = tools("verify", *kind_options(fixture), *interval, task)
    assert ended.code == 1
    assert "DAMAGED" in ended.out
    assert problem in ended.out
    assert "problems: 1" in ended.out


def test_versions_that_overlap_are_named(tmp_path: Path, tools: Tools) -> None:
    task = load_fixture("versioned").unpack(tmp_path)
    put(task / "rocksdb/store", {"default": {key: row for key, row in ROW_ENTRIES.items() if key.endswith(b"over")}})
    assert "over has two versions that are valid at 30000" in tools("verify", "--kind", "versioned", task).out


def test_of_many_problems_the_first_are_named(tmp_path: Path, tools: Tools) -> None:
    task = load_fixture("headers-kv").unpack(tmp_path)
    put(task / "rocksdb/store", {HEADERS_FAMILY: {b"%03d" % number: b"\x01" for number in range(100)}})
    out = tools("verify", "--kind", "headers-kv", task).out
    assert "the entry 019" in out
    assert "the entry 020" not in out
    assert "and 80 more" in out


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A task directory with some tables of many blocks."""
    task = load_fixture("headers-kv").unpack(tmp_path)
    for start in (0, 10_000):
        values = {b"%06d" % number: stored(b"v" * 50) for number in range(start, start + 10_000)}
        put(task / "rocksdb/store", {HEADERS_FAMILY: values})
    return task


def flip_a_byte_in_a_table(task: Path) -> str:
    """Damage the largest table of a task's store; return its name."""
    table = max((task / "rocksdb/store").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    return table.name


def test_a_table_with_a_flipped_byte_is_named_even_where_no_entry_is(many: Path, tools: Tools) -> None:
    table = flip_a_byte_in_a_table(many)
    ended = tools("verify", "--kind", "headers-kv", many)
    assert ended.code == 1
    assert f"{table} can't be read to its end" in ended.out


def test_what_migrate_has_made_is_sound_until_it_is_damaged(many: Path, tmp_path: Path, tools: Tools) -> None:
    # Its tables are made to be ingested, and not by a database.
    made = tmp_path / "made/0_0"
    assert tools("migrate", "--kind", "headers-kv", many, made).code == 0
    before = everything_below(made)
    ended = tools("verify", "--kind", "headers-kv", made)
    assert (ended.code, ended.lines[-1]) == (0, "all of it can be read")
    assert everything_below(made) == before
    table = flip_a_byte_in_a_table(made)
    assert f"DAMAGED rocksdb/store: {table} can't be read to its end" in tools("verify", made).out


@pytest.mark.parametrize("name", ["ts-window", "session", "versioned"])
def test_segments_that_migrate_has_made_are_sound(name: str, tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture(name)
    task, made = fixture.unpack(tmp_path), tmp_path / "made/0_0"
    assert tools("migrate", *kind_options(fixture), task, made).code == 0
    assert tools("verify", "--json", *kind_options(fixture), made).document["problems"] == []


def test_tables_that_the_manifest_does_not_know_are_named(many: Path, tools: Tools) -> None:
    database = many / "rocksdb/store"
    table = max(database.glob("*.sst"), key=lambda path: path.stat().st_size)
    shutil.copyfile(table, database / "999999.sst")
    ended = tools("verify", "--kind", "headers-kv", many)
    assert ended.code == 1
    assert "its MANIFEST does not know 999999.sst" in ended.out
    # No other command reads on as if nothing were.
    assert tools("scan", "--kind", "headers-kv", many).code == 5


def test_a_table_that_is_gone_is_named_and_the_other_parts_are_checked(
    many: Path, tmp_path: Path, tools: Tools
) -> None:
    load_fixture("headers-kv").unpack(tmp_path / "other").rename(many.with_name("0_1"))
    next((many / "rocksdb/store").glob("*.sst")).unlink()
    ended = tools("verify", "--json", "--kind", "headers-kv", many.parent)
    assert (ended.code, ended.document["sound"]) == (1, False)
    (problem,) = ended.document["problems"]
    assert "No such file" in problem
    assert sum(ended.document["stores"][0]["entries"].values()) == 7


def test_a_location_s_entries_are_checked_if_it_is_known_what_is_committed(states: States, tools: Tools) -> None:
    location = states.home / "old"
    files_only = tools("verify", location)
    assert (files_only.code, "entries were not read" in files_only.out) == (0, True)
    document = tools("verify", "--json", location, "--pointers", states.home / "pointers").document
    counts = {store["name"]: sum(store["entries"].values()) for store in document["stores"]}
    assert document["sound"]
    assert (counts["plain"], counts["windows"]) == (len(KEYS), 2 * len(KEYS))
    copy = states.home / "local/old/state-old/shard-0000/copy-0"
    checked = tools("verify", "--json", copy).document
    assert checked["sound"]
    assert {store["name"] for store in checked["stores"]} == counts.keys()


@pytest.mark.parametrize("reading", ["files", "entries"])
def test_what_a_running_query_collects_meanwhile_is_no_damage(tmp_path: Path, reading: str) -> None:
    options = RecoveryOptions(snapshot_every_deltas=2, snapshot_budget_ms=60_000, retained_versions=1)
    shard = Shard(tmp_path, recovery=options)
    location, pointers = shard.state.location, [shard.start()]

    def go_on(batches: int) -> None:
        for _ in range(batches):
            pointers.append(shard.batch(pointers[-1], {b"%d" % len(pointers): stored(b"1")}))
            wait_for_uploads()
        write_head(location, 1, Head("state-1", "query", "run", len(pointers), 0, (pointers[-1],)))

    go_on(5)
    first = pointers[-1]
    manifests = [read_manifest(location, first, snapshot) for snapshot in first.snapshots[-2:]]
    needed = {*first.deltas, *(file.durable for manifest in manifests for file in manifest.files)}
    state = open_state(str(tmp_path / "state"))
    assert isinstance(state, LocationState)
    state.read_head()
    told = count()
    report = check_state(
        state, lambda _: go_on(12) if next(told) == {"files": 0, "entries": len(needed)}[reading] else None
    )
    assert first.head not in shard.files()
    assert report.all_problems() == []
    assert sum(report.stores[0].entries.values()) == len(pointers) - 1
    behind = open_state(str(tmp_path / "state"), StateOptions(pointers=[first]))
    with pytest.raises(StateWentOnError, match=f"at version {first.version}.*gone on to version {len(pointers) - 1}"):
        check_state(behind, lambda _: None)
    with pytest.raises(StateWentOnError), behind.open(0, behind.specs()):
        pass


def test_an_entry_that_its_index_of_headers_lacks_is_named(tmp_path: Path, tools: Tools) -> None:
    golden = GoldenState(tmp_path)
    for _ in range(2):  # a copy has what came before its last batch
        golden.batch(put_indexed)
    (copy,) = (path for path in (tmp_path / "local").glob("**/copy-*") if path.is_dir())
    assert tools("verify", copy).code == 0
    for spec in golden.state.stores:
        with open_state(str(copy)).databases(0)[0].open() as opened:
            index = opened.indexes[str(index_family(spec))]
            index.write([(next(index.range(None, None))[0], None)])
            report = CheckReport(str(copy), stores=[StoreCheck(spec, None)])
            check_database(opened, {spec.name: report.stores[0]}, "here", None, lambda _: None)
        (problem,) = report.all_problems()
        assert "the index of headers lacks the entry" in problem


def test_a_sound_location_verifies(shard: Shard, tools: Tools) -> None:
    first = shard.batch(shard.start(), {b"k": stored(b"1")})
    shard.batch(first, {b"k": stored(b"2")})
    out = tools("verify", shard.home / "state").out
    assert "totals (key-value store, timestamped with headers)" in out
    assert "shard 0: 2 deltas, versions 1 to 2, 0 snapshots" in out
    assert "all of it can be read" in out


@pytest.mark.parametrize("damage", ["cut", "nonsense", "foreign", "missing"])
def test_damaged_deltas_are_named(shard: Shard, tools: Tools, damage: str) -> None:
    first = shard.batch(shard.start(), {b"k": stored(b"1")})
    shard.batch(first, {b"k": stored(b"2")})
    file = shard.delta_file(first)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "nonsense":
        file.write_bytes(b"nonsense")
    elif damage == "missing":
        file.unlink()
    else:
        other = Shard(shard.home / "other")
        other.state = replace(other.state, state_id="another")
        file.write_bytes(other.delta_file(other.batch(other.start(), {b"x": stored(b"1")})).read_bytes())
    ended = tools("verify", shard.home / "state")
    assert ended.code == 1
    assert "DAMAGED" in ended.out
    assert ("no delta makes version 1" if damage == "missing" else file.name) in ended.out


@pytest.mark.parametrize("what", ["table", "manifest", "delta"])
def test_what_a_pointer_needs_and_is_damaged_is_named(shard: Shard, tools: Tools, what: str) -> None:
    pointer: CommitPointer = shard.start()
    for number in range(20):
        pointer = shard.batch(pointer, {b"k": stored(b"%d" % number), b"%d" % number: stored(b"v")})
    wait_for_uploads()
    (shard.home / "pointers").write_text(pointer.to_json() + "\n")
    newest = pointer.snapshots[-1]
    table = read_manifest(shard.state.location, pointer, newest).files[-1].durable
    name = {"table": table.name, "manifest": newest.manifest.name, "delta": pointer.deltas[0].name}[what]
    path = shard.home / "state" / name
    path.write_bytes(path.read_bytes()[:-1])
    ended = tools("verify", shard.home / "state", "--pointers", shard.home / "pointers")
    assert ended.code == 1
    assert name in ended.out
