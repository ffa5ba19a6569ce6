"""S3 as moto serves it, behind the proxy of object_store.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar
from urllib.parse import quote
from xml.etree import ElementTree

from tests.support.recovery.object_store import Fault, ObjectStore, Request, forward, running

ACCESS_KEY = "test-key"
SECRET_KEY = "test/secret"
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
        self._ask("PUT", f"/{self.bucket}")

    def is_part(self, request: Request) -> bool:
        return "partNumber=" in request.target

    def uri(self, path: str, *, bucket: str | None = None) -> str:
        key = f"{ACCESS_KEY}:{quote(SECRET_KEY, safe='')}"
        options = f"region=us-east-1&scheme=http&endpoint_override={self.endpoint}"
        return f"s3://{key}@{bucket or self.bucket}/{quote(path)}?{options}"

    def environment(self) -> dict[str, str]:
        """Return what a process is told by its environment to reach the server, by way of the proxy."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": f"http://{self.endpoint}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def objects(self) -> dict[str, int]:
        listed = ElementTree.fromstring(self._ask("GET", f"/{self.bucket}?list-type=2"))
        space = listed.tag.removesuffix("ListBucketResult")
        return {
            str(found.findtext(f"{space}Key")): int(str(found.findtext(f"{space}Size")))
            for found in listed.iter(f"{space}Contents")
        }

    def unfinished_uploads(self) -> int:
        listed = ElementTree.fromstring(self._ask("GET", f"/{self.bucket}?uploads"))
        return sum(element.tag.endswith("}Upload") or element.tag == "Upload" for element in listed)

    def _ask(self, method: str, target: str) -> bytes:
        status, _, body = forward(self._server_port, method, target, {}, b"")
        assert status == 200, f"{method} {target}: {status} {body!r}"
        return body


@contextmanager
def running_s3() -> Iterator[S3]:
    """Start the server and the proxy, and stop both at the end."""
    with running(S3, [sys.executable, "-c", _SERVE]) as store:
        yield store
