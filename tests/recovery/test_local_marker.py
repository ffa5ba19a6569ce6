"""What a local copy's marker proves about it, also after a crash in the middle of an application."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.errors import FormatError
from statestore.recovery.local import local_copy
from statestore.recovery.local.local_copy import LocalCopy
from statestore.recovery.local.marker import LocalMarker, read_marker, write_marker
from tests.support.golden.tool_made import TOTALS, WINDOWS
from tests.support.recovery.shards import Shard, stored

CHAIN = ["", "d1", "d2", "d3"]


@pytest.mark.parametrize(
    ("delta", "applying", "repeatable", "applied"),
    [
        ("d3", None, False, 3),
        ("d1", None, False, 1),
        ("", None, False, 0),
        ("", "d2", True, 0),
        ("d1", "d3", True, 1),
        ("d1", "d3", False, None),
        ("other", None, False, None),
        ("d1", "other", True, None),
        ("", "other", True, None),
    ],
)
def test_what_is_certain_of_a_copy(delta: str, applying: str | None, repeatable: bool, applied: int | None) -> None:
    assert LocalMarker("s", 0, delta, applying, repeatable=repeatable).count_applied(CHAIN) == applied


def test_files_say_whether_anything_was_applied() -> None:
    begun = LocalMarker("s", 0, "d1", "d3", "f")
    assert begun.judge_files("f") == LocalMarker("s", 0, "d1", None, "f"), "also for chains without d3"
    assert begun.judge_files("g") == begun
    closed = LocalMarker("s", 0, "d1", None, "f")
    assert closed.judge_files("f") == closed
    with pytest.raises(FormatError, match="closed with"):
        closed.judge_files("g")


def test_a_chain_that_begins_at_a_snapshot_knows_no_earlier_version() -> None:
    chain = ["d7", "d8"]
    assert LocalMarker("s", 0, "").count_applied(chain) is None
    assert LocalMarker("s", 0, "d6", "d8", repeatable=True).count_applied(chain) is None
    assert LocalMarker("s", 0, "d7", "d8", repeatable=True).count_applied(chain) == 0
    assert LocalMarker("s", 0, "d8").count_applied(chain) == 1


def test_markers_of_every_release_are_read(tmp_path: Path) -> None:
    marker = tmp_path / "statestore.marker"
    marker.write_text('{"state_id": "s", "shard": 3, "delta": "d2", "applying": null}')
    assert read_marker(tmp_path) == LocalMarker("s", 3, "d2")
    marker.write_text(
        '{"state_id": "s", "shard": 3, "delta": "d1", "applying": "d2", "files": "f", "stores": [{"name": "windows", '
        '"kind": "window", "format": "TIMESTAMPED_WITH_HEADERS", "retention_ms": 120000, "segment_interval_ms": 60000, '
        '"window_size_ms": 10000}]}'
    )
    assert read_marker(tmp_path) == LocalMarker("s", 3, "d1", "d2", "f", (WINDOWS,))
    marker.write_text(
        '{"state_id": "s", "shard": 3, "delta": "d1", "applying": "d2", "files": "f", "stores": [], "repeatable": true}'
    )
    assert read_marker(tmp_path) == LocalMarker("s", 3, "d1", "d2", "f", (), True)


def test_a_marker_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_marker(tmp_path) is None
    for marker in (
        LocalMarker("s", 3, "d1", "d2", "f", (), True),
        LocalMarker("s", 3, "d2", None, "f", (TOTALS, WINDOWS)),
    ):
        write_marker(tmp_path, marker, durably=True)
        assert read_marker(tmp_path) == marker


MARKER = b'{"state_id":"s","shard":%b,"delta":"d1","applying":null}'


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b'{"state_id":"s"}', b"\xff\xfe"),
        *(MARKER % shard for shard in (b"1e999", b"NaN", b"-1", b"true", b'"0"', b"9" * 5_000)),
        b"[" * 60_000,
    ],
    ids=lambda content: content[:60],
)
def test_a_torn_marker_is_not_believed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "statestore.marker").write_bytes(content)
    with pytest.raises(FormatError, match=str(tmp_path)):
        read_marker(tmp_path)


class CrashError(Exception):
    """Stands for a process that dies: nothing after it runs but what the operating system does."""


@pytest.fixture
def crash_after_apply(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the next open die after it has applied and flushed deltas, and before it could say so."""

    def arm() -> None:
        def die(copy: LocalCopy) -> None:
            copy.database.close()
            raise CrashError

        monkeypatch.setattr(local_copy, "_close", die)

    return arm


def crash_while_catching_up(shard: Shard, pointer: object, arm: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    arm()
    with pytest.raises(CrashError):
        shard.content(pointer)
    patch.undo()


def test_a_crash_between_flush_and_marker_does_not_leak_into_an_older_version(
    shard: Shard, crash_after_apply: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shard.batch(shard.start(), {b"a": stored(b"1")})
    second = shard.batch(first, {b"a": stored(b"2"), b"b": stored(b"2")})
    assert shard.content(first) == {b"a": stored(b"1")}
    crash_while_catching_up(shard, second, crash_after_apply, monkeypatch)
    marker = read_marker(shard.copy)
    assert marker is not None
    assert (marker.delta, marker.applying) == (first.head, second.head)
    assert shard.content(first) == {b"a": stored(b"1")}, "the copy may hold more than this: it must not be used"
    assert shard.content(second) == {b"a": stored(b"2"), b"b": stored(b"2")}


def test_a_crash_between_flush_and_marker_does_not_cost_a_rebuild(
    shard: Shard, crash_after_apply: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shard.batch(shard.start(), {b"a": stored(b"1")})
    second = shard.batch(first, {b"b": stored(b"2")})
    shard.content(first)
    crash_while_catching_up(shard, second, crash_after_apply, monkeypatch)
    shard.delta_file(second, 0).unlink()
    assert shard.content(second) == {b"a": stored(b"1"), b"b": stored(b"2")}


def test_a_copy_without_a_marker_is_rebuilt(shard: Shard) -> None:
    first = shard.batch(shard.start(), {b"a": stored(b"1")})
    second = shard.batch(first, {b"a": None})
    shard.content(first)
    (shard.copy / "statestore.marker").unlink()
    assert shard.content(second) == {}
    assert shard.content(second) == {}


def test_discarded_copies_do_not_pile_up(shard: Shard) -> None:
    pointer = shard.batch(shard.start(), {b"a": stored(b"1")})
    for _ in range(3):
        shard.content(pointer)
        shutil.rmtree(shard.copy)
        shard.content(shard.start())
    assert sorted(path.name for path in shard.copy.parent.iterdir()) == ["copy-0", "copy-0.lock", "spill-0.lock"]
