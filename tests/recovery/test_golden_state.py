"""A state location as format 1 wrote it, and its pointers, must be readable by every later release."""

import json
import shutil
from pathlib import Path

import pytest

from shards import Shard, stored
from statestore.format.header_bytes import encode_headers
from statestore.recovery.metadata import read_metadata
from statestore.recovery.pointer import CommitPointer

GOLDEN = Path(__file__).parents[1] / "golden" / "state-1"
FIRST = {
    b"": stored(b"empty key"),
    b"a": stored(b"1", 5, encode_headers([("trace", b"\x00\xff"), ("trace", None), ("ä", b"")])),
    b"b": stored(b"", -1),
}
SECOND = {**FIRST, b"a": stored(b"2", 6, encode_headers([("n", b"%d" % n) for n in range(70)]))}
THIRD = {key: value for key, value in SECOND.items() if key != b"b"}


@pytest.fixture
def golden(tmp_path: Path) -> Shard:
    shutil.copytree(GOLDEN / "state", tmp_path / "state")
    return Shard(tmp_path)


@pytest.mark.parametrize(("version", "content"), [(1, FIRST), (2, SECOND), (3, THIRD)])
def test_every_version_is_restored_entry_for_entry(golden: Shard, version: int, content: dict[bytes, bytes]) -> None:
    recorded = json.loads((GOLDEN / "pointers.json").read_text())[version - 1]
    pointer = golden.state.pointer(0, json.dumps(recorded))
    assert pointer.version == version
    assert golden.content(pointer) == content
    assert json.loads(pointer.to_json()) == {**recorded, "format": 2, "stores": {}}


def test_the_last_pointer_counts_skips_and_stream_time() -> None:
    pointer = CommitPointer.from_json(json.dumps(json.loads((GOLDEN / "pointers.json").read_text())[-1]))
    assert (pointer.skipped_records, pointer.stream_time_ms) == (2, 7)


def test_metadata(golden: Shard) -> None:
    metadata = read_metadata(golden.state.location)
    assert metadata is not None
    assert (metadata.state_id, metadata.shards, metadata.routing) == ("state-1", 1, (0,))
    assert [spec.name for spec in metadata.stores] == ["totals"]
    assert [node["name"] for node in metadata.topology] == ["in", "p"]
