"""A snapshot's manifest: read as it was written, held to the pointer that names it, and refused otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError, SnapshotFormatError
from statestore.recovery.commit.manifest import Manifest, SnapshotFile, read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation

NAME = "shards/0001/snapshots/x/manifest.json"
MANIFEST = Manifest(
    "s",
    1,
    3,
    "shards/0001/deltas/3.arrow",
    "shards/0001/snapshots/w/manifest.json",
    {"totals": 7},
    (
        SnapshotFile("CURRENT", DurableFile("shards/0001/snapshots/x/CURRENT", 16, "aa")),
        SnapshotFile("000008.sst", DurableFile("shards/0001/snapshots/w/000008.sst", 900, "bb")),
    ),
)


def written(location: DurableLocation, manifest: Manifest) -> SnapshotRef:
    content = manifest.to_json()
    location.write(NAME, content)
    return SnapshotRef(3, DurableFile(NAME, len(content), digest(content)), MANIFEST.delta, 3)


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path)


@pytest.mark.parametrize("base", [MANIFEST.base, None])
def test_it_is_read_as_it_was_written(location: DurableLocation, base: str | None) -> None:
    manifest = replace(MANIFEST, base=base)
    assert read_manifest(location, CommitPointer("s", 1), written(location, manifest)) == replace(manifest, name=NAME)
    assert manifest.size_bytes == 916


@pytest.mark.parametrize(
    ("manifest", "pointer"),
    [
        (MANIFEST, CommitPointer("another", 1)),
        (MANIFEST, CommitPointer("s", 2)),
        (replace(MANIFEST, version=4), CommitPointer("s", 1)),
        (replace(MANIFEST, delta="shards/0001/deltas/other.arrow"), CommitPointer("s", 1)),
    ],
    ids=["state", "shard", "version", "delta"],
)
def test_one_of_something_else_is_refused(
    location: DurableLocation, manifest: Manifest, pointer: CommitPointer
) -> None:
    with pytest.raises(DurableFileCorruptedError, match=r"is the manifest of .*, wanted was"):
        read_manifest(location, pointer, written(location, manifest))


def test_one_that_is_gone_or_changed_is_named(location: DurableLocation, tmp_path: Path) -> None:
    snapshot = written(location, MANIFEST)
    (tmp_path / NAME).write_bytes(MANIFEST.to_json().replace(b"900", b"901"))
    with pytest.raises(DurableFileCorruptedError, match=r"manifest\.json"):
        read_manifest(location, CommitPointer("s", 1), snapshot)
    (tmp_path / NAME).unlink()
    with pytest.raises(DurableFileMissingError, match="the snapshot of shard 1 at 3"):
        read_manifest(location, CommitPointer("s", 1), snapshot)


def parsed(change: Callable[[dict[str, Any]], object]) -> Manifest:
    fields = json.loads(MANIFEST.to_json())
    change(fields)
    return Manifest.from_json(pa.py_buffer(json.dumps(fields).encode()), "where")


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("state_id"),
        lambda fields: fields.update(state_id="../s"),
        lambda fields: fields.update(shard=-1),
        lambda fields: fields.update(version=0),
        lambda fields: fields.update(format=0),
        lambda fields: fields.update(stores={"totals": {"entries": -1}}),
        lambda fields: fields["files"].append(["../../etc/passwd", "x", 1, "cc"]),
        lambda fields: fields["files"].append(["1.sst", "x", -1, "cc"]),
        lambda fields: fields["files"].append(["1.sst", "x"]),
        lambda fields: fields["files"].pop(0),  # RocksDB would make a new database where there is no CURRENT
    ],
)
def test_fields_that_it_can_not_have_are_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(DurableFileCorruptedError, match="is not a snapshot's manifest"):
        parsed(change)


def test_one_of_a_later_release_is_told_from_a_damaged_one() -> None:
    with pytest.raises(SnapshotFormatError) as raised:
        parsed(lambda fields: fields.update(format=2, files="in some other way"))
    assert (raised.value.found, raised.value.known) == (2, 1)
