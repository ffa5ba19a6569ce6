"""Names that could lead out of a durable location, as a changed pointer or manifest may have them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.errors import LocationError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.shards import Shard, stored

OPERATIONS: dict[str, Callable[[DurableLocation, str], object]] = {
    "read": lambda location, name: location.read(name, MAX_BYTES),
    "fetch": lambda location, name: location.fetch(name, "/nowhere/at/all", MAX_BYTES),
    "write": lambda location, name: location.write(name, b"content"),
    "entries": DurableLocation.entries,
    "directories": DurableLocation.directories,
    "delete": DurableLocation.delete,
    "remove_directory": DurableLocation.remove_directory,
}


@pytest.mark.parametrize("name", ["../out", "a/../../out", "..", ".", "a/./b", "/etc/x", "a//b", "a/", "a\\b", "a\0b"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_name_that_could_lead_out_is_refused(tmp_path: Path, operation: str, name: str) -> None:
    location = DurableLocation(tmp_path / "state")
    location.write("a/b", b"there")
    (tmp_path / "out").write_bytes(b"not ours")
    with pytest.raises(LocationError, match="is no name of a file in it") as refused:
        OPERATIONS[operation](location, name)
    assert repr(name) in refused.value.problem
    assert (tmp_path / "out").read_bytes() == b"not ours"
    assert location.names("a") == ["a/b"]


def test_names_of_ours_are_no_matter(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path / "state")
    for name in ("statestore.json", "..a", "a..b/...", "with space/ä"):
        location.write(name, b"1")
        assert location.read(name, MAX_BYTES) is not None
    assert location.directories("") == ["a..b", "with space"]


def test_a_pointer_to_a_file_elsewhere_is_refused(shard: Shard) -> None:
    pointer = shard.batch(shard.start(), {b"k": stored(b"1")})
    elsewhere = shard.home / "elsewhere.arrow"
    shard.delta_file(pointer).rename(elsewhere)
    text = pointer.to_json().replace(pointer.head, "../elsewhere.arrow")
    shard.state.local.shard("state-1", 0).rename(shard.home / "gone")
    with pytest.raises(LocationError, match=r"'\.\./elsewhere\.arrow' is no name"):
        shard.content(CommitPointer.from_json(text))
