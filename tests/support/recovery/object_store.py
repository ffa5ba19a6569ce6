"""A real object store on loopback, behind a proxy of our own that loses, refuses, delays and cuts what passes.

    with running_s3() as store:
        location = DurableLocation(store.uri("state"))
        store.faults = times(2, Fault.SLOW_DOWN, method="PUT")

The server is in a process of its own. The proxy is in this process; it sees every request, and counts it.
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
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import pytest

HOST = "127.0.0.1"
_SERVE = """
port=$0
"$@" >/dev/null &
server=$!
until (: < /dev/tcp/127.0.0.1/$port) 2>/dev/null; do sleep 0.1; done
echo $port
read -r _  # until the process that started this one is gone, however it went
kill $server
"""
_ENDS_IN_S = 30.0
_DELAY_S = 20.0
"""Longer than what clients wait for an answer: 3 s, and 10 s after an upload."""
_NOT_FORWARDED = frozenset({"connection", "expect", "transfer-encoding", "content-length"})


class Fault(Enum):
    """What can become of a request."""

    SERVER_ERROR = "answered with 500, not passed on"
    SLOW_DOWN = "answered with 503, not passed on"
    ACCESS_DENIED = "answered with 403, not passed on"
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


class ObjectStore(ABC):
    """A server as its clients see it, with a bucket, or container, at a time."""

    answers: ClassVar[Mapping[Fault, tuple[int, str]]]
    """Status and code of what is refused."""
    bucket: str
    secret_key: str

    def __init__(self, server_port: int, proxy: _Proxy) -> None:
        self._server_port = server_port
        self._proxy = proxy
        self.new_bucket()

    def new_bucket(self) -> None:
        """Go on with an empty bucket, without faults, and forget what was counted."""
        self.faults = no_faults
        self.requests.clear()
        self.struck.clear()
        self.bucket = f"bucket-{uuid.uuid4().hex}"
        self.make_bucket()

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

    def wait_for_parts(self, number: int, timeout_s: float = 60.0) -> None:
        """Wait until requests for so many parts of objects have come. Raises TimeoutError."""
        with self._proxy.came:
            if not self._proxy.came.wait_for(lambda: sum(map(self.is_part, self.requests)) >= number, timeout_s):
                raise TimeoutError(f"fewer than {number} parts came within {timeout_s} s")

    def methods(self) -> list[str]:
        """Return the methods of all requests since the last call, in the order in which they came."""
        methods = [request.method for request in self.requests]
        self.requests.clear()
        return methods

    @property
    def endpoint(self) -> str:
        """Host and port of the proxy."""
        return f"{HOST}:{self._proxy.server_port}"

    @abstractmethod
    def make_bucket(self) -> None:
        """Make the bucket, asking the server itself."""

    @abstractmethod
    def uri(self, path: str, *, bucket: str | None = None) -> str:
        """Return the URI of a path in the bucket, by way of the proxy."""

    @abstractmethod
    def objects(self) -> dict[str, int]:
        """Return the size in bytes of every object in the bucket, asking the server itself."""

    @abstractmethod
    def unfinished_uploads(self) -> int:
        """Return how many uploads of several parts were begun, and neither completed nor aborted."""

    @abstractmethod
    def is_part(self, request: Request) -> bool:
        """Return whether a request writes a part of an object."""


Store = TypeVar("Store", bound=ObjectStore)


@contextmanager
def running(store: type[Store], command: Sequence[str]) -> Iterator[Store]:
    """Start a server and the proxy, and stop both at the end.

    The server prints its port in a line of its own, and ends when its standard input does.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            port = int(next(line for line in iter(server.stdout) if line.strip().isdigit()))
            proxy = _Proxy(port, store.answers)
            thread = threading.Thread(target=proxy.serve_forever, daemon=True)
            thread.start()
            try:
                yield store(port, proxy)
            finally:
                proxy.stopping.set()
                proxy.shutdown()
                proxy.server_close()
                thread.join()
        finally:
            assert server.stdin is not None
            server.stdin.close()  # killed, it could not end what it has started
            server.wait(_ENDS_IN_S)


def on_free_port(program: Path, *arguments: str) -> list[str]:
    """Return the command that `running` needs, of a server that is told its port: `{}` in its arguments.

    A test is skipped where it is not installed.
    """
    if not program.exists():
        pytest.skip(f"{program.name} is not installed: see the Makefile")
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = str(free.getsockname()[1])
    return ["bash", "-c", _SERVE, port, str(program), *(argument.format(port) for argument in arguments)]


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, server_port: int, answers: Mapping[Fault, tuple[int, str]]) -> None:
        super().__init__((HOST, 0), _Handler)
        self.answers = answers
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
        elif fault in self.server.answers:
            self._answer(*self.server.answers[fault])
        else:
            status, headers, answer = forward(
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
        self.send_header("x-ms-error-code", code)  # where Azure's client looks for it
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _reset(self) -> None:
        # With nothing to linger for, closing sends RST in place of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        os.close(self.connection.detach())


def forward(
    port: int, method: str, target: str, headers: dict[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = HTTPConnection(HOST, port, timeout=60)
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
