"""Several fields as one run of bytes that no others have: for what is signed, and what a ciphertext is bound to.

canonical := { size:i32_be field:u8[size] }*        a size of -1 is a null field, which has no bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

_SIZE: Final = struct.Struct(">i")
_NULL: Final = _SIZE.pack(-1)


def canonical_bytes(fields: Iterable[bytes | None]) -> bytes:
    """Return fields, each behind its size. Two lists of fields that differ make different bytes."""
    parts: list[bytes] = []
    for field in fields:
        parts += (_NULL,) if field is None else (_SIZE.pack(len(field)), field)
    return b"".join(parts)
