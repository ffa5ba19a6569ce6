"""The durable location on an emulator of GCS. It answers no ranges, so files larger than a chunk are only written."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.errors import LocationError
from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from tests.support.recovery import MAX_BYTES

SERVE = """
import sys
from gcp_storage_emulator.server import create_server
from tests.support.recovery import MAX_BYTES
emulator = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
emulator.start()
print(emulator._api._httpd.server_address[1], flush=True)
sys.stdin.read()  # until the process that started this one is gone, however it went
emulator.stop()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as emulator:
        assert emulator.stdout is not None
        try:
            yield f"127.0.0.1:{int(emulator.stdout.readline())}"
        finally:
            emulator.kill()


def uri(endpoint: str, bucket: str = "bucket") -> str:
    return f"gs://anonymous@{bucket}/state?scheme=http&endpoint_override={endpoint}"


def test_files_are_written_read_listed_and_deleted(endpoint: str, tmp_path: Path) -> None:
    location = DurableLocation(uri(endpoint))
    location.check_writable()
    assert location.entries("") == []
    location.write("shards/0001/x", b"content")
    location.write("shards/0001/x", b"other content")
    data = location.read("shards/0001/x", MAX_BYTES)
    assert data is not None
    assert data.to_pybytes() == b"other content"
    assert location.read("shards/0001/none", MAX_BYTES) is None
    assert [(entry.name, entry.size_bytes) for entry in location.entries("shards/0001")] == [("shards/0001/x", 13)]
    assert location.directories("") == ["shards"]
    assert location.directories("shards") == ["shards/0001"]
    assert location.fetch("shards/0001/x", tmp_path / "copy", MAX_BYTES)
    assert (tmp_path / "copy").read_bytes() == b"other content"
    (tmp_path / "large").write_bytes(bytes(9 << 20))
    location.write_file("large", tmp_path / "large")
    assert [entry.size_bytes for entry in location.entries("")] == [9 << 20]
    location = DurableLocation(location.uri, retrying=Retrying(total_s=math.inf))
    location.delete_all(["large", "shards/0001/x", "none"])
    assert location.directories("") == location.entries("") == []


def test_what_fails_says_what_to_do(endpoint: str) -> None:
    with pytest.raises(LocationNotWritableError, match=r"NOT_FOUND.*The bucket, or container, does not exist"):
        DurableLocation(uri(endpoint, "no-such-bucket")).write("x", b"")
    # A port on which nothing listens. Google's client retries by itself, for as long as we say.
    with pytest.raises(LocationError, match=r"UNAVAILABLE.*did not get better within 1 s"):
        DurableLocation(uri("127.0.0.1:1"), retrying=Retrying(total_s=1)).read("x", MAX_BYTES)
