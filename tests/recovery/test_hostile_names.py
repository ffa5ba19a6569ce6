"""Names that are read from files which anybody may have changed: none of them leads out of where it belongs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore.errors import FormatError, LocationError, StateStoreError
from statestore.errors.state import CommitPointerError, DurableFileCorruptedError, UnsafeNameError
from statestore.recovery.commit.delta import Delta, DeltaInfo, encode_delta
from statestore.recovery.commit.manifest import Manifest
from statestore.recovery.commit.pointer import CommitPointer, initial_pointer, write_initial_pointer
from statestore.recovery.fences.run_fences import RunFences
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.local.marker import LocalMarker, read_marker, write_marker
from statestore.recovery.location.durable_json import digest, from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import is_relative_name, path_part
from statestore.recovery.making.new_state import NewState
from statestore.recovery.metadata.agreement import claim
from statestore.recovery.metadata.state_metadata import (
    METADATA_NAME,
    UNFINISHED_NAME,
    StateMetadata,
    metadata_of_stores,
    read_metadata,
)
from statestore.recovery.snapshots.planned import PlannedSnapshot, UploadPlan, write_checked_json
from tests.support.recovery import MAX_BYTES, on_record
from tests.support.recovery.shards import TOTALS, Shard, stored

HOSTILE: list[Any] = ["../..", "/etc", "", ".", "..", "a/b", "a\\b", "a\0b", "a\nb", "x" * 129, "~", "ä", 7, None]
METADATA = StateMetadata("state-1", 1, "key", (0,), (TOTALS,), ())


def as_json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def metadata(home: Path, name: Any) -> None:
    fields = {**from_durable_json(METADATA.to_json().encode()), "state_id": name}
    DurableLocation(home).write(METADATA_NAME, to_durable_json(fields).encode())
    read_metadata(DurableLocation(home))


def store_of_metadata(home: Path, name: Any) -> None:
    fields = from_durable_json(METADATA.to_json().encode())
    fields["stores"][0]["name"] = name
    DurableLocation(home).write(METADATA_NAME, to_durable_json(fields).encode())
    read_metadata(DurableLocation(home))


def pointer(home: Path, name: Any) -> None:
    CommitPointer.from_json(json.dumps({**json.loads(CommitPointer("state-1", 0).to_json()), "state_id": name}))


def first_pointer(home: Path, name: Any) -> None:
    location = DurableLocation(home)
    committed = CommitPointer("state-1", 0)
    write_initial_pointer(location, committed)
    (written,) = home.glob("shards/0000/*")
    fields = json.loads(written.read_bytes())
    fields["pointer"] = json.dumps({**json.loads(fields["pointer"]), "state_id": name})
    fields["digest"] = digest(fields["pointer"].encode())
    written.write_bytes(as_json(fields))
    initial_pointer(location, "state-1", 0)


def unfinished(home: Path, name: Any) -> None:
    location = DurableLocation(home)
    location.write(UNFINISHED_NAME, as_json({"format": 1, "from": "x", "state_id": name, "shards": 1, "request": "r"}))
    NewState.resume(location, metadata_of_stores([TOTALS], 1, "key"), "r")


def manifest(home: Path, name: Any) -> None:
    fields = json.loads(Manifest("state-1", 0, 1, "d", None, {}, ()).to_json())
    fields |= {"state_id": name, "files": [["CURRENT", "a/CURRENT", 1, "aa"]]}
    Manifest.from_json(pa.py_buffer(as_json(fields)), "manifest")


def file_of_manifest(home: Path, name: Any) -> None:
    fields = json.loads(Manifest("state-1", 0, 1, "d", None, {}, ()).to_json())
    fields["files"] = [["CURRENT", "a/CURRENT", 1, "aa"], [name, "a/x", 1, "aa"]]
    Manifest.from_json(pa.py_buffer(as_json(fields)), "manifest")


def marker(home: Path, name: Any) -> None:
    write_marker(home, LocalMarker(name, 0, ""), durably=False)
    read_marker(home)


def delta(home: Path, name: Any) -> None:
    Delta(encode_delta(DeltaInfo(name, 0, 1), {}, {})[0], "delta")


def plan(home: Path, **fields: Any) -> None:
    made = UploadPlan("copy-0", "state-1", 0, 1, "d", None, "directory", {}, {"CURRENT": 1})
    (home / "snapshot").mkdir()
    write_checked_json(home / "snapshot" / "plan.json", {**dataclasses.asdict(made), **fields})
    PlannedSnapshot(home).plan()


READERS: dict[str, tuple[Callable[[Path, Any], None], type[StateStoreError]]] = {
    "statestore.json": (metadata, DurableFileCorruptedError),
    "store of statestore.json": (store_of_metadata, DurableFileCorruptedError),
    "commit pointer": (pointer, CommitPointerError),
    "initial.json": (first_pointer, DurableFileCorruptedError),
    "unfinished.json": (unfinished, DurableFileCorruptedError),
    "manifest": (manifest, DurableFileCorruptedError),
    "file of manifest": (file_of_manifest, DurableFileCorruptedError),
    "statestore.marker": (marker, FormatError),
    "delta": (delta, DurableFileCorruptedError),
    "plan.json": (lambda home, name: plan(home, state_id=name), FormatError),
    "copy of plan.json": (lambda home, name: plan(home, copy=name), FormatError),
    "file of plan.json": (lambda home, name: plan(home, files={str(name): 1}), FormatError),
    "local directory": (lambda home, name: LocalDirectory(home).shard(name, 0) and None, UnsafeNameError),
    "query id": (lambda home, name: claim(DurableLocation(home), name), UnsafeNameError),
    "run": (
        lambda home, name: (
            RunFences(on_record(Shard(home).state).location, name).hold(CommitPointer("state-1", 0)) and None
        ),
        UnsafeNameError,
    ),
}


OTHERWISE: dict[str, list[Any]] = {
    "store of statestore.json": ["x" * 129],  # Kafka allows 249 characters
    "file of plan.json": [7, None],  # keys of a JSON object are text
}


@pytest.mark.parametrize(
    ("reader", "name"),
    [(reader, name) for reader in READERS for name in HOSTILE if name not in OTHERWISE.get(reader, ())],
    ids=lambda value: repr(value)[:20],
)
def test_a_name_that_could_lead_elsewhere_is_refused_where_it_is_read(tmp_path: Path, reader: str, name: Any) -> None:
    home = tmp_path / "a" / "b"
    home.mkdir(parents=True)
    read, error = READERS[reader]
    with pytest.raises(error):
        read(home, name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert [path.name for path in home.parent.iterdir()] == ["b"]


@pytest.mark.parametrize("reader", READERS)
def test_the_same_readers_take_what_is_ours(tmp_path: Path, reader: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    read, error = READERS[reader]
    refused: Exception | None = None
    try:
        read(home, {"file of plan.json": "CURRENT", "run": "run1"}.get(reader, "state-1"))
    except error as refusal:
        refused = refusal
    assert refused is None
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_hostile_state_makes_and_deletes_nothing_outside(tmp_path: Path) -> None:
    """The issue's example: a location whose identity leads out of the local directory."""
    shard = Shard(tmp_path / "home" / "deep")
    precious = tmp_path / "home" / "shard-0000" / "copy-0"
    precious.mkdir(parents=True)
    (precious / "precious").write_bytes(b"mine")
    for name in ("../..", str(tmp_path / "home")):
        shard.state = dataclasses.replace(shard.state, state_id=name)
        with pytest.raises(UnsafeNameError, match="can't be part of a path"):
            shard.batch(CommitPointer(name, 0), {b"k": stored(b"1")})
    assert (precious / "precious").read_bytes() == b"mine"
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["shard-0000"]


def test_names_of_durable_files_have_a_bound(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    for name in ("x" * 1025, "a\nb", "a\x7fb"):
        assert not is_relative_name(name)
        with pytest.raises(LocationError, match="is no name of a file"):
            location.read(name, MAX_BYTES)
    assert path_part("x" * 128)
