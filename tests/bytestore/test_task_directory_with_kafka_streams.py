"""Real Kafka Streams reads the task directories that we wrote or changed: same content, offsets and positions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows
from statestore.bytestore.protocol import ByteStore
from statestore.format.keys.window_key import encode_session_key, encode_window_key
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.golden.task_directories import APPLICATION, KINDS, SEGMENT_MS, as_json, logical_entries, spec_of
from tests.support.java.reader import ReadRequest, read_with_kafka_streams

POSITION = {"in": {0: 41, 3: 7}, "other.topic-1": {12: 9_000_000_000}}
PLAIN_KEYS = [b"", b"a", b"a\0", b"\xff" * 9]
HEADERS = [[], [("h", b"1"), ("h", None), ("ключ", b"")]]


def stored_keys(spec: StoreSpec) -> list[bytes]:
    """Keys of all shapes that a store of a kind has; those of windows and sessions fall into two segments."""
    if spec.kind is StoreKind.KEY_VALUE:
        return PLAIN_KEYS
    keys = []
    for number, key in enumerate(PLAIN_KEYS):
        time_ms = 2 * SEGMENT_MS + number * 30_000
        prefix = segment_prefix(time_ms // SEGMENT_MS)
        if spec.kind is StoreKind.SESSION:
            keys.append(prefix + encode_session_key(key, time_ms - 5, time_ms))
        else:
            sequences = range(1, 4) if spec.retain_duplicates else [0]
            keys += [prefix + encode_window_key(key, time_ms, sequence) for sequence in sequences]
    return keys


def fill(spec: StoreSpec, store: ByteStore) -> None:
    for number, key in enumerate(stored_keys(spec)):
        headers = encode_headers(HEADERS[number % 2])
        store.put(key, join_stored(spec.format, b"v%d" % number, 10_000 + number, headers))


def fill_versioned(spec: StoreSpec, store: ByteStore) -> list[dict[str, Any]]:
    """Put versions and return what Kafka Streams should say of them."""
    rows = VersionedRows(store, Segments(store, *spec.retention))
    for timestamp_ms, value in ((70_000, b"1"), (130_000, b"2"), (190_000, None), (100_000, b"early"), (250_000, b"3")):
        rows.put(b"k", value, timestamp_ms)
    rows.put(b"gone", b"1", 200_000)
    rows.put(b"gone", None, 210_000)

    def version(value: bytes, from_ms: int, to_ms: int | None) -> dict[str, Any]:
        return {"value": value.hex(), "timestamp": from_ms, "validTo": to_ms}

    latest = version(b"3", 250_000, None)
    older = [version(b"1", 70_000, 100_000), version(b"early", 100_000, 130_000), version(b"2", 130_000, 190_000)]
    return [
        {"key": b"gone".hex(), "latest": None, "versions": [version(b"1", 200_000, 210_000)]},
        {"key": b"k".hex(), "latest": latest, "versions": [*older, latest]},
    ]


@pytest.mark.usefixtures("java")
def test_kafka_streams_reads_directories_that_we_made(tmp_path: Path) -> None:
    wanted, requests = [], []
    for number, kind in enumerate(KINDS):
        spec = spec_of(kind)
        with TaskDirectory(tmp_path / kind, APPLICATION) as directory:
            store = directory.open_store(spec)
            if kind == "versioned":
                entries = fill_versioned(spec, store)
            else:
                fill(spec, store)
                entries = logical_entries(spec, store)
                assert len(entries) >= len(PLAIN_KEYS)
            directory.commit("store", 100 + number, POSITION)
        # A versioned store forgets its position, with Kafka Streams too.
        position = {} if kind == "versioned" else as_json(POSITION)
        wanted.append(
            {
                "kind": kind,
                "store": "store",
                "committedOffset": 100 + number,
                "position": position,
                "entries": entries,
                "pointReadsThatDiffer": [],
            }
        )
        requests.append(ReadRequest(tmp_path / kind, kind))
    assert read_with_kafka_streams(requests) == wanted


@pytest.mark.usefixtures("java")
def test_kafka_streams_goes_on_with_golden_directories_that_we_opened(tmp_path: Path) -> None:
    requests = []
    for name in FIXTURES:
        kind = load_fixture(name).fixture["kind"]
        task = load_fixture(name).unpack(tmp_path / name)
        with TaskDirectory(task, APPLICATION) as directory:
            directory.open_store(spec_of(kind))
        requests.append(ReadRequest(task, kind))
    read = dict(zip(FIXTURES, read_with_kafka_streams(requests), strict=True))
    assert {name: answer for name, answer in read.items() if answer != load_fixture(name).logical} == {}


@pytest.mark.usefixtures("java")
def test_kafka_streams_goes_on_with_golden_directories_that_we_changed(tmp_path: Path) -> None:
    wanted: dict[str, list[Any]] = {}
    requests = []
    for name in FIXTURES:
        kind = load_fixture(name).fixture["kind"]
        task, spec = load_fixture(name).unpack(tmp_path / name), spec_of(kind)
        with TaskDirectory(task, APPLICATION) as directory:
            store = directory.open_store(spec)
            if spec.kind is StoreKind.VERSIONED:
                entries = load_fixture(name).logical["entries"] + fill_versioned(spec, store)
                entries.sort(key=lambda entry: bytes.fromhex(entry["key"]))
            else:
                change(spec, store)
                entries = logical_entries(spec, store)
            directory.commit("store", 1234, POSITION)
        # A position file stays, and counts each time the store is opened; here it has nothing to add, or all there is.
        forgotten = {"old-versioned": {"in": {"0": 11}}, "versioned": {}}
        wanted[name] = [1234, forgotten.get(name, as_json(POSITION)), entries, []]
        requests.append(ReadRequest(task, kind))
    parts = ("committedOffset", "position", "entries", "pointReadsThatDiffer")
    read = {
        name: [answer.get(part, answer) for part in parts]
        for name, answer in zip(FIXTURES, read_with_kafka_streams(requests), strict=True)
    }
    assert {name: answer for name, answer in read.items() if answer != wanted[name]} == {}


def change(spec: StoreSpec, store: ByteStore) -> None:
    """Read, delete and write each third of the entries, and add others, in segments that were not there as well."""
    found = list(store.range(None, None))
    for number, (key, value) in enumerate(found):
        if number % 3 == 0:
            assert store.get(key) == value
        elif number % 3 == 1:
            store.put(key, None)
        else:
            store.put(key, join_stored(spec.format, b"new", 20_000, encode_headers(HEADERS[1])))
    fill(spec, store)
    for segment_id in (0, 30) if spec.kind is not StoreKind.KEY_VALUE else ():
        time_ms = segment_id * SEGMENT_MS
        is_session = spec.kind is StoreKind.SESSION
        key = encode_session_key(b"added", 0, time_ms) if is_session else encode_window_key(b"added", time_ms)
        store.put(segment_prefix(segment_id) + key, join_stored(spec.format, b"added", 20_000, encode_headers([])))


@pytest.mark.usefixtures("java")
def test_kafka_streams_opens_what_a_killed_process_left(tmp_path: Path) -> None:
    # A copy of the files under an open database is what a process leaves that dies.
    spec = spec_of("headers-window")
    with TaskDirectory(tmp_path / "task", APPLICATION) as directory:
        store = directory.open_store(spec)
        fill(spec, store)
        directory.commit("store", 5, POSITION)
        (answer,) = read_with_kafka_streams([ReadRequest(tmp_path / "task", "headers-window")])
        assert answer["entries"] == logical_entries(spec, store)
        assert (answer["committedOffset"], answer["position"]) == (5, as_json(POSITION))


@pytest.mark.usefixtures("java")
def test_kafka_streams_does_not_open_our_versioned_store_with_headers(tmp_path: Path) -> None:
    # No release has one, and it would take the rows for those of a store without headers.
    spec = replace(spec_of("versioned"), format=StoreFormat.WITH_HEADERS)
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        directory.open_store(spec)
    (answer,) = read_with_kafka_streams([ReadRequest(tmp_path, "versioned")])
    assert "Unexpected column family 'versionedKeyValueWithHeaders'" in answer["error"][0]
