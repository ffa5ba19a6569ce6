"""S3 as moto serves it, or versitygw from a directory, behind the proxy of object_store.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import boto3

from tests.support.recovery.object_store import HOST, Fault, ObjectStore, Request, on_free_port, running

ACCESS_KEY = "test-key"
SECRET_KEY = "test/secret"
REGION = "us-east-1"
VERSITYGW = Path.home() / ".cache/statestore/versitygw/versitygw"
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the process that started this one is gone, however it went
"""


class S3(ObjectStore):
    """The server as its clients see it, with one bucket."""

    answers: ClassVar = {
        Fault.SERVER_ERROR: (500, "InternalError"),
        Fault.SLOW_DOWN: (503, "SlowDown"),
        Fault.ACCESS_DENIED: (403, "AccessDenied"),
    }
    secret_key = SECRET_KEY

    def make_bucket(self) -> None:
        self._client().create_bucket(Bucket=self.bucket)

    def is_part(self, request: Request) -> bool:
        return "partNumber=" in request.target

    def uri(self, path: str, *, bucket: str | None = None) -> str:
        key = f"{ACCESS_KEY}:{quote(SECRET_KEY, safe='')}"
        options = f"region={REGION}&scheme=http&endpoint_override={self.endpoint}"
        return f"s3://{key}@{bucket or self.bucket}/{quote(path)}?{options}"

    def environment(self) -> dict[str, str]:
        """Return what a process is told by its environment to reach the server, by way of the proxy."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": f"http://{self.endpoint}",
            "AWS_DEFAULT_REGION": REGION,
        }

    def objects(self) -> dict[str, int]:
        listed = self._client().list_objects_v2(Bucket=self.bucket)
        return {found["Key"]: found["Size"] for found in listed.get("Contents", ())}

    def unfinished_uploads(self) -> int:
        return len(self._client().list_multipart_uploads(Bucket=self.bucket).get("Uploads", ()))

    def _client(self) -> Any:
        server = f"http://{HOST}:{self._server_port}"
        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        return boto3.client("s3", endpoint_url=server, region_name=REGION, **keys)


@contextmanager
def running_s3() -> Iterator[S3]:
    """Start moto and the proxy, and stop both at the end."""
    with running(S3, [sys.executable, "-c", _SERVE]) as store:
        yield store


@contextmanager
def running_gateway(home: Path) -> Iterator[S3]:
    """Start versitygw on the directory `home`, and the proxy; a test is skipped where it is not installed."""
    keys = ("--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION)
    with running(S3, on_free_port(VERSITYGW, "--port", f"{HOST}:{{}}", *keys, "--quiet", "posix", str(home))) as store:
        yield store
