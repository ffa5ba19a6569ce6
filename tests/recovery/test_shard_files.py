"""The names of a shard's files: what is made is understood, and nothing else is."""

from __future__ import annotations

import pytest

from statestore.errors.state import UnsafeNameError
from statestore.recovery.location import shard_files as files
from statestore.recovery.location.shard_files import FenceName, Written

ATTEMPT = "0123456789abcdef" * 2
MAKERS = {"delta": files.new_delta_name, "snapshot": files.new_snapshot_name, "collection": files.new_collection_name}
PARSERS = {
    "delta": files.parse_delta_name,
    "snapshot": files.parse_snapshot_name,
    "collection": files.parse_collection_name,
    "fence": files.parse_fence_name,
}


@pytest.mark.parametrize("what", MAKERS)
@pytest.mark.parametrize(("version", "epoch"), [(1, 1), (0, 0), (10**12 - 1, files.MAX_EPOCH)])
def test_a_name_says_its_version_and_epoch_and_nothing_else_takes_it_for_its_own(
    what: str, version: int, epoch: int
) -> None:
    name = MAKERS[what](7, version, epoch)
    assert PARSERS[what](name) == PARSERS[what](name.rpartition("/")[2]) == Written(version, epoch)
    assert [other for other, parse in PARSERS.items() if parse(name) is not None] == [what]


@pytest.mark.parametrize("what", MAKERS)
def test_no_two_attempts_have_one_name(what: str) -> None:
    assert len({MAKERS[what](7, 5, 3) for _ in range(100)}) == 100


def test_a_delta_says_which_run_wrote_it() -> None:
    names = {files.new_delta_name(7, 5, 3, "first") for _ in range(100)}
    assert len(names) == 100
    assert {files.parse_delta_writer(name) for name in names} == {files.writer_of("first")} == {"a2a8c2514ffc1da3"}
    assert {files.parse_delta_name(name) for name in names} == {Written(5, 3)}
    assert files.parse_delta_writer(files.new_delta_name(7, 5, 3, "other")) != files.writer_of("first")
    of_tools = {files.parse_delta_writer(files.new_delta_name(7, 5, files.EPOCH_OF_TOOLS)) for _ in range(100)}
    assert len(of_tools) == 100, "no run wrote them"
    assert files.parse_delta_writer(f"000000000005-{ATTEMPT}.arrow") == ATTEMPT[:16], (
        "of older releases it is just digits"
    )
    assert files.parse_delta_writer(files.new_snapshot_name(7, 5, 3)) is None


def test_names_stand_in_the_directory_of_their_shard_and_sort_by_version() -> None:
    assert [files.delta_directory(7), files.snapshot_directory(12345)] == [
        "shards/0007/deltas",
        "shards/12345/snapshots",
    ]
    assert files.new_delta_name(7, 5, 3).startswith("shards/0007/deltas/000000000005-00000003-")
    assert files.new_collection_name(7, 5, 3).startswith("shards/0007/deltas/000000000005-00000003-")
    assert files.new_snapshot_name(7, 5, 3).startswith("shards/0007/snapshots/000000000005-00000003-")
    names = [files.new_delta_name(7, version, 1) for version in (2, 10, 99, 100)]
    assert names == sorted(names)


def test_a_fence_says_its_epoch_and_run() -> None:
    fence = FenceName(3, "a1B2")
    assert files.fence_name(7, fence) == "shards/0007/deltas/00000003-a1B2.fence"
    assert files.parse_fence_name(files.fence_name(7, fence)) == fence
    assert max(FenceName(2, "z"), FenceName(3, "a")) == FenceName(3, "a"), "later runs have higher epochs"


@pytest.mark.parametrize("run", ["", "../a", "a/b"])
def test_a_run_that_leads_elsewhere_names_no_fence(run: str) -> None:
    with pytest.raises(UnsafeNameError):
        files.fence_name(7, FenceName(1, run))


@pytest.mark.parametrize(
    "name",
    [
        f"1-00000001-{ATTEMPT}.arrow",
        f"000000000001-1-{ATTEMPT}.arrow",
        f"000000000001-00000001-{ATTEMPT[1:]}.arrow",
        f"000000000001-00000001-{ATTEMPT.upper()}.arrow",
        f"000000000001-00000000-{ATTEMPT}.arrow.next",
        f"x000000000001-00000001-{ATTEMPT}.arrow",
        f"000000000001-00000001-{ATTEMPT}.arrow/other",
        f"000000000001-{ATTEMPT}.collecting",
        f"000000000001-00000001-{ATTEMPT}.collecting.next",
        f"000000000001-00000001-{ATTEMPT}.next",
        "00000001-a.fence.next",
        f"000000000001-{ATTEMPT}",
        "00000001-.fence",
        f"00000001-{'r' * 65}.fence",
        "00000001-a-b.fence",
        "0001-a.fence",
        "",
    ],
)
def test_what_is_almost_a_name_is_none(name: str) -> None:
    assert [what for what, parse in PARSERS.items() if parse(name) is not None] == []
    assert not files.is_of_tool(name)


def test_a_delta_from_before_there_were_fences_is_of_epoch_0_and_of_no_tool() -> None:
    old = f"shards/0007/deltas/000000000042-{ATTEMPT}.arrow"
    assert files.parse_delta_name(old) == Written(42, 0)
    assert not files.is_of_tool(old), "a query has committed it"


def test_a_delta_of_epoch_0_that_says_so_is_of_a_tool() -> None:
    assert files.is_of_tool(files.new_delta_name(7, 1, files.EPOCH_OF_TOOLS))
    assert not files.is_of_tool(files.new_delta_name(7, 1, 1))
    assert not files.is_of_tool(files.new_collection_name(7, 1, files.EPOCH_OF_TOOLS))
