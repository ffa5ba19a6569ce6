"""The durable location on a filesystem that behaves as HDFS does: killed, observed and failing at each step."""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from statestore.errors import LocationError, LocationInUseError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.retrying import Retrying
from statestore.recovery.metadata.agreement import claim
from tests.support.recovery import MAX_BYTES, content
from tests.support.recovery.hdfs_like import Died, HdfsLikeLocation

NAME = "statestore.json"
QUICK = Retrying(total_s=5, first_wait_s=0.001)


def at_step(number: int, do: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Return what calls `do` at the step of this number, from 0, and nothing at others."""
    steps = iter(range(1_000_000))
    return lambda step, path: do(step, path) if next(steps) == number else None


def from_step(number: int, do: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Return what calls `do` at the step of this number, from 0, and at all after it."""
    steps = iter(range(1_000_000))
    return lambda step, path: do(step, path) if next(steps) >= number else None


def steps_of_a_replace(home: Path) -> list[str]:
    location = HdfsLikeLocation(home)
    location.write(NAME, b"old")
    steps: list[str] = []
    location.filesystem.before = lambda step, path: steps.append(step)
    location.write(NAME, b"newer")
    return steps


def test_a_replace_deletes_what_it_replaces_as_on_hdfs(tmp_path: Path) -> None:
    assert "delete for move" in steps_of_a_replace(tmp_path)


@pytest.mark.parametrize("left", [(), ("old",)], ids=["new", "replaced"])
def test_a_writer_that_is_killed_at_any_step_leaves_a_file_and_the_next_one_goes_on(
    tmp_path: Path, left: tuple[str, ...]
) -> None:
    def die(*_: str) -> None:
        raise Died

    before = b"old" if left else None
    found = []
    for number in range(len(steps_of_a_replace(tmp_path / "counted"))):
        home = tmp_path / str(number)
        for value in left:
            HdfsLikeLocation(home).write(NAME, value.encode())
        location = HdfsLikeLocation(home)
        location.filesystem.before = from_step(number, die)
        with suppress(Died):
            location.write(NAME, b"newer")
        after = HdfsLikeLocation(home)
        found.append(content(after, NAME))
        assert found[-1] in (before, b"newer")
        assert (NAME in after.names("")) == (found[-1] is not None)
        after.write(NAME, b"newest")
        assert content(after, NAME) == b"newest"
        after.delete(NAME)
        assert content(after, NAME) is None
        assert [name for name in after.names("") if not name.endswith(".partial")] == []
    assert {before, b"newer"} <= set(found)


def test_whoever_looks_at_any_step_of_a_replace_sees_one_of_both(tmp_path: Path) -> None:
    writer, reader = HdfsLikeLocation(tmp_path), HdfsLikeLocation(tmp_path)
    writer.write(NAME, b"old")
    seen = []

    def look(*_: str) -> None:
        seen.append(content(reader, NAME))
        assert reader.names("").count(NAME) == 1
        assert not [name for name in reader.names("") if name.endswith(".next")]
        assert reader.fetch(NAME, tmp_path.with_name("fetched"), MAX_BYTES)

    writer.filesystem.before = writer.filesystem.after = look
    writer.write(NAME, b"newer")
    assert set(seen) == {b"old", b"newer"}
    assert content(reader, NAME) == b"newer"


def test_a_reader_that_is_overtaken_at_any_step_by_a_replace_sees_one_of_both(tmp_path: Path) -> None:
    counted = len(steps_of_a_replace(tmp_path / "counted"))
    for first in range(counted):
        for second in range(4):
            home = tmp_path / f"{first}-{second}"
            HdfsLikeLocation(home).write(NAME, b"old")
            writer, reader = HdfsLikeLocation(home), HdfsLikeLocation(home)

            def read_here(*_: str, reader: HdfsLikeLocation = reader, second: int = second, home: Path = home) -> None:
                # While it reads, the file that was just deleted for the move comes back.
                reader.filesystem.before = at_step(second, lambda *_: _finish(home))
                assert content(reader, NAME) in (b"old", b"newer")

            writer.filesystem.after = at_step(first, read_here)
            try:
                writer.write(NAME, b"newer")
            except LocationNotWritableError:
                assert (home / NAME).exists(), "the reader's hook has finished the move for it"


def _finish(home: Path) -> None:
    following = home / f"{NAME}.next"
    if following.exists() and not (home / NAME).exists():
        following.rename(home / NAME)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_whose_answer_was_lost_is_done_again_without_harm(tmp_path: Path, when: str) -> None:
    def lose(*_: str) -> None:
        raise ConnectionResetError("lost")

    for number in range(len(steps_of_a_replace(tmp_path / "counted"))):
        for value in (None, b"old"):
            location = HdfsLikeLocation(tmp_path / f"{number}-{value}", retrying=QUICK)
            if value is not None:
                location.write(NAME, value)
            setattr(location.filesystem, when, at_step(number, lose))
            location.write(NAME, b"newer")
            location.filesystem.before = location.filesystem.after = lambda *_: None
            assert content(location, NAME) == b"newer"
            assert [name for name in location.names("") if not name.endswith(".partial")] == [NAME]
            location.delete(NAME)
            assert content(location, NAME) is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_another_one_overtakes_at_any_step_does_not_fail_and_loses_nothing(
    tmp_path: Path, when: str
) -> None:
    counted = len(steps_of_a_replace(tmp_path / "counted"))
    for number in range(counted):
        home = tmp_path / str(number)
        HdfsLikeLocation(home).write(NAME, b"old")
        slow = HdfsLikeLocation(home, retrying=QUICK)
        setattr(slow.filesystem, when, at_step(number, lambda *_, home=home: HdfsLikeLocation(home).write(NAME, b"a")))
        slow.write(NAME, b"b")
        after = HdfsLikeLocation(home)
        assert content(after, NAME) in (b"a", b"b")
        assert [name for name in after.names("") if not name.endswith(".partial")] == [NAME]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_is_overtaken_and_killed_later_leaves_what_the_other_one_has_written_or_its_own(
    tmp_path: Path, when: str
) -> None:
    counted = len(steps_of_a_replace(tmp_path / "counted"))
    for first in range(counted):
        for last in range(first, counted):
            home = tmp_path / f"{first}-{last}"
            HdfsLikeLocation(home).write(NAME, b"old")
            slow = HdfsLikeLocation(home)
            steps = iter(range(100))

            def act(
                *_: str, home: Path = home, steps: Iterator[int] = steps, at: tuple[int, int] = (first, last)
            ) -> None:
                number = next(steps)
                if number == at[0]:
                    HdfsLikeLocation(home).write(NAME, b"a")
                if number >= at[1]:
                    raise Died

            setattr(slow.filesystem, when, act)
            with suppress(Died):
                slow.write(NAME, b"b")
            assert content(HdfsLikeLocation(home), NAME) in (b"a", b"b")


def test_a_move_that_fails_for_good_after_its_delete_loses_nothing(tmp_path: Path) -> None:
    location = HdfsLikeLocation(tmp_path)
    location.write(NAME, b"old")
    deleted = []

    def fail(step: str, path: str) -> None:
        if step == "delete for move":
            deleted.append(path)
        elif deleted and step == "rename":
            raise OSError(errno.EIO, "HDFS Rename failed")

    location.filesystem.before = fail
    with pytest.raises(LocationNotWritableError, match="HDFS Rename failed"):
        location.write(NAME, b"newer")
    assert content(HdfsLikeLocation(tmp_path), NAME) == b"newer"


def test_a_listing_that_failed_is_not_taken_for_an_empty_directory(tmp_path: Path) -> None:
    location = HdfsLikeLocation(tmp_path)
    claim(location, "query-a")

    def fail(step: str, path: str) -> None:
        raise OSError(errno.EIO, "HDFS list directory failed")

    location.filesystem.before = fail
    with pytest.raises(LocationError, match=r"can't be listed .*HDFS list directory failed"):
        location.names("owners")
    with pytest.raises(LocationError, match="can't be listed"):
        claim(location, "query-b")


@pytest.mark.parametrize("number", range(10))
def test_a_claim_that_is_written_twice_is_seen_all_the_time(tmp_path: Path, number: int) -> None:
    """Two tasks of one query, each of which has found no claim."""
    first, second, other = (HdfsLikeLocation(tmp_path) for _ in range(3))
    claimed: list[bool] = []

    def claim_first(*_: str) -> None:
        claim(first, "query-a")
        claimed.append(True)

    def look(*_: str) -> None:
        if claimed:
            with pytest.raises(LocationInUseError):
                claim(other, "query-b")

    second.filesystem.before = at_step(number, claim_first)
    second.filesystem.after = look
    claim(second, "query-a")
    assert claimed or number > 8, "there are no more steps"
    assert first.names("owners") == ["owners/query-a"]


def test_an_empty_file_that_another_writer_creates_at_any_step_is_written(tmp_path: Path) -> None:
    """As tasks do that claim a location at once: HDFS refuses to close the file that was there first."""
    for number in range(3):
        home = tmp_path / str(number)
        slow = HdfsLikeLocation(home, retrying=QUICK)
        slow.filesystem.before = at_step(number, lambda *_, home=home: HdfsLikeLocation(home).write(NAME, b""))
        slow.write(NAME, b"")
        assert content(slow, NAME) == b""
    gone = HdfsLikeLocation(tmp_path, retrying=QUICK)
    gone.filesystem.before = at_step(2, lambda _, path: HdfsLikeLocation(tmp_path).delete(NAME))
    with pytest.raises(LocationNotWritableError, match="File does not exist"):
        gone.write(NAME, b"")


def test_deleting_what_is_not_there_is_no_error_and_failing_to_is(tmp_path: Path) -> None:
    location = HdfsLikeLocation(tmp_path)
    location.delete("nowhere/x")
    location.write(NAME, b"old")

    def fail(step: str, path: str) -> None:
        if step == "delete":
            raise OSError(errno.EIO, "HDFS delete failed")

    location.filesystem.before = fail
    with pytest.raises(LocationNotWritableError, match="HDFS delete failed"):
        location.delete(NAME)
