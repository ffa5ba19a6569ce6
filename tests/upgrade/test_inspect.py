"""The commands `inspect` and `inspect-delta`: what there is, told by files that were really written."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.format.records.header_bytes import encode_headers
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.recovery.rescaling import KEYS, States, every_kind
from tests.support.recovery.shards import TOTALS, Shard, stored, wait_for_uploads
from tests.support.tools.runs import Tools, everything_below

TOPOLOGY = ({"type": "source", "name": "in", "topics": None},)
DATA_FAMILY = {
    "kv": "default",
    "window": "default",
    "session": "default",
    "versioned": "default",
    "ts-kv": "keyValueWithTimestamp",
    "ts-window": "keyValueWithTimestamp",
    "headers-kv": "keyValueWithTimestampAndHeaders",
    "headers-window": "keyValueWithTimestampAndHeaders",
    "headers-session": "sessionKeyValueWithHeaders",
}
NOT_TOLD = {
    "kv": ["kv", "versioned"],
    "versioned": ["kv", "versioned"],
    "window": ["window", "window-dup", "session"],
    "session": ["window", "window-dup", "session"],
    "ts-window": ["ts-window", "ts-window-dup"],
    "headers-window": ["headers-window", "headers-window-dup"],
}


def raw_counts(raw: list[dict[str, Any]]) -> dict[str, int]:
    """How many entries a golden directory has in each column family with data."""
    counts: dict[str, int] = {}
    for database in raw:
        for family in database["columnFamilies"]:
            if family["name"] != "offsets":
                counts[family["name"]] = counts.get(family["name"], 0) + len(family["entries"])
    return counts


@pytest.mark.parametrize("name", FIXTURES)
def test_a_golden_directory_is_told_by_its_files(name: str, tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    before = everything_below(tmp_path)
    ended = tools("inspect", "--json", task)
    assert ended.code == 0
    assert everything_below(tmp_path) == before
    document = ended.document
    assert (document["layout"], document["parts"]) == ("task", [0])
    (store,) = document["stores"]
    # What 4.2.0 left has the families of the kind that wrote it; it can be opened as another.
    wrote = (fixture.fixture.get("writtenAs") or fixture.fixture["kind"]).removesuffix("-dup")
    assert (store["name"], store["kinds"]) == ("store", NOT_TOLD.get(wrote, [wrote]))
    counts = raw_counts(fixture.raw)
    assert {family["name"]: family["entries"] for family in store["families"]} == counts
    assert all(family["exact"] for family in store["families"])
    newest = DATA_FAMILY[wrote]
    legacy = sum(count for family, count in counts.items() if family != newest)
    assert store["upgrade"] == {"entries": counts[newest], "legacyEntries": legacy}
    (part,) = store["parts"]
    assert list(part["changelogs"].values()) == [fixture.logical["committedOffset"]]
    assert part["position"] == fixture.logical["position"]
    assert store["databases"] == len(fixture.raw)


def test_people_are_told_what_to_do_next(tmp_path: Path, tools: Tools) -> None:
    half = tools("inspect", load_fixture("headers-window-from-plain").unpack(tmp_path / "half"))
    assert "Kafka Streams task directory, parts 0" in half.out
    assert "5 entries in keyValueWithTimestampAndHeaders, 12 to go" in half.out
    assert "choose one with --kind: headers-window, headers-window-dup" in half.out
    untold = tools("inspect", "--store", "store", load_fixture("versioned").unpack(tmp_path / "untold"))
    assert "kv or versioned" in untold.out
    other = tools("inspect", "--store", "other", tmp_path / "half/golden/0_0")
    assert (other.code, "has no store 'other'" in other.err) == (2, True)


def test_an_application_is_all_its_tasks(tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture("headers-kv")
    first = fixture.unpack(tmp_path)
    fixture.unpack(tmp_path / "again").rename(first.with_name("0_3"))
    document = tools("inspect", "--json", first.parent).document
    assert (document["layout"], document["parts"]) == ("application", [0, 3])
    (store,) = document["stores"]
    assert store["databases"] == 2
    assert [part["part"] for part in store["parts"]] == [0, 3]
    assert sum(family["entries"] for family in store["families"]) == 2 * sum(raw_counts(fixture.raw).values())
    load_fixture("kv").unpack(tmp_path / "other").rename(first.with_name("1_0"))
    ambiguous = tools("inspect", first.parent)
    assert (ambiguous.code, "name one of [0, 1] with --subtopology" in ambiguous.err) == (2, True)
    assert tools("inspect", "--json", "--subtopology", "1", first.parent).document["parts"] == [0]


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    made = Shard(tmp_path)
    agree_on_metadata(made.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), TOPOLOGY))
    return made


HEADERS = encode_headers([("trace", b"abc"), ("trace", None)])


def test_a_local_copy_says_what_version_it_holds_and_what_headers_cost(shard: Shard, tools: Tools) -> None:
    writes = {b"%d" % number: stored(b"value", 7, HEADERS if number % 2 else b"") for number in range(100)}
    pointer = shard.batch(shard.start(), writes)
    shard.batch(pointer, {b"0": stored(b"value", 7)})
    document = tools("inspect", "--json", shard.copy).document
    assert document["layout"] == "local-copy"
    # The copy is of the version that its last batch began with.
    assert document["copy"] == {"stateId": "state-1", "shard": 0, "delta": pointer.head, "version": 1}
    (store,) = document["stores"]
    assert (store["kinds"], store["recorded"]["name"]) == (["headers-kv"], "totals")
    (family,) = store["families"]
    assert family == {
        "name": "keyValueWithTimestampAndHeaders",
        "format": "timestamped with headers",
        "entries": 100,
        "exact": True,
        "entriesRead": 100,
        "valueBytes": 500,
        "headerBytes": 50 * (len(HEADERS) + 1) + 50,
        "valuesRead": 100,
        "valuesWithHeaders": 50,
    }
    (sampled,) = tools("inspect", "--json", "--sample", "10", shard.copy).document["stores"][0]["families"]
    assert (sampled["entriesRead"], sampled["exact"], sampled["entries"]) == (10, False, 100)
    assert tools("inspect", "--json", "--sample", "0", shard.copy).document["stores"][0]["families"] == []
    everything = tools("inspect", "--json", "--sample", "10", "--all", shard.copy).document
    assert everything == document
    assert "about 100" in tools("inspect", "--sample", "10", shard.copy).out


def test_a_location_says_what_is_committed_and_what_can_be_restored(shard: Shard, tools: Tools) -> None:
    shard.state = replace(shard.state, recovery=RecoveryOptions(3, 1 << 30, 60_000, retained_versions=4))
    pointer = shard.start()
    for number in range(20):
        pointer = shard.batch(pointer, {b"k": stored(b"%d" % number), b"%d" % number: stored(b"v", 5, HEADERS)})
    wait_for_uploads()
    (shard.home / "pointers").write_text(pointer.to_json())
    without = tools("inspect", "--json", shard.home / "state").document
    (files,) = without["shardFiles"]
    assert without["layout"] == "location"
    assert (without["state"]["stateId"], without["state"]["shards"]) == ("state-1", 1)
    assert (files["committedVersion"], files["retainedVersions"], files["versions"][1]) == (None, 4, 20)
    assert files["snapshots"][-1] == pointer.snapshots[-1].version
    assert files["oldestVersion"] == min(files["snapshots"]) > 1, "older deltas are garbage, and gone"
    assert files["deltas"] == files["versions"][1] - files["versions"][0] + 1
    assert [family for store in without["stores"] for family in store["families"]] == []
    given = tools("inspect", "--json", shard.home / "state", "--pointers", shard.home / "pointers").document
    assert given["shardFiles"][0]["committedVersion"] == 20
    (family,) = given["stores"][0]["families"]
    assert (family["entries"], family["valuesWithHeaders"]) == (21, 20)
    shown = tools("inspect", shard.home / "state").out
    assert "To have entries read, too" in shown
    assert "topology in" in shown


def test_all_kinds_of_a_location_are_told_apart(tmp_path: Path, tools: Tools) -> None:
    states = States(tmp_path, every_kind(), 2)
    states.put_everywhere({key: 50 + number for number, key in enumerate(KEYS)})
    states.write_pointers()
    document = tools("inspect", "--json", "--all", tmp_path / "old", "--pointers", tmp_path / "pointers").document
    kinds = {store["name"]: store["kinds"] for store in document["stores"]}
    assert kinds["windows"] == ["headers-window-dup"]
    assert kinds["headed-versions"] == ["headers-versioned"]
    assert kinds["sessions"] == ["headers-session"]
    families = {store["name"]: store["families"][0] for store in document["stores"] if store["families"]}
    assert families["plain"]["entries"] == len(KEYS)
    assert families["headed-versions"]["valuesWithHeaders"] == len(KEYS), "of each key one version has headers"


def test_a_delta_is_shown_with_its_records(shard: Shard, tools: Tools) -> None:
    pointer = shard.batch(shard.start(), {b"k": stored(b"\x00\x01", 7, HEADERS), b"gone": None})
    out = tools("inspect-delta", shard.delta_file(pointer)).out
    assert "state state-1, shard 0, makes version 1, 2 records" in out
    assert "totals  k -> 0x0001  timestamp 7  trace=abc  trace=null" in out
    assert "totals  gone -> tombstone" in out
    assert "1 more" in tools("inspect-delta", "--limit", "1", shard.delta_file(pointer)).out
    assert tools("inspect-delta", "--json", shard.delta_file(pointer)).document == {
        "path": str(shard.delta_file(pointer)),
        "stateId": "state-1",
        "shard": 0,
        "version": 1,
        "recordCount": 2,
        "records": [
            {
                "store": "totals",
                "key": b"k".hex(),
                "value": "0001",
                "timestamp": 7,
                "headers": [["trace", b"abc".hex()], ["trace", None]],
            },
            {"store": "totals", "key": b"gone".hex(), "value": None, "timestamp": -1, "headers": []},
        ],
    }
    (fence,) = shard.delta_file(pointer).parent.glob("*.fence")
    refused = tools("inspect-delta", fence)
    assert refused.code == 1
    assert f"{fence.name} is not a delta" in " ".join(refused.err.split())
    missing = tools("inspect-delta", shard.home / "nothing.arrow")
    assert (missing.code, "nothing.arrow" in missing.err) == (5, True)


def test_a_delta_in_the_root_is_not_looked_for_here(
    shard: Shard, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = shard.delta_file(shard.batch(shard.start(), {b"k": stored(b"v")}))
    monkeypatch.chdir(delta.parent)
    assert tools("inspect-delta", delta.name).code == 0
    ended = tools("inspect-delta", f"/{delta.name}")
    assert (ended.code, f"file:///{delta.name}: is missing" in ended.err) == (5, True)


@pytest.mark.parametrize("name", ["red\x1b[31m", "two\nlines", "bell\x07"])
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_names_do_nothing_to_a_terminal(tmp_path: Path, tools: Tools, name: str, command: str) -> None:
    home = tmp_path / name
    task = load_fixture("headers-kv").unpack(home)
    said = tools(command, task)
    assert (said.code, name in said.out, ascii(name)[1:-1] in said.out) == (0, False, True)
    shutil.rmtree(task)
    refused = tools(command, task)
    assert (refused.code, refused.err.count("\n"), ascii(name)[1:-1] in refused.err) == (4, 1, True)
