"""What signatures and ciphertexts are made of: ids of keys, and several fields as one run of bytes that no others have.

key_id    := size:u8 id:u8[size]                    UTF-8, 1 to 64 bytes, printable
canonical := { size:i32_be field:u8[size] }*        a size of -1 is a null field, which has no bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeGuard

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError

KEY_ID_BYTES_MAX: Final = 64
_SIZE: Final = struct.Struct(">i")
_NULL: Final = _SIZE.pack(-1)


def is_key_id(key_id: object) -> TypeGuard[str]:
    """Return whether something may be the id of a key."""
    return isinstance(key_id, str) and key_id.isprintable() and 0 < len(key_id.encode()) <= KEY_ID_BYTES_MAX


def sized_text(text: str) -> bytes:
    """Return a text of at most 255 bytes in UTF-8 behind its size."""
    data = text.encode()
    return bytes((len(data),)) + data


def read_sized_text(data: bytes, position: int, what: str) -> tuple[str, int]:
    """Return the text at a position, and the position behind it. Raises TruncatedError, FormatError for no UTF-8."""
    end = position + 1 + (data[position] if position < len(data) else 0)
    if end > len(data):
        raise TruncatedError(what, wanted=end - position, got=len(data) - position)
    try:
        return data[position + 1 : end].decode(), end
    except UnicodeDecodeError as cause:
        raise FormatError(what, "it is not UTF-8") from cause


def read_key_id(data: bytes, position: int) -> tuple[str, int]:
    """Return the key id at a position, and the position behind it. Raises what `read_sized_text` raises."""
    key_id, end = read_sized_text(data, position, "key id")
    if not is_key_id(key_id):
        raise FormatError("key id", "it is empty, too long or not printable")
    return key_id, end


def canonical_bytes(fields: Iterable[bytes | None]) -> bytes:
    """Return fields, each behind its size. Two lists of fields that differ make different bytes."""
    parts: list[bytes] = []
    for field in fields:
        parts += (_NULL,) if field is None else (_SIZE.pack(len(field)), field)
    return b"".join(parts)
