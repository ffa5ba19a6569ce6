"""Keys, values and header values as people write and read them: text, or 0x and hex.

    TEXT          its UTF-8 bytes
    0x00ff        the bytes in hex, of either case
    text:TEXT     the UTF-8 bytes of TEXT, whatever it begins with

What `text_of` returns uncut, `bytes_of` takes back.
"""

from __future__ import annotations

from typing import Final

_HEX: Final = "0x"
_TEXT: Final = "text:"
_MAX_SHOWN_BYTES: Final = 60


def bytes_of(text: str) -> bytes:
    """Return the bytes that a command's argument stands for. Raises ValueError if 0x is not followed by hex."""
    if text.startswith(_TEXT):
        return _encoded(text.removeprefix(_TEXT))
    if text.lower().startswith(_HEX):
        try:
            return bytes.fromhex(text[len(_HEX) :])
        except ValueError as cause:
            raise ValueError(f"{text!r} is not hex ({cause}); text that begins so is given as {_TEXT}{text}") from cause
    return _encoded(text)


def text_of(content: bytes | None, *, limit_bytes: int = _MAX_SHOWN_BYTES) -> str:
    """Return bytes as text if they are printable UTF-8, else as hex; of long ones the beginning, and their size."""
    if content is None:
        return "null"
    cut = content[:limit_bytes]
    more = "" if len(content) <= limit_bytes else f"...({len(content)} bytes)"
    try:
        # A cut may go through the middle of a character.
        text = cut.decode() if not more else cut.decode(errors="ignore")
    except UnicodeDecodeError:
        return f"{_HEX}{cut.hex()}{more}"
    if not text.isprintable() or (more and len(text.encode()) < len(cut) - 3):
        return f"{_HEX}{cut.hex()}{more}"
    reads_as_other = text.lower().startswith(_HEX) or text.startswith(_TEXT) or text in ("", "null")
    return f"{_TEXT if reads_as_other else ''}{text}{more}"


def _encoded(text: str) -> bytes:
    # Arguments that are not UTF-8 come with surrogates, and are the bytes that they were.
    return text.encode(errors="surrogateescape")
