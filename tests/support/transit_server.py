"""The protocol of Vault's transit engine, as far as wrapping keys takes it.

Answers and errors are those of the engine of Vault 1.14.
"""

from __future__ import annotations

import json
import os
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from statestore.middleware.security.keys import AesKey

TOKEN = "hvs.a-token-of-tests"
_TOO_OLD = "ciphertext or signature version is disallowed by policy (too old)"


class Transit:
    """A server with a key `transit/orders`, which can be rotated, and that can be sealed."""

    def __init__(self) -> None:
        self.versions = [AesKey(os.urandom(32))]
        self.least_version = 1
        self.sealed = False
        self.token = TOKEN
        self.damage = ""
        """What is wrong inside of the server."""
        transit = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = transit.answer(self.path, self.headers["X-Vault-Token"], asked)
                body = json.dumps(answer).encode()
                self.send_response(status)
                for header in (("Content-Type", "application/json"), ("Content-Length", str(len(body)))):
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def rotate(self) -> None:
        self.versions.append(AesKey(os.urandom(32)))

    def answer(self, path: str, token: str | None, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if self.damage:
            return 500, {"errors": [self.damage]}
        if token != self.token:
            return 403, {"errors": ["permission denied"]}
        if path not in ("/v1/transit/encrypt/orders", "/v1/transit/decrypt/orders"):
            return 400, {"errors": ["encryption key not found"]}
        try:
            return 200, {"data": (self._encrypt if "encrypt" in path else self._decrypt)(asked)}
        except ValueError as error:
            return 400, {"errors": [str(error)]}

    def _encrypt(self, asked: dict[str, str]) -> dict[str, str]:
        nonce = os.urandom(12)
        data = nonce + self.versions[-1].encrypt(nonce, b64decode(asked["plaintext"]), _bound(asked))
        return {"ciphertext": f"vault:v{len(self.versions)}:{b64encode(data).decode()}"}

    def _decrypt(self, asked: dict[str, str]) -> dict[str, str]:
        if not asked["ciphertext"].startswith("vault:v"):
            raise ValueError("invalid ciphertext: no prefix")
        number, _, text = asked["ciphertext"].removeprefix("vault:v").partition(":")
        if int(number) > len(self.versions):
            raise ValueError("invalid ciphertext: version is too new")
        if int(number) < self.least_version:
            raise ValueError(_TOO_OLD)
        try:
            data = b64decode(text, validate=True)
        except ValueError:
            raise ValueError("invalid ciphertext: could not decode base64") from None
        if len(data) < 12:
            raise ValueError("invalid ciphertext length")
        found = self.versions[int(number) - 1].decrypt(data[:12], data[12:], _bound(asked))
        if found is None:
            raise ValueError("cipher: message authentication failed")
        return {"plaintext": b64encode(found).decode()}


def _bound(asked: dict[str, str]) -> bytes:
    return b64decode(asked.get("associated_data", ""))


@contextmanager
def running_transit() -> Iterator[Transit]:
    """Start a server, and stop it at the end."""
    transit = Transit()
    try:
        yield transit
    finally:
        transit.server.shutdown()
        transit.server.server_close()
