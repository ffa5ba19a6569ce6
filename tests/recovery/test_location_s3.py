"""What only S3 has: options of its URIs, directories of objects, and the requests that pyarrow's client sends."""

import os
import traceback
from pathlib import Path

import pytest

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head, write_head
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from statestore.recovery.shard_batch import ShardedState
from tests.support.recovery import MAX_BYTES, on_record
from tests.support.recovery.object_store import Fault, times
from tests.support.recovery.s3_server import S3
from tests.support.recovery.shards import TOTALS
from upgrade_tools.cli.app import main
from upgrade_tools.cli.exit_codes import ExitCode


@pytest.fixture(params=["s3", "gateway"])
def server(request: pytest.FixtureRequest) -> S3:
    """Each server, as the fixture of its name gives it."""
    found: S3 = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def location(server: S3) -> DurableLocation:
    return DurableLocation(server.uri("a state/of mine"))


def test_each_operation_costs_as_few_requests_as_pyarrow_can_do(
    server: S3, location: DurableLocation, tmp_path: Path
) -> None:
    location.write("shards/0001/x", b"content")
    assert server.methods() == ["PUT"], "no directory is made, and no multipart upload"
    assert location.read("shards/0001/x", MAX_BYTES) == b"content"
    assert server.methods() == ["HEAD", "GET"]
    assert location.read("shards/0001/y", MAX_BYTES) is None
    assert server.methods() == ["HEAD"]
    assert location.names("shards/0001") == ["shards/0001/x"]
    assert location.directories("shards") == ["shards/0001"]
    assert location.names("nowhere") == []
    assert server.methods() == ["GET"] * 3
    location.delete("shards/0001/x")
    assert server.methods() == ["HEAD", "DELETE", "PUT"], "the last is the marker with which Arrow keeps the directory"
    location.delete("shards/0001/x")
    assert server.methods() == ["HEAD"]
    large = tmp_path / "large"
    large.write_bytes(os.urandom(21 << 20))
    location.write_file("large", large)
    assert server.methods() == ["POST", "PUT", "PUT", "PUT", "POST"]
    assert location.fetch("large", tmp_path / "copy", MAX_BYTES)
    assert server.methods() == ["HEAD", "GET", "GET", "GET"]


def test_options_that_only_a_uri_can_give_are_kept(server: S3) -> None:
    location = DurableLocation(server.uri("state") + "&tls_verify_certificates=false&allow_delayed_open=true")
    location.write("x", b"content")
    assert location.read("x", MAX_BYTES) == b"content"
    assert server.methods() == ["PUT", "HEAD", "GET"]
    # pyarrow's own client, which retries by itself, is one that was left as the URI made it.
    alone = DurableLocation(location.uri, retrying=Retrying(total_s=0))
    server.faults = times(1, Fault.SERVER_ERROR)
    assert alone.read("x", MAX_BYTES) == b"content"
    server.faults = times(1, Fault.SERVER_ERROR)
    with pytest.raises(LocationError, match="HTTP status 500"):
        DurableLocation(server.uri("state"), retrying=Retrying(total_s=0)).read("x", MAX_BYTES)
    unknown = DurableLocation(server.uri("state") + "&no_such_option=1")
    with pytest.raises(LocationError, match="no_such_option"):
        unknown.write("x", b"content")


def test_no_error_tells_the_secret(server: S3) -> None:
    location = DurableLocation(server.uri("state", bucket="no-such-bucket"))
    with pytest.raises(LocationNotWritableError) as refused:
        location.write("x", b"")
    assert server.secret_key not in f"{refused.value} {location.path('x')}"
    assert location.path("x") == "s3://no-such-bucket/state/x"
    illegal = DurableLocation(server.uri("state").replace("/state", "/a state"))
    with pytest.raises(LocationError, match="is not a location that can be opened") as refused_uri:
        illegal.read("x", MAX_BYTES)
    shown = "".join(traceback.format_exception(refused_uri.value))
    assert "test%2Fsecret" not in shown
    assert server.secret_key not in shown


def test_no_tool_tells_the_secret(s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, pointers, page = s3.uri("state"), tmp_path / "pointers", tmp_path / "page.html"
    pointer = CommitPointer("state-1", 0)
    state = ShardedState("state-1", DurableLocation(place), (TOTALS,), LocalDirectory(tmp_path / "local"))
    write_head(on_record(state).location, 1, Head("state-1", "query", "run", 0, 0, (pointer,)))
    pointers.write_text(pointer.to_json())
    given = ["--pointers", str(pointers), "--json"]
    for command in (
        ["top", place],
        ["report", place, "--output", str(page)],
        ["gc", place, *given],
        ["rescale", place, s3.uri("target"), "--shards", "2", "--trust-keys", "--dry-run", *given],
    ):
        assert main(command) == ExitCode.OK
    for command in (["inspect", s3.uri("nothing")], ["top", s3.uri("nothing")], ["get", place, "--store", "none", "k"]):
        assert main(command) != ExitCode.OK
    shown = [*capsys.readouterr(), page.read_text()]
    assert all(s3.bucket in text for text in shown), "all of them name the place"
    assert not [text for text in shown if "test%2Fsecret" in text or s3.secret_key in text]


def test_a_directory_whose_files_are_gone_can_be_removed(location: DurableLocation) -> None:
    location.write("snapshots/1/table", b"x")
    location.remove_directory("snapshots/1")
    assert location.directories("snapshots") == ["snapshots/1"], "it is not empty"
    location.delete("snapshots/1/table")
    assert location.directories("snapshots") == ["snapshots/1"], "pyarrow leaves a marker"
    location.remove_directory("snapshots/1")
    location.remove_directory("snapshots/1")
    assert location.directories("snapshots") == []


@pytest.mark.parametrize(
    ("given", "wrong", "said"),
    [
        ("test%2Fsecret", "another", "SIGNATURE_DOES_NOT_MATCH.*credentials are wrong, missing or expired"),
        ("region=us-east-1", "region=eu-west-1", 'expecting "us-east-1".*in another region: name that in the URI'),
    ],
)
def test_what_is_signed_wrongly_is_refused_in_words(gateway: S3, given: str, wrong: str, said: str) -> None:
    """By the server that looks at signatures: moto does not."""
    location = DurableLocation(gateway.uri("state").replace(given, wrong))
    with pytest.raises(LocationNotWritableError, match=said):
        location.write("x", b"")
    with pytest.raises(LocationError, match=said):
        location.names("")
