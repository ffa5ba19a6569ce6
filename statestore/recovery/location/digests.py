"""Checksums of durable files: BLAKE2b of 128 bits, as hex."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

_DIGEST_SIZE_BYTES = 16
_CHUNK_BYTES = 4 << 20


def new_digest() -> blake2b:
    """Return a hash object, whose hexdigest is the checksum that is recorded of durable files."""
    return blake2b(digest_size=_DIGEST_SIZE_BYTES)


def digest(data: bytes | pa.Buffer) -> str:
    """Return the checksum that is recorded of a durable file, as hex."""
    hashed = new_digest()
    hashed.update(memoryview(data))
    return hashed.hexdigest()


def file_digest(path: Path) -> str:
    """Return the checksum of a local file, as recorded of durable ones."""
    hashed = new_digest()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return hashed.hexdigest()
