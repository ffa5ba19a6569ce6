"""A real S3 protocol server on loopback, behind a proxy of our own that loses, refuses, delays and cuts what passes.

    with running_s3() as s3:
        location = DurableLocation(s3.uri("state"))
        s3.faults = times(2, Fault.SLOW_DOWN, method="PUT")

The server is moto's, in a process of its own. The proxy is in this process; it sees every request, and counts it.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

ACCESS_KEY = "test-key"
SECRET_KEY = "test/secret"
_HOST = "127.0.0.1"
_DELAY_S = 20.0
"""Longer than what S3 clients wait for an answer: 3 s, and 10 s after an upload."""
_NOT_FORWARDED = frozenset({"connection", "expect", "transfer-encoding", "content-length"})
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()  # until the process that started this one is gone, however it went
"""


class Fault(Enum):
    """What can become of a request."""

    SERVER_ERROR = "answered with 500, not passed on"
    SLOW_DOWN = "answered with 503 SlowDown, not passed on"
    ACCESS_DENIED = "answered with 403 AccessDenied, not passed on"
    RESET = "connection reset, not passed on"
    LOST_ANSWER = "passed on, connection reset instead of the answer"
    CUT_BODY = "passed on, connection reset in the middle of the answer's body"
    DELAY = "passed on, the answer comes late"


TRANSIENT = (Fault.SERVER_ERROR, Fault.SLOW_DOWN, Fault.RESET, Fault.LOST_ANSWER, Fault.CUT_BODY)


@dataclass(frozen=True)
class Request:
    """A request as it came: `target` is path and query."""

    method: str
    target: str


Faults = Callable[[Request], "Fault | None"]
"""Says what becomes of a request; None is nothing unusual. One request at a time is asked about."""


def no_faults(_: Request) -> Fault | None:
    """Let everything pass."""
    return None


def times(number: int, fault: Fault, *, method: str | None = None, containing: str = "") -> Faults:
    """Return faults that strike the next `number` requests that have the method, if one is given, and the text."""
    left = number

    def faults(request: Request) -> Fault | None:
        nonlocal left
        if left == 0 or method not in (None, request.method) or containing not in request.target:
            return None
        left -= 1
        return fault

    return faults


def at_rate(rate: float, seed: int, kinds: Sequence[Fault] = TRANSIENT) -> Faults:
    """Return faults that strike each request with that probability."""
    drawn = random.Random(seed)
    return lambda _: drawn.choice(kinds) if drawn.random() < rate else None


class S3:
    """The server as its clients see it, with one bucket."""

    def __init__(self, server_port: int, proxy: _Proxy) -> None:
        self.bucket = ""
        self.secret_key = SECRET_KEY
        self._server_port = server_port
        self._proxy = proxy
        self.new_bucket()

    def new_bucket(self) -> None:
        """Go on with an empty bucket, without faults, and forget what was counted."""
        self.faults = no_faults
        self.requests.clear()
        self.struck.clear()
        self.bucket = f"bucket-{uuid.uuid4().hex}"
        self._ask("PUT", f"/{self.bucket}")

    @property
    def faults(self) -> Faults:
        """What becomes of the requests to come."""
        return self._proxy.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._proxy.faults = faults

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order in which they came."""
        return self._proxy.requests

    @property
    def struck(self) -> Counter[Fault]:
        """How often which fault struck."""
        return self._proxy.struck

    def wait_for(self, method: str, containing: str, timeout_s: float = 60.0) -> None:
        """Wait until a request with that method, and that text in its target, has come. Raises TimeoutError."""

        def has_come() -> bool:
            return any(request.method == method and containing in request.target for request in self.requests)

        with self._proxy.came:
            if not self._proxy.came.wait_for(has_come, timeout_s):
                raise TimeoutError(f"no {method} with {containing!r} came within {timeout_s} s")

    def methods(self) -> list[str]:
        """Return the methods of all requests since the last call, in the order in which they came."""
        methods = [request.method for request in self.requests]
        self.requests.clear()
        return methods

    def uri(self, path: str, *, bucket: str | None = None) -> str:
        """Return the URI of a path in the bucket, by way of the proxy."""
        endpoint = f"{_HOST}:{self._proxy.server_port}"
        key = f"{ACCESS_KEY}:{quote(SECRET_KEY, safe='')}"
        options = f"region=us-east-1&scheme=http&endpoint_override={endpoint}"
        return f"s3://{key}@{bucket or self.bucket}/{quote(path)}?{options}"

    def environment(self) -> dict[str, str]:
        """Return what a process is told by its environment to reach the server, by way of the proxy."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{self._proxy.server_port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def objects(self) -> dict[str, int]:
        """Return the size in bytes of every object in the bucket, asking the server itself."""
        listed = ElementTree.fromstring(self._ask("GET", f"/{self.bucket}?list-type=2"))
        space = listed.tag.removesuffix("ListBucketResult")
        return {
            str(found.findtext(f"{space}Key")): int(str(found.findtext(f"{space}Size")))
            for found in listed.iter(f"{space}Contents")
        }

    def unfinished_uploads(self) -> int:
        """Return how many multipart uploads were begun, and neither completed nor aborted."""
        listed = ElementTree.fromstring(self._ask("GET", f"/{self.bucket}?uploads"))
        return sum(element.tag.endswith("}Upload") or element.tag == "Upload" for element in listed)

    def _ask(self, method: str, target: str) -> bytes:
        status, _, body = _forward(self._server_port, method, target, {}, b"")
        assert status == 200, f"{method} {target}: {status} {body!r}"
        return body


@contextmanager
def running_s3() -> Iterator[S3]:
    """Start the server and the proxy, and stop both at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        try:
            assert server.stdout is not None
            printed = iter(server.stdout)
            port = int(next(line for line in printed if line.strip().isdigit()))
            proxy = _Proxy(port)
            thread = threading.Thread(target=proxy.serve_forever, daemon=True)
            thread.start()
            try:
                yield S3(port, proxy)
            finally:
                proxy.stopping.set()
                proxy.shutdown()
                proxy.server_close()
                thread.join()
        finally:
            server.kill()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, server_port: int) -> None:
        super().__init__((_HOST, 0), _Handler)
        self.upstream_port = server_port
        self.faults: Faults = no_faults
        self.requests: list[Request] = []
        self.struck: Counter[Fault] = Counter()
        self.stopping = threading.Event()
        self.came = threading.Condition()

    def decide(self, request: Request) -> Fault | None:
        with self.came:
            self.requests.append(request)
            self.came.notify_all()
            fault = self.faults(request)
            if fault is not None:
                self.struck[fault] += 1
            return fault

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that went away, which is what many tests are about.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _pass(self) -> None:
        # The whole body is read first: of a client that dies while it sends, nothing reaches the server.
        body = self._body()
        fault = self.server.decide(Request(self.command, self.path))
        if fault is Fault.RESET:
            self._reset()
        elif fault in _ANSWERS:
            self._answer(*_ANSWERS[fault])
        else:
            status, headers, answer = _forward(
                self.server.upstream_port, self.command, self.path, dict(self.headers.items()), body
            )
            self._hand_back(fault, status, headers, answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

    def _hand_back(self, fault: Fault | None, status: int, headers: list[tuple[str, str]], answer: bytes) -> None:
        if fault is Fault.DELAY:
            self.server.stopping.wait(_DELAY_S)
        if fault is Fault.LOST_ANSWER or (fault is Fault.CUT_BODY and not answer):
            self._reset()
            return
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer[: len(answer) // 2] if fault is Fault.CUT_BODY else answer)
        if fault is Fault.CUT_BODY:
            self.wfile.flush()
            self._reset()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._exactly(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self._exactly(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return b"".join(chunks)

    def _exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) != size:
            raise ConnectionError(f"the client sent {len(data)} of {size} bytes")
        return data

    def _answer(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _reset(self) -> None:
        # With nothing to linger for, closing sends RST in place of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())


_ANSWERS = {
    Fault.SERVER_ERROR: (500, "InternalError"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.ACCESS_DENIED: (403, "AccessDenied"),
}


def _forward(
    port: int, method: str, target: str, headers: dict[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = HTTPConnection(_HOST, port, timeout=60)
    try:
        kept = {name: value for name, value in headers.items() if name.lower() not in _NOT_FORWARDED}
        connection.request(method, urlsplit(target)._replace(scheme="", netloc="").geturl(), body, kept)
        answer = connection.getresponse()
        content = answer.read()
        found = [(name, value) for name, value in answer.getheaders() if name.lower() not in _NOT_FORWARDED]
        # The answer to HEAD has the length of a body that does not come.
        length = answer.getheader("Content-Length", "0") if method == "HEAD" else str(len(content))
        return answer.status, [*found, ("Content-Length", length)], content
    finally:
        connection.close()
