"""UTF-8 as Java writes and reads it: what is malformed is replaced, and is no error.

Source: `String.getBytes(UTF_8)` and `new String(bytes, UTF_8)`.
"""

from __future__ import annotations

import codecs
from typing import Final

_REPLACEMENT: Final = "\ufffd"
_LENIENT: Final = "statestore.java"
_LEAD_OF_SURROGATES: Final = 0xED


def encode_leniently(text: str) -> bytes:
    """Return the bytes of a text, with a question mark in place of each half of a surrogate pair without the other."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return paired.encode("utf-8", "replace")


def decode_leniently(content: bytes) -> str:
    """Return the text of bytes, with one U+FFFD in place of each sequence that is malformed, or of a surrogate."""
    return content.decode("utf-8", _LENIENT)


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    sequence = error.object[error.start : error.start + 3]
    if sequence[0] != _LEAD_OF_SURROGATES or not _continues(sequence[1:2]):
        return _REPLACEMENT, error.end
    # Python replaces each byte of an encoded surrogate.
    return _REPLACEMENT, error.start + (3 if _continues(sequence[2:3]) else 2)


def _continues(byte: bytes) -> bool:
    return bool(byte) and byte[0] & 0xC0 == 0x80


codecs.register_error(_LENIENT, _replace)
