"""The durable location on a real S3 protocol server, behind a proxy that fails."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_files import Content
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.s3_server import S3, Fault, at_rate, no_faults, times
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

LARGE = os.urandom(21 << 20)
"""Three parts of an upload, three chunks of a download."""
QUICK = Retrying(total_s=0.5)

UPLOAD = """
import sys
from statestore import DurableLocation
DurableLocation(sys.argv[1]).write_file("large", sys.argv[2])
"""


@pytest.fixture
def location(s3: S3) -> DurableLocation:
    return DurableLocation(s3.uri("a state/of mine"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "file"
    path.write_bytes(LARGE)
    return path


def content(location: DurableLocation, name: str) -> bytes | None:
    data = location.read(name, MAX_BYTES)
    return None if data is None else data.to_pybytes()


def test_each_operation_costs_as_few_requests_as_pyarrow_can_do(
    s3: S3, location: DurableLocation, large: Path, tmp_path: Path
) -> None:
    location.write("shards/0001/x", b"content")
    assert s3.methods() == ["PUT"], "no directory is made, and no multipart upload"
    assert content(location, "shards/0001/x") == b"content"
    assert s3.methods() == ["HEAD", "GET"]
    assert location.read("shards/0001/y", MAX_BYTES) is None
    assert s3.methods() == ["HEAD"]
    assert location.names("shards/0001") == ["shards/0001/x"]
    assert location.directories("shards") == ["shards/0001"]
    assert location.names("nowhere") == []
    assert s3.methods() == ["GET"] * 3
    location.delete("shards/0001/x")
    assert s3.methods() == ["HEAD", "DELETE", "PUT"], "the last is the marker with which Arrow keeps the directory"
    location.delete("shards/0001/x")
    assert s3.methods() == ["HEAD"]
    location.write_file("large", large)
    assert s3.methods() == ["POST", "PUT", "PUT", "PUT", "POST"]
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert s3.methods() == ["HEAD", "GET", "GET", "GET"]


def test_options_that_only_a_uri_can_give_are_kept(s3: S3) -> None:
    location = DurableLocation(s3.uri("state") + "&tls_verify_certificates=false&allow_delayed_open=true")
    location.write("x", b"content")
    assert content(location, "x") == b"content"
    assert s3.methods() == ["PUT", "HEAD", "GET"]
    # pyarrow's own client, which retries by itself, is one that was left as the URI made it.
    alone = DurableLocation(location.uri, retrying=Retrying(total_s=0))
    s3.faults = times(1, Fault.SERVER_ERROR)
    assert content(alone, "x") == b"content"
    s3.faults = times(1, Fault.SERVER_ERROR)
    with pytest.raises(LocationError, match="HTTP status 500"):
        DurableLocation(s3.uri("state"), retrying=Retrying(total_s=0)).read("x", MAX_BYTES)
    unknown = DurableLocation(s3.uri("state") + "&no_such_option=1")
    with pytest.raises(LocationError, match="no_such_option"):
        unknown.write("x", b"content")


def test_entries_have_names_sizes_and_times(s3: S3, location: DurableLocation) -> None:
    location.write("b", b"22")
    location.write("a", b"1")
    location.write("deeper/c", b"333")
    found = location.entries("")
    assert [(entry.name, entry.size_bytes) for entry in found] == [("a", 1), ("b", 2)]
    assert all(entry.modified_ms is not None and entry.modified_ms > 1_500_000_000_000 for entry in found)
    location.delete_all(["a", "b", "deeper/c", "none"])
    assert not location.entries("")
    assert not location.entries("deeper")


def test_a_large_file_there_and_back(s3: S3, location: DurableLocation, large: Path, tmp_path: Path) -> None:
    location.write_file("large", large)
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE
    assert not location.fetch("none", tmp_path / "none", MAX_BYTES)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.CUT_BODY])
def test_what_gets_better_is_waited_out(
    s3: S3, location: DurableLocation, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    s3.faults = times(3, fault)
    location.write("x", b"content")
    assert s3.objects() == {"a state/of mine/x": 7}
    s3.faults = times(3, fault)
    assert content(location, "x") == b"content"
    s3.faults = times(3, fault)
    assert location.names("") == ["x"]
    s3.faults = times(3, fault)
    location.delete("x")
    assert "a state/of mine/x" not in s3.objects()
    assert s3.struck[fault] >= 12
    assert "attempt 3; again in" in caplog.text


def test_a_server_that_does_not_answer_is_asked_again(s3: S3, location: DurableLocation) -> None:
    location.write("x", b"content")
    s3.faults = times(1, Fault.DELAY, method="HEAD")
    assert content(location, "x") == b"content"
    assert s3.struck[Fault.DELAY] == 1


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.SLOW_DOWN, Fault.RESET])
def test_what_does_not_get_better_in_time_is_raised(s3: S3, fault: Fault) -> None:
    location = DurableLocation(s3.uri("state"), retrying=QUICK)
    s3.faults = times(1000, fault)
    with pytest.raises(LocationNotWritableError, match=r"did not get better within 0\.5 s.*reached from this machine"):
        location.write("x", b"")
    with pytest.raises(LocationError, match=r"x can't be read .*did not get better"):
        location.read("x", MAX_BYTES)
    with pytest.raises(LocationError, match=r"shards can't be listed .*did not get better"):
        location.names("shards")
    assert s3.struck[fault] < 100


def test_what_waiting_does_not_mend_fails_at_once(s3: S3) -> None:
    location = DurableLocation(s3.uri("state"))
    s3.faults = times(1000, Fault.ACCESS_DENIED)
    with pytest.raises(LocationNotWritableError, match=r"ACCESS_DENIED.*credentials in use are not allowed"):
        location.write("x", b"")
    with pytest.raises(LocationError, match=r"ACCESS_DENIED.*credentials in use are not allowed"):
        location.read("x", MAX_BYTES)
    elsewhere = DurableLocation(s3.uri("state", bucket="no-such-bucket"))
    s3.faults = no_faults
    with pytest.raises(LocationNotWritableError, match=r"NO_SUCH_BUCKET.*create it"):
        elsewhere.check_writable()
    assert s3.methods() == ["PUT", "HEAD", "PUT"]


def test_no_error_tells_the_secret(s3: S3) -> None:
    location = DurableLocation(s3.uri("state", bucket="no-such-bucket"))
    with pytest.raises(LocationNotWritableError) as refused:
        location.write("x", b"")
    assert s3.secret_key not in f"{refused.value} {location.path('x')}"
    assert location.path("x") == "s3://no-such-bucket/state/x"
    illegal = DurableLocation(s3.uri("state").replace("/state", "/a state"))
    with pytest.raises(LocationError, match="is not a location that pyarrow can open") as refused_uri:
        illegal.read("x", MAX_BYTES)
    shown = "".join(traceback.format_exception(refused_uri.value))
    assert "test%2Fsecret" not in shown
    assert s3.secret_key not in shown


def test_a_body_cut_short_is_never_taken_for_the_whole(
    s3: S3, location: DurableLocation, large: Path, tmp_path: Path
) -> None:
    location.write_file("large", large)
    s3.faults = times(2, Fault.CUT_BODY, method="GET")
    assert content(location, "large") == LARGE
    s3.faults = times(2, Fault.CUT_BODY, method="GET")
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE
    hopeless = DurableLocation(s3.uri("a state/of mine"), retrying=QUICK)
    s3.faults = times(1000, Fault.CUT_BODY, method="GET")
    with pytest.raises(LocationError, match="did not get better"):
        hopeless.read("large", MAX_BYTES)
    with pytest.raises(LocationError, match=r"large can't be copied to .*did not get better"):
        hopeless.fetch("large", tmp_path / "other", MAX_BYTES)
    assert not (tmp_path / "other").exists()


def test_part_uploads_are_tried_again_and_the_file_is_whole(
    s3: S3, location: DurableLocation, large: Path, tmp_path: Path
) -> None:
    s3.faults = at_rate(0.3, seed=5, kinds=[Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER])
    location.write_file("large", large)
    s3.faults = no_faults
    assert s3.objects() == {"a state/of mine/large": len(LARGE)}
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == LARGE


def test_an_upload_of_which_a_part_is_refused_shows_nothing(s3: S3, large: Path) -> None:
    location = DurableLocation(s3.uri("state"), retrying=QUICK)
    s3.faults = times(1000, Fault.ACCESS_DENIED, method="PUT", containing="partNumber=2")
    with pytest.raises(LocationNotWritableError, match="ACCESS_DENIED"):
        location.write_file("large", large)
    s3.faults = no_faults
    assert s3.objects() == {}


class CutShort(DurableLocation):
    """A location whose writer fails with half of the content handed out, after the upload has begun."""

    def _write(self, name: str, content: Content) -> None:
        def chunks() -> Iterator[bytes]:
            yield LARGE[: len(LARGE) // 2]
            raise OSError("the local disk can't be read")

        super()._write(name, Content(content.size_bytes, chunks))


def test_an_upload_of_which_the_writer_fails_leaves_nothing(s3: S3, large: Path) -> None:
    with pytest.raises(LocationNotWritableError, match="the local disk can't be read"):
        CutShort(s3.uri("state")).write_file("large", large)
    assert [name for name, size in s3.objects().items() if size] == []


def test_a_writer_killed_in_the_middle_of_an_upload_leaves_nothing_visible(s3: S3, large: Path) -> None:
    s3.faults = times(1000, Fault.DELAY, method="PUT", containing="partNumber=3")
    with subprocess.Popen([sys.executable, "-c", UPLOAD, s3.uri("state"), str(large)]) as writer:
        s3.wait_for("PUT", "partNumber=3")
        writer.send_signal(signal.SIGKILL)
    assert s3.unfinished_uploads() == 1
    assert s3.objects() == {}
    assert DurableLocation(s3.uri("state")).read("large", MAX_BYTES) is None


def test_a_directory_whose_files_are_gone_can_be_removed(location: DurableLocation) -> None:
    location.write("snapshots/1/table", b"x")
    location.remove_directory("snapshots/1")
    assert location.directories("snapshots") == ["snapshots/1"], "it is not empty"
    location.delete("snapshots/1/table")
    assert location.directories("snapshots") == ["snapshots/1"], "pyarrow leaves a marker"
    location.remove_directory("snapshots/1")
    location.remove_directory("snapshots/1")
    assert location.directories("snapshots") == []


def test_snapshots_garbage_and_restores_work_on_s3(s3: S3, tmp_path: Path) -> None:
    shard = Shard(
        tmp_path, recovery=RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000, retained_versions=3)
    )
    location = DurableLocation(s3.uri("snapshots"))
    shard.state = replace(shard.state, location=location)
    pointer = shard.start()
    for number in range(1, 16):
        pointer = shard.batch(pointer, {b"k": stored(b"%d" % number), b"%d" % number: stored(b"v")})
    wait_for_uploads()
    assert len(pointer.snapshots) >= 2
    assert len(location.directories("shards/0000/snapshots")) <= len(pointer.snapshots) + 1
    assert len(location.names("shards/0000/deltas")) < 15
    shutil.rmtree(tmp_path / "local")
    assert shard.content(pointer) == {b"k": stored(b"15"), **{b"%d" % number: stored(b"v") for number in range(1, 16)}}
