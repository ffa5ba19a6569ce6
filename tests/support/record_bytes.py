"""Bytes of records and messages by hand, with the size and checksum that go before what they hold."""

from __future__ import annotations

import struct
import zlib


def record_bytes(held: str) -> bytes:
    """Return a record v2 that holds these bytes, given as hex; they are at most 63."""
    data = bytes.fromhex(held)
    return bytes([2 * len(data)]) + data


def message_bytes(checked: str) -> bytes:
    """Return a message v0 or v1 at offset 0 whose bytes behind its checksum are these, given as hex."""
    data = bytes.fromhex(checked)
    return struct.pack(">qiI", 0, 4 + len(data), zlib.crc32(data)) + data
