"""The command `scan`: every golden directory reads as Kafka Streams reads it, and filters ask for parts of it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from statestore import Headers, Serdes, Stores, ValueTimestampHeaders
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from tests.support.golden.indexed import TOTALS as HEADED
from tests.support.golden.indexed import WINDOWS
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.recovery.rescaling import KEYS, States
from tests.support.recovery.shards import TOTALS, Shard, stored
from tests.support.tools.runs import Tools, document_in, everything_below, kind_options
from tests.support.view.written_state import WrittenState
from upgrade_tools.rows import selection
from upgrade_tools.rows.entry_encoding import bytes_in, in_document, shown

Entry = dict[str, Any]


@pytest.mark.parametrize("name", FIXTURES)
def test_a_golden_directory_scans_as_kafka_streams_reads_it(name: str, tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    before = everything_below(tmp_path)
    ended = tools("scan", "--json", *kind_options(fixture), task)
    assert ended.code == 0
    assert ended.err == ""
    assert ended.document.keys() == {"kind", "store", "committedOffset", "position", "entries"}
    for field, found in ended.document.items():
        assert found == fixture.logical[field], field
    assert everything_below(tmp_path) == before


def entries_of(name: str) -> list[Entry]:
    return load_fixture(name).logical["entries"]


def has_header(entry: Entry, key: str, value: str | None = None) -> bool:
    return any(found == key and value in (None, content) for found, content in entry["headers"])


KEY = entries_of("headers-kv")[0]["key"]
HEADER = next(entry["headers"][0] for entry in entries_of("headers-kv") if entry["headers"])
VERSIONED_KEY = next(entry["key"] for entry in entries_of("versioned") if len(entry["versions"]) > 2)


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("headers-kv", ["--key", f"0x{KEY}"], lambda e: e["key"] == KEY),
        ("headers-kv", ["--prefix", f"0x{KEY[:2]}"], lambda e: e["key"].startswith(KEY[:2])),
        ("headers-kv", ["--header", HEADER[0]], lambda e: has_header(e, HEADER[0])),
        ("headers-kv", ["--header", f"{HEADER[0]}=0x{HEADER[1]}"], lambda e: has_header(e, *HEADER)),
        ("headers-kv", ["--header", f"{HEADER[0]}=other"], lambda e: has_header(e, HEADER[0], b"other".hex())),
        ("headers-kv", ["--header", HEADER[0], "--header", "no-such"], lambda e: False),
        ("headers-kv", ["--time-from", "1005", "--time-to", "1012"], lambda e: 1005 <= e["timestamp"] <= 1012),
        ("headers-kv-from-plain", ["--key", f"0x{KEY}"], lambda e: e["key"] == KEY),
        ("headers-window", ["--time-from", "200000"], lambda e: e["start"] >= 200_000),
        ("headers-window", ["--time-to", "180000"], lambda e: e["start"] <= 180_000),
        ("headers-window-from-ts", ["--window-start", "150000"], lambda e: e["start"] == 150_000),
        ("window-dup", ["--key", "k", "--time-from", "1"], lambda e: e["key"] == b"k".hex() and e["start"] >= 1),
        ("session", ["--time-from", "179999", "--time-to", "185000"], lambda e: 179_999 <= e["end"] <= 185_000),
        ("headers-session", ["--prefix", "a"], lambda e: e["key"].startswith(b"a".hex())),
    ],
)
def test_filters_leave_the_entries_that_are_asked_for(
    name: str, options: list[str], wanted: Callable[[Entry], bool], tmp_path: Path, tools: Tools
) -> None:
    fixture = load_fixture(name)
    ended = tools("scan", "--json", *kind_options(fixture), *options, fixture.unpack(tmp_path))
    found = ended.document["entries"]
    assert found == [entry for entry in fixture.logical["entries"] if wanted(entry)]
    assert ended.err == ("" if found else "nothing was found\n")


def test_the_keys_of_windows_and_sessions_are_found_among_others(tmp_path: Path, tools: Tools) -> None:
    for name in ("headers-window-dup", "headers-session-from-plain"):
        fixture = load_fixture(name)
        task = fixture.unpack(tmp_path / name)
        keys = {entry["key"] for entry in fixture.logical["entries"]}
        assert len(keys) > 1
        for key in sorted(keys)[:3]:
            found = tools("scan", "--json", *kind_options(fixture), "--key", f"0x{key}", task).document["entries"]
            assert found == [entry for entry in fixture.logical["entries"] if entry["key"] == key], (name, key)


def test_versions_are_asked_for_by_the_time_at_which_they_were_valid(tmp_path: Path, tools: Tools) -> None:
    fixture = load_fixture("versioned")
    task = fixture.unpack(tmp_path)
    entries = fixture.logical["entries"]
    times = sorted({version["timestamp"] for entry in entries for version in entry["versions"]})
    for time_ms in (times[0] - 1, *times[::4], times[-1] + 1):
        found = tools("scan", "--json", "--kind", "versioned", "--version-at", time_ms, task).document["entries"]
        valid = {
            entry["key"]: version
            for entry in entries
            for version in entry["versions"]
            if version["timestamp"] <= time_ms and (version["validTo"] is None or time_ms < version["validTo"])
        }
        assert {entry["key"]: entry["versions"][0] for entry in found} == valid
        assert all(len(entry["versions"]) == 1 for entry in found)
    one = tools("scan", "--json", "--kind", "versioned", "--key", f"0x{VERSIONED_KEY}", task).document["entries"]
    assert one == [entry for entry in entries if entry["key"] == VERSIONED_KEY]
    since = tools("scan", "--json", "--kind", "versioned", "--time-from", times[-1], task).document["entries"]
    assert {version["timestamp"] for entry in since for version in entry["versions"]} == {times[-1]}


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("headers-kv", ["--window-start", "5"], "has no windows"),
        ("headers-kv", ["--version-at", "5"], "has no versions: it is headers-kv"),
        ("ts-kv", ["--header", "a"], "has no headers"),
        ("kv", ["--time-from", "5"], "has no times"),
        ("headers-kv", ["--key", "0xzz"], "is not hex"),
        ("headers-kv", ["--part", "7"], "there is no part 7"),
    ],
)
def test_what_a_store_can_t_be_asked_for_is_wrong_usage(
    name: str, options: list[str], problem: str, tmp_path: Path, tools: Tools
) -> None:
    fixture = load_fixture(name)
    ended = tools("scan", *kind_options(fixture), *options, fixture.unpack(tmp_path))
    assert ended.code == 2
    assert problem in " ".join(ended.err.split())
    assert ended.out == ""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A local copy with headers, and keys that look like hex, made by two batches."""
    shard = Shard(tmp_path)
    headers = encode_headers([("tenant", b"eu"), ("trace", b"\x00\xff")])
    writes = {
        b"plain": stored(b"v", 5, headers),
        b"0x41": stored(b"hex?"),
        b"text:a": stored(b"t"),
        b"\xff": stored(b""),
    }
    pointer = shard.batch(shard.start(), writes)
    shard.batch(pointer, {b"plain": stored(b"v", 5, headers)})
    return shard.copy


def test_entries_are_lines_for_people(copy: Path, tools: Tools) -> None:
    assert tools("scan", copy).lines == [
        "text:0x41  -> hex?  timestamp 5",
        "plain  -> v  timestamp 5  tenant=eu  trace=0x00ff",
        "text:text:a  -> t  timestamp 5",
        "0xff  -> text:  timestamp 5",
    ]
    assert tools("scan", "--no-headers", "--key", "plain", copy).lines == ["plain  -> v  timestamp 5"]
    assert tools("scan", "--limit", "2", copy).lines == tools("scan", copy).lines[:2]
    assert tools("scan", "--limit", "0", "--json", copy).document["entries"] == []


def test_a_progress_bar_is_no_result(copy: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tools("scan", "--json", copy).err == ""
    monkeypatch.setattr(
        "upgrade_tools.cli.printing.output.errors", lambda: Console(file=sys.stderr, force_terminal=True)
    )
    ended = tools("scan", "--json", copy)
    assert "reading" in ended.err
    assert len(ended.document["entries"]) == 4


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["scan", "--json"], "4/4"),
        (["scan", "--json", "--header", "tenant=eu"], "4/4"),
        (["scan", "--json", "--prefix", "p"], "1/?"),
        (["verify"], "4/4"),
        (["inspect"], "4/4"),
        (["inspect", "--sample", "3"], "3/3"),
    ],
    ids=" ".join,
)
def test_what_is_left_is_known_where_all_is_read(
    command: list[str], shown: str, copy: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "upgrade_tools.cli.printing.output.errors", lambda: Console(file=sys.stderr, force_terminal=True, width=160)
    )
    assert shown in tools(*command, copy).err


@pytest.mark.parametrize(("given", "key"), [("text:0x41", b"0x41"), ("text:text:a", b"text:a"), ("0xFF", b"\xff")])
def test_keys_are_given_as_they_are_shown(given: str, key: bytes, copy: Path, tools: Tools) -> None:
    found = tools("scan", "--json", "--key", given, copy).document["entries"]
    assert [entry["key"] for entry in found] == [key.hex()]


def test_headers_that_nobody_looks_at_are_not_parsed(copy: Path, tools: Tools) -> None:
    before = parse_count()
    tools("scan", "--json", "--no-headers", copy)
    tools("scan", "--no-headers", "--prefix", "p", copy)
    assert parse_count() == before
    assert tools("scan", "--no-headers", "--header", "tenant=eu", copy).lines == ["plain  -> v  timestamp 5"]
    assert parse_count() == before + 1, "those without the bytes of key and value can't have it"
    tools("scan", copy)
    assert parse_count() > before + 1


def test_a_scan_by_an_indexed_header_reads_what_matches_alone(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else is as with another header of the same values, which is not indexed."""
    supplier = Stores.persistent_versioned_key_value_store_with_headers("versions", 60, 20)
    versions = Stores.versioned_key_value_store_with_headers_builder(supplier, Serdes.string(), Serdes.string())
    builders = [builder.with_header_index("indexed") for builder in (HEADED, WINDOWS, versions)]
    state = WrittenState(tmp_path, *builders, shards=1)

    def put(shard: int, stores: Any) -> None:
        for number in range(20):
            value = b"%d" % (number % 4)
            held = ValueTimestampHeaders("v", 5, Headers([("indexed", value), ("other", value)]))
            stores["totals"].put(f"{number}", held)
            stores["windows"].put(f"{number}", held, number * 10)
            stores["versions"].put(f"{number}", "v", 5, held.headers)
        stores["versions"].put("18", "w", 6, held.headers)

    state.batch(put)
    read: list[int] = []
    found_pairs = selection.found_pairs
    monkeypatch.setattr(
        selection, "found_pairs", lambda *asked: [(read.append(1) or x for x in each) for each in found_pairs(*asked)]
    )
    location = tmp_path / "state"
    for store in ("totals", "windows", "versions"):
        for more in ([], ["--prefix", "1"], ["--header", "other"], ["--key", "18"], ["--limit", "3"]):
            found = []
            for name in ("other", "indexed"):
                read.clear()
                asked = ["--store", store, "--header", f"{name}=2", *more]
                found.append((tools("scan", "--json", *asked, location).document["entries"], len(read)))
            (without, all_read), (through_index, few_read) = found
            assert through_index == without != []
            assert few_read <= 10
            assert few_read < all_read or "--key" in more


def test_every_store_of_a_location_scans_as_it_reads(rated_states: States, tools: Tools) -> None:
    location = [rated_states.home / "old", "--pointers", rated_states.home / "pointers"]
    contents = rated_states.contents()
    for name in ("headed", "windows", "sessions", "headed-versions"):
        found = tools("scan", "--json", "--store", name, *location).document
        versions = [version for entry in found["entries"] for version in entry.get("versions", [entry])]
        assert sorted(version["value"] for version in versions) == sorted(
            entry.value.hex() for shard in contents for entry in shard[name]
        ), name
    one = tools("scan", "--json", "--store", "plain", "--part", "1", *location).document
    assert sorted(entry["key"] for entry in one["entries"]) == sorted(e.key.hex() for e in contents[1]["plain"])
    limited = tools("scan", "--store", "plain", "--limit", "30", *location)
    assert len(limited.lines) == 30
    without = tools("scan", "--store", "plain", rated_states.home / "old")
    assert without.code == 2
    assert "--checkpoint" in without.err
    several = tools("scan", *location)
    assert several.code == 2
    assert "--store" in several.err


def test_a_copy_of_an_older_release_does_not_name_its_stores(rated_states: States, tools: Tools) -> None:
    copy = rated_states.home / "local/old/state-old/shard-0000/copy-0"
    for _ in range(2):  # what a batch has put is in the copy once the next one has begun
        rated_states.run(0, lambda stores: stores["windows"].put("k", ValueTimestampHeaders("v", 140, Headers()), 140))
    since = ["scan", "--json", "--store", "windows", "--time-from", "60", copy]
    expected = tools(*since).document
    assert 0 < len(expected["entries"]) < len(tools(*since[:4], copy).document["entries"])
    marker = copy / "statestore.marker"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "stores": []}))
    asked = tools(*since)
    assert asked.code == 2
    assert "it may be headers-kv, headers-window, headers-window-dup; choose one with --kind" in asked.err
    assert tools(*since, "--kind", "headers-window-dup", "--window-size-ms", "10").document == expected


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    agree_on_metadata(shard.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), ()))
    pointer = shard.batch(shard.start(), {b"%06d" % number: stored(b"v" * 50) for number in range(20_000)})
    shard.batch(pointer, {b"end": stored(b"v")})
    command = [sys.executable, "-m", "upgrade_tools", "scan", str(shard.copy)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as scan:
        assert scan.stdout is not None
        assert scan.stderr is not None
        assert scan.stdout.readline().startswith("000000")
        scan.stdout.close()
        said = scan.stderr.read()
        assert (scan.wait(60), said) == (1, "")


def test_the_document_is_one_however_many_parts_there_are(rated_states: States, tools: Tools) -> None:
    location = [rated_states.home / "old", "--pointers", rated_states.home / "pointers"]
    document = document_in(tools("scan", "--json", "--store", "plain", *location).out)
    assert document == {"kind": "kv", "store": "plain", "entries": document["entries"]}
    assert sorted(bytes.fromhex(entry["key"]).decode() for entry in document["entries"]) == sorted(KEYS)


def test_keys_and_values_are_what_they_are_said_to_be(tmp_path: Path, tools: Tools) -> None:
    shard = Shard(tmp_path / "shard")
    numbers = [-(2**40), -1, 7]
    writes = {Serdes.int64().serialize(n): stored(b'{"n":%d}' % n, 5) for n in numbers}
    shard.batch(shard.batch(shard.start(), writes), {})
    lines = tools("scan", "--key-as", "int64", "--value-as", "json", shard.copy).lines
    assert [line.split()[0] for line in lines] == ["7", str(-(2**40)), "-1"]
    assert lines[0].split()[2] == '{"n":7}'
    found = tools("get", "--json", "--key-as", "int64", "--value-as", "json", shard.copy, "--", "-1").document
    assert [(entry["key"], entry["value"]) for entry in found["entries"]] == [(-1, {"n": -1})]
    assert "(no int32)" in tools("scan", "--value-as", "int32", shard.copy).lines[0]
    ended = tools("scan", "--json", "--value-as", "int32", shard.copy)
    assert (ended.code, "leave out the option that says int32" in ended.err) == (5, True)
    assert tools("scan", "--key-as", "long", shard.copy).code == 2
    assert tools("get", "--key-as", "int32", shard.copy, "9999999999").code == 2


@pytest.mark.parametrize(
    ("encoding", "text", "value"),
    [
        ("string", "0x41", b"0x41"),
        ("bytes", "0x41", b"A"),
        ("int32", "-2", b"\xff\xff\xff\xfe"),
        ("double", "-0.0", b"\x80" + bytes(7)),
        ("boolean", "true", b"\x01"),
        ("json", '{ "a": 1 }', b'{"a":1}'),
    ],
)
def test_what_is_asked_for_is_shown_as_it_was_given(encoding: str, text: str, value: bytes) -> None:
    assert bytes_in(text, encoding) == value
    assert shown(value, encoding) in (text, '{"a":1}')
    assert json.dumps(in_document(value, encoding)) == json.dumps(
        {"string": "0x41", "bytes": "41", "int32": -2, "double": -0.0, "boolean": True, "json": {"a": 1}}[encoding]
    )


def test_numbers_that_json_has_not_are_their_names() -> None:
    assert in_document(Serdes.double().serialize(float("nan")), "double") == "nan"
    assert in_document(b"[1e999, 1.5]", "json") == ["1e999", 1.5]
