"""The durable location on real object stores, behind a proxy that fails."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_files import Content
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from tests.support.recovery import MAX_BYTES, content
from tests.support.recovery.object_store import Fault, Faults, ObjectStore, Request, at_rate, no_faults, times
from tests.support.recovery.shards import keeps_and_restores

LARGE = os.urandom(21 << 20)
"""Three parts of an upload, three chunks of a download."""
QUICK = Retrying(total_s=0.5)

UPLOAD = """
import sys
from statestore import DurableLocation
DurableLocation(sys.argv[1]).write_file("large", sys.argv[2])
"""


@pytest.fixture
def location(store: ObjectStore) -> DurableLocation:
    return DurableLocation(store.uri("a state/of mine"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "file"
    path.write_bytes(LARGE)
    return path


def from_part(store: ObjectStore, number: int, fault: Fault) -> Faults:
    """Return a fault that strikes the parts of objects from one on, which counts from 1."""
    parts = 0

    def faults(request: Request) -> Fault | None:
        nonlocal parts
        parts += store.is_part(request)
        return fault if store.is_part(request) and parts >= number else None

    return faults


def test_entries_have_names_sizes_and_times(store: ObjectStore, location: DurableLocation) -> None:
    location.write("b", b"22")
    location.write("a", b"1")
    location.write("deeper/c", b"333")
    found = location.entries("")
    assert [(entry.name, entry.size_bytes) for entry in found] == [("a", 1), ("b", 2)]
    assert all(entry.modified_ms is not None and entry.modified_ms > 1_500_000_000_000 for entry in found)
    location.delete_all(["a", "b", "deeper/c", "none"])
    assert not location.entries("")
    assert not location.entries("deeper")


def test_a_large_file_there_and_back(
    store: ObjectStore, location: DurableLocation, large: Path, tmp_path: Path
) -> None:
    location.write_file("large", large)
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE
    assert not location.fetch("none", tmp_path / "none", MAX_BYTES)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.CUT_BODY])
def test_what_gets_better_is_waited_out(
    store: ObjectStore, location: DurableLocation, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store.faults = times(3, fault)
    location.write("x", b"content")
    assert store.objects() == {"a state/of mine/x": 7}
    store.faults = times(3, fault)
    assert content(location, "x") == b"content"
    store.faults = times(3, fault)
    assert location.names("") == ["x"]
    store.faults = times(3, fault)
    location.delete("x")
    assert "a state/of mine/x" not in store.objects()
    assert store.struck[fault] >= 12
    assert "attempt 3; again in" in caplog.text


def test_a_server_that_does_not_answer_is_asked_again(store: ObjectStore, location: DurableLocation) -> None:
    location.write("x", b"content")
    store.faults = times(1, Fault.DELAY, method="HEAD")
    assert content(location, "x") == b"content"
    assert store.struck[Fault.DELAY] == 1


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.SLOW_DOWN, Fault.RESET])
def test_what_does_not_get_better_in_time_is_raised(store: ObjectStore, fault: Fault) -> None:
    location = DurableLocation(store.uri("state"), retrying=QUICK)
    store.faults = times(1000, fault)
    with pytest.raises(LocationNotWritableError, match=r"did not get better within 0\.5 s.*reached from this machine"):
        location.write("x", b"")
    with pytest.raises(LocationError, match=r"x can't be read .*did not get better"):
        location.read("x", MAX_BYTES)
    with pytest.raises(LocationError, match=r"shards can't be listed .*did not get better"):
        location.names("shards")
    assert store.struck[fault] < 100


def test_what_waiting_does_not_mend_fails_at_once(store: ObjectStore) -> None:
    location = DurableLocation(store.uri("state"))
    store.faults = times(1000, Fault.ACCESS_DENIED)
    with pytest.raises(LocationNotWritableError, match=r"(ACCESS_DENIED|Mismatch).*credentials in use are not allowed"):
        location.write("x", b"")
    with pytest.raises(LocationError, match=r"(ACCESS_DENIED|Mismatch).*credentials in use are not allowed"):
        location.read("x", MAX_BYTES)
    elsewhere = DurableLocation(store.uri("state", bucket="no-such-bucket"))
    store.faults = no_faults
    with pytest.raises(LocationNotWritableError, match=r"container, does not exist: create it"):
        elsewhere.check_writable()
    assert store.methods() == ["PUT", "HEAD", "PUT"]


def test_a_body_cut_short_is_never_taken_for_the_whole(
    store: ObjectStore, location: DurableLocation, large: Path, tmp_path: Path
) -> None:
    location.write_file("large", large)
    store.faults = times(2, Fault.CUT_BODY, method="GET")
    assert content(location, "large") == LARGE
    store.faults = times(2, Fault.CUT_BODY, method="GET")
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE
    hopeless = DurableLocation(store.uri("a state/of mine"), retrying=QUICK)
    store.faults = times(1000, Fault.CUT_BODY, method="GET")
    with pytest.raises(LocationError, match="did not get better"):
        hopeless.read("large", MAX_BYTES)
    with pytest.raises(LocationError, match=r"large can't be copied to .*did not get better"):
        hopeless.fetch("large", tmp_path / "other", MAX_BYTES)
    assert not (tmp_path / "other").exists()


def test_part_uploads_are_tried_again_and_the_file_is_whole(
    store: ObjectStore, location: DurableLocation, large: Path, tmp_path: Path
) -> None:
    store.faults = at_rate(0.3, seed=5, kinds=[Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER])
    location.write_file("large", large)
    store.faults = no_faults
    assert store.objects() == {"a state/of mine/large": len(LARGE)}
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE


def test_an_upload_of_which_a_part_is_refused_shows_nothing(store: ObjectStore, large: Path) -> None:
    location = DurableLocation(store.uri("state"), retrying=QUICK)
    store.faults = from_part(store, 2, Fault.ACCESS_DENIED)
    with pytest.raises(LocationNotWritableError, match="credentials in use are not allowed"):
        location.write_file("large", large)
    store.faults = no_faults
    assert store.objects() == {}


class CutShort(DurableLocation):
    """A location whose writer fails with half of the content handed out, after the upload has begun."""

    def _write(self, name: str, content: Content) -> None:
        def chunks() -> Iterator[bytes]:
            yield LARGE[: len(LARGE) // 2]
            raise OSError("the local disk can't be read")

        super()._write(name, Content(content.size_bytes, chunks))


def test_an_upload_of_which_the_writer_fails_leaves_nothing(store: ObjectStore, large: Path) -> None:
    with pytest.raises(LocationNotWritableError, match="the local disk can't be read"):
        CutShort(store.uri("state")).write_file("large", large)
    assert [name for name, size in store.objects().items() if size] == []


def test_a_writer_killed_in_the_middle_of_an_upload_leaves_nothing_visible(store: ObjectStore, large: Path) -> None:
    store.faults = from_part(store, 3, Fault.DELAY)
    with subprocess.Popen([sys.executable, "-c", UPLOAD, store.uri("state"), str(large)]) as writer:
        store.wait_for_parts(3)
        writer.send_signal(signal.SIGKILL)
    assert store.unfinished_uploads() == 1
    assert store.objects() == {}
    assert DurableLocation(store.uri("state")).read("large", MAX_BYTES) is None


def test_snapshots_garbage_and_restores_work(store: ObjectStore, tmp_path: Path) -> None:
    keeps_and_restores(DurableLocation(store.uri("snapshots")), tmp_path)
