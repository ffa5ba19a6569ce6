"""A store in a database per segment is one ordered map, and its directories come and go with its segments."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from statestore.bytestore.kafka_streams.segment_directories import SegmentDirectories
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.protocol import Pair
from statestore.errors import StoreError
from statestore.errors.state import StoreClosedError
from tests.support.byte_store_model import write_to
from tests.support.golden.task_directories import APPLICATION, SEGMENT_MS, families, spec_of

SPEC = spec_of("session")


def key(segment_id: int, rest: bytes = b"") -> bytes:
    return segment_prefix(segment_id) + rest


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SegmentDirectories]:
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        opened = directory.open_store(SPEC)
        assert isinstance(opened, SegmentDirectories)
        yield opened


def directories(task: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("store.")) // SEGMENT_MS for path in (task / "store").glob("*"))


def test_a_segment_is_made_for_its_first_value_and_never_for_a_delete(
    store: SegmentDirectories, tmp_path: Path
) -> None:
    store.put(key(4, b"k"), None)
    store.write([(key(5), None), (key(6), None)])
    assert (store.segment_ids, directories(tmp_path)) == ([], [])
    store.write([(key(5, b"k"), b"v"), (key(5, b"k"), None), (key(3), b"")])
    assert store.segment_ids == directories(tmp_path) == [3, 5]
    assert list(store.range(None, None)) == [(key(3), b"")]


def test_a_segment_that_does_not_exist_is_empty(store: SegmentDirectories) -> None:
    store.put(key(3), b"v")
    assert (store.get(key(3)), store.get(key(4)), store.get(b"\0\0"), store.get(key(-1))) == (b"v", None, None, None)


FIRST = [(1, b""), (1, b"a"), (2, b""), (2, b"a")]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (None, segment_prefix(2), [(1, b""), (1, b"a"), (2, b"")]),
        (None, segment_prefix(2)[:7], []),
        (None, segment_prefix(256)[:7], [*FIRST, (255, b""), (255, b"a")]),
        (segment_prefix(256)[:7], None, [(256, b"")]),
        (segment_prefix(255), segment_prefix(256)[:7], [(255, b""), (255, b"a")]),
        (key(1, b"a"), key(2), [(1, b"a"), (2, b"")]),
        (key(1, b"b"), key(1, b"c"), []),
        (key(2), key(1), []),
        (b"", segment_prefix(-1), [*FIRST, (255, b""), (255, b"a"), (256, b"")]),
        (segment_prefix(-1), None, []),
    ],
)
def test_bounds_are_those_of_whole_keys(
    start: bytes | None, end: bytes | None, found: list[tuple[int, bytes]], reverse: bool, store: SegmentDirectories
) -> None:
    store.write([(key(*place), b"v") for place in (*FIRST, (255, b""), (255, b"a"), (256, b""))])
    wanted = [key(*place) for place in found]
    assert [known for known, _ in store.range(start, end, reverse=reverse)] == (wanted[::-1] if reverse else wanted)


@pytest.mark.parametrize("wrong", [b"", b"\0" * 7, key(-1), key(-(2**63), b"k")])
def test_a_key_without_a_segment_is_not_written_nor_what_comes_with_it(wrong: bytes, store: SegmentDirectories) -> None:
    with pytest.raises(ValueError, match="does not begin with a segment's id"):
        store.write([(key(1), b"v"), (wrong, b"v")])
    assert store.segment_ids == []


def test_expired_segments_go_with_their_directories(store: SegmentDirectories, tmp_path: Path) -> None:
    store.write([(key(number, b"k"), b"v") for number in (2, 3, 4, 9)])
    store.delete_below(segment_prefix(4))
    assert store.segment_ids == directories(tmp_path) == [4, 9]
    store.put(key(3, b"late"), b"v")
    assert [found for found, _ in store.range(None, None)] == [key(3, b"late"), key(4, b"k"), key(9, b"k")]
    store.delete_below(segment_prefix(-1))
    assert (store.segment_ids, directories(tmp_path)) == ([], [])


def test_within_a_segment_single_entries_go(store: SegmentDirectories, tmp_path: Path) -> None:
    store.write([(key(number, rest), b"v") for number in (1, 2) for rest in (b"a", b"b", b"c")])
    store.delete_below(key(2, b"b"))
    assert [found for found, _ in store.range(None, None)] == [key(2, b"b"), key(2, b"c")]
    assert directories(tmp_path) == [2]
    store.delete_below(segment_prefix(3)[:7])
    assert len(list(store.range(None, None))) == 2


def test_a_scan_goes_on_through_segments_that_are_removed(store: SegmentDirectories) -> None:
    pairs = [(key(number, rest), b"v") for number in (1, 2, 3) for rest in (b"a", b"b")]
    store.write(pairs)
    for reverse in (False, True):
        started, waiting = (store.range(None, None, reverse=reverse) for _ in range(2))
        first = next(started)
        store.delete_below(segment_prefix(4))
        store.put(key(1, b"again"), b"v")
        assert [first, *started] == list(waiting) == (pairs[::-1] if reverse else pairs)
        store.delete_below(segment_prefix(4))
        store.write(pairs)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_ends_with_its_store_though_it_was_read_ahead(reverse: bool, store: SegmentDirectories) -> None:
    store.write([(key(number, rest), b"v") for number in (1, 2) for rest in (b"a", b"b", b"c")])
    started, waiting = (store.range(None, None, reverse=reverse) for _ in range(2))
    next(started)
    store.delete_below(segment_prefix(4))
    next(started)
    store.close()
    assert (list(started), list(waiting)) == ([], [])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_may_delete_what_it_yields(reverse: bool, store: SegmentDirectories) -> None:
    store.write([(key(number, rest), b"v") for number in (1, 2) for rest in (b"a", b"b")])
    for found, _ in store.range(None, None, reverse=reverse):
        store.put(found, None)
    assert list(store.range(None, None)) == []


def test_what_can_not_be_read_to_its_end_is_not_written(store: SegmentDirectories) -> None:
    def failing() -> Iterator[Pair]:
        yield key(1), b"v"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.write(failing())
    assert store.segment_ids == []


def test_a_closed_store_refuses_everything(store: SegmentDirectories) -> None:
    store.write([(key(1), b"v"), (key(2), b"v")])
    assert store.approximate_num_entries() == 2
    scan = store.range(None, None)
    next(scan)
    store.close()
    store.close()
    assert not store.is_open
    for use in (
        lambda: store.get(key(7)),
        lambda: store.put(key(7), None),
        lambda: store.range(None, None),
        lambda: store.delete_below(b""),
        store.approximate_num_entries,
        store.approximate_size_bytes,
    ):
        with pytest.raises(StoreClosedError, match="'store'"):
            use()
    assert list(scan) == []


def test_a_removal_that_was_cut_short_leaves_an_empty_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        directory.open_store(SPEC).write([(key(1, b"k"), b"v"), (key(2, b"k"), b"v")])

    def fail(path: Path) -> None:
        raise OSError(f"not removed: {path}")

    with TaskDirectory(tmp_path, APPLICATION) as directory:
        store = directory.open_store(SPEC)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", fail)
            with pytest.raises(OSError, match=r"store\.60000"):
                store.delete_below(segment_prefix(2))
        assert [found for found, _ in store.range(None, None)] == [key(2, b"k")]
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        store = directory.open_store(SPEC)
        assert [found for found, _ in store.range(None, None)] == [key(2, b"k")]
        store.put(key(1, b"again"), b"v")
    assert directories(tmp_path) == [1, 2]


def test_a_segment_that_can_not_be_made_is_made_later(tmp_path: Path) -> None:
    blocking = tmp_path / "store" / "store.60000"
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        store = directory.open_store(SPEC)
        blocking.parent.mkdir()
        blocking.touch()
        with pytest.raises(StoreError):
            store.put(key(1), b"v")
        blocking.unlink()
        store.put(key(1), b"v")
    assert len(families(tmp_path)) == 1


RESTS = st.binary(max_size=2)  # short, so that they collide
KEYS = st.builds(key, st.sampled_from([0, 1, 2, 255, 256]), RESTS)
BOUNDS = KEYS | st.integers(0, 7).flatmap(lambda size: KEYS.map(lambda found: found[:size])) | st.just(key(-1))


class SegmentDirectoriesModel(RuleBasedStateMachine):
    """Segments against a dict, with scans left open, and reopening in between."""

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()
        self.path = Path(self.cleanup.enter_context(TemporaryDirectory()))
        self.model: dict[bytes, bytes] = {}
        self.scans: list[tuple[Iterator[Pair], list[Pair]]] = []
        self.open()

    def open(self) -> None:
        self.directory = TaskDirectory(self.path, APPLICATION)
        self.store = self.directory.open_store(SPEC)

    @rule(changes=st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2)), min_size=1, max_size=4))
    def write(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        self.store.write(changes)
        write_to(self.model, changes)

    @rule(wanted=KEYS)
    def get(self, wanted: bytes) -> None:
        assert self.store.get(wanted) == self.model.get(wanted)

    @rule(end=BOUNDS)
    def delete_below(self, end: bytes) -> None:
        self.store.delete_below(end)
        self.model = {known: value for known, value in self.model.items() if known >= end}

    @rule(start=st.none() | BOUNDS, end=st.none() | BOUNDS, reverse=st.booleans(), taken=st.integers(0, 3))
    def scan(self, start: bytes | None, end: bytes | None, reverse: bool, taken: int) -> None:
        found = [pair for pair in self.model.items() if (start or b"") <= pair[0] and (end is None or pair[0] <= end)]
        wanted = sorted(found, reverse=reverse)
        scan = self.store.range(start, end, reverse=reverse)
        assert [pair for _, pair in zip(range(taken), scan, strict=False)] == wanted[:taken]
        self.scans.append((scan, wanted[taken:]))

    @precondition(lambda self: self.scans)
    @rule()
    def finish_a_scan(self) -> None:
        scan, wanted = self.scans.pop()
        assert list(scan) == wanted

    @rule()
    def reopen(self) -> None:
        self.directory.close()
        for scan, _ in self.scans:
            assert list(scan) == []
        self.scans.clear()
        self.open()

    @invariant()
    def everything_is_there(self) -> None:
        assert dict(self.store.range(None, None)) == self.model

    def teardown(self) -> None:
        self.directory.close()
        self.cleanup.close()


TestSegmentDirectoriesModel = SegmentDirectoriesModel.TestCase
TestSegmentDirectoriesModel.settings = settings(max_examples=25, stateful_step_count=20)
