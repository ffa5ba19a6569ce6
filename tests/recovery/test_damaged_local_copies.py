"""What fault plans, or the thought of them, found: each a test of its own, reduced to what it takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

EVERY_2 = RecoveryOptions(snapshot_every_deltas=2, snapshot_budget_ms=60_000, retained_versions=1)


def test_a_damaged_checksum_on_the_local_disk_does_not_get_into_snapshots(tmp_path: Path) -> None:
    """All later snapshots had the wrong checksum of a table; none could be restored, and the deltas were gone."""
    shard = Shard(tmp_path, recovery=EVERY_2)
    expected = {b"%06d" % number: stored(b"v" * 100) for number in range(5_000)}
    pointer = shard.batch(shard.start(), dict(expected))
    pointer = batches_until(lambda pointer: bool(pointer.snapshots), shard, pointer, expected)
    digests = tmp_path / "local/state-1/shard-0000/digests.json"
    known = json.loads(digests.read_bytes())
    assert known
    digests.write_text(json.dumps({identity: "0" * len(digest) for identity, digest in known.items()}))
    damaged_from = pointer.version
    pointer = batches_until(lambda pointer: pointer.base_version > damaged_from, shard, pointer, expected)
    shutil.rmtree(tmp_path / "local")
    assert shard.content(pointer) == expected


def batches_until(
    is_enough: Callable[[CommitPointer], bool], shard: Shard, pointer: CommitPointer, expected: dict[bytes, bytes]
) -> CommitPointer:
    """Commit batches that each write the key `last`, and wait for their uploads; `expected` has what it was."""
    while not is_enough(pointer):
        expected[b"last"] = stored(b"%d" % (pointer.version + 1))
        pointer = shard.batch(pointer, {b"last": expected[b"last"]})
        wait_for_uploads()
    return pointer


def test_a_damaged_table_of_the_local_copy_does_not_get_into_snapshots(tmp_path: Path) -> None:
    """A table that rotted before it was first uploaded was in every snapshot, with the checksum of its damage."""
    shard = Shard(tmp_path, recovery=EVERY_2)
    expected = {b"%06d" % number: stored(b"v" * 100) for number in range(5_000)}
    pointer = shard.batch(shard.start(), dict(expected))
    pointer = shard.batch(pointer, {b"last": stored(b"1")})
    table = max((tmp_path / "local/state-1/shard-0000/copy-0").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    pointer = batches_until(lambda pointer: pointer.base_version > 0, shard, pointer, expected)
    shutil.rmtree(tmp_path / "local")
    assert shard.content(pointer) == expected


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_manifest_of_the_local_copy_is_found_out(damage: str, tmp_path: Path) -> None:
    """RocksDB takes a record that is cut at the end of its MANIFEST for one that was never finished.

    It opened the copy without the tables that the record names, and the marker said that all was there.
    """
    shard = Shard(tmp_path)
    pointer = shard.start()
    for number in range(4):
        pointer = shard.batch(pointer, {b"key-%d" % number: stored(b"%d" % number)})
    expected = {b"key-%d" % number: stored(b"%d" % number) for number in range(4)}
    assert shard.content(pointer) == expected
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "local", whole)
    (manifest,) = (whole / "state-1/shard-0000/copy-0").glob("MANIFEST-*")
    data = manifest.read_bytes()
    for place in range(0, len(data), 29):
        shutil.rmtree(tmp_path / "local")
        shutil.copytree(whole, tmp_path / "local")
        flipped = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        (tmp_path / "local" / manifest.relative_to(whole)).write_bytes(data[:place] if damage == "cut" else flipped)
        assert shard.content(pointer) == expected, f"{damage} at {place} of {len(data)} bytes"
