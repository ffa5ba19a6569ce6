"""Who may ask, and what each answer says to browsers: ASGI around the application."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"
Application: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_API: Final = "/api/"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host's name or address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets GET and HEAD requests through: on loopback if they name it as host, to `/api/` if they have the token.

    A foreign site may point its own name at this machine (DNS rebinding): its requests then name that host. The files
    of the page hold no state, and need no token.
    """

    def __init__(self, inner: Application, *, token: str | None, only_loopback: bool) -> None:
        self._inner = inner
        self._token = token
        self._only_loopback = only_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application answer it."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *_HEADERS]
                if scope["path"].startswith(_API) or not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._inner(scope, receive, send_guarded)
            return
        status, text = refusal
        fields = [(b"content-type", b"application/json")]
        if status == 401:
            fields.append((b"www-authenticate", b"Bearer"))
        if status == 405:
            fields.append((b"allow", b"GET, HEAD"))
        await send_guarded({"type": "http.response.start", "status": status, "headers": fields})
        await send_guarded({"type": "http.response.body", "body": json.dumps({"error": text}).encode()})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._only_loopback:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if not is_loopback(name.removeprefix("[").removesuffix("]")):
                return 421, "this serves its own machine only: open it as localhost, or by a loopback address"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "only GET: what is served can't be changed"
        if scope["path"].startswith(_API) and headers.get(b"sec-fetch-site", b"none") == b"cross-site":
            return 403, "a page of another site asks: answers are for the page that is served here"
        if self._token is not None and scope["path"].startswith(_API):
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            is_right = hmac.compare_digest(given.strip(), self._token.encode())
            if scheme.lower() != b"bearer" or not is_right:
                return 401, "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`"
        return None
