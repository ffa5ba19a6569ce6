"""The server: a socket of its own, so that the caller can explain a port in use, and uvicorn on it."""

from __future__ import annotations

import secrets
import socket
from typing import Final

import uvicorn

from upgrade_tools.serve.guard import Application

_TOKEN_BYTES: Final = 24
_BACKLOG: Final = 128


def made_up_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once: else each waits for an acknowledgement, 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def serve(application: Application, listening: socket.socket) -> None:
    """Answer until a signal ends it. Requests are not logged: their addresses have keys."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run([listening])
