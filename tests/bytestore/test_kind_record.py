"""A directory that was opened as one kind of store is no other kind afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import StoreError, StoreFormatError
from tests.support.golden.kafka_streams import load_fixture
from tests.support.golden.task_directories import APPLICATION, families, spec_of, tree


def opened(task: Path, spec: StoreSpec) -> None:
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec).put(segment_prefix(2) + b"a key and its suffix", b"value")


def records(task: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted(task.rglob("statestore.store.json"))]


OTHER_KINDS = {
    "versioned": ["kv", "headers-kv", "session"],
    "kv": ["versioned", "window"],
    "window": ["kv", "session", "window-dup"],
    "session": ["versioned", "headers-window"],
    "window-dup": ["headers-window"],
}
OTHER_LAYOUTS = [
    ("versioned", replace(spec_of("versioned"), segment_interval_ms=30_000)),
    ("window", replace(spec_of("window"), segment_interval_ms=30_000)),
    ("window", replace(spec_of("window"), window_size_ms=5_000)),
]


@pytest.mark.parametrize(
    ("first", "then"),
    [*((first, spec_of(then)) for first, others in OTHER_KINDS.items() for then in others), *OTHER_LAYOUTS],
    ids=str,
)
def test_another_kind_is_refused_and_nothing_changed(first: str, then: StoreSpec, tmp_path: Path) -> None:
    opened(tmp_path, spec_of(first))
    before, names = families(tmp_path), tree(tmp_path)
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        with pytest.raises(StoreFormatError) as raised:
            directory.open_store(then)
        assert (raised.value.recorded, raised.value.asked) == (spec_of(first).describe(), then.describe())
        assert "Open it as what is recorded, or delete the local state" in str(raised.value)
        assert (families(tmp_path), tree(tmp_path)) == (before, names)
        directory.open_store(spec_of(first))
    assert records(tmp_path) == [spec_of(first).to_json()]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("kv", spec_of("ts-kv")),
        ("ts-kv", spec_of("headers-kv")),
        ("session", spec_of("headers-session")),
        ("window-dup", spec_of("headers-window-dup")),
        ("window", replace(spec_of("window"), retention_ms=600_000)),
    ],
    ids=str,
)
def test_a_newer_format_and_another_retention_are_recorded(first: str, then: StoreSpec, tmp_path: Path) -> None:
    opened(tmp_path, spec_of(first))
    opened(tmp_path, then)
    assert records(tmp_path) == [then.to_json()]


def test_a_recorded_format_is_believed_even_without_its_column_family(tmp_path: Path) -> None:
    opened(tmp_path, spec_of("kv"))
    (record,) = tmp_path.rglob("statestore.store.json")
    record.write_text(json.dumps(spec_of("ts-kv").to_json()))
    with TaskDirectory(tmp_path, APPLICATION) as directory, pytest.raises(StoreFormatError, match="timestamped"):
        directory.open_store(spec_of("kv"))


def test_a_directory_without_a_record_is_what_it_is_opened_as(tmp_path: Path) -> None:
    task = load_fixture("versioned").unpack(tmp_path)
    opened(task, spec_of("kv"))
    assert records(task) == [spec_of("kv").to_json()]


def test_every_segment_has_a_record(tmp_path: Path) -> None:
    task = load_fixture("session").unpack(tmp_path)
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of("headers-session")).put(segment_prefix(9) + b"k", b"v")
    assert records(task) == [spec_of("headers-session").to_json()] * 4


def test_stores_of_other_names_are_not_in_the_way(tmp_path: Path) -> None:
    # The segments of a window store `rocksdb` would stand beside the databases of key-value stores.
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        directory.open_store(spec_of("versioned", "other"))
        directory.open_store(spec_of("kv", "rocksdb"))
    assert len(records(tmp_path)) == 2


@pytest.mark.parametrize("kind", ["kv", "versioned", "headers-window"])
@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 3000, '{"name": "store"}', " " * 5000 + "{}"],
    ids=["empty", "cut", "array", "deep", "part", "long"],
)
def test_a_damaged_record_is_an_error(kind: str, content: str, tmp_path: Path) -> None:
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        directory.open_store(spec_of(kind)).put(segment_prefix(0) + b"k", b"v")
    (record,) = tmp_path.rglob("statestore.store.json")
    record.write_text(content)
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        with pytest.raises(StoreError, match=r"is damaged .* delete that file and open the store again"):
            directory.open_store(spec_of(kind))
        record.unlink()
        directory.open_store(spec_of(kind))
    assert json.loads(record.read_text()) == spec_of(kind).to_json()
